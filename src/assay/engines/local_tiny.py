"""Sampling from the tiny decoder: one prefill a prompt, a preallocated cache, finished rows retired.

The weights are taken once a call (fused projections, norm weights folded in), so the cost of a step is a few
matrix products. Every prompt's keys and values are computed once and shared by its samples. Rows keep their
own position but share one cache column a step; the gap after a shorter prompt is masked. The plain reference
is :meth:`TinyDecoder.forward`, and a test holds both to the same log-probs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.engines.inverse_cdf import draw
from assay.engines.request import Request, Sampled, SamplingSettings
from assay.engines.uniforms import keyed_uniforms
from assay.errors import BadInput
from assay.models.tiny import TinyDecoder, rotate
from assay.models.tiny_policy import TinyPolicy, pad_right

RETIRE_BELOW = 0.75  # compact the cache once fewer rows than this share are unfinished


class _Layer(NamedTuple):
    qkv: Tensor  # (3H, H), input norm folded in
    out: Tensor
    gate_up: Tensor  # (2I, H), post-attention norm folded in
    down: Tensor


class _Weights(NamedTuple):
    embedding: Tensor
    head: Tensor  # (V, H), final norm folded in
    layers: list[_Layer]


class _Cache:
    """Keys and values, (layers, B, N, columns, D), and the additive mask (B, N, 1, columns)."""

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor) -> None:
        self.keys, self.values, self.mask = keys, values, mask

    def keep(self, rows: Tensor) -> None:
        """Drop every row but these."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.mask = self.mask[rows]


@torch.no_grad()
def sample(policy: TinyPolicy, requests: Sequence[Request], settings: SamplingSettings) -> list[Sampled]:
    """Sample one completion for each request; the result is in the order of the requests.

    Raises:
        BadInput: a prompt plus ``max_new_tokens`` does not fit the model's positions.
    """
    if not requests:
        return []
    _check_room(policy, requests, settings)
    module = policy.module
    weights = _snapshot(module)
    prompts = list(dict.fromkeys(tuple(request.prompt_ids) for request in requests))
    place = {prompt: index for index, prompt in enumerate(prompts)}
    which_B = torch.tensor([place[tuple(request.prompt_ids)] for request in requests])
    cache, hidden_PH, lengths_P = _prefill(
        module, weights, prompts, policy.pad_id, settings.max_new_tokens, which_B
    )
    uniforms_BT = keyed_uniforms(
        settings.seed, [request.key for request in requests], settings.max_new_tokens
    )
    return _decode(policy, weights, cache, hidden_PH[which_B], lengths_P[which_B], uniforms_BT, settings)


def _check_room(policy: TinyPolicy, requests: Sequence[Request], settings: SamplingSettings) -> None:
    longest = max(len(request.prompt_ids) for request in requests)
    if longest + settings.max_new_tokens > policy.max_positions:
        raise BadInput(
            f"a prompt of {longest} tokens plus max_new_tokens={settings.max_new_tokens} exceeds the model's "
            f"{policy.max_positions} positions; lower max_new_tokens or shorten the prompts"
        )


def _snapshot(module: TinyDecoder) -> _Weights:
    layers: list[_Layer] = []
    for block in module.blocks:
        attention, mlp = block.self_attn, block.mlp
        qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        layers.append(
            _Layer(
                qkv * block.input_layernorm.weight,
                attention.o_proj.weight,
                gate_up * block.post_attention_layernorm.weight,
                mlp.down_proj.weight,
            )
        )
    return _Weights(
        module.model.embed_tokens.weight, module.head_weight_VH * module.model.norm.weight, layers
    )


def _norm(x: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)


