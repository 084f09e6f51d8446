"""A policy: a causal language model, its tokenizer, and the ids that end a completion.

Everything above (engines, training) sees a policy only through this class; the tiny decoder and Hugging Face
models are its two kinds.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from assay.models.llama_weights import LlamaWeights


class Policy(ABC):
    """A causal language model with its tokenizer.

    Attributes:
        module: the torch module that is trained and saved. dtype: of its matrix products.
        eos_ids: every id that ends a completion. pad_id: never sampled, never one of ``eos_ids``' trained
            positions. max_positions: longest prompt plus completion.
    """

    module: Any  # an nn.Module; each kind of policy narrows it
    dtype: Literal["float32", "bfloat16"] = "float32"
    eos_ids: frozenset[int]
    pad_id: int
    max_positions: int

    @abstractmethod
    def encode_prompt(self, prompt: str) -> list[int]:
        """Ids of a prompt, with exactly one BOS where the model has one."""

    @abstractmethod
    def encode_completion(self, completion: str) -> list[int]:
        """Ids of a supervised completion, the end token included."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids; the end token is left out, nothing else is."""

    @abstractmethod
    def completion_hidden(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        """Hidden states that predict each completion token, right-padded, shape (B, T, H)."""

    def llama_weights(self, positions: int) -> LlamaWeights | None:
        """The decoder's tensors with rotary tables of ``positions``; None when it is not Llama-shaped."""
        del positions
        return None

    @abstractmethod
    def head(self) -> tuple[Tensor, Tensor | None]:
        """LM head weight (V, H) and bias (V,) or None; ids that cannot be sampled are left out or at -inf."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write model and tokenizer in Hugging Face format into an existing folder."""

    def frozen_copy(self) -> Policy:
        """A copy without gradients: the reference, or the start policy of an evaluation."""
        twin = copy.copy(self)
        twin.module = copy.deepcopy(self.module).requires_grad_(False).eval()
        return twin

    def trainable_copy(self) -> Policy:
        """A copy to train; dropout stays off, so that sampler and trainer see the same network."""
        twin = self.frozen_copy()
        twin.module.requires_grad_(True)
        return twin

    @property
    def parameters_count(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.module.parameters())
