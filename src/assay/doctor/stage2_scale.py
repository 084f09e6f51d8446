"""Stage 2: do the logged advantages have the size that the rewards give?"""

from __future__ import annotations

import math

import numpy as np

from assay.doctor.catalogue import fail, finding, fine, skip
from assay.doctor.conventions import fitted_epsilon, moments
from assay.doctor.stage2_advantage import MATCH, Tables, whole_groups
from assay.doctor.stage2_groups import zero_metric
from assay.doctor.trend import Floats, finite
from assay.doctor.view import View
from assay.records.finding import Finding

EPSILON_FAIL, EPSILON_WARN = 1.0, 0.25
"""Epsilon over the median standard deviation of the groups with spread: at 1 the advantages are halved."""


def _spreads(view: View) -> Floats:
    """Standard deviations of the groups with spread, or the logged mean ones."""
    if view.groups is not None and (view.groups.known >= 2).any():
        return view.groups.std[~view.flat & (view.groups.known >= 2)]
    known = finite(view.metric("group_std"))
    if known.size == 0:  # half the range bounds every standard deviation from above
        low, high = view.metric("reward_min"), view.metric("reward_max")
        known = finite((high - low) / 2) if low is not None and high is not None else known
    return known[known > 0]


def epsilon(view: View) -> Finding:
    """The epsilon, as configured or as the advantages imply it, against the spread of the groups."""
    id = "advantage.epsilon"
    view = view.shaped
    configured = view.number("advantage_epsilon")
    tables = whole_groups(view)
    spreads = _spreads(view)
    implied, share = (math.nan, 0.0)
    if tables is not None and not tables.fit.share >= MATCH:
        implied, share = fitted_epsilon(tables.rows)
        implied = implied if share >= MATCH else math.nan
    known = implied if math.isfinite(implied) else configured
    if not math.isfinite(known) and tables is None:
        return skip(id)
    if spreads.size == 0:
        return skip(id, "groups with spread in their rewards")
    typical = float(np.median(spreads))
    evidence = {"epsilon": known, "configured": configured, "implied": implied, "median_std_of_groups": typical,
                "explained": share, "limit": EPSILON_FAIL * typical}  # fmt: skip
    if (
        tables is not None
        and tables.fit.share >= MATCH
        and not (configured > EPSILON_FAIL * typical and _shrunk(tables))
    ):
        return fine(view, id, evidence | {"formula": tables.fit.name})
    if math.isfinite(known) and known > EPSILON_WARN * typical and not _no_std(view):
        status = "fail" if known > EPSILON_FAIL * typical else "warn"
        factor = typical / (typical + known)
        return finding(
            view,
            id,
            status,
            f"epsilon {known:.3g} against a group spread of {typical:.3g} shrinks advantages to {factor:.1%}",
            evidence,
        )
    return fine(view, id, evidence)


def _no_std(view: View) -> bool:
    """Whether the method does not divide by the standard deviation at all."""
    scale = view.config.get("scale_rewards")
    name = view.word("algorithm")
    return (
        scale in (False, "none", "False", "false")
        or "rloo" in name
        or "dr_grpo" in name
        or view.word("loss_type") == "dr_grpo"
    )


def _shrunk(tables: Tables) -> bool:
    _, std, _ = moments(tables.rows.reward, tables.rows.index)
    varied = std > 0
    return bool(varied.any()) and float(np.median(np.abs(tables.rows.advantage[varied]))) < 0.3


_SMALLEST = {"float16": 6e-8, "fp16": 6e-8, "half": 6e-8, "torch.float16": 6e-8}
_DIGITS = {
    "bfloat16": 2.0**-8,
    "bf16": 2.0**-8,
    "torch.bfloat16": 2.0**-8,
    **dict.fromkeys(_SMALLEST, 2.0**-11),
}