def _prefill(
    module: TinyDecoder,
    weights: _Weights,
    prompts: Sequence[Sequence[int]],
    pad_id: int,
    room: int,
    which_B: Tensor,
) -> tuple[_Cache, Tensor, Tensor]:
    """Run every prompt once; return the cache of all rows, the last hidden state (P, H) and lengths (P,)."""
    config = module.config
    ids_PT, lengths_P = pad_right(prompts, pad_id)
    width = ids_PT.shape[1]
    cos, sin = module.cos_TD[:width], module.sin_TD[:width]
    shape = (config.layers, len(which_B), config.heads, width + room, config.head_size)
    keys, values = torch.empty(shape), torch.empty(shape)
    x = weights.embedding[ids_PT]
    for index, layer in enumerate(weights.layers):
        q, k, v = (
            part.unflatten(-1, (config.heads, -1)).transpose(1, 2)
            for part in F.linear(_norm(x, config.norm_epsilon), layer.qkv).chunk(3, -1)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys[index, :, :, :width], values[index, :, :, :width] = k[which_B], v[which_B]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = _finish_layer(x, mixed.transpose(1, 2).flatten(-2), layer, config.norm_epsilon)
    last = x[torch.arange(len(prompts)), lengths_P - 1]
    column = torch.arange(width + room)
    gap = (column[None] >= lengths_P[:, None]) & (column[None] < width)
    mask = torch.zeros(gap.shape).masked_fill_(gap, float("-inf"))
    mask_BN = mask[which_B][:, None, None].expand(-1, config.heads, -1, -1).contiguous()
    return _Cache(keys, values, mask_BN), last, lengths_P


def _finish_layer(x: Tensor, mixed: Tensor, layer: _Layer, epsilon: float) -> Tensor:
    x = x + F.linear(mixed, layer.out)
    gate, up = F.linear(_norm(x, epsilon), layer.gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def _decode(
    policy: TinyPolicy, weights: _Weights, cache: _Cache, x: Tensor, position_B: Tensor,
    uniforms_BT: Tensor, settings: SamplingSettings,
) -> list[Sampled]:  # fmt: skip
    config, rows = policy.module.config, len(x)
    tokens, logps, entropies = (torch.zeros(rows, settings.max_new_tokens, dtype=kind) for kind in (torch.long, torch.float32, torch.float32))  # fmt: skip  # noqa: E501
    lengths = torch.full((rows,), settings.max_new_tokens)
    ended = torch.zeros(rows, dtype=torch.bool)
    active = torch.arange(rows)
    column = cache.keys.shape[3] - settings.max_new_tokens
    for step in range(settings.max_new_tokens):
        logits = F.linear(_norm(x, config.norm_epsilon), weights.head)
        drawn = draw(logits / settings.temperature, uniforms_BT[active, step])
        tokens[active, step], logps[active, step], entropies[active, step] = drawn
        done = drawn.token_B == policy.eos_id
        lengths[active[done & ~ended[active]]] = step + 1
        ended[active[done]] = True
        alive = ~ended[active]
        if not bool(alive.any()) or step + 1 == settings.max_new_tokens:
            break
        token = drawn.token_B
        if int(alive.sum()) <= RETIRE_BELOW * len(active):
            kept = alive.nonzero().squeeze(1)
            active, position_B, token = active[kept], position_B[kept], token[kept]
            cache.keep(kept)
        x = _step(policy.module, weights, cache, token, position_B, column)
        position_B, column = position_B + 1, column + 1
    return _collect(tokens, logps, entropies, lengths, ended)


def _step(
    module: TinyDecoder, weights: _Weights, cache: _Cache, token_B: Tensor, position_B: Tensor, column: int
) -> Tensor:
    """Feed one token a row and return the new hidden states (B, H)."""
    config = module.config
    rows = len(token_B)
    cos, sin = module.cos_TD[position_B][:, None], module.sin_TD[position_B][:, None]
    mask = cache.mask.flatten(0, 1)[:, :, : column + 1]
    scale = config.head_size**-0.5
    x = weights.embedding[token_B]
    for index, layer in enumerate(weights.layers):
        qkv = F.linear(_norm(x, config.norm_epsilon), layer.qkv).view(rows, 3, config.heads, -1)
        rotated = rotate(qkv[:, :2].flatten(1, 2), cos, sin).view(rows, 2, config.heads, -1)
        cache.keys[index, :, :, column] = rotated[:, 1]
        cache.values[index, :, :, column] = qkv[:, 2]
        keys = cache.keys[index].flatten(0, 1)[:, : column + 1]
        values = cache.values[index].flatten(0, 1)[:, : column + 1]
        scores = torch.baddbmm(mask, rotated[:, 0].flatten(0, 1)[:, None], keys.transpose(1, 2), alpha=scale)
        mixed = torch.bmm(scores.softmax(-1), values).view(rows, -1)
        x = _finish_layer(x, mixed, layer, config.norm_epsilon)
    return x


def _collect(
    tokens: Tensor, logps: Tensor, entropies: Tensor, lengths: Tensor, ended: Tensor
) -> list[Sampled]:
    table = zip(
        tokens.tolist(), logps.tolist(), entropies.tolist(), lengths.tolist(), ended.tolist(), strict=True
    )
    return [
        Sampled(row[:length], logp[:length], entropy[:length], "eos" if finished else "length")
        for row, logp, entropy, length, finished in table
    ]
