"""What an engine is asked for and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.engines.uniforms import SampleKey
from assay.records.rollout import FinishReason


class Request(NamedTuple):
    """One completion to sample: the prompt's ids and the key of its random numbers."""

    prompt_ids: Sequence[int]
    key: SampleKey


@dataclass(frozen=True)
class SamplingSettings:
    """Neutral sampling: only temperature, no truncation of the support, because every stored log-prob must
    be the log-prob of the distribution that was sampled."""

    max_new_tokens: int
    temperature: float = 1.0
    seed: int = 0


class Sampled(NamedTuple):
    """One sampled completion: ids (EOS included when sampled), log-probs and entropies in nats."""

    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    finish_reason: FinishReason
