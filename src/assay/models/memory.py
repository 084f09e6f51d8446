"""Bytes of a model's cache, and giving back what the C library keeps."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.models.policy import Policy

KEPT_FREED = 1 << 29  # bytes the C library may keep before they are given back


def layers_of(module: Any) -> int:
    """Layers of a transformers model."""
    return int(module.config.get_text_config().num_hidden_layers)


def cache_bytes_a_token(policy: Policy) -> int:
    """Bytes of keys and values of one token in all layers; attention is in float32."""
    config: Any = policy.module.config
    config = config.get_text_config()
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    return 2 * 4 * layers_of(policy.module) * kept * size


class _Heap(ctypes.Structure):
    """The C library's ``struct mallinfo2``."""

    _fields_ = [("others", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


@cache
def _heap() -> Any:
    """The C library, where it is one that says how much it keeps (glibc from 2.33)."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _Heap
    return library


def give_back() -> None:
    """Return freed memory to the system where the C library keeps much of it.

    Sampling and updating free blocks that the other cannot use, so what it keeps adds up over the steps. The library
    goes on counting what it has given back, so a call may find nothing to do; it takes milliseconds.
    """
    library = _heap()
    if library is not None and library.mallinfo2().fordblks > KEPT_FREED:
        library.malloc_trim(0)
