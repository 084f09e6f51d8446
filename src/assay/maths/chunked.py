"""Log-probs and entropies from hidden states and the output head, without ever holding all the logits.

The logits are taken in blocks of rows by vocabulary that fit a cache; a block lives only while it is worked on,
its softmax joins the row's running one, and the backward pass computes it again (one more matrix product)
instead of keeping it. Blocks are tall, so that each part of the head is read, and its gradient written, once for
many rows. Memory is that of a few blocks, whatever the vocabulary.

The plain reference is ``logprobs_from_logits`` on ``hidden @ weight.T``; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from assay.errors import BadInput
from assay.maths.kl import exact_kl
from assay.maths.logprobs import TokenLogprobs, check_temperature

WIDE = 8192  # vocabulary from which taking the logits in chunks pays
CHUNK_BYTES = 1 << 24
MAX_ROWS = 1024


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
        chunk_bytes: size of one block of logits in float32.

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
    flat_NH = hidden.reshape(-1, hidden.shape[-1])
    logp_N, entropy_N = _Chunked.apply(
        flat_NH, weight_VH, bias_V, tokens.reshape(-1), temperature, chunk_bytes
    )
    return TokenLogprobs(logp_N.reshape(tokens.shape), entropy_N.reshape(tokens.shape))


Head = tuple[Tensor, Tensor, Tensor | None]
"""Hidden states (N, H), the head's weight (V, H), and its bias (V,) or None: a distribution a row."""


