"""Correcting for a sampler that is not the trained policy: truncated and masked importance weights.

Three policies: the sampler mu that drew the tokens, the proximal policy pi_old (the trainer's own log-probs
of them), and the current one. The weight ``pi_old / mu`` multiplies the policy loss and has no gradient.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from assay.errors import BadInput, nearest
from assay.maths.masking import check_mask, select, sequence_mean, sequence_sum

WeightLevel = Literal["token", "sequence", "geometric"]
WEIGHT_LEVELS: tuple[WeightLevel, ...] = get_args(WeightLevel)
LOG_RATIO_BOUND = 20.0


def importance_weights(
    old_logp_BT: Tensor,
    sampler_logp_BT: Tensor,
    mask_BT: Tensor,
    *,
    level: WeightLevel = "token",
    high: float | None = 2.0,
    low: float | None = None,
    outside: Literal["truncate", "mask"] = "truncate",
) -> Tensor:
    """Weights ``pi_old / mu``, detached, shape (B, T); 0 where masked.

    Args:
        old_logp_BT, sampler_logp_BT: log-probs of the sampled tokens under the trainer and the sampler.
        mask_BT: boolean; trained tokens.
        level: ``token`` (bias grows with the length squared), ``sequence`` (the product over the sequence,
            unbiased before truncation), ``geometric`` (its length-th root).
        high, low: bounds on the weight; None leaves that side open.
        outside: ``truncate`` clamps to the bounds; ``mask`` drops what lies outside, whole sequences for the
            sequence levels.
    """
    check_mask(mask_BT, old_logp_BT)
    token_BT = select(old_logp_BT - sampler_logp_BT, mask_BT).detach()
    match level:
        case "token":
            log_BT = token_BT
        case "sequence":
            log_BT = sequence_sum(token_BT, mask_BT)[:, None].expand_as(token_BT)
        case "geometric":
            log_BT = sequence_mean(token_BT, mask_BT)[:, None].expand_as(token_BT)
        case _:
            raise BadInput(f"expected a weight level, got {level!r}{nearest(str(level), WEIGHT_LEVELS)}")
    weight_BT = log_BT.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    if high is None and low is None:
        return select(weight_BT, mask_BT)
    floor, cap = low if low is not None else 0.0, high if high is not None else torch.inf
    if floor > cap:
        raise BadInput(f"expected low <= high for importance weights, got {low} and {high}")
    if outside == "mask":
        return select(weight_BT, mask_BT & (weight_BT >= floor) & (weight_BT <= cap))
    return select(weight_BT.clamp(floor, cap), mask_BT)


def off_policy_sequences(
    logp_BT: Tensor, old_logp_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor, *, limit: float = 0.5
) -> Tensor:
    """Tell which sequences to leave out: A < 0 and mean ``log(pi_old / pi)`` above ``limit`` nats, bool (B,).

    A bad sequence that the policy has already left teaches only noise (DeepSeek-V3.2).
    """
    drift_B = sequence_mean(select(old_logp_BT - logp_BT.detach(), mask_BT), mask_BT)
    return (advantage_B < 0) & (drift_B > limit)


def sampler_gap(old_logp_BT: Tensor, sampler_logp_BT: Tensor, mask_BT: Tensor) -> dict[str, float]:
    """Mean and largest absolute difference of trainer and sampler log-probs, nats; NaN without tokens."""
    gap = (old_logp_BT - sampler_logp_BT)[mask_BT].detach().abs()
    if not gap.numel():
        return {"mean": float("nan"), "max": float("nan")}
    return {"mean": float(gap.mean()), "max": float(gap.max())}