def dtype(view: View) -> Finding:
    """Epsilon is 0 in its dtype, or the rewards' differences are below the dtype's digits."""
    id = "advantage.dtype"
    view = view.shaped
    name, value = view.word("advantage_dtype"), view.number("advantage_epsilon")
    broken = _zero_by_zero(view)
    if not name and not math.isfinite(value) and broken is None:
        return skip(id)
    evidence = {
        "dtype": name or None,
        "epsilon": value,
        "smallest_number": _SMALLEST.get(name),
        "nan_only_without_spread": broken,
    }
    if name in _SMALLEST and value < _SMALLEST[name] / 2:
        return fail(
            view,
            id,
            f"epsilon {value:g} is 0 in {name} (smallest number {_SMALLEST[name]:g}): groups "
            f"without spread give 0/0",
            evidence,
        )
    if value == 0 and broken is not False and not _no_std(view):
        status = "fail" if broken else "warn"
        return finding(view, id, status, "epsilon is 0: a group without spread gives 0/0", evidence)
    if broken:
        return fail(
            view,
            id,
            "advantages are NaN exactly where a group has no spread: epsilon is 0 in the dtype used",
            evidence,
        )
    lost = _digits_lost(view, name)
    if lost is not None:
        return fail(
            view,
            id,
            f"{name} keeps too few digits for these rewards: advantages are off by {lost:.0%}",
            evidence | {"error": lost},
        )
    return fine(view, id, evidence)


def _zero_by_zero(view: View) -> bool | None:
    """Whether advantages are non-finite in groups without spread and only there; None without groups."""
    groups = view.groups
    if groups is None or not view.has("advantage") or not (groups.known >= 2).any():
        return None
    logged = view.rows["advantage"].is_not_null().to_numpy() & (groups.of_row >= 0)
    bad = logged & ~np.isfinite(view.advantage)
    flat = view.flat[np.maximum(groups.of_row, 0)]
    return bool(bad.sum() >= 2 and flat[bad].all() and bad[flat & logged].mean() > 0.5)


def _digits_lost(view: View, name: str) -> float | None:
    """Largest error of the z-scores when rewards are rounded to the dtype; None where it is below 10%."""
    groups = view.groups
    if name not in _DIGITS or groups is None:
        return None
    varied = ~view.flat & (groups.known >= 2) & (groups.std > 0)
    step = _DIGITS[name] * np.abs(groups.mean[varied])
    worst = step / groups.std[varied]
    share = float(np.median(worst)) if worst.size else 0.0
    return share if share > 0.1 else None


def _size_ratio(view: View) -> tuple[float, dict[str, float]] | None:
    """Logged size of the advantages over the size that the rewards give (the smaller of z-score and difference)."""
    groups = view.groups
    if groups is not None and view.has("advantage") and (~view.flat & (groups.known >= 2)).any():
        index = groups.of_row
        use = (index >= 0) & np.isfinite(view.advantage) & np.isfinite(view.reward)
        use &= (~view.flat & (groups.known >= 2))[np.maximum(index, 0)]
        if use.sum() < 8:
            return None
        away = np.abs(view.reward - groups.mean[index])[use]
        expected = float(np.median(np.minimum(away, away / groups.std[index][use])))
        logged = float(np.median(np.abs(view.advantage[use])))
        return (
            (logged / expected, {"median_advantage": logged, "expected": expected}) if expected > 0 else None
        )
    ends = [view.metric(name) for name in ("advantage_max", "advantage_min")]
    low, high = view.metric("reward_min"), view.metric("reward_max")
    spread = view.metric("group_std")
    if ends[0] is None or ends[1] is None:
        return None
    largest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
    if low is not None and high is not None:
        varied = (high - low) > 0
        expected = np.minimum(1.0, (high - low) / 2)
    elif spread is not None:
        varied, expected = spread > 0, np.minimum(1.0, spread)
    else:
        return None
    use = varied & np.isfinite(largest)
    if use.sum() < 5:
        return None
    logged = float(np.median(largest[use]))
    return logged / float(np.median(expected[use])), {
        "largest_advantage": logged,
        "reward_spread": float(np.median(expected[use])),
    }


def collapsed(view: View) -> Finding:
    """Advantages far smaller than the rewards give, by whatever cause."""
    id = "advantage.collapsed"
    view = view.shaped
    found = _size_ratio(view)
    if found is None:
        return skip(id)
    ratio, evidence = found
    if ratio < 0.2 and (view.groups is not None or not _could_be_flat(view)):
        summary = f"advantages have {ratio:.1%} of the size that their rewards give"
        return fail(view, id, summary, {**evidence, "ratio": ratio, "limit": 0.2})
    return fine(view, id, {**evidence, "ratio": ratio})


def _could_be_flat(view: View) -> bool:
    """Whether the metrics leave it open that no group has spread (then small advantages are no fault of their own)."""
    share = finite(zero_metric(view))
    return bool(share.size and share.mean() > 0.9)
