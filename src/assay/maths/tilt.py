"""The KL-regularised optimum on a finite set of completions, in closed form.

``max E[r] - beta KL(pi, ref)`` has the solution ``pi = ref exp(r / beta) / Z``. Along this curve the proxy
always rises, while the truth peaks exactly where its covariance with the proxy under the current policy is 0,
because ``d E[truth] / d(1 / beta) = Cov(truth, proxy)``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput


class Tilt(NamedTuple):
    """The tilted policy and what it earns.

    Attributes:
        policy_K: probabilities of the K completions.
        reward: mean reward (the proxy).
        kl: KL(policy, ref), nats.
        value: the optimum ``reward - beta kl``, which equals ``beta log Z``.
        truth: mean truth; NaN where none was given.
        covariance: of truth and reward under the policy, the slope of truth along the curve; NaN likewise.
    """

    policy_K: Tensor
    reward: float
    kl: float
    value: float
    truth: float
    covariance: float


def kl_tilt(ref_K: Tensor, reward_K: Tensor, beta: float, *, truth_K: Tensor | None = None) -> Tilt:
    """Tilt a reference distribution by ``exp(reward / beta)``, in float64.

    Args:
        ref_K: probabilities of the reference, summing to 1; a 0 stays 0.
        reward_K: reward of each completion.
        beta: strength of the KL, above 0. Large stays close, small chases the reward.
        truth_K: truth of each completion, for the two last fields.
    """
    ref_K, reward_K = ref_K.double(), reward_K.double()
    if beta <= 0 or ref_K.shape != reward_K.shape or bool((ref_K < 0).any()):
        raise BadInput(
            f"expected beta > 0 and K probabilities with K rewards, got beta {beta}, "
            f"{tuple(ref_K.shape)} and {tuple(reward_K.shape)}"
        )
    if abs(float(ref_K.sum()) - 1.0) > 1e-6:
        raise BadInput(f"expected probabilities that sum to 1, got {float(ref_K.sum())}")
    score_K = ref_K.log() + reward_K / beta
    policy_K = torch.softmax(score_K, 0)
    reward = float(policy_K @ reward_K)
    value = beta * float(torch.logsumexp(score_K, 0))
    kl = (reward - value) / beta
    if truth_K is None:
        return Tilt(policy_K, reward, kl, value, float("nan"), float("nan"))
    truth_K = truth_K.double()
    truth = float(policy_K @ truth_K)
    covariance = float(policy_K @ ((truth_K - truth) * (reward_K - reward)))
    return Tilt(policy_K, reward, kl, value, truth, covariance)


def truth_peak(
    ref_K: Tensor, reward_K: Tensor, truth_K: Tensor, *, low: float = 1e-2, high: float = 1e3
) -> float | None:
    """Return the beta in ``[low, high]`` where truth peaks: its covariance with the reward turns negative.

    Found by bisection on ``log beta``; None where the covariance does not change from positive to negative as
    beta falls.
    """

    def slope(beta: float) -> float:
        return kl_tilt(ref_K, reward_K, beta, truth_K=truth_K).covariance

    if not (slope(high) > 0 > slope(low)):
        return None
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high
