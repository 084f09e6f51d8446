"""Sampling from a transformers model: one prefill a prompt, a preallocated cache, finished rows retired.

Requests run in waves that fit a memory budget, prompts of like length together. A row's prompt stands flush
with its completion (padding on the left), so that windows of attention see what they see in training. The
plain reference is the trainer's own forward pass, and a test holds both to the same log-probs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.engines.inverse_cdf import draw
from assay.engines.request import Request, Sampled, SamplingSettings
from assay.engines.uniforms import keyed_uniforms
from assay.errors import BadInput
from assay.models.huggingface import HuggingFacePolicy
from assay.models.kv_cache import roomy_cache
from assay.models.memory import cache_bytes_a_token

RETIRE_BELOW = 0.75  # compact the cache once fewer rows than this share are unfinished
WAVE_BYTES = 1 << 30  # of cache and logits in one wave
COPIES_OF_LOGITS = 6  # alive at once while a token is drawn, float64 counted twice


class _Head(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    ends: Tensor


class _Record:
    """What was drawn, (B, T) each, and where each row ended."""

    def __init__(self, rows: int, steps: int, device: torch.device) -> None:
        self.tokens = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.logps = torch.zeros(rows, steps, device=device)
        self.entropies = torch.zeros(rows, steps, device=device)
        self.lengths = torch.full((rows,), steps, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)

    def completions(self) -> list[Sampled]:
        """One a row, cut at its end."""
        columns = (self.tokens, self.logps, self.entropies, self.lengths, self.ended)
        return [
            Sampled(ids[:length], logps[:length], entropies[:length], "eos" if ended else "length")
            for ids, logps, entropies, length, ended in zip(*(c.tolist() for c in columns), strict=True)
        ]


@torch.no_grad()
def sample(
    policy: HuggingFacePolicy, requests: Sequence[Request], settings: SamplingSettings
) -> list[Sampled]:
    """Sample one completion for each request; the result is in the order of the requests.

    Raises:
        BadInput: a prompt plus ``max_new_tokens`` does not fit the model's positions.
    """
    if not requests:
        return []
    _check_room(policy, requests, settings)
    weight, bias = policy.head()
    head = _Head(weight, bias, torch.tensor(sorted(policy.eos_ids), device=policy.device))
    found: list[Sampled | None] = [None] * len(requests)
    with policy.autocast():  # one context for all tokens: weights are cast once
        for wave in _waves(policy, requests, settings, len(weight)):
            drawn = _sample_wave(policy, head, [requests[i] for i in wave], settings)
            for index, one in zip(wave, drawn, strict=True):
                found[index] = one
    return [one for one in found if one is not None]


def _check_room(policy: HuggingFacePolicy, requests: Sequence[Request], settings: SamplingSettings) -> None:
    longest = max(len(request.prompt_ids) for request in requests)
    if longest + settings.max_new_tokens > policy.max_positions:
        raise BadInput(
            f"a prompt of {longest} tokens plus max_new_tokens={settings.max_new_tokens} exceeds the model's "
            f"{policy.max_positions} positions; lower max_new_tokens or shorten the prompts"
        )


def _waves(
    policy: HuggingFacePolicy, requests: Sequence[Request], settings: SamplingSettings, vocabulary: int
) -> list[list[int]]:
    """Indices of requests, by prompt length, in parts whose cache and logits fit the budget."""
    a_token = cache_bytes_a_token(policy)
    order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt_ids), requests[i].prompt_ids))
    waves: list[list[int]] = [[]]
    for index in order:
        columns = len(requests[index].prompt_ids) + settings.max_new_tokens
        row = 2 * columns * a_token + COPIES_OF_LOGITS * 4 * vocabulary  # twice: retiring copies
        if waves[-1] and (len(waves[-1]) + 1) * row > WAVE_BYTES:
            waves.append([])
        waves[-1].append(index)
    return waves


def _sample_wave(
    policy: HuggingFacePolicy, head: _Head, requests: Sequence[Request], settings: SamplingSettings
) -> list[Sampled]:
    prompts = list(dict.fromkeys(tuple(request.prompt_ids) for request in requests))
    place = {prompt: index for index, prompt in enumerate(prompts)}
    which_B = torch.tensor([place[tuple(r.prompt_ids)] for r in requests], device=policy.device)
    cache: Any = roomy_cache(settings.max_new_tokens)
    last_PH, mask_PL, lengths_P = policy.prefill(prompts, cache)
    cache.batch_select_indices(which_B)
    uniforms_BT = keyed_uniforms(settings.seed, [r.key for r in requests], settings.max_new_tokens)
    own_BT = mask_PL.new_ones(len(requests), settings.max_new_tokens)
    mask_BL = torch.cat([mask_PL[which_B], own_BT], dim=1)
    record = _Record(len(requests), settings.max_new_tokens, policy.device)
    uniforms_BT = uniforms_BT.to(policy.device)
    _decode(policy, head, cache, last_PH[which_B], mask_BL, lengths_P[which_B], uniforms_BT, settings, record)
    return record.completions()


def _decode(
    policy: HuggingFacePolicy, head: _Head, cache: Any, hidden_BH: Tensor, mask_BL: Tensor, position_B: Tensor,
    uniforms_BT: Tensor, settings: SamplingSettings, record: _Record,
) -> None:  # fmt: skip
    active = torch.arange(len(hidden_BH), device=policy.device)
    column = mask_BL.shape[1] - settings.max_new_tokens
    for step in range(settings.max_new_tokens):
        with torch.autocast(policy.device.type, enabled=False):
            logits = F.linear(hidden_BH, head.weight, head.bias)
        drawn = draw(logits / settings.temperature, uniforms_BT[active, step])
        alive = _note(record, active, step, drawn, head.ends)
        if not bool(alive.any()) or step + 1 == settings.max_new_tokens:
            return
        token_B = drawn.token_B
        if int(alive.sum()) <= RETIRE_BELOW * len(active):
            kept = alive.nonzero().squeeze(1)
            active, token_B, mask_BL, position_B = (x[kept] for x in (active, token_B, mask_BL, position_B))
            cache.batch_select_indices(kept)
        column += 1
        hidden_BH = policy.states(token_B[:, None], mask_BL[:, :column], position_B[:, None], cache)[:, 0]
        position_B = position_B + 1


def _note(record: _Record, active: Tensor, step: int, drawn: Any, ends: Tensor) -> Tensor:
    """Write one token a row; return which of the active rows go on."""
    record.tokens[active, step], record.logps[active, step], record.entropies[active, step] = drawn
    done = torch.isin(drawn.token_B, ends)
    record.lengths[active[done & ~record.ended[active]]] = step + 1
    record.ended[active[done]] = True
    return ~record.ended[active]
