"""Advantages: arithmetic on the rewards of one prompt's completions, found by group id, in any order.

Two laws hold for every function here. A reward of NaN (not scored) has advantage 0 and leaves the statistics.
A set without spread, ``max - min <= tolerance * max(1, |reward|)``, has advantage exactly 0 whatever the
epsilon: dividing float residue by a residue would turn noise into signal. A group with fewer than two scored
completions has no spread either.

The set is the group for group baselines and the batch for batch baselines. Without a baseline, or with a
constant or a moving average, no set is compared and the law is silent.

Sources: Shao et al. 2402.03300 (group standardised), Ahmadian et al. 2402.14740 (leave-one-out),
Liu et al. 2503.20783 (mean only), Hu et al. 2501.03262 (batch standardised).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput

TOLERANCE = 1e-6


class GroupStatistics(NamedTuple):
    """Statistics of each completion's group, repeated for every member, shape (B,).

    Attributes:
        scored_B: bool, the reward is not NaN.
        count_B: scored completions in the group (float).
        mean_B: their mean; 0 where none is scored.
        std_B: their standard deviation by the centred two-pass formula; 0 where ``count <= ddof``.
        flat_B: bool, the group has no spread.
        index_B: long, the group's number in the order of sorted ids.
    """

    scored_B: Tensor
    count_B: Tensor
    mean_B: Tensor
    std_B: Tensor
    flat_B: Tensor
    index_B: Tensor


class ZeroSpread(NamedTuple):
    """Counts of groups: all with a scored completion, and those without spread, split by what they hold."""

    groups: int
    all_right: int
    all_wrong: int
    other: int

    @property
    def fraction(self) -> float:
        """Share of groups without spread; NaN without groups."""
        flat = self.all_right + self.all_wrong + self.other
        return flat / self.groups if self.groups else float("nan")


def check_rewards(rewards_B: Tensor, group_B: Tensor | None = None) -> None:
    """Raise BadInput unless rewards are a float vector, finite or NaN, with one group id each."""
    if rewards_B.ndim != 1 or not rewards_B.is_floating_point():
        raise BadInput(
            f"expected rewards as a float tensor of shape (B,), got {rewards_B.dtype} of shape "
            f"{tuple(rewards_B.shape)}; flatten them and use NaN for 'not scored'"
        )
    if bool(torch.isinf(rewards_B).any()):
        raise BadInput("expected finite rewards, got infinity; mark such a completion as not scored (NaN)")
    if group_B is not None and group_B.shape != rewards_B.shape:
        raise BadInput(
            f"expected one group id per reward, got {tuple(group_B.shape)} ids for "
            f"{tuple(rewards_B.shape)} rewards"
        )


def group_statistics(
    rewards_B: Tensor, group_B: Tensor, *, ddof: int = 0, tolerance: float = TOLERANCE
) -> GroupStatistics:
    """Count, mean, standard deviation and flatness of each completion's group.

    Args:
        rewards_B: rewards, NaN where not scored.
        group_B: group ids (any integers, any order).
        ddof: 0 for the biased, 1 for the unbiased standard deviation.
        tolerance: largest spread, relative to ``max(1, |reward|)``, that counts as none.
    """
    check_rewards(rewards_B, group_B)
    scored_B = ~rewards_B.isnan()
    known_B = torch.where(scored_B, rewards_B, 0.0)
    index_B = torch.unique(group_B, return_inverse=True)[1]
    n_groups = int(index_B.max()) + 1 if index_B.numel() else 0

    def total(values_B: Tensor) -> Tensor:
        return values_B.new_zeros(n_groups).index_add_(0, index_B, values_B)[index_B]

    def extreme(values_B: Tensor, fill: float, how: str) -> Tensor:
        start = values_B.new_full((n_groups,), fill)
        filled_B = torch.where(scored_B, values_B, fill)
        return start.scatter_reduce_(0, index_B, filled_B, reduce=how)[index_B]

    count_B = total(scored_B.to(rewards_B.dtype))
    mean_B = total(known_B) / count_B.clamp(min=1)
    centred_B = torch.where(scored_B, known_B - mean_B, 0.0)
    std_B = (total(centred_B.square()) / (count_B - ddof).clamp(min=1)).sqrt()
    std_B = torch.where(count_B > ddof, std_B, 0.0)
    highest_B, lowest_B = extreme(known_B, -torch.inf, "amax"), extreme(known_B, torch.inf, "amin")
    scale_B = torch.maximum(highest_B.abs(), lowest_B.abs()).clamp(min=1.0)
    flat_B = (count_B < 2) | (highest_B - lowest_B <= tolerance * scale_B)
    return GroupStatistics(scored_B, count_B, mean_B, std_B, flat_B, index_B)


def no_baseline(rewards_B: Tensor) -> Tensor:
    """Return the rewards themselves (plain REINFORCE); 0 where not scored."""
    return constant_baseline(rewards_B, 0.0)


def constant_baseline(rewards_B: Tensor, baseline: float) -> Tensor:
    """Return rewards minus one number; 0 where not scored."""
    check_rewards(rewards_B)
    return torch.where(rewards_B.isnan(), 0.0, rewards_B - baseline)


def moving_average(
    rewards_B: Tensor, baseline: float | None, *, decay: float = 0.9
) -> tuple[Tensor, float | None]:
    """Subtract the running mean of earlier batches, then move it towards this batch's mean.

    Without an earlier batch (``baseline=None``) each completion is compared with the mean of the others of
    its batch, which keeps the gradient unbiased from the first step.

    Returns:
        The advantages and the baseline for the next batch (None while nothing was ever scored).
    """
    check_rewards(rewards_B)
    known_B = rewards_B[~rewards_B.isnan()]
    if not known_B.numel():
        return torch.zeros_like(rewards_B), baseline
    mean = float(known_B.mean())
    if baseline is None:
        return leave_one_out(rewards_B, torch.zeros_like(rewards_B, dtype=torch.long)), mean
    return constant_baseline(rewards_B, baseline), decay * baseline + (1 - decay) * mean


def group_mean(rewards_B: Tensor, group_B: Tensor, *, tolerance: float = TOLERANCE) -> Tensor:
    """Return ``r - mean(group)`` (Dr. GRPO). Its expected gradient is (1 - 1/G) of the true one."""
    stats = group_statistics(rewards_B, group_B, tolerance=tolerance)
    return torch.where(stats.scored_B & ~stats.flat_B, rewards_B - stats.mean_B, 0.0)


def leave_one_out(rewards_B: Tensor, group_B: Tensor, *, tolerance: float = TOLERANCE) -> Tensor:
    """Return ``r_i - mean of the others = G/(G-1) (r_i - mean)`` (RLOO). Its gradient is unbiased."""
    stats = group_statistics(rewards_B, group_B, tolerance=tolerance)
    factor_B = stats.count_B / (stats.count_B - 1).clamp(min=1)
    return torch.where(stats.scored_B & ~stats.flat_B, factor_B * (rewards_B - stats.mean_B), 0.0)


def group_standardised(
    rewards_B: Tensor,
    group_B: Tensor,
    *,
    ddof: int = 0,
    epsilon: float = 1e-6,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Return ``(r - mean) / (std + epsilon)`` in each group (GRPO).

    ``ddof`` and ``epsilon`` are explicit because every library has its own: a hidden learning-rate factor of
    ``sqrt(G / (G - 1))``.
    """
    stats = group_statistics(rewards_B, group_B, ddof=ddof, tolerance=tolerance)
    live_B = stats.scored_B & ~stats.flat_B
    divisor_B = torch.where(live_B, stats.std_B + epsilon, 1.0)
    return torch.where(live_B, (rewards_B - stats.mean_B) / divisor_B, 0.0)


