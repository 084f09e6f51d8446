"""Log-probs and entropies from hidden states and the output head, without ever holding all the logits.

Rows are taken in chunks; a chunk's logits live only while it is worked on, and the backward pass computes
them again (one more matrix product) instead of keeping them. Memory is that of a few chunks at any vocabulary.

The plain reference is ``logprobs_from_logits`` on ``hidden @ weight.T``; a test holds both together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from assay.errors import BadInput
from assay.maths.logprobs import TokenLogprobs, check_temperature

CHUNK_BYTES = 1 << 24


def chunked_logprobs(
    hidden: Tensor,
    weight_VH: Tensor,
    tokens: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenLogprobs:
    """Log-probs of ``tokens`` (...) and entropies, from ``hidden`` (..., H), differentiable once in both.

    Args:
        hidden: final hidden states, position by position with the tokens (already shifted).
        weight_VH: the output head; its gradient is accumulated in float32 and given in the head's dtype.
        tokens: ids, the shape of the hidden states without the last axis.
        bias_V: the head's bias, if it has one.
        temperature: divides the logits.
        chunk_bytes: size of one chunk of logits in float32.

    Returns:
        float32 (float64 for float64 inputs). Under bfloat16 the product rounds its logits to bfloat16; pass
        ``hidden.float(), weight.float()`` for an exact head.
    """
    check_temperature(temperature)
    if tokens.shape != hidden.shape[:-1] or hidden.shape[-1] != weight_VH.shape[-1]:
        raise BadInput(
            f"expected hidden (..., H), weight (V, H) and tokens (...), got {tuple(hidden.shape)}, "
            f"{tuple(weight_VH.shape)} and {tuple(tokens.shape)}"
        )
    rows = max(1, chunk_bytes // (4 * weight_VH.shape[0]))
    flat_NH = hidden.reshape(-1, hidden.shape[-1])
    logp_N, entropy_N = _Chunked.apply(flat_NH, weight_VH, bias_V, tokens.reshape(-1), temperature, rows)
    return TokenLogprobs(logp_N.reshape(tokens.shape), entropy_N.reshape(tokens.shape))


def _chunk_logits(hidden_CH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    """Scaled logits of one chunk in the accumulation dtype, a buffer that the caller may overwrite."""
    logits_CV = torch.mm(hidden_CH, weight_VH.t())
    logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    if bias_V is not None:
        logits_CV.add_(bias_V)
    return logits_CV if temperature == 1.0 else logits_CV.div_(temperature)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        tokens_N: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_NH.dtype, torch.float32)
        N = hidden_NH.shape[0]
        logp_N, lse_N, entropy_N = hidden_NH.new_empty((3, N), dtype=dtype)
        for start in range(0, N, rows):
            part = slice(start, start + rows)
            logits_CV = _chunk_logits(hidden_NH[part], weight_VH, bias_V, temperature)
            picked_C = logits_CV.gather(1, tokens_N[part, None])[:, 0]
            top_C = logits_CV.amax(1)
            logits_CV.sub_(top_C[:, None])
            weights_CV = logits_CV.exp()
            total_C = weights_CV.sum(1)
            # Entropy = log total - sum(p * shifted logit); the product is a batched dot, no third buffer.
            mean_C = torch.bmm(weights_CV[:, None, :], logits_CV[:, :, None])[:, 0, 0] / total_C
            lse_N[part] = top_C + total_C.log()
            logp_N[part] = picked_C - lse_N[part]
            entropy_N[part] = total_C.log() - mean_C
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, tokens_N, lse_N, entropy_N)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.set_materialize_grads(False)
        return logp_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad_logp_N, grad_entropy_N = grad_outputs
        hidden_NH, weight_VH, bias_V, tokens_N, lse_N, entropy_N = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        dtype = lse_N.dtype
        grad_hidden = torch.empty_like(hidden_NH) if needs_hidden else None
        grad_weight = torch.zeros_like(weight_VH, dtype=dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=dtype) if needs_bias else None
        for start in range(0, hidden_NH.shape[0], ctx.rows):
            part = slice(start, start + ctx.rows)
            logits_CV = _chunk_logits(hidden_NH[part], weight_VH, bias_V, ctx.temperature)
            grad_CV = _logit_gradient(
                logits_CV.sub_(lse_N[part, None]),
                tokens_N[part],
                None if grad_logp_N is None else grad_logp_N[part] / ctx.temperature,
                None if grad_entropy_N is None else grad_entropy_N[part] / ctx.temperature,
                entropy_N[part],
            )
            if grad_bias is not None:
                grad_bias += grad_CV.sum(0)
            grad_CV = grad_CV.to(hidden_NH.dtype)
            if grad_hidden is not None:
                torch.mm(grad_CV, weight_VH, out=grad_hidden[part])
            if grad_weight is not None:
                _add_product(grad_weight, grad_CV, hidden_NH[part])
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight_VH.dtype)
        if grad_bias is not None:
            # The bias is added after the product and divided with it.
            grad_bias = grad_bias.to(bias_V.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _add_product(total_VH: Tensor, grad_CV: Tensor, hidden_CH: Tensor) -> None:
    if grad_CV.dtype == total_VH.dtype:
        total_VH.addmm_(grad_CV.t(), hidden_CH)
    else:
        total_VH += torch.mm(grad_CV.t(), hidden_CH)


def _logit_gradient(
    logp_CV: Tensor,
    tokens_C: Tensor,
    grad_logp_C: Tensor | None,
    grad_entropy_C: Tensor | None,
    entropy_C: Tensor,
) -> Tensor:
    """Gradient in the logits: ``g (onehot - p) - h p (log p + H)``; overwrites ``logp_CV``."""
    if grad_entropy_C is None:
        if grad_logp_C is None:
            return logp_CV.zero_()
        grad_CV = logp_CV.exp_().mul_(-grad_logp_C[:, None])
    else:
        p_CV = logp_CV.exp()
        weight_CV = logp_CV.add_(entropy_C[:, None]).mul_(-grad_entropy_C[:, None])
        if grad_logp_C is not None:
            weight_CV.sub_(grad_logp_C[:, None])
        grad_CV = weight_CV.mul_(p_CV)
    if grad_logp_C is not None:
        grad_CV.scatter_add_(1, tokens_C[:, None], grad_logp_C[:, None])
    return grad_CV
