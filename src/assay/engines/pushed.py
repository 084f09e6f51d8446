"""What the samplers outside this package's models share: they get the policy's weights, and have to sample from them.

Left out: nothing that knows vLLM; that is in vllm.py and vllm_colocated.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from assay.errors import ContractBroken
from assay.models.export import merged_weights
from assay.models.policy import Policy

UNLIKELY = -100.0  # the lowest logit bias vLLM takes: e^-100 of an id that must not be sampled
PROBE_TOKENS = 4


class PushedSampler(ABC):
    """A sampler that holds a copy of the policy's weights.

    Attributes:
        version: the fingerprint of the weights it has; None before the first push.
    """

    version: float | None = None

    @abstractmethod
    def load(self, weights: dict[str, Tensor]) -> None:
        """Replace the sampler's weights and forget what was computed with the old ones."""

    @abstractmethod
    def probe(self, prompt: Sequence[int]) -> list[float]:
        """Log-probs of the greedy continuation of a prompt."""

    @abstractmethod
    def stale(self) -> str:
        """What to say when new weights change nothing."""

    def push(self, policy: Policy, prompt: Sequence[int]) -> None:
        """Give the sampler the policy's weights, if they are others than it has.

        Raises:
            ContractBroken: its log-probs for ``prompt`` are the same as with the other weights.
        """
        weights = merged_weights(policy.module)
        version = math.fsum(float(value.double().abs().sum()) for value in weights.values())
        if version == self.version:
            return
        before = None if self.version is None else self.probe(prompt)
        self.load(weights)
        # A policy that is certain of the probe has log-probs of 0 before and after.
        if before is not None and min(before) < 0 and self.probe(prompt) == before:
            raise ContractBroken(self.stale())
        self.version = version
