"""A Llama-shaped decoder on prompts and completions apart: the fast path of training.

Every prompt is run once and shared by its completions; padding is left out of every product and every norm, and
stands in the attention alone. Queries, keys and values are one product, as are gate and up; the norms' weights
are folded into what follows them. The model's own forward pass on joined rows is the plain reference: tests hold
values and gradients of both together.

Shapes: P prompts of at most L tokens, B completions, T their longest but its last token (which predicts nothing),
N tokens in all, H hidden, A query heads and K key heads of size D.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from assay.models.llama_weights import LayerWeights, LlamaWeights, gate_up


class _Place(NamedTuple):
    """Where packed tokens stand in padded rows: flat indices (N,), their positions (N,), and the padded shape."""

    flat_N: Tensor
    position_N: Tensor
    shape: tuple[int, int]


def completion_hidden(
    weights: LlamaWeights,
    prompts_PL: Tensor,
    lengths_P: Tensor,
    which_B: Tensor,
    completions_BT: Tensor,
    counts_B: Tensor,
) -> Tensor:
    """Hidden states that predict each completion token, (B, longest completion, H); 0 on padding.

    Args:
        weights: the decoder.
        prompts_PL, lengths_P: right-padded prompts. which_B: each completion's prompt.
        completions_BT, counts_B: right-padded completions.
    """
    width = completions_BT.shape[1]
    fed_BT = torch.arange(width - 1) < counts_B[:, None] - 1
    real_PL = torch.arange(prompts_PL.shape[1]) < lengths_P[:, None]
    own, shared = _place(fed_BT, lengths_P[which_B]), _place(real_PL, torch.zeros_like(lengths_P))
    mask = _attention_mask(real_PL[which_B], width - 1)
    turns = weights.turns_TF[torch.cat([shared.position_N, own.position_N]), None]
    ids_N = torch.cat([prompts_PL[real_PL], completions_BT[:, :-1][fed_BT]])
    x = F.embedding(ids_N, weights.embedding).float()
    for layer in weights.layers:
        x = _block(weights, layer, x, turns, shared, own, which_B, mask)
    last_B = (lengths_P.cumsum(0) - 1)[which_B]
    predicting_N = torch.cat([last_B, torch.arange(len(shared.flat_N), len(x))])
    found = _normalise(x.index_select(0, predicting_N), weights.epsilon)
    rows_B = torch.arange(len(which_B)) * width
    places = torch.cat([rows_B, own.flat_N + own.flat_N.div(max(width - 1, 1), rounding_mode="floor") + 1])
    padded = found.new_zeros(len(which_B) * width, found.shape[-1])
    return padded.index_copy_(0, places, found * weights.norm).view(len(which_B), width, -1)


def _place(real: Tensor, first: Tensor) -> _Place:
    """The places of the true positions; the first token of row i stands at position ``first[i]``."""
    position = (first[:, None] + torch.arange(real.shape[1]))[real]
    rows, width = real.shape
    return _Place(real.flatten().nonzero()[:, 0], position, (rows, width))


def _attention_mask(seen_BL: Tensor, steps: int) -> Tensor:
    """0 where a completion token may look, else -inf: its prompt, its own row up to itself; (B, 1, T, L + T)."""
    causal_TT = torch.ones(steps, steps, dtype=torch.bool).tril()
    prompt = seen_BL[:, None, None].expand(-1, 1, steps, -1)
    seen = torch.cat([prompt, causal_TT.expand(len(seen_BL), 1, -1, -1)], dim=-1)
    return torch.zeros(seen.shape).masked_fill_(seen.logical_not_(), float("-inf"))


def _block(
    weights: LlamaWeights, layer: LayerWeights, x: Tensor, turns: Tensor, shared: _Place, own: _Place,
    which_B: Tensor, mask: Tensor,
) -> Tensor:  # fmt: skip
    """One layer on packed tokens (N, H): the prompts', then the completions'. ``turns`` are (N, 1, F = D / 2)."""
    heads, kept = weights.heads, weights.kv_heads
    qkv = F.linear(_normalise(x, weights.epsilon), weights.qkv(layer), weights.qkv_bias(layer)).float()
    turned = _Rotate.apply(qkv, turns, heads + kept)
    prompts, completions = turned.split([len(shared.flat_N), len(own.flat_N)])
    query, prompt_pair = _padded(prompts, shared, weights)
    mixed = [_attend(query, prompt_pair, None, shared)]
    if len(completions):
        query, pair = _padded(completions, own, weights)
        pairs = torch.cat([prompt_pair.index_select(0, which_B), pair], dim=1)
        mixed.append(_attend(query, pairs, mask, own))
    x = x + F.linear(torch.cat(mixed), layer.out)
    gated = _Gate.apply(F.linear(_normalise(x, weights.epsilon), gate_up(layer)))
    return x + F.linear(gated, layer.down)


def _padded(qkv: Tensor, place: _Place, weights: LlamaWeights) -> tuple[Tensor, Tensor]:
    """Padded queries (B, T, A, D) and keys beside values (B, T, 2 K, D)."""
    (rows, width), heads, kept = place.shape, weights.heads, weights.kv_heads
    padded = qkv.new_zeros(rows * width, qkv.shape[1]).index_copy_(0, place.flat_N, qkv)
    query, pair = padded.view(rows, width, heads + 2 * kept, -1).split([heads, 2 * kept], dim=2)
    return query, pair


def _attend(query: Tensor, pair: Tensor, mask: Tensor | None, place: _Place) -> Tensor:
    """What attention gives at the packed tokens, (N, H)."""
    key, value = pair.transpose(1, 2).chunk(2, dim=1)
    with torch.autocast(query.device.type, enabled=False):  # attention in float32, as in sampling
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key, value, attn_mask=mask, is_causal=mask is None,
            enable_gqa=query.shape[2] != key.shape[1],
        )  # fmt: skip
    return _Pick.apply(mixed.transpose(1, 2).flatten(2).flatten(0, 1), place.flat_N)


def _normalise(x: Tensor, epsilon: float) -> Tensor:
    return _Normalise.apply(x, epsilon)


class _Normalise(torch.autograd.Function):
    """x over its root mean square (Zhang and Sennrich 2019, arXiv 1910.07467), in a few passes each way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        size = x.shape[-1]
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        scale = square.div_(size).add_(epsilon).rsqrt_()
        out = x * scale
        ctx.save_for_backward(out, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grad_outputs
        out, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(grad, out)[..., None].div_(out.shape[-1])
        return torch.addcmul(grad, out, along, value=-1).mul_(scale), None


class _Rotate(torch.autograd.Function):
    """Rotary embedding, in place, of the first heads of (N, all heads D), in pairs. Backward turns back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, turns: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(turns)
        ctx.heads = heads
        ctx.mark_dirty(qkv)
        return _turn(qkv, turns, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (turns,) = ctx.saved_tensors
        return _turn(grad_outputs[0].clone(), turns.conj().resolve_conj(), ctx.heads), None, None


def _turn(qkv: Tensor, turns: Tensor, heads: int) -> Tensor:
    complex_qkv = torch.view_as_complex(qkv.view(len(qkv), -1, turns.shape[-1], 2))
    complex_qkv[:, :heads].mul_(turns)
    return qkv


class _Gate(torch.autograd.Function):
    """silu(gate) * up of both side by side, (N, 2 I); keeps them alone, and writes their gradient into one tensor."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,), (both,) = grad_outputs, ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        out = torch.empty_like(both)
        to_gate, to_up = out.chunk(2, dim=-1)
        torch.mul(grad, F.silu(gate), out=to_up)
        torch.ops.aten.silu_backward(grad * up, gate, grad_input=to_gate)
        return out


class _Pick(torch.autograd.Function):
    """Rows of (M, H) at different places; backward puts them back instead of adding them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(x)
        return x.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,), (places,) = grad_outputs, ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.shape[1]).index_copy_(0, places, grad), None
