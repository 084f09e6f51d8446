"""Stage 2: do the logged advantages follow from the logged rewards?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay.doctor.catalogue import fail, finding, fine, skip
from assay.doctor.conventions import (
    Fit,
    Whole,
    best_fit,
    fitted_epsilon,
    moments,
    same_reward_other_advantage,
)
from assay.doctor.stage2_groups import mixed_prompts, zero_metric
from assay.doctor.trend import Floats, finite, wilson
from assay.doctor.view import View
from assay.records.finding import Finding

EPSILON_FAIL, EPSILON_WARN = 1.0, 0.25
"""Epsilon over the median standard deviation of the groups with spread: at 1 the advantages are halved."""
RARE = 0.01
"""Share of the rows below which a fault of single groups warns only."""
MATCH = 0.7
"""A formula explains a log when it gives at least this share of the advantages (cut samples may be set to 0)."""


@dataclass(frozen=True)
class Tables:
    """Whole groups with finite advantages, and the best known formula for them."""

    rows: Whole
    row_numbers: np.ndarray
    fit: Fit


def whole_groups(view: View) -> Tables | None:
    """Rows of whole groups with an advantage each; None where there are none of size 2 and more."""
    groups = view.groups
    if groups is None or not view.has("advantage") or (view.group_size or 0) < 2:
        return None
    usable = np.isfinite(view.advantage) & (groups.of_row >= 0)
    usable &= view.complete[np.maximum(groups.of_row, 0)]
    if usable.sum() < 4:
        return None
    index = np.unique(groups.of_row[usable], return_inverse=True)[1].astype(np.int64)
    rows = Whole(view.reward[usable], view.advantage[usable], index, view.step[usable], view.group_size or 0)
    return Tables(rows, np.flatnonzero(usable), best_fit(rows))


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


def inverted(view: View) -> Finding:
    """Within groups the advantage falls with the reward."""
    id = "advantage.inverted"
    view = view.shaped
    groups = view.groups
    if groups is None or not view.has("advantage"):
        return skip(id)
    use = np.isfinite(view.advantage) & np.isfinite(view.reward) & (groups.of_row >= 0)
    if use.sum() < 8:
        return skip(id)
    index = np.unique(groups.of_row[use], return_inverse=True)[1].astype(np.int64)
    reward = view.reward[use] - moments(view.reward[use], index)[0]
    advantage = view.advantage[use] - moments(view.advantage[use], index)[0]
    products = np.bincount(index, reward * advantage)
    negative, counted = int((products < -1e-12).sum()), int((np.abs(products) > 1e-12).sum())
    low, _ = wilson(negative, counted, 3.1)
    evidence = {"groups": counted, "inverted": negative, "lower_bound": low}
    if counted >= 3 and low > 0.5:
        return fail(
            view,
            id,
            f"in {negative} of {counted} groups the better completion has the lower advantage",
            evidence,
            view.refs(np.flatnonzero(use)),
        )
    return fine(view, id, evidence)


def grouping(view: View) -> Finding:
    """Advantages taken over other rows than the prompt's own: by position, or over mixed prompts."""
    id = "advantage.grouping"
    view = view.shaped
    mixed = mixed_prompts(view)
    if mixed is not None and mixed[0] > 0.5:
        return fail(
            view,
            id,
            f"{mixed[0]:.0%} of the groups hold several prompts under one id",
            {"share": mixed[0]},
            view.refs(mixed[1]),
        )
    tables = whole_groups(view)
    if tables is None:
        return skip(id) if mixed is None else fine(view, id, {"groups_with_several_prompts": mixed[0]})
    if tables.fit.share >= MATCH or (not math.isfinite(tables.fit.share) and not _position_signal(tables)):
        return fine(view, id, {"formula": tables.fit.name, "explained": tables.fit.share})
    by_place = _by_position(view, tables)
    clash = same_reward_other_advantage(tables.rows)
    evidence = {"explained_by_id": tables.fit.share, "explained_by_position": by_place, "formula": tables.fit.name,
                "groups_with_equal_rewards_and_other_advantages": clash}  # fmt: skip
    if by_place >= MATCH and by_place > (tables.fit.share if math.isfinite(tables.fit.share) else 0) + 0.2:
        return fail(
            view,
            id,
            "the advantages fit groups cut by position, not by prompt",
            evidence,
            view.refs(tables.row_numbers),
        )
    if clash > 0.5 and view.is_group_method is not False and _looks_standardised(tables):
        return fail(
            view,
            id,
            f"in {clash:.0%} of the groups equal rewards have different advantages: the baseline "
            f"is not the group's",
            evidence,
            view.refs(tables.row_numbers),
        )
    return fine(view, id, evidence)


def _position_signal(tables: Tables) -> bool:
    return bool((np.abs(tables.rows.advantage) > 1e-3).mean() > 0.3)


