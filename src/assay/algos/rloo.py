"""RLOO: REINFORCE whose baseline is the mean of the other completions, with the KL in the reward.

``A_i = r_i - mean of the others``, with ``r = reward - beta sum_t log(pi / ref)``; the loss is the sequence's
log-prob times the advantage, averaged over sequences. Its expected gradient is the true one.
Source: Ahmadian et al. 2402.14740. The paper's beta depends on the task; 0.05 is TRL's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, Surrogate, clip_range, correction, kl_penalty, spread_for
from assay.algos.presets import OPENRLHF_KL, OPENRLHF_PARTS, VERL_PARTS, Preset

PRESETS: Mapping[str, Preset] = {
    # Ratio and clip on the log-prob summed over the sequence, mean over sequences.
    "trl": Preset(
        options={"clip": 0.2},
        parts={"surrogate.level": "sequence_sum", "aggregation": "sequence_mean_token_mean"},
    ),
    # Ratio and clip by token, and no KL. A lone completion's advantage is its raw reward in the original.
    "verl": Preset(options={"clip": 0.2, "kl_coef": 0.0}, parts=VERL_PARTS),
    # Ratio and clip by token; the KL is subtracted a token, after the baseline.
    "openrlhf": Preset(
        options={"clip": 0.2, **OPENRLHF_KL}, parts={**OPENRLHF_PARTS, "credit.spread": "returns"}
    ),
}


def rloo(
    *,
    clip: float | Sequence[float] | None = None,
    minibatches: int = 1,
    epochs: int = 1,
    kl_coef: float = 0.05,
    kl_estimator: str = "k1",
    kl_where: str = "reward",
    entropy_coef: float = 0.0,
    importance_cap: float | None = None,
) -> Algorithm:
    """RLOO.

    Args:
        clip: None is the published REINFORCE loss; a number (or [low, high]) clips the ratio as PPO does.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
        kl_coef, kl_estimator, kl_where: KL to the reference.
        entropy_coef: entropy bonus.
        importance_cap: truncated importance sampling against another sampler; None for none.
    """
    low, high = clip_range(0.2 if clip is None else clip)
    kind = "reinforce" if clip is None else "clip"
    return Algorithm(
        name="rloo",
        credit=Credit(baseline="leave_one_out", spread=spread_for(kl_where)),
        surrogate=Surrogate(kind=kind, clip_low=low, clip_high=high),
        aggregation="sequence_mean_token_sum",
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
        correction=correction(importance_cap),
        minibatches=minibatches,
        epochs=epochs,
    )
