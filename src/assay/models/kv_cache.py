"""Keys and values of a transformers model, in buffers with room for the tokens to come.

The library's own growing cache copies everything at every token. This one writes in place, and is used
without gradients only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class _RoomyLayer(DynamicLayer):
    """Keys and values (B, heads, columns, D) as views of buffers with ``room`` further columns."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append, and return all keys and values."""
        del args, kwargs
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            self._grow(key_states, value_states, start, end + self.room)
        assert self._buffers is not None
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self._buffers)
        return self.keys, self.values

    def _grow(self, keys: Tensor, values: Tensor, start: int, columns: int) -> None:
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        made: list[Tensor] = []
        for new, old in ((keys, self.keys), (values, self.values)):
            buffer = new.new_empty((*new.shape[:-2], columns, new.shape[-1]))
            if start and old is not None:
                buffer[..., :start, :] = old
            made.append(buffer)
        self._buffers = (made[0], made[1])

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order; a row may be taken more than once."""
        columns = self.get_seq_length()
        if self._buffers is None or columns == 0:
            return
        made: list[Tensor] = []
        for buffer in self._buffers:
            chosen = buffer.new_empty((len(indices), *buffer.shape[1:]))
            chosen[..., :columns, :] = buffer[..., :columns, :][indices]
            made.append(chosen)
        self._buffers = (made[0], made[1])
        self.keys, self.values = (buffer[..., :columns, :] for buffer in self._buffers)


def roomy_cache(room: int) -> Cache:
    """An empty cache whose buffers take ``room`` tokens after the first ones without being copied."""
    make: Any = partial(_RoomyLayer, room)
    return Cache(layer_class_to_replicate=make)
