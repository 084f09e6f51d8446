"""REINFORCE with a choice of baselines: the verifiable-reward recipe in its shortest form.

Per token ``-A log pi``, summed over a completion and averaged over completions: the policy gradient itself.
The default advantage is the group-normalised one, ``(r - mean) / (std + 1e-8)`` with the biased deviation.
Source: Williams 1992.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Baseline, Credit, Surrogate, kl_penalty
from assay.algos.presets import Preset
from assay.maths.aggregation import Aggregation

PRESETS: Mapping[str, Preset] = {}


def reinforce(
    *,
    baseline: Baseline = "group_standardised",
    baseline_value: float = 0.0,
    decay: float = 0.9,
    ddof: int = 0,
    epsilon: float = 1e-8,
    aggregation: Aggregation = "sequence_mean_token_sum",
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    kl_where: str = "loss",
    entropy_coef: float = 0.0,
) -> Algorithm:
    """REINFORCE, one update a rollout batch.

    Args:
        baseline: none, constant, moving_average, group_mean, leave_one_out, group_standardised,
            group_mean_batch_scaled or batch_standardised.
        baseline_value: the number of ``constant``.
        decay: of ``moving_average``.
        ddof, epsilon: of the standard deviation where one is used.
        aggregation: see ``assay.maths.aggregation``.
        kl_coef, kl_estimator, kl_where: KL to the reference; k1 in the loss is refused (``loss!`` overrides).
        entropy_coef: entropy bonus.
    """
    return Algorithm(
        name="reinforce",
        credit=Credit(baseline=baseline, constant=baseline_value, decay=decay, ddof=ddof, epsilon=epsilon),
        surrogate=Surrogate(kind="reinforce"),
        aggregation=aggregation,
        kl=kl_penalty(kl_coef, kl_estimator, kl_where),
        entropy_coef=entropy_coef,
    )
