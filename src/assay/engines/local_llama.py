"""Sampling from a Llama-shaped decoder: one prefill a prompt, a preallocated cache, finished rows retired.

The weights are taken once a call (fused projections, norm weights folded in, an adapter merged, cast where asked
for), so the cost of a step is a few matrix products. Every prompt's keys and values are computed once and shared
by its samples. Rows keep their own position but share one cache column a step; the gap after a shorter prompt is
masked. The plain reference is the model's own forward pass, and tests hold both to the same log-probs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.engines.inverse_cdf import draw, scaled
from assay.engines.record import Record
from assay.engines.request import Request, Sampled, SamplingSettings, waves
from assay.engines.threads import threads_for
from assay.engines.uniforms import keyed_uniforms
from assay.models.llama_weights import LlamaWeights, gate_up
from assay.models.policy import Policy
from assay.models.tiny_policy import pad_right

RETIRE_BELOW = 0.75  # compact the cache once fewer rows than this share are unfinished


class _Layer(NamedTuple):
    qkv: Tensor  # (H, (A + 2 K) D), input norm folded in; queries and keys in pairs
    bias: Tensor | None
    out: Tensor  # (A D, H)
    gate_up: Tensor  # (H, 2I), post-attention norm folded in
    down: Tensor  # (I, H)


class _Decoder(NamedTuple):
    shape: LlamaWeights
    layers: list[_Layer]
    head: Tensor  # (H, V), final norm folded in
    bias: Tensor | None
    ends: Tensor
    turns_TF: Tensor  # rotary embedding as complex numbers, F = D / 2
    epsilon: Tensor  # (1,), of the norms

    def work(self, columns: int) -> int:
        """Multiply-adds a token of a layer's products, their mean; the token attends to so many columns."""
        layer = self.layers[0]
        matrices = (layer.qkv, layer.out, layer.gate_up, layer.down)
        attention = 2 * columns * layer.out.shape[0]
        return (sum(matrix.numel() for matrix in matrices) + attention) // len(matrices)


class _Cache:
    """Keys, then values, of each layer, (B, 2 K, columns, D) in float32, and the mask to add, (B, 1, 1, columns).

    Attributes:
        column: the first free column.
    """

    def __init__(self, pairs: list[Tensor], mask: Tensor | None, column: int) -> None:
        self.pairs, self.mask, self.column = pairs, mask, column

    def keep(self, rows: Tensor) -> None:
        """Drop every row but these; one layer at a time, so that the old and the new never stand side by side."""
        for index, old in enumerate(self.pairs):
            self.pairs[index] = old.new_empty(len(rows), *old.shape[1:])
            used = self.pairs[index][:, :, : self.column]
            torch.index_select(old[:, :, : self.column], 0, rows, out=used)
        if self.mask is not None:
            self.mask = self.mask[rows]

    def attend(self, index: int, query: Tensor) -> Tensor:
        """What queries (B, K, heads a key head, D) find in the columns so far."""
        end = self.column + 1
        mask = None if self.mask is None else self.mask[..., :end]
        keys, values = self.pairs[index].narrow(2, 0, end).chunk(2, 1)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


@torch.no_grad()
def sample(
    policy: Policy, weights: LlamaWeights, requests: Sequence[Request], settings: SamplingSettings
) -> list[Sampled]:
    """Sample one completion for each request; the result is in the order of the requests."""
    decoder = _snapshot(policy, weights)
    a_token = 2 * 4 * len(decoder.layers) * weights.kv_heads * weights.head_size
    found: dict[int, Sampled] = {}
    for wave in waves(requests, settings, decoder.head.shape[1], a_token):
        drawn = _sample_wave(policy.pad_id, decoder, [requests[i] for i in wave], settings)
        found.update(zip(wave, drawn, strict=True))
    return [found[index] for index in range(len(requests))]


def _sample_wave(
    pad_id: int, decoder: _Decoder, requests: Sequence[Request], settings: SamplingSettings
) -> list[Sampled]:
    prompts = list(dict.fromkeys(tuple(request.prompt_ids) for request in requests))
    place = {prompt: index for index, prompt in enumerate(prompts)}
    which_B = torch.tensor([place[tuple(request.prompt_ids)] for request in requests])
    cache, hidden_PH, lengths_P = _prefill(decoder, prompts, pad_id, settings.max_new_tokens, which_B)
    uniforms_BT = keyed_uniforms(
        settings.seed, [request.key for request in requests], settings.max_new_tokens
    )
    return _decode(decoder, cache, hidden_PH[which_B], lengths_P[which_B], uniforms_BT, settings)


def _snapshot(policy: Policy, weights: LlamaWeights) -> _Decoder:
    dtype = torch.bfloat16 if policy.dtype == "bfloat16" else torch.float32
    layers = [
        _Layer(
            _inputs_first(weights.qkv(layer), dtype),
            None if (bias := weights.qkv_bias(layer)) is None else bias.to(dtype),
            _inputs_first(layer.out, dtype),
            _inputs_first(gate_up(layer), dtype),
            _inputs_first(layer.down, dtype),
        )
        for layer in weights.layers
    ]
    head, bias = policy.head()
    head = _inputs_first(head * weights.norm, torch.float32)
    ends, epsilon = torch.tensor(sorted(policy.eos_ids)), torch.tensor([weights.epsilon])
    return _Decoder(weights, layers, head, bias, ends, weights.turns_TF, epsilon)


