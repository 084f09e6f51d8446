"""What an engine is asked for and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.engines.uniforms import SampleKey
from assay.errors import BadInput
from assay.records.rollout import FinishReason

WAVE_BYTES = 1 << 30  # of cache and logits in one wave
COPIES_OF_LOGITS = 6  # alive at once while a token is drawn


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


def expect_fit(requests: Sequence[Request], settings: SamplingSettings, positions: int) -> int:
    """The columns that the longest of some requests takes.

    Raises:
        BadInput: more than the model has positions.
    """
    longest = max(len(request.prompt_ids) for request in requests)
    columns = longest + settings.max_new_tokens
    if columns > positions:
        raise BadInput(
            f"a prompt of {longest} tokens plus max_new_tokens={settings.max_new_tokens} exceeds the model's "
            f"{positions} positions; lower max_new_tokens or shorten the prompts"
        )
    return columns


def row_bytes(columns: int, vocabulary: int, bytes_a_token: int) -> int:
    """Bytes of one row's cache, twice because retiring may copy it whole, and of its logits."""
    return 2 * columns * bytes_a_token + COPIES_OF_LOGITS * 4 * vocabulary


def waves(
    requests: Sequence[Request], settings: SamplingSettings, vocabulary: int, bytes_a_token: int
) -> list[list[int]]:
    """Indices of requests in parts whose cache and logits fit a budget; by prompt length when several are needed.

    Args:
        vocabulary: width of the logits. bytes_a_token: of keys and values in all layers.
    """

    def size_of(index: int) -> int:
        columns = len(requests[index].prompt_ids) + settings.max_new_tokens
        return row_bytes(columns, vocabulary, bytes_a_token)

    order = list(range(len(requests)))
    if len(order) * max(map(size_of, order)) <= WAVE_BYTES:
        return [order]
    order.sort(key=lambda i: (len(requests[i].prompt_ids), requests[i].prompt_ids))
    found: list[list[int]] = [[]]
    for index in order:
        if found[-1] and (len(found[-1]) + 1) * size_of(index) > WAVE_BYTES:
            found.append([])
        found[-1].append(index)
    return found
