"""Random numbers of sampling, keyed by (seed, stream, prompt_id, sample).

A completion's randomness depends on its key alone: not on the batch it is in, the order of the rows, or how
many completions were sampled before. That is what makes checkpoints matched and a resumed run exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

SampleKey = tuple[str, str, int]
"""(stream, prompt_id, sample); the stream is ``eval``, or ``train:<step>``."""


def keyed_uniforms(seed: int, keys: Sequence[SampleKey], length: int) -> Tensor:
    """Uniform numbers in [0, 1), shape (len(keys), length), float32; row i depends on keys[i] alone."""
    rows = np.empty((len(keys), length), dtype=np.float32)
    for row, key in zip(rows, keys, strict=True):
        np.random.Generator(np.random.Philox(key=_key(seed, key))).random(out=row, dtype=np.float32)
    return torch.from_numpy(rows)


def _key(seed: int, key: SampleKey) -> np.ndarray:
    digest = hashlib.blake2b(repr((seed, *key)).encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype=np.uint64)


def keyed_integer(seed: int, *parts: object) -> int:
    """A 63-bit integer that depends on its arguments alone."""
    digest = hashlib.blake2b(repr((seed, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
