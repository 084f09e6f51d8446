"""What is logged about the rollouts of a step, before any update."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from assay.records.rollout import Rollout
from assay.records.score import STATES

SPREAD_TOLERANCE = 1e-6


def rollout_metrics(rollouts: Sequence[Rollout], group_of: Sequence[int]) -> dict[str, float]:
    """Means over the scored rollouts of a step, and counts of groups without spread, split by cause."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward_state == "scored"]
    metrics = {
        "reward": _mean(rewards),
        "reward_std": _deviation(rewards),
        "entropy": _mean([rollout.entropy for rollout in rollouts]),
        "length_mean": _mean([len(rollout.token_ids) for rollout in rollouts]),
        "truncated_fraction": _mean([float(rollout.finish_reason == "length") for rollout in rollouts]),
        "distinct_fraction": len({(r.prompt_id, r.completion) for r in rollouts}) / len(rollouts),
    }
    for state in STATES[1:]:
        metrics[f"{state}_count"] = float(sum(rollout.reward_state == state for rollout in rollouts))
    return metrics | zero_spread_metrics(rollouts, group_of)


def zero_spread_metrics(rollouts: Sequence[Rollout], group_of: Sequence[int]) -> dict[str, float]:
    """Shares of groups without spread: all right (at the top reward of the step), all wrong, identical text."""
    groups: defaultdict[int, list[Rollout]] = defaultdict(list)
    for rollout, number in zip(rollouts, group_of, strict=True):
        if rollout.reward_state == "scored":
            groups[number].append(rollout)
    flat = [group for group in groups.values() if _spread(group) <= SPREAD_TOLERANCE]
    same_text = [group for group in flat if len({rollout.completion for rollout in group}) == 1]
    right = sum(group[0].reward >= 0.5 for group in flat)
    total = max(len(groups), 1)
    return {
        "zero_spread_fraction": len(flat) / total,
        "zero_spread_all_right": right / total,
        "zero_spread_all_wrong": (len(flat) - right) / total,
        "zero_spread_identical_text": len(same_text) / total,
    }


def _spread(group: Sequence[Rollout]) -> float:
    rewards = [rollout.reward for rollout in group]
    return max(rewards) - min(rewards)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
