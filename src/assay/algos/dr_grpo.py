"""Dr. GRPO: GRPO without its two biases: no division by the deviation, none by the completion's length.

``A_i = r_i - mean``; the token sum is divided by a constant, sequences times the maximal length.
Source: Liu et al. 2503.20783.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.algos.algorithm import Algorithm
from assay.algos.parts import (
    Credit,
    Surrogate,
    clip_range,
    correction,
    kl_penalty,
    overlong_policy,
    spread_for,
)
from assay.algos.presets import OPENRLHF_KL, OPENRLHF_PARTS, VERL_PARTS, Preset

PRESETS: Mapping[str, Preset] = {
    # loss_type dr_grpo with scale_rewards none: the same values.
    "trl": Preset(),
    # norm_adv_by_std false with a constant length; dual clip on.
    "verl": Preset(parts={**VERL_PARTS, "aggregation": "constant"}),
    # The estimator dr_grpo there changes the advantage only: the loss stays the token mean.
    "openrlhf": Preset(options=OPENRLHF_KL, parts={**OPENRLHF_PARTS, "credit.spread": "returns"}),
}


def dr_grpo(
    *,
    clip: float | Sequence[float] = 0.2,
    overlong: str = "keep",
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    entropy_coef: float = 0.0,
    importance_cap: float | None = None,
) -> Algorithm:
    """Dr. GRPO.

    Args:
        clip: of the ratio, one number or [low, high].
        overlong: keep, punish or mask what reaches the length cap.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
        importance_cap: truncated importance sampling against another sampler; None for none.
    """
    low, high = clip_range(clip)
    return Algorithm(
        name="dr_grpo",
        credit=Credit(baseline="group_mean", spread=spread_for(kl_where)),
        surrogate=Surrogate(kind="clip", clip_low=low, clip_high=high),
        aggregation="constant",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        correction=correction(importance_cap),
        overlong=overlong_policy(overlong),
        minibatches=minibatches,
        epochs=epochs,
    )
