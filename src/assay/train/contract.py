"""The step-0 contract: before the first update, sampler, trainer and reference must agree.

A gap here means that every ratio and every KL of the run would be wrong from the start, so the run stops and
the message names the pattern it can recognise.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from assay.errors import ContractBroken

FLOAT32_TOLERANCE = 1e-4  # the cached sampler and the trainer use other kernels
BFLOAT16_TOLERANCE = 0.5  # at one token; on average:
BFLOAT16_MEAN_TOLERANCE = 0.02


def check_step_zero(
    logp_BT: Tensor,
    sampler_logp_BT: Tensor,
    reference_logp_BT: Tensor | None,
    mask_BT: Tensor,
    *,
    dtype: str = "float32",
) -> None:
    """Compare the log-probs of an unchanged policy; raises ContractBroken with the cause.

    Args:
        logp_BT: trainer's log-probs. sampler_logp_BT: the sampler's. reference_logp_BT: the reference's, which
            is the start policy here. mask_BT: completion tokens.
        dtype: of the policy's matrix products, which decides what difference is rounding.
    """
    if bool((logp_BT[mask_BT] > 1e-5).any()):
        worst = float(logp_BT[mask_BT].max())
        raise ContractBroken(
            f"step 0: a log-probability of {worst:.4g} is above 0; the head is not normalised"
        )
    _agree(logp_BT, sampler_logp_BT, mask_BT, dtype, "sampler", _sampler_pattern)
    if reference_logp_BT is not None:
        _agree(
            logp_BT,
            reference_logp_BT,
            mask_BT,
            dtype,
            "reference",
            lambda own, other: "the reference is not the start policy",
        )


Explain = Callable[[Tensor, Tensor], str]


def _agree(own: Tensor, other: Tensor, mask: Tensor, dtype: str, name: str, explain: Explain) -> None:
    gap = (own - other)[mask].abs()
    half = dtype == "bfloat16"
    tolerance = BFLOAT16_TOLERANCE if half else FLOAT32_TOLERANCE
    if not gap.numel():
        return
    if float(gap.max()) > tolerance or (half and float(gap.mean()) > BFLOAT16_MEAN_TOLERANCE):
        raise ContractBroken(
            f"step 0: trainer and {name} log-probs differ by {float(gap.max()):.3g} nats at most and "
            f"{float(gap.mean()):.3g} on average (allowed {tolerance:g}); looks like: {explain(own[mask], other[mask])}"
        )


def _sampler_pattern(own: Tensor, other: Tensor) -> str:
    """Name what would explain the gap: a constant factor, a constant shift, or else."""
    ratio, shift = other / own.clamp_max(-1e-3), other - own
    if float(ratio.std()) < 0.02 * abs(float(ratio.mean())):
        return f"another temperature (constant factor {float(ratio.mean()):.3f})"
    if float(shift.min()) >= 0 and float(shift.std()) < 0.5 * float(shift.mean()):
        return "a truncated support (top-p or top-k) in the sampler"
    return "other weights, positions, or ids shifted by one"