def chunked_kl(
    policy: Head, reference: Head, *, temperature: float = 1.0, chunk_bytes: int = CHUNK_BYTES
) -> Tensor:
    """KL(policy, reference) over the whole vocabulary at each row, (N,) nats, a block of rows at a time.

    Differentiable in the policy; the backward pass computes each block again. The plain reference is
    :func:`assay.maths.kl.exact_kl`.

    Args:
        policy, reference: hidden states and head of each, with as many rows and ids.
        temperature: divides the logits of both.
        chunk_bytes: size of one block of logits in float32.
    """
    check_temperature(temperature)
    (hidden_NH, weight_VH, bias_V), (other_NH, other_VH, other_V) = policy, reference
    if (len(hidden_NH), len(weight_VH)) != (len(other_NH), len(other_VH)):
        raise BadInput(
            f"expected as many rows and ids of policy and reference, got {tuple(hidden_NH.shape)} with "
            f"{tuple(weight_VH.shape)} and {tuple(other_NH.shape)} with {tuple(other_VH.shape)}"
        )

    def rows_kl(hidden: Tensor, other: Tensor, weight_VH: Tensor, bias_V: Tensor | None) -> Tensor:
        with torch.no_grad():
            other_logits = _scaled(linear(other, other_VH, other_V), temperature)
        return exact_kl(_scaled(linear(hidden, weight_VH, bias_V), temperature), other_logits)

    height = max(1, chunk_bytes // (4 * max(len(weight_VH), 1)))
    parts = [
        checkpoint(rows_kl, hidden, other, weight_VH, bias_V, use_reentrant=False)
        for hidden, other in zip(hidden_NH.split(height), other_NH.split(height), strict=True)
    ]
    return torch.cat(parts)


class _Block(NamedTuple):
    """Rows and columns of one block, and which of its rows have their token inside it, at which column."""

    rows: slice
    columns: slice
    inside: Tensor
    at: Tensor


def _blocks(tokens_N: Tensor, vocabulary: int, chunk_bytes: int) -> Iterator[_Block]:
    N = tokens_N.shape[0]
    height = max(1, min(N, MAX_ROWS, chunk_bytes // 4))
    width = max(1, chunk_bytes // (4 * height))
    for top in range(0, N, height):
        tokens = tokens_N[top : top + height]
        for left in range(0, vocabulary, width):
            inside = torch.nonzero((tokens >= left) & (tokens < left + width))[:, 0]
            rows, columns = slice(top, top + height), slice(left, left + width)
            yield _Block(rows, columns, inside, tokens[inside] - left)


def _logits(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperature: float, block: _Block
) -> Tensor:
    """Scaled logits of one block in the accumulation dtype, a buffer that the caller may overwrite."""
    logits = torch.mm(hidden_NH[block.rows], weight_VH[block.columns].t())
    logits = _wide(logits)
    if bias_V is not None:
        logits.add_(bias_V[block.columns])
    return logits if temperature == 1.0 else logits.div_(temperature)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return _wide(logits) / temperature


class _Running(NamedTuple):
    """A softmax seen block by block, each (N,): maximum, sum of exp(z - maximum), and that sum weighted by it."""

    top_N: Tensor
    total_N: Tensor
    moment_N: Tensor

    def add(self, logits: Tensor, rows: slice) -> None:
        """Take in one block of logits, which is overwritten."""
        old = self.top_N[rows].clone()
        top = torch.maximum(old, logits.amax(1))
        shifted = logits.sub_(top[:, None])
        weights = shifted.exp()
        # Shifting the old sums to the new maximum; the first block's are empty (old = -inf).
        drop = torch.where(old > -torch.inf, old - top, 0.0)
        keep = drop.exp()
        self.moment_N[rows] = keep * (self.moment_N[rows] + drop * self.total_N[rows])
        self.total_N[rows] *= keep
        self.top_N[rows] = top
        self.total_N[rows] += weights.sum(1)
        # A batched dot product: sum(p * z) without a third buffer.
        self.moment_N[rows] += torch.bmm(weights[:, None, :], shifted[:, :, None])[:, 0, 0]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        tokens_N: Tensor,
        temperature: float,
        chunk_bytes: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_NH.dtype, torch.float32)
        zeros = hidden_NH.new_zeros((4, hidden_NH.shape[0]), dtype=dtype)
        picked_N = zeros[0]
        running = _Running(zeros[1] - torch.inf, zeros[2], zeros[3])
        for block in _blocks(tokens_N, weight_VH.shape[0], chunk_bytes):
            logits = _logits(hidden_NH, weight_VH, bias_V, temperature, block)
            picked_N[block.rows][block.inside] = logits[block.inside, block.at]
            running.add(logits, block.rows)
        lse_N = running.top_N + running.total_N.log()
        entropy_N = running.total_N.log() - running.moment_N / running.total_N
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, tokens_N, lse_N, entropy_N)
        ctx.temperature, ctx.chunk_bytes = temperature, chunk_bytes
        ctx.set_materialize_grads(False)
        return picked_N - lse_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden_NH, weight_VH, bias_V, tokens_N, lse_N, entropy_N = ctx.saved_tensors
        grad_logp_N, grad_entropy_N = (g if g is None else g / ctx.temperature for g in grad_outputs)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden_NH, dtype=lse_N.dtype) if needs_hidden else None
        grad_weight = torch.zeros_like(weight_VH, dtype=lse_N.dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=lse_N.dtype) if needs_bias else None
        for block in _blocks(tokens_N, weight_VH.shape[0], ctx.chunk_bytes):
            rows, columns = block.rows, block.columns
            logits = _logits(hidden_NH, weight_VH, bias_V, ctx.temperature, block)
            grad = _logit_gradient(
                logits.sub_(lse_N[rows, None]),
                block,
                None if grad_logp_N is None else grad_logp_N[rows],
                None if grad_entropy_N is None else grad_entropy_N[rows],
                entropy_N[rows],
            )
            if grad_bias is not None:
                grad_bias[columns] += grad.sum(0)
            grad = grad.to(hidden_NH.dtype)
            if grad_hidden is not None:
                _add_product(grad_hidden[rows], grad, weight_VH[columns])
            if grad_weight is not None:
                _add_product(grad_weight[columns], grad.t(), hidden_NH[rows])
        grads = ((grad_hidden, hidden_NH), (grad_weight, weight_VH), (grad_bias, bias_V))
        return *(g if g is None else g.to(x.dtype) for g, x in grads), None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += torch.mm(left, right)


def _logit_gradient(
    logp: Tensor,
    block: _Block,
    grad_logp_C: Tensor | None,
    grad_entropy_C: Tensor | None,
    entropy_C: Tensor,
) -> Tensor:
    """Gradient in a block's logits: ``g (onehot - p) - h p (log p + H)``; overwrites ``logp``."""
    if grad_entropy_C is None:
        if grad_logp_C is None:
            return logp.zero_()
        grad = logp.exp_().mul_(-grad_logp_C[:, None])
    else:
        p = logp.exp()
        weight = logp.add_(entropy_C[:, None]).mul_(-grad_entropy_C[:, None])
        if grad_logp_C is not None:
            weight.sub_(grad_logp_C[:, None])
        grad = weight.mul_(p)
    if grad_logp_C is not None:
        grad[block.inside, block.at] += grad_logp_C[block.inside]
    return grad
