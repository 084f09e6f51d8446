"""GSPO: one ratio a sequence, the geometric mean of its tokens' ratios, clipped as a whole.

``s_i = exp(mean_t log ratio_t)``, clipped to [1 - 3e-4, 1 + 4e-4]; group-standardised advantages, no KL, four
mini-batches a rollout. With one update a batch the ratio is 1 and nothing differs from GRPO.
Source: Zheng et al. 2507.18071.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, Surrogate, clip_range, kl_penalty, spread_for
from assay.algos.presets import OPENRLHF_KL, OPENRLHF_PARTS, Preset

PRESETS: Mapping[str, Preset] = {
    # importance_sampling_level=sequence in TRL keeps that library's clip and its token mean over the step.
    "trl": Preset(options={"ddof": 1, "epsilon": 1e-4, "clip": 0.2}, parts={"aggregation": "token_mean"}),
    # The token form, log ratio bounded at 10 from above; verl's clip is set by the user.
    "verl": Preset(
        options={"ddof": 1, "epsilon": 1e-6, "clip": 0.2, "token_form": True},
        parts={"surrogate.bound": 10.0},
    ),
    "openrlhf": Preset(
        options={"ddof": 1, "epsilon": 1e-9, "clip": 0.2, **OPENRLHF_KL},
        parts={
            **OPENRLHF_PARTS,
            "credit.spread": "returns",
            "aggregation": "sequence_mean_token_mean",
        },
    ),
}


def gspo(
    *,
    clip: float | Sequence[float] = (3e-4, 4e-4),
    token_form: bool = False,
    ddof: int = 0,
    epsilon: float = 1e-6,
    minibatches: int = 4,
    epochs: int = 1,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    entropy_coef: float = 0.0,
) -> Algorithm:
    """GSPO.

    Args:
        clip: of the sequence ratio, [low, high]; far smaller than a token's, because it is a mean.
        token_form: each token keeps its own gradient and advantage (GSPO-token); same values.
        ddof, epsilon: of the group's standard deviation.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
    """
    low, high = clip_range(clip)
    level = "sequence_token" if token_form else "sequence"
    return Algorithm(
        name="gspo",
        credit=Credit(baseline="group_standardised", ddof=ddof, epsilon=epsilon, spread=spread_for(kl_where)),
        surrogate=Surrogate(kind="clip", level=level, clip_low=low, clip_high=high),
        aggregation="sequence_mean_token_mean",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        minibatches=minibatches,
        epochs=epochs,
    )
