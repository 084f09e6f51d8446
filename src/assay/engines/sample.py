"""Sampling from any policy: picks the engine that fits its kind."""

from __future__ import annotations

from collections.abc import Sequence

from assay.engines import local_llama
from assay.engines.request import Request, Sampled, SamplingSettings, expect_fit
from assay.models.memory import give_back
from assay.models.policy import Policy


def sample(policy: Policy, requests: Sequence[Request], settings: SamplingSettings) -> list[Sampled]:
    """Sample one completion for each request, in the order of the requests.

    Raises:
        BadInput: a prompt plus ``max_new_tokens`` does not fit the model's positions.
    """
    if not requests:
        return []
    columns = expect_fit(requests, settings, policy.max_positions)
    drawn = _with_engine(policy, requests, settings, columns)
    give_back()
    return drawn


def _with_engine(
    policy: Policy, requests: Sequence[Request], settings: SamplingSettings, columns: int
) -> list[Sampled]:
    weights = policy.llama_weights(columns)
    if weights is not None:
        return local_llama.sample(policy, weights, requests, settings)
    from assay.engines import local_huggingface
    from assay.models.huggingface import HuggingFacePolicy

    assert isinstance(policy, HuggingFacePolicy)  # every other kind has such weights
    return local_huggingface.sample(policy, requests, settings)
