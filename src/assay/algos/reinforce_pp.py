"""REINFORCE++: no group, returns-to-go a token, standardised over every trained token of the batch.

The KL is subtracted at each token (k1), so that a token pays for what follows it; then PPO's clip and the
token mean. ``group_baseline`` subtracts the group's mean first (REINFORCE++-baseline).
Source: Hu et al. 2501.03262.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, Surrogate, clip_range, correction, kl_penalty
from assay.algos.presets import OPENRLHF_PARTS, VERL_PARTS, Preset

PRESETS: Mapping[str, Preset] = {
    # Unbiased variance + 1e-8 inside the root; no KL unless asked for.
    "verl": Preset(options={"kl_coef": 0.0}, parts=VERL_PARTS),
    # Biased variance, floored at 1e-8.
    "openrlhf": Preset(parts={**OPENRLHF_PARTS, "credit.whiten_ddof": 0, "credit.whiten_floor": True}),
}


def reinforce_pp(
    *,
    group_baseline: bool = False,
    clip: float | Sequence[float] = 0.2,
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.01,
    kl_estimator: str = "k1",
    kl_where: str = "token_reward",
    entropy_coef: float = 0.0,
    importance_cap: float | None = None,
) -> Algorithm:
    """REINFORCE++.

    Args:
        group_baseline: subtract the group's mean before the standardisation over the batch.
        clip: of the ratio, one number or [low, high].
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
        importance_cap: truncated importance sampling against another sampler; None for none.
    """
    low, high = clip_range(clip)
    return Algorithm(
        name="reinforce_pp",
        credit=Credit(
            baseline="group_mean" if group_baseline else "none",
            spread="whitened",
            whiten_ddof=1,
            whiten_epsilon=1e-8,
        ),
        surrogate=Surrogate(kind="clip", clip_low=low, clip_high=high),
        aggregation="token_mean",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        correction=correction(importance_cap),
        minibatches=minibatches,
        epochs=epochs,
    )