def _looks_standardised(tables: Tables) -> bool:
    """Few distinct advantages a step for few distinct rewards, as z-scores of other groups give."""
    rewards = np.unique(np.round(tables.rows.reward, 6)).size
    values = np.unique(np.round(tables.rows.advantage, 4)).size
    return rewards > 3 or values <= 6 * tables.rows.size * max(1, rewards)


def _by_position(view: View, tables: Tables) -> float:
    """Share of advantages that a known formula gives when rows are cut into groups of G in file order."""
    size = tables.rows.size
    rows = tables.rows
    index = np.empty(rows.index.size, np.int64)
    start = 0
    for step in np.unique(rows.step):
        where = np.flatnonzero(rows.step == step)
        index[where] = start + np.arange(where.size) // size
        start = int(index[where].max()) + 1
    return best_fit(Whole(rows.reward, rows.advantage, index, rows.step, size)).share


def noise(view: View) -> Finding:
    """Groups without spread whose advantages are not 0 though the others follow a group formula."""
    id = "advantage.noise"
    view = view.shaped
    tables = whole_groups(view)
    groups = view.groups
    if tables is None or groups is None:
        return skip(id)
    if (
        not (tables.fit.share >= MATCH and tables.fit.name.startswith(("group", "mean of the others")))
        or "whitened" in tables.fit.name
        or "batch mean" in tables.fit.name
    ):
        return _beyond_bound(view, id, tables)
    flat = view.flat[groups.of_row[tables.row_numbers]]
    loud = flat & (np.abs(tables.rows.advantage) > 0.01)
    evidence = {
        "rows_without_spread": int(flat.sum()),
        "with_advantage": int(loud.sum()),
        "formula": tables.fit.name,
    }
    if loud.sum() >= 2:
        largest = float(np.abs(tables.rows.advantage[loud]).max())
        summary = (
            f"groups without spread have advantages up to {largest:.3g}: float residue was divided by itself"
        )
        status = (
            "fail" if loud.sum() >= RARE * loud.size else "warn"
        )  # a step among hundreds does little harm
        return finding(
            view, id, status, summary, evidence | {"largest": largest}, view.refs(tables.row_numbers[loud])
        )
    return _beyond_bound(view, id, tables)


def _beyond_bound(view: View, id: str, tables: Tables) -> Finding:
    """A z-score of n values cannot exceed (n-1)/sqrt(n) with ddof 1, sqrt(n-1) with ddof 0: 20 times that is a bug."""
    bound = math.sqrt(max(tables.rows.size - 1, 1))
    span = float(np.ptp(tables.rows.reward)) if tables.rows.reward.size else 0.0
    beyond = np.abs(tables.rows.advantage) > max(20 * bound, 2 * span)
    evidence = {"bound": bound, "beyond": int(beyond.sum())}
    if beyond.any():
        return fail(
            view,
            id,
            "advantages are far larger than any z-score of the group can be",
            evidence,
            view.refs(tables.row_numbers[beyond]),
        )
    return fine(view, id, evidence)


def mismatch(view: View) -> Finding:
    """No known baseline, ddof and epsilon gives the logged advantages."""
    id = "advantage.mismatch"
    view = view.shaped
    tables = whole_groups(view)
    if tables is None:
        return skip(id)
    if not math.isfinite(tables.fit.share):
        return skip(id, "groups with spread in their rewards")
    evidence = {
        "formula": tables.fit.name,
        "explained": tables.fit.share,
        "epsilon": tables.fit.epsilon,
        "limit": MATCH,
    }
    if tables.fit.share >= MATCH:
        return fine(view, id, evidence)
    if view.is_group_method is False:
        return skip(id, "a group-relative method (this one has its own baseline)")
    varied = int((~view.flat & view.complete).sum())
    certain = view.is_group_method is True and varied >= 6 and math.isfinite(view.number("group_size"))
    summary = (
        f"no known formula gives the logged advantages (the best, {tables.fit.name}, gives "
        f"{tables.fit.share:.0%})"
    )
    return finding(view, id, "fail" if certain else "warn", summary, evidence, view.refs(tables.row_numbers))


def non_finite(view: View) -> Finding:
    """NaN or infinity among the advantages."""
    id = "advantage.non_finite"
    view = view.shaped
    logged = [
        view.run.metrics[n].drop_nulls()
        for n in ("advantage_mean", "advantage_max", "advantage_min")
        if n in view.run.metrics.columns
    ]
    if not view.has("advantage") and not logged:
        return skip(id)
    bad = np.empty(0, np.int64)
    if view.has("advantage"):
        bad = np.flatnonzero(
            (
                view.rows["advantage"].is_not_null() & ~view.rows["advantage"].is_finite().fill_null(True)
            ).to_numpy()
        )
    steps = int(sum((~series.is_finite()).sum() for series in logged))
    if bad.size or steps:
        evidence = {"rollouts": bad.size, "steps": steps}
        return fail(
            view,
            id,
            f"{bad.size} advantages and {steps} logged values are NaN or infinite",
            evidence,
            view.refs(bad),
        )
    return fine(view, id)