def _inputs_first(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Transposed: a product with few rows takes up to half the time from a matrix that lies this way."""
    return weight.t().to(dtype).contiguous()


def _norm(x: Tensor, epsilon: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.addcmul(epsilon, size, size, value=1 / x.shape[-1]).rsqrt_()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Of (N, in), in the weight's precision; attention and the sum of the layers stay in float32, as in training."""
    x = x.to(weight.dtype)
    return x @ weight if bias is None else torch.addmm(bias, x, weight)


def _prefill(
    decoder: _Decoder, prompts: Sequence[Sequence[int]], pad_id: int, room: int, which_B: Tensor
) -> tuple[_Cache, Tensor, Tensor]:
    """Run every prompt once; return the cache of all rows, the last hidden state (P, H) and lengths (P,)."""
    shape = decoder.shape
    heads, kept, size = shape.heads, shape.kv_heads, shape.head_size
    ids_PT, lengths_P = pad_right(prompts, pad_id)
    width = ids_PT.shape[1]
    rows = len(prompts)
    turns = decoder.turns_TF[:width].repeat(rows, heads + kept)
    sizes = (len(which_B), 2 * kept, width + room, size)
    cached = [torch.empty(sizes) for _ in decoder.layers]
    x = F.embedding(ids_PT.flatten(), shape.embedding).float()
    for pairs, layer in zip(cached, decoder.layers, strict=True):
        qkv = _turned(decoder, layer, x, turns).view(rows, width, -1, size).transpose(1, 2)
        q, k, v = qkv.split([heads, kept, kept], dim=1)
        pairs[:, :, :width] = qkv[:, heads:][which_B]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kept)
        _finish_layer(decoder, layer, x, mixed.transpose(1, 2).reshape(len(x), -1))
    last = x[torch.arange(rows) * width + lengths_P - 1]
    column = torch.arange(width + room)
    gap = (column[None] >= lengths_P[:, None]) & (column[None] < width)
    mask = torch.zeros(gap.shape).masked_fill_(gap, float("-inf"))[which_B][:, None, None]
    return _Cache(cached, mask if bool(gap.any()) else None, width), last, lengths_P


def _turned(decoder: _Decoder, layer: _Layer, x: Tensor, turns: Tensor) -> Tensor:
    """Queries, keys and values of tokens (N, H), (N, (A + 2 K) D); the first two turned by (N, (A + K) F)."""
    qkv = _product(_norm(x, decoder.epsilon), layer.qkv, layer.bias).float()
    qkv.view(torch.complex64).narrow(1, 0, turns.shape[1]).mul_(turns)
    return qkv


def _finish_layer(decoder: _Decoder, layer: _Layer, x: Tensor, mixed: Tensor) -> None:
    """Add to ``x`` (N, H) what attention found, then what the network makes of both."""
    x += _product(mixed, layer.out)
    gate, up = _product(_norm(x, decoder.epsilon), layer.gate_up).chunk(2, -1)
    x += _product(F.silu(gate).mul_(up), layer.down)


def _decode(
    decoder: _Decoder, cache: _Cache, x: Tensor, position_B: Tensor, uniforms_BT: Tensor,
    settings: SamplingSettings,
) -> list[Sampled]:  # fmt: skip
    record = Record(len(x), settings.max_new_tokens, x.device)
    active = torch.arange(len(x))
    for step in range(settings.max_new_tokens):
        with threads_for(len(active) * decoder.head.numel()):
            logits = _product(_norm(x, decoder.epsilon), decoder.head, decoder.bias)
            drawn = draw(scaled(logits, settings.temperature), uniforms_BT[active, step])
        alive = record.note(active, step, drawn, decoder.ends)
        going = int(alive.sum())
        if not going or step + 1 == settings.max_new_tokens:
            break
        token = drawn.token_B
        if going <= RETIRE_BELOW * len(active):
            kept = alive.nonzero().squeeze(1)
            active, position_B, token = active[kept], position_B[kept], token[kept]
            cache.keep(kept)
        with threads_for(len(active) * decoder.work(cache.column)):
            x = _step(decoder, cache, token, position_B)
        position_B, cache.column = position_B + 1, cache.column + 1
    return record.completions()


def _step(decoder: _Decoder, cache: _Cache, token_B: Tensor, position_B: Tensor) -> Tensor:
    """Feed one token a row and return the new hidden states (B, H)."""
    shape, rows = decoder.shape, len(token_B)
    heads, kept, size = shape.heads, shape.kv_heads, shape.head_size
    turns = decoder.turns_TF[position_B].repeat(1, heads + kept)
    x = F.embedding(token_B, shape.embedding).float()
    for index, layer in enumerate(decoder.layers):
        query, pair = _turned(decoder, layer, x, turns).split([heads * size, 2 * kept * size], dim=1)
        cache.pairs[index].select(2, cache.column).copy_(pair.view(rows, -1, size))
        query = query.view(rows, kept, heads // kept, size)  # each key head's queries
        _finish_layer(decoder, layer, x, cache.attend(index, query).view(rows, -1))
    return x