def batch_standardised(
    rewards_B: Tensor, *, ddof: int = 0, epsilon: float = 1e-6, tolerance: float = TOLERANCE
) -> Tensor:
    """Return ``(r - mean) / (std + epsilon)`` over the whole batch, whatever the groups."""
    group_B = torch.zeros_like(rewards_B, dtype=torch.long)
    return group_standardised(rewards_B, group_B, ddof=ddof, epsilon=epsilon, tolerance=tolerance)


def group_mean_batch_scaled(
    rewards_B: Tensor,
    group_B: Tensor,
    *,
    ddof: int = 0,
    epsilon: float = 1e-6,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Return ``(r - mean(group)) / (std(batch) + epsilon)``: mean by group, one scale for all (ScaleRL)."""
    batch = group_statistics(rewards_B, torch.zeros_like(group_B), ddof=ddof, tolerance=tolerance)
    return group_mean(rewards_B, group_B, tolerance=tolerance) / (batch.std_B + epsilon).where(
        ~batch.flat_B, 1.0
    )


def leave_one_out_standardised(
    rewards_B: Tensor,
    group_B: Tensor,
    *,
    ddof: int = 1,
    epsilon: float = 1e-6,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Return ``(r_i - mean of the others) / (std of the others + epsilon)``.

    Where the others have no spread the difference stays unscaled: their standard deviation says nothing.
    """
    stats = group_statistics(rewards_B, group_B, tolerance=tolerance)
    advantage_B = leave_one_out(rewards_B, group_B, tolerance=tolerance)
    for i in torch.nonzero(stats.scored_B & ~stats.flat_B).flatten().tolist():
        others_B = stats.scored_B & (stats.index_B == stats.index_B[i])
        others_B[i] = False
        rest = rewards_B[others_B]
        spread = float(rest.max() - rest.min())
        if len(rest) > ddof and spread > tolerance * max(1.0, float(rest.abs().max())):
            advantage_B[i] /= rest.std(correction=ddof) + epsilon
    return advantage_B


def zero_spread(
    rewards_B: Tensor, group_B: Tensor, *, right: float = 0.5, tolerance: float = TOLERANCE
) -> ZeroSpread:
    """Count the groups without spread: all right (reward at least ``right``), all wrong (at most 0), other.

    Groups without a single scored completion are not counted.
    """
    stats = group_statistics(rewards_B, group_B, tolerance=tolerance)
    seen = torch.unique(stats.index_B[stats.scored_B])
    flat = torch.unique(stats.index_B[stats.scored_B & stats.flat_B])
    means = torch.stack([stats.mean_B[stats.index_B == g][0] for g in flat]) if len(flat) else flat.double()
    all_right, all_wrong = int((means >= right).sum()), int((means <= tolerance).sum())
    return ZeroSpread(len(seen), all_right, all_wrong, len(flat) - all_right - all_wrong)


def group_normalized_advantages(rewards: Sequence[float] | Tensor, epsilon: float = 1e-8) -> Tensor:
    """Return ``(r - mean) / (std + epsilon)`` of one group, with the biased standard deviation.

    Args:
        rewards: one group (k numbers), or a matrix with a group in each row. Numbers become float64.
        epsilon: added to the standard deviation.

    Returns:
        The advantages, in the shape of the rewards; exactly 0 for a group without spread.
    """
    values = rewards if isinstance(rewards, Tensor) else torch.tensor(rewards, dtype=torch.float64)
    values = values if values.is_floating_point() else values.double()
    if values.ndim not in (1, 2):
        raise BadInput(f"expected k rewards or rows of k rewards, got shape {tuple(values.shape)}")
    rows = values.shape[0] if values.ndim == 2 else 1
    group_B = torch.arange(rows).repeat_interleave(values.numel() // max(rows, 1))
    return group_standardised(values.flatten(), group_B, ddof=0, epsilon=epsilon).reshape(values.shape)
