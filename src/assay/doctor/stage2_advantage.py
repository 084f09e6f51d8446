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
    moments,
    same_reward_other_advantage,
)
from assay.doctor.stage2_groups import mixed_prompts
from assay.doctor.trend import wilson
from assay.doctor.view import View
from assay.records.finding import Finding

RARE = 0.01
"""Share of the rows below which a fault of single groups warns only."""
MATCH = 0.7
"""A formula explains a log when it gives at least this share of the advantages (cut samples may be set to 0)."""


PENALISED = 0.9
"""Correlation of reward and advantage inside groups that a KL penalty in the reward leaves."""


@dataclass(frozen=True)
class Tables:
    """Whole groups with finite advantages, and the best known formula for them."""

    rows: Whole
    row_numbers: np.ndarray
    fit: Fit


def whole_groups(view: View) -> Tables | None:
    """Rows of whole groups with an advantage each, fitted once a run; None where there are none of size 2 and more."""
    if "_tables" not in view.__dict__:
        view.__dict__["_tables"] = _whole_groups(view)
    return view.__dict__["_tables"]


def _whole_groups(view: View) -> Tables | None:
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
    by_place = _by_position(tables)
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


def _by_position(tables: Tables) -> float:
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
    in_reward = any(word in view.word("algorithm") for word in ("rloo", "reinforce"))
    if in_reward and view.number("beta") > 0 and _follows(tables.rows) > PENALISED:
        return fine(
            view, id, evidence | {"note": "the reward up to its KL penalty, which the log does not show"}
        )
    varied = int((~view.flat & view.complete).sum())
    certain = view.is_group_method is True and varied >= 6 and math.isfinite(view.number("group_size"))
    summary = (
        f"no known formula gives the logged advantages (the best, {tables.fit.name}, gives "
        f"{tables.fit.share:.0%})"
    )
    return finding(view, id, "fail" if certain else "warn", summary, evidence, view.refs(tables.row_numbers))


def _follows(rows: Whole) -> float:
    """Correlation of reward and advantage inside groups."""
    x, y = (values - moments(values, rows.index)[0] for values in (rows.reward, rows.advantage))
    power = float((x * x).sum() * (y * y).sum())
    return float((x * y).sum()) / math.sqrt(power) if power > 0 else 0.0


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
        broken = view.rows["advantage"].is_not_null() & ~view.rows["advantage"].is_finite().fill_null(True)
        scored = (
            view.rows["reward"].is_not_null() if view.has("reward") else True
        )  # a missing one is left out
        bad = np.flatnonzero((broken & scored).to_numpy())
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
