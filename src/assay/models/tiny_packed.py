"""The tiny decoder on prompts and completions apart: the fast path of training.

Every prompt is run once and shared by its completions; padding is left out of every product and every norm, and
stands in the attention alone. Queries, keys and values are one product, as are gate and up; the norms' weights
are folded into what follows them. :meth:`TinyDecoder.hidden` on joined rows is the plain reference: a test holds
values and gradients of both together.

Shapes: P prompts of at most L tokens, B completions, T their longest but its last token (which predicts nothing),
N tokens in all, H hidden, A heads of size D.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from assay.models.tiny import Block, TinyDecoder


class _Place(NamedTuple):
    """Where packed tokens stand in padded rows: flat indices (N,), the padded shape, cosines and sines (N, D/2)."""

    flat_N: Tensor
    shape: tuple[int, int]
    cos: Tensor
    sin: Tensor


def completion_hidden(
    module: TinyDecoder,
    prompts_PL: Tensor,
    lengths_P: Tensor,
    which_B: Tensor,
    completions_BT: Tensor,
    counts_B: Tensor,
) -> Tensor:
    """Hidden states that predict each completion token, (B, longest completion, H); 0 on padding.

    Args:
        module: the decoder.
        prompts_PL, lengths_P: right-padded prompts. which_B: each completion's prompt.
        completions_BT, counts_B: right-padded completions.
    """
    width = completions_BT.shape[1]
    fed_BT = torch.arange(width - 1) < counts_B[:, None] - 1
    real_PL = torch.arange(prompts_PL.shape[1]) < lengths_P[:, None]
    own = _place(module, fed_BT, lengths_P[which_B])
    shared = _place(module, real_PL, torch.zeros_like(lengths_P))
    mask = _attention_mask(real_PL[which_B], width - 1)
    x, y = (
        module.model.embed_tokens(prompts_PL[real_PL]),
        module.model.embed_tokens(completions_BT[:, :-1][fed_BT]),
    )
    for block in module.blocks:
        x, y = _block(module, block, x, y, shared, own, which_B, mask)
    last_PH = x[lengths_P.cumsum(0) - 1]
    found = _normalise(torch.cat([last_PH.index_select(0, which_B), y]), module.config.norm_epsilon)
    rows_B = torch.arange(len(which_B)) * width
    places = torch.cat([rows_B, own.flat_N + own.flat_N.div(max(width - 1, 1), rounding_mode="floor") + 1])
    padded = found.new_zeros(len(which_B) * width, found.shape[-1])
    return padded.index_copy(0, places, found * module.model.norm.weight).view(len(which_B), width, -1)


def _place(module: TinyDecoder, real: Tensor, first: Tensor) -> _Place:
    """The places of the true positions; the first token of row i stands at position ``first[i]``."""
    half = module.config.head_size // 2
    position = (first[:, None] + torch.arange(real.shape[1]))[real]
    rows, width = real.shape
    return _Place(
        real.flatten().nonzero()[:, 0],
        (rows, width),
        module.cos_TD[position, None, None, :half],
        module.sin_TD[position, None, None, :half],
    )


def _attention_mask(seen_BL: Tensor, steps: int) -> Tensor:
    """What each completion token may look at: its prompt, and its own row up to itself; (B, 1, T, L + T)."""
    causal_TT = torch.ones(steps, steps, dtype=torch.bool).tril()
    prompt = seen_BL[:, None, None].expand(-1, 1, steps, -1)
    return torch.cat([prompt, causal_TT.expand(len(seen_BL), 1, -1, -1)], dim=-1)


def _block(
    module: TinyDecoder, block: Block, x: Tensor, y: Tensor, shared: _Place, own: _Place, which_B: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One block on packed prompts ``x`` and packed completions ``y``, (N, H) each."""
    attention, epsilon = block.self_attn, module.config.norm_epsilon
    weight = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
    weight = weight * block.input_layernorm.weight
    x_query, x_pair = _project(x, weight, shared, module)
    mixed_x = _attend(x_query, x_pair, None, shared)
    if y.numel():
        y_query, y_pair = _project(y, weight, own, module)
        pairs = torch.cat([x_pair.index_select(0, which_B), y_pair], dim=1)
        y = _finish(block, y, _attend(y_query, pairs, mask, own), epsilon)
    return _finish(block, x, mixed_x, epsilon), y


def _project(x: Tensor, weight: Tensor, place: _Place, module: TinyDecoder) -> tuple[Tensor, Tensor]:
    """Padded queries (B, T, 1, A, D) and pairs of keys and values (B, T, 2, A, D); queries and keys rotated."""
    heads = module.config.heads
    qkv = F.linear(_normalise(x, module.config.norm_epsilon), weight).view(len(x), 3, heads, -1)
    turned = _Rotate.apply(qkv, place.cos, place.sin)
    rows, width = place.shape
    padded = turned.new_zeros(rows * width, *turned.shape[1:]).index_copy(0, place.flat_N, turned)
    query, pair = padded.view(rows, width, 3, heads, -1).split([1, 2], dim=2)
    return query, pair


def _attend(query: Tensor, pair: Tensor, mask: Tensor | None, place: _Place) -> Tensor:
    """What attention gives at the packed tokens, (N, H)."""
    key, value = pair.transpose(1, 3).unbind(2)
    mixed = F.scaled_dot_product_attention(
        query.squeeze(2).transpose(1, 2), key, value, attn_mask=mask, is_causal=mask is None
    )
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, place.flat_N)


def _finish(block: Block, x: Tensor, mixed: Tensor, epsilon: float) -> Tensor:
    x = x + F.linear(mixed, block.self_attn.o_proj.weight)
    mlp = block.mlp
    weight = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * block.post_attention_layernorm.weight
    gate, up = F.linear(_normalise(x, epsilon), weight).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, mlp.down_proj.weight)


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
    """Rotary embedding of queries and keys in (N, 3, A, D); values pass. Backward turns the other way."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(qkv, cos, sin, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        cos, sin = ctx.saved_tensors
        return _turn(grad_outputs[0], cos, sin, -1), None, None


def _turn(qkv: Tensor, cos: Tensor, sin: Tensor, way: int) -> Tensor:
    out = torch.empty_like(qkv)
    out[:, 2] = qkv[:, 2]
    first, second = qkv[:, :2].chunk(2, dim=-1)
    turned_first, turned_second = out[:, :2].chunk(2, dim=-1)
    torch.mul(first, cos, out=turned_first).addcmul_(second, sin, value=-way)
    torch.mul(second, cos, out=turned_second).addcmul_(first, sin, value=way)
    return out
