"""CISPO: REINFORCE weighted by a capped ratio that carries no gradient, so that no token is ever silenced.

``-stop(min(ratio, cap)) A log pi``, token mean over the step, group-standardised advantages, no KL.
Source: MiniMax-M1 2506.13585; the cap of 5 is ScaleRL's (2510.13786), for the paper prints none.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, Surrogate, kl_penalty, spread_for
from assay.algos.presets import Preset
from assay.errors import BadInput

PRESETS: Mapping[str, Preset] = {
    # epsilon_high there IS the cap (5.0), not cap - 1.
    "trl": Preset(options={"ddof": 1, "epsilon": 1e-4, "cap": 5.0}),
    # The ratio is clamped on both sides, to [1 - 0.2, 1 + 0.2] by default.
    "verl": Preset(options={"ddof": 1, "epsilon": 1e-6, "cap": 1.2}, parts={"surrogate.clip_low": 0.2}),
}


def cispo(
    *,
    cap: float = 5.0,
    batch_scale: bool = False,
    ddof: int = 0,
    epsilon: float = 1e-6,
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    entropy_coef: float = 0.0,
) -> Algorithm:
    """CISPO.

    Args:
        cap: largest weight, the ratio itself (1 + epsilon_high of the paper).
        batch_scale: divide by the batch's deviation instead of the group's (ScaleRL).
        ddof, epsilon: of that deviation.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
    """
    if cap < 1:
        raise BadInput(
            f"expected cap of at least 1, got {cap}; it bounds the ratio itself, not its excess over 1"
        )
    baseline = "group_mean_batch_scaled" if batch_scale else "group_standardised"
    return Algorithm(
        name="cispo",
        credit=Credit(baseline=baseline, ddof=ddof, epsilon=epsilon, spread=spread_for(kl_where)),
        surrogate=Surrogate(kind="cispo", clip_low=None, clip_high=cap - 1),
        aggregation="token_mean",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        minibatches=minibatches,
        epochs=epochs,
    )
