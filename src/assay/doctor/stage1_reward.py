"""Stage 1: is there a reward signal, and does it say what is right?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.trend import Floats, finite, wilson
from assay.doctor.view import View
from assay.records.finding import Finding

MISSING_FAIL, MISSING_WARN = 0.2, 0.05
CONSTANT_ROWS, CONSTANT_STEPS = 64, 10
RELATED, INVERTED = 0.3, -0.25
"""A reward whose correlation with truth inside groups is surely below the first is unrelated (noisy checkers reach
0.4); below the second it is inverted: one that hashes the text is that far off by chance where few texts are right."""


def non_finite(view: View) -> Finding:
    """NaN or infinity among the rewards, in rollouts or in the metrics."""
    id = "reward.non_finite"
    metric = view.metric("reward")
    if metric is None and not view.has("reward"):
        return skip(id)
    bad = _bad_rows(view)
    logged = (
        view.run.metrics["reward"].drop_nulls() if metric is not None else pl.Series([], dtype=pl.Float64)
    )
    broken = int((~logged.is_finite()).sum())
    if bad.size or broken:
        evidence = {
            "rollouts": bad.size,
            "of_rollouts": view.rows.height,
            "steps": broken,
            "of_steps": logged.len(),
        }
        summary = f"{bad.size} rewards and {broken} mean rewards are NaN or infinite"
        return fail(view, id, summary, evidence, view.refs(bad))
    return fine(view, id)


def _bad_rows(view: View) -> np.ndarray:
    if not view.has("reward"):
        return np.empty(0, np.int64)
    bad = pl.col("reward").is_not_null() & ~pl.col("reward").is_finite()
    if view.has("reward_state"):
        bad &= pl.col("reward_state").fill_null("scored").is_in(["scored", "crashed"])
    mask = view.rows.select(bad.alias("bad"))["bad"].fill_null(False).to_numpy()
    return np.flatnonzero(mask)


def missing(view: View) -> Finding:
    """Completions without a score: more than a fifth is a failure, more than one in twenty a warning."""
    id = "reward.missing"
    share = view.metric("missing")
    if view.has("reward"):
        lost = view.rows["reward"].is_null().to_numpy()
        if view.has("reward_shape"):
            lost &= view.rows["reward_shape"].is_null().to_numpy()
        count, total, rows = int(lost.sum()), lost.size, np.flatnonzero(lost)
    elif share is not None:
        known = finite(share)
        count, total, rows = float(known.sum()), known.size, np.empty(0, np.int64)
    elif view.rows.height and view.has("completion") and view.has("reward_state"):
        count = total = view.rows.height
        rows = np.arange(total)
    else:
        return skip(id)
    low, _ = wilson(count, total, 3.0)
    evidence = {"missing": count, "of": total, "lower_bound": low, "limits": [MISSING_WARN, MISSING_FAIL]}
    if count / max(total, 1) > MISSING_FAIL and low > MISSING_WARN:
        return fail(
            view, id, f"{count / total:.0%} of the completions have no score", evidence, view.refs(rows)
        )
    if count / max(total, 1) > MISSING_WARN:
        return warn(
            view, id, f"{count / total:.0%} of the completions have no score", evidence, view.refs(rows)
        )
    return fine(view, id, evidence)


def wrong_shape(view: View) -> Finding:
    """Rewards that are lists, texts or other things than one number."""
    id = "reward.wrong_shape"
    if not view.has("reward") and not view.has("reward_shape"):
        return skip(id)
    if view.has("reward_shape"):
        rows = np.flatnonzero(view.rows["reward_shape"].is_not_null().to_numpy())
        kinds = view.rows["reward_shape"].drop_nulls().unique().sort().to_list()
        summary = f"{rows.size} of {view.rows.height} rewards are no number but {', '.join(kinds)}"
        return fail(view, id, summary, {"types": kinds, "rows": rows.size}, view.refs(rows))
    return fine(view, id)


def constant(view: View) -> Finding:
    """One value everywhere, in the rollouts and in the metrics alike."""
    id = "reward.constant"
    rows, means = finite(view.reward), finite(view.metric("reward"))
    if rows.size == 0 and means.size == 0:
        return skip(id)
    spreads = [finite(view.metric(n)) for n in ("group_std", "reward_std")]
    ends = [finite(view.metric(n)) for n in ("reward_min", "reward_max")]
    seen = np.concatenate([rows, means, *ends])
    scale = max(1e-12, float(np.abs(seen).max()))
    value = float(seen[0])
    varies = np.ptp(seen) > 1e-9 * scale or any((s > 1e-9 * scale).any() for s in spreads)
    evidence = {"value": value, "rollouts": rows.size, "steps": means.size}
    if varies:
        return fine(view, id, {"lowest": float(seen.min()), "highest": float(seen.max())})
    right = int((view.truth >= 0.5).sum())
    wrong = int((view.truth < 0.5).sum())
    truth = finite(view.metric("truth"))
    evidence |= {
        "right": right,
        "wrong": wrong,
        "held_out_truth": float(truth.mean()) if truth.size else None,
    }
    enough = rows.size >= CONSTANT_ROWS or means.size >= CONSTANT_STEPS or (right >= 3 and wrong >= 3)
    known = (
        f"although {right} of {right + wrong} completions are right"
        if right and wrong
        else "for every completion"
    )
    return finding(
        view, id, "fail" if enough else "warn", f"the reward is {value:g} everywhere, {known}", evidence
    )


def _within(view: View, use: np.ndarray, *, at_fixed_length: bool = False) -> tuple[float, float, int]:
    """Correlation of reward and truth inside groups, its standard error, and the rows of informative groups.

    At fixed length: what the length pays is taken out of the reward before (a pay for length is not no relation).
    """
    groups = view.groups
    if groups is None:
        return math.nan, math.nan, 0
    keep = use & np.isfinite(view.reward) & np.isfinite(view.truth) & (groups.of_row >= 0)
    index = groups.of_row[keep]
    reward, truth = (
        centred(view.reward[keep], index, len(groups)),
        centred(view.truth[keep], index, len(groups)),
    )
    both = (np.bincount(index, reward**2, len(groups)) > 1e-12) & (
        np.bincount(index, truth**2, len(groups)) > 1e-12
    )
    inside = both[index]
    reward, truth, index = reward[inside], truth[inside], index[inside]
    if at_fixed_length:
        reward = _without_length(view.column("length")[keep][inside], reward, index, len(groups))
    count, degrees = int(inside.sum()), int(inside.sum()) - int(both.sum())
    power = float((reward**2).sum() * (truth**2).sum())
    if degrees < 8 or not power > 1e-18:
        return math.nan, math.nan, count
    rho = float((reward * truth).sum() / math.sqrt(power))
    return rho, math.sqrt(max(1e-9, 1 - rho * rho) / degrees), count


def _without_length(length: Floats, reward: Floats, index: np.ndarray, groups: int) -> Floats:
    """Centred rewards minus their regression on the length inside groups; NaN where a length is unknown."""
    if not np.isfinite(length).all():
        return np.full_like(reward, math.nan)
    long = centred(length, index, groups)
    power = float((long**2).sum())
    return reward - long * float((long * reward).sum()) / power if power > 1e-12 else reward


def centred(values: Floats, index: np.ndarray, groups: int) -> Floats:
    """Values minus the mean of their group. values: (N,), index: (N,) group numbers below ``groups``."""
    counts = np.maximum(np.bincount(index, minlength=groups), 1)
    return values - (np.bincount(index, values, groups) / counts)[index]


def _early(view: View) -> np.ndarray:
    steps = np.unique(view.step)
    return (
        view.step <= steps[(steps.size - 1) // 2] if steps.size > 1 else np.ones(view.step.size, dtype=bool)
    )


def unrelated_to_truth(view: View) -> Finding:
    """The reward varies inside groups, and its correlation with truth there is surely small from the start.

    Early rows are judged apart: a reward that was related and stopped to be is hacked, not unrelated.
    """
    id = "reward.unrelated_to_truth"
    view = view.judged
    if view.groups is None or not view.has("truth", "reward"):
        return skip(id)
    rho, error, count = _within(view, np.ones(view.step.size, dtype=bool))
    early, early_error, _ = _within(view, _early(view))
    if not math.isfinite(rho):
        return skip(id, "more groups in which reward and truth both vary")
    at_length, _, _ = _within(view, np.ones(view.step.size, dtype=bool), at_fixed_length=True)
    evidence = {"correlation": rho, "standard_error": error, "early": early, "at_fixed_length": at_length,
                "rows": count, "limit": RELATED}  # fmt: skip
    low = (
        rho + 3.1 * error < RELATED
        and early + 2.3 * early_error < RELATED + 0.15
        and rho > _inverted_below(view)
    )
    if low and not at_length > RELATED:
        summary = (
            f"inside groups the reward has no relation to the truth (correlation {rho:.2f} ± {2 * error:.2f})"
        )
        return fail(view, id, summary, evidence, _contradictions(view))
    return fine(view, id, evidence)


def _inverted_below(view: View) -> float:
    """The correlation below which a reward is turned round.

    Rewards handed to the wrong completions of their own group correlate by -1 / (G - 1) with what they belong to:
    that is no relation, not a wrong sign. Of two completions nobody can tell.
    """
    size = float(np.median(view.groups.size)) if view.groups is not None and len(view.groups) else 2.0
    return INVERTED if size < 3 else min(INVERTED, -1 / (size - 1) - 0.1)


def _contradictions(view: View) -> tuple:
    """Rows that are paid and wrong, or right and unpaid."""
    low, high = view.scale
    paid = view.reward >= (low + high) / 2
    clash = np.isfinite(view.reward) & np.isfinite(view.truth) & (paid != (view.truth >= 0.5))
    return view.refs(np.flatnonzero(clash))


def inverted(view: View) -> Finding:
    """Inside groups right completions are paid less than wrong ones, early in the run too."""
    id = "reward.inverted"
    view = view.judged
    if view.groups is None or not view.has("truth", "reward"):
        return skip(id)
    rho, error, count = _within(view, np.ones(view.step.size, dtype=bool))
    early, early_error, _ = _within(view, _early(view))
    if not math.isfinite(rho):
        return skip(id, "more groups in which reward and truth both vary")
    evidence = {"correlation": rho, "standard_error": error, "early": early, "rows": count}
    if rho <= _inverted_below(view) and rho < -4 * error and early < -2 * early_error:
        summary = f"right completions are paid less than wrong ones (correlation {rho:.2f} inside groups)"
        return fail(view, id, summary, evidence, _contradictions(view))
    return fine(view, id, evidence)


def component_dominates(view: View) -> Finding:
    """One part of a composed reward makes nearly all its spread, and correctness is not that part."""
    id = "reward.component_dominates"
    names = [name for name in view.rows.columns if name.startswith("part:")]
    if len(names) >= 2 and view.groups is not None:
        return _parts_of_rows(view, id, names)
    spreads = {
        name.split(":", 1)[1].rsplit(":", 1)[0]: values
        for name in view.run.metrics.columns
        if name.startswith("part:") and name.endswith(":std") and (values := view.metric(name)) is not None
    }
    if len(spreads) < 2:
        return skip(id)
    return _parts_of_metrics(view, id, spreads)


_CORRECT = ("correct", "accuracy", "acc", "answer", "solved", "truth", "exact")


def _is_correctness(name: str) -> bool:
    return any(word in name.lower() for word in _CORRECT)


def _parts_of_rows(view: View, id: str, names: list[str]) -> Finding:
    groups = view.groups
    assert groups is not None
    parts = {name.removeprefix("part:"): view.column(name) for name in names}
    keep = (groups.of_row >= 0) & np.all([np.isfinite(v) for v in (*parts.values(), view.reward)], axis=0)
    index = groups.of_row[keep]
    total = centred(view.reward[keep], index, len(groups))
    power = float((total**2).sum())
    if keep.sum() < 40 or power <= 1e-12:
        return fine(view, id)
    weights = _weights(view, list(parts))
    by_part = {name: weights[name] * centred(v[keep], index, len(groups)) for name, v in parts.items()}
    shares = {name: float((value * total).sum() / power) for name, value in by_part.items()}
    return _judge_parts(view, id, shares, _truth_of_part(view, keep, by_part))


def _weights(view: View, names: list[str]) -> dict[str, float]:
    """Weights of the parts: as configured, else those that give the reward by least squares."""
    given = view.config.get("reward_weights")
    if (
        isinstance(given, list)
        and len(given) == len(names)
        and all(isinstance(w, int | float) for w in given)
    ):
        return dict(zip(names, map(float, given), strict=True))
    columns = np.stack([view.column(f"part:{name}") for name in names], axis=1)
    keep = np.isfinite(columns).all(axis=1) & np.isfinite(view.reward)
    solved = np.linalg.lstsq(columns[keep], view.reward[keep], rcond=None)[0]
    return {name: float(w) for name, w in zip(names, solved, strict=True)}


def _truth_of_part(view: View, keep: np.ndarray, by_part: dict[str, Floats]) -> dict[str, float]:
    """Correlation of each part with truth inside groups, where truth is known."""
    groups = view.groups
    assert groups is not None
    truth = view.truth[keep]
    if not np.isfinite(truth).all() or truth.size == 0:
        return {}
    truth = centred(truth, groups.of_row[keep], len(groups))
    power = float((truth**2).sum())
    return {
        name: float((value * truth).sum() / math.sqrt(power * own))
        if power > 0 and (own := float((value**2).sum())) > 0
        else 0.0
        for name, value in by_part.items()
    }


def _judge_parts(view: View, id: str, shares: dict[str, float], truth: dict[str, float]) -> Finding:
    name, share = max(shares.items(), key=lambda pair: pair[1])
    evidence = {"shares_of_spread": shares, "correlation_with_truth": truth, "limit": 0.9}
    elsewhere = (
        abs(truth[name]) < 0.2 if truth else not _is_correctness(name) and any(map(_is_correctness, shares))
    )
    if share > 0.9 and elsewhere:
        summary = (
            f"the part {name!r} makes {share:.0%} of the reward's spread inside groups; "
            f"correctness hardly counts"
        )
        return fail(view, id, summary, evidence)
    return fine(view, id, evidence)


def _parts_of_metrics(view: View, id: str, spreads: dict[str, Floats]) -> Finding:
    weights = view.config.get("reward_weights")
    known = weights if isinstance(weights, list) and len(weights) == len(spreads) else [1.0] * len(spreads)
    power = {
        name: float(np.mean(finite(values) ** 2)) * float(weight) ** 2
        for (name, values), weight in zip(spreads.items(), known, strict=True)
        if finite(values).size
    }
    total = sum(power.values())
    if total <= 0 or view.reward_change.points < 10:
        return fine(view, id)
    shares = {name: value / total for name, value in power.items()}
    learnt = [n for n in shares if _is_correctness(n) and _part_rises(view, n)]
    return fine(view, id, {"shares": shares}) if learnt else _judge_parts(view, id, shares, {})


def _part_rises(view: View, name: str) -> bool:
    from assay.doctor.trend import change

    moved = change(view.metric(f"part:{name}:mean"))
    return moved.z > 3
