"""GRPO: group-standardised advantages, PPO's clip, the KL as a k3 term in the loss.

``A_i = (r_i - mean) / (std + 1e-6)``, biased deviation; a completion's loss is the mean over its tokens, the
step's the mean over completions. Source: Shao et al. 2402.03300; ddof, epsilon and clip, where the paper is
silent, are 0, 1e-6 and 0.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, Surrogate, clip_range, correction, kl_penalty, spread_for
from assay.algos.presets import OPENRLHF_KL, OPENRLHF_PARTS, VERL_PARTS, Preset

PRESETS: Mapping[str, Preset] = {
    # TRL's default loss is the token mean over the step ("dapo"), and no KL.
    "trl": Preset(options={"ddof": 1, "epsilon": 1e-4, "kl_coef": 0.0}, parts={"aggregation": "token_mean"}),
    # The original gives a lone completion its raw reward as advantage; here it is 0.
    "verl": Preset(options={"ddof": 1, "epsilon": 1e-6, "kl_coef": 0.0}, parts=VERL_PARTS),
    # The original has no guard: groups of equal rewards get float residue / 1e-9, up to 60; here 0.
    "openrlhf": Preset(
        options={"ddof": 1, "epsilon": 1e-9, **OPENRLHF_KL},
        parts={**OPENRLHF_PARTS, "credit.spread": "returns"},
    ),
}


def grpo(
    *,
    clip: float | Sequence[float] = 0.2,
    ddof: int = 0,
    epsilon: float = 1e-6,
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.04,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    entropy_coef: float = 0.0,
    importance_cap: float | None = None,
) -> Algorithm:
    """GRPO.

    Args:
        clip: of the ratio, one number or [low, high].
        ddof, epsilon: of the group's standard deviation; epsilon is added outside.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
        importance_cap: truncated importance sampling against another sampler; None for none.
    """
    low, high = clip_range(clip)
    return Algorithm(
        name="grpo",
        credit=Credit(baseline="group_standardised", ddof=ddof, epsilon=epsilon, spread=spread_for(kl_where)),
        surrogate=Surrogate(kind="clip", clip_low=low, clip_high=high),
        aggregation="sequence_mean_token_mean",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        correction=correction(importance_cap),
        minibatches=minibatches,
        epochs=epochs,
    )
