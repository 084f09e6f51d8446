"""Sampling from any policy: picks the engine that fits its kind."""

from __future__ import annotations

from collections.abc import Sequence

from assay.engines import local_tiny
from assay.engines.request import Request, Sampled, SamplingSettings
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy


def sample(policy: Policy, requests: Sequence[Request], settings: SamplingSettings) -> list[Sampled]:
    """Sample one completion for each request, in the order of the requests."""
    if isinstance(policy, TinyPolicy):
        return local_tiny.sample(policy, requests, settings)
    from assay.engines import local_huggingface
    from assay.models.huggingface import HuggingFacePolicy

    assert isinstance(policy, HuggingFacePolicy)  # the only other kind
    return local_huggingface.sample(policy, requests, settings)
