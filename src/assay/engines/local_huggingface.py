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

from assay.engines.inverse_cdf import draw, scaled
from assay.engines.record import Record
from assay.engines.request import Request, Sampled, SamplingSettings, waves
from assay.engines.uniforms import keyed_uniforms
from assay.models.huggingface import HuggingFacePolicy
from assay.models.kv_cache import roomy_cache
from assay.models.memory import cache_bytes_a_token

RETIRE_BELOW = 0.75  # compact the cache once fewer rows than this share are unfinished


class _Head(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    ends: Tensor


@torch.no_grad()
def sample(
    policy: HuggingFacePolicy, requests: Sequence[Request], settings: SamplingSettings
) -> list[Sampled]:
    """Sample one completion for each request; the result is in the order of the requests."""
    weight, bias = policy.head()
    head = _Head(weight, bias, torch.tensor(sorted(policy.eos_ids), device=policy.device))
    found: list[Sampled | None] = [None] * len(requests)
    with policy.autocast():  # one context for all tokens: weights are cast once
        for wave in waves(requests, settings, len(weight), cache_bytes_a_token(policy)):
            drawn = _sample_wave(policy, head, [requests[i] for i in wave], settings)
            for index, one in zip(wave, drawn, strict=True):
                found[index] = one
    return [one for one in found if one is not None]


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
    record = Record(len(requests), settings.max_new_tokens, policy.device)
    uniforms_BT = uniforms_BT.to(policy.device)
    _decode(policy, head, cache, last_PH[which_B], mask_BL, lengths_P[which_B], uniforms_BT, settings, record)
    return record.completions()


def _decode(
    policy: HuggingFacePolicy, head: _Head, cache: Any, hidden_BH: Tensor, mask_BL: Tensor, position_B: Tensor,
    uniforms_BT: Tensor, settings: SamplingSettings, record: Record,
) -> None:  # fmt: skip
    active = torch.arange(len(hidden_BH), device=policy.device)
    column = mask_BL.shape[1] - settings.max_new_tokens
    for step in range(settings.max_new_tokens):
        with torch.autocast(policy.device.type, enabled=False):
            logits = F.linear(hidden_BH, head.weight, head.bias)
            drawn = draw(scaled(logits, settings.temperature), uniforms_BT[active, step])
        alive = record.note(active, step, drawn, head.ends)
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
