"""DAPO: clip-higher, token mean over the step, dynamic sampling, soft punishment of overlong completions.

Group-standardised advantages, no KL. Source: Yu et al. 2503.14476.
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
    # The loss only: TRL has no dynamic sampling, and the punishment is a reward function of its own.
    "trl": Preset(
        options={"dynamic_sampling": False, "overlong": "keep"},
        parts={"credit.ddof": 1, "credit.epsilon": 1e-4},
    ),
    "verl": Preset(parts={**VERL_PARTS, "credit.ddof": 1, "credit.epsilon": 1e-6}),
    # Dynamic filtering there is on the mean score, strictly inside (0, 1).
    "openrlhf": Preset(
        options={"overlong": "keep", **OPENRLHF_KL},
        parts={**OPENRLHF_PARTS, "credit.spread": "returns", "credit.ddof": 1, "credit.epsilon": 1e-9},
    ),
}


def dapo(
    *,
    clip: float | Sequence[float] = (0.2, 0.28),
    dynamic_sampling: bool = True,
    overlong: str = "punish",
    overlong_cache: float = 0.2,
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    importance_cap: float | None = None,
) -> Algorithm:
    """DAPO.

    Args:
        clip: of the ratio, [low, high]; the higher top keeps rare tokens alive.
        dynamic_sampling: replace groups without spread by fresh samples.
        overlong: keep, punish (soft) or mask what reaches the length cap.
        overlong_cache: width of the punishment's slope, as a share of the maximal length.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        importance_cap: truncated importance sampling against another sampler; None for none.
    """
    low, high = clip_range(clip)
    return Algorithm(
        name="dapo",
        credit=Credit(baseline="group_standardised", spread=spread_for(kl_where)),
        surrogate=Surrogate(kind="clip", clip_low=low, clip_high=high),
        aggregation="token_mean",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        correction=correction(importance_cap),
        overlong=overlong_policy(overlong, overlong_cache),
        minibatches=minibatches,
        epochs=epochs,
        dynamic_sampling=dynamic_sampling,
    )
