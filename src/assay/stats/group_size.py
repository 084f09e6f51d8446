"""What the group size buys: the error of the estimated advantage against the true one.

The true advantage of a completion is its reward minus the value of its prompt, E[r]. A group of k puts the
mean of its k rewards in the value's place, so the error is the mean's: sigma^2 / k. The variance of
``r - mean`` itself goes the other way, sigma^2 (1 - 1/k): a completion is part of its own mean, and in a small
group it pulls that mean towards itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import BadInput
from assay.stats.interval import FloatArray

SENTENCE = (
    "The error of the estimated advantage falls like sigma^2/k. The variance of r minus the group mean rises "
    "with k, as sigma^2 (1 - 1/k), because in a small group a completion pulls the mean towards itself: less "
    "variance there is not a better estimate."
)


@dataclass(frozen=True)
class GroupSizeError:
    """One group size.

    Attributes:
        group_size: k. mean_squared_error: of r - mean(group) against r - value, averaged over prompts.
        predicted: sigma^2 / k. variance: of r - mean(group) within groups, with sigma^2 (1 - 1/k) beside it.
        groups: how many were drawn.
    """

    group_size: int
    mean_squared_error: float
    predicted: float
    variance: float
    predicted_variance: float
    groups: int


def group_size_errors(
    rewards: FloatArray,
    sizes: Sequence[int],
    *,
    values: FloatArray | None = None,
    draws: int = 400,
    seed: int = 0,
) -> list[GroupSizeError]:
    """Measure the error of the group baseline for several group sizes.

    Args:
        rewards: (P, N), N samples a prompt, standing for its distribution; groups are drawn with replacement.
        sizes: group sizes, each at least 1.
        values: (P,), the prompts' true values; the means of ``rewards`` by default, which is exact for the
            distribution the groups are drawn from.
        draws: groups a prompt.
    """
    if rewards.ndim != 2 or rewards.shape[1] < 2 or not np.isfinite(rewards).all():
        raise BadInput(f"expected finite rewards of shape (prompts, at least 2 samples), got {rewards.shape}")
    if min(sizes, default=0) < 1:
        raise BadInput(f"expected group sizes of at least 1, got {list(sizes)}")
    value_P = rewards.mean(1) if values is None else values
    sigma2 = float(rewards.var(1).mean())
    rng = np.random.default_rng(seed)
    result: list[GroupSizeError] = []
    for size in sizes:
        place = rng.integers(0, rewards.shape[1], (len(rewards), draws, size))
        groups = np.take_along_axis(rewards[:, None, :], place, axis=2)
        mean = groups.mean(2)
        error = float(((mean - value_P[:, None]) ** 2).mean())
        spread = float(((groups - mean[..., None]) ** 2).mean())
        result.append(
            GroupSizeError(size, error, sigma2 / size, spread, sigma2 * (1 - 1 / size), len(rewards) * draws)
        )
    return result
