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

from assay.models.llama_weights import LayerWeights, LlamaWeights, folded


class _Place(NamedTuple):
    """Where packed tokens stand in padded rows: flat indices (N,), the padded shape, cosines and sines (N, D/2)."""

    flat_N: Tensor
    shape: tuple[int, int]
    cos: Tensor
    sin: Tensor


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
    own = _place(weights, fed_BT, lengths_P[which_B])
    shared = _place(weights, real_PL, torch.zeros_like(lengths_P))
    mask = _attention_mask(real_PL[which_B], width - 1)
    x = F.embedding(prompts_PL[real_PL], weights.embedding).float()
    y = F.embedding(completions_BT[:, :-1][fed_BT], weights.embedding).float()
    for layer in weights.layers:
        x, y = _block(weights, layer, x, y, shared, own, which_B, mask)
    last_PH = x[lengths_P.cumsum(0) - 1]
    found = _normalise(torch.cat([last_PH.index_select(0, which_B), y]), weights.epsilon)
    rows_B = torch.arange(len(which_B)) * width
    places = torch.cat([rows_B, own.flat_N + own.flat_N.div(max(width - 1, 1), rounding_mode="floor") + 1])
    padded = found.new_zeros(len(which_B) * width, found.shape[-1])
    return padded.index_copy(0, places, found * weights.norm).view(len(which_B), width, -1)


def _place(weights: LlamaWeights, real: Tensor, first: Tensor) -> _Place:
    """The places of the true positions; the first token of row i stands at position ``first[i]``."""
    half = weights.head_size // 2
    position = (first[:, None] + torch.arange(real.shape[1]))[real]
    rows, width = real.shape
    return _Place(
        real.flatten().nonzero()[:, 0],
        (rows, width),
        weights.cos_TD[position, None, :half],
        weights.sin_TD[position, None, :half],
    )


def _attention_mask(seen_BL: Tensor, steps: int) -> Tensor:
    """What each completion token may look at: its prompt, and its own row up to itself; (B, 1, T, L + T)."""
    causal_TT = torch.ones(steps, steps, dtype=torch.bool).tril()
    prompt = seen_BL[:, None, None].expand(-1, 1, steps, -1)
    return torch.cat([prompt, causal_TT.expand(len(seen_BL), 1, -1, -1)], dim=-1)


def _block(
    weights: LlamaWeights, layer: LayerWeights, x: Tensor, y: Tensor, shared: _Place, own: _Place, which_B: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One layer on packed prompts ``x`` and packed completions ``y``, (N, H) each."""
    weight = folded(layer.qkv, layer.input_norm)
    x_query, x_pair = _project(x, weight, layer.qkv_bias, shared, weights)
    mixed_x = _attend(x_query, x_pair, None, shared)
    if y.numel():
        y_query, y_pair = _project(y, weight, layer.qkv_bias, own, weights)
        pairs = torch.cat([x_pair.index_select(0, which_B), y_pair], dim=1)
        y = _finish(layer, y, _attend(y_query, pairs, mask, own), weights.epsilon)
    return _finish(layer, x, mixed_x, weights.epsilon), y


def _project(
    x: Tensor, weight: Tensor, bias: Tensor | None, place: _Place, weights: LlamaWeights
) -> tuple[Tensor, Tensor]:
    """Padded queries (B, T, A, D) and keys beside values (B, T, 2 K, D); queries and keys rotated."""
    heads, kept = weights.heads, weights.kv_heads
    qkv = F.linear(_normalise(x, weights.epsilon), weight, bias).float().view(len(x), heads + 2 * kept, -1)
    turned = _Rotate.apply(qkv, place.cos, place.sin, heads + kept)
    rows, width = place.shape
    padded = turned.new_zeros(rows * width, *turned.shape[1:]).index_copy(0, place.flat_N, turned)
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
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, place.flat_N)


def _finish(layer: LayerWeights, x: Tensor, mixed: Tensor, epsilon: float) -> Tensor:
    x = x + F.linear(mixed, layer.out)
    weight = folded(layer.gate_up, layer.post_norm)
    gate, up = F.linear(_normalise(x, epsilon), weight).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


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
    """Rotary embedding of the first heads of (N, heads, D); values, behind them, pass. Backward turns back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return _turn(qkv, cos, sin, heads, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        cos, sin = ctx.saved_tensors
        return _turn(grad_outputs[0], cos, sin, ctx.heads, -1), None, None, None


def _turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, way: int) -> Tensor:
    out = torch.empty_like(qkv)
    out[:, heads:] = qkv[:, heads:]
    first, second = qkv[:, :heads].chunk(2, dim=-1)
    turned_first, turned_second = out[:, :heads].chunk(2, dim=-1)
    torch.mul(first, cos, out=turned_first).addcmul_(second, sin, value=-way)
    torch.mul(second, cos, out=turned_second).addcmul_(first, sin, value=way)
    return out
