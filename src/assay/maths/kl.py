"""KL divergence between the policy and its reference: estimators, their gradients, and control.

With ``x = log pi - log ref`` on tokens sampled from the policy:

| name | value | mean | expected gradient as a LOSS |
|---|---|---|---|
| ``k1`` | ``x`` | KL(pi, ref) | 0: the score has mean zero. Right in the reward, useless in the loss |
| ``k2`` | ``x^2 / 2`` | near KL | that of KL(pi, ref): the right one |
| ``k3`` | ``exp(-x) - 1 + x`` | KL(pi, ref) | that of KL(ref, pi), the forward KL; GRPO's choice |

In the REWARD only ``k1`` has the right gradient; ``k3`` there diverges (an action dies and never returns).
Sources: Schulman, "Approximating KL divergence"; 2506.09477; 2510.01555; Ziegler et al. 1909.08593 (control).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from assay.errors import BadInput, nearest

Estimator = Literal["k1", "k2", "k3"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
LOG_RATIO_BOUND = 20.0


def kl_estimate(
    logp: Tensor, ref_logp: Tensor, estimator: Estimator, *, bound: float | None = None
) -> Tensor:
    """Estimate the KL at sampled tokens, elementwise, nats; differentiable in ``logp``.

    Args:
        logp, ref_logp: log-probabilities of the sampled tokens, same shape.
        estimator: ``k1``, ``k2`` or ``k3``; see the module's table for what each is good for.
        bound: clamp the result to ``[-bound, bound]`` (verl: 10 for k3; OpenRLHF: 10). None leaves it.

    ``k3`` bounds its log ratio to 20 nats before ``exp``. Raises BadInput for another name.
    """
    x = logp - ref_logp
    match estimator:
        case "k1":
            value = x
        case "k2":
            value = 0.5 * x.square()
        case "k3":
            y = (-x).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
            value = torch.expm1(y) - y
        case _:
            raise BadInput(f"expected a KL estimator, got {estimator!r}{nearest(str(estimator), ESTIMATORS)}")
    return value if bound is None else value.clamp(-bound, bound)


def straight_through_kl(logp: Tensor, ref_logp: Tensor, estimator: Estimator) -> Tensor:
    """Return the value of one estimator with the gradient of ``k2``, the right one (verl's ``k3+``)."""
    value = kl_estimate(logp, ref_logp, estimator).detach()
    right = kl_estimate(logp, ref_logp, "k2")
    return right - right.detach() + value


def exact_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """KL(pi, ref) over the whole vocabulary, nats: the last axis is summed, in float32 at least.

    Tokens that the policy excludes (logit minus infinity) add 0. Unnormalised logits or log-probs will do.
    """
    logp = torch.log_softmax(logits, -1, dtype=_accumulator(logits))
    ref_logp = torch.log_softmax(ref_logits, -1, dtype=_accumulator(ref_logits))
    alive = logp > -torch.inf
    difference = torch.where(alive, logp, 0.0) - torch.where(alive, ref_logp, 0.0)
    return (torch.where(alive, logp, -torch.inf).exp() * difference).sum(-1)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def adaptive_kl_coef(coef: float, kl: float, *, target: float, samples: int, horizon: int = 10_000) -> float:
    """Ziegler's next coefficient: ``coef * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon)``.

    Args:
        coef: the current coefficient.
        kl: measured KL, nats a sequence; ``target`` in the same unit.
        samples: completions since the last call; ``horizon``: completions over which the controller acts.
    """
    if target <= 0 or horizon <= 0:
        raise BadInput(f"expected a positive KL target and horizon, got {target} and {horizon}")
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return coef * (1.0 + error * samples / horizon)


def kl_exceeded(kl: float, limit: float | None, *, factor: float = 1.5) -> bool:
    """Return whether the remaining updates on this batch should be skipped: ``kl > factor * limit``."""
    return limit is not None and kl > factor * limit
