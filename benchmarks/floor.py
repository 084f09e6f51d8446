"""What a training step cannot do without: operations and bytes, and this machine's rates for them.

Left out: attention's own products (under 5% at these lengths) and the element-wise operations; what they cost is in
the difference between a part's time and its bare products.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Work(NamedTuple):
    """One part of a step.

    rows: of the body's products, by pass; head_rows: of the head's; seen: positions that attention reads from a cache,
    over all rows; passes: 3 with backward.
    """

    rows: Sequence[int]
    head_rows: Sequence[int]
    seen: int
    passes: int
    optimiser: bool


class Floor(NamedTuple):
    """Seconds: operations at the best rate, the bare products at their own shapes, bytes at the best bandwidth."""

    peak: float
    products: float
    memory: float

    def bound(self, measured: float) -> str:
        """Which of them takes at least half of the time measured."""
        if max(self.products, self.memory) < 0.5 * measured:
            return "operations between the products"
        return "products" if self.products >= self.memory else "memory"


def best(function: Callable[[], Any], seconds: float = 0.2) -> float:
    """Seconds of the fastest of the calls that fit."""
    function()
    found, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        function()
        found = min(found, time.perf_counter() - started)
    return found


def matmul_rate(dtype: str) -> float:
    """FLOP a second of a large matrix product."""
    import torch

    left = torch.randn(1024, 1024, dtype=getattr(torch, dtype))
    return 2 * 1024**3 / best(lambda: left @ left)


def bandwidth() -> float:
    """Bytes a second, read and written by a copy that no cache holds."""
    import torch

    source = torch.zeros(64 << 20)
    target = torch.empty_like(source)
    return 2 * 4 * source.numel() / best(lambda: target.copy_(source))


def products(shape: Any) -> list[tuple[int, int]]:
    """Inputs and outputs of one layer's matrices, fused."""
    h, i = shape.hidden, shape.intermediate
    return [(h, 3 * h), (h, h), (h, 2 * i), (i, h)]


def body(shape: Any) -> int:
    """Weights in all layers' matrices."""
    return shape.layers * sum(a * b for a, b in products(shape))


def flops(shape: Any, work: Work) -> float:
    """Two a weight and row, thrice with a backward pass."""
    head = shape.vocabulary * shape.hidden
    return 2 * work.passes * (body(shape) * sum(work.rows) + head * sum(work.head_rows))


def floor_of(shape: Any, work: Work, dtype: str) -> Floor:
    """What the part takes at least on this machine, in three ways."""
    import torch

    kind = getattr(torch, dtype)

    def bare(rows: int, inputs: int, outputs: int) -> float:
        left, right = torch.randn(rows, inputs, dtype=kind), torch.randn(outputs, inputs, dtype=kind)
        return best(lambda: torch.nn.functional.linear(left, right), 0.02)

    seconds = 0.0
    for rows in set(work.rows):
        layer = sum(bare(rows, a, b) for a, b in products(shape))
        seconds += work.passes * shape.layers * layer * list(work.rows).count(rows)
    for rows in set(work.head_rows):
        one = bare(rows, shape.hidden, shape.vocabulary)
        seconds += work.passes * one * list(work.head_rows).count(rows)
    size, head = kind.itemsize, shape.vocabulary * shape.hidden
    weights = work.passes * size * (body(shape) * len(work.rows) + head * len(work.head_rows))
    logits = 2 * work.passes * 4 * shape.vocabulary * sum(work.head_rows)  # written and read, float32
    cached = 2 * 4 * shape.hidden * shape.layers * work.seen  # keys and values, float32
    # AdamW reads a weight, its gradient and two moments, and writes three of them.
    moments = 28 * (body(shape) + head) * work.optimiser
    least = (weights + logits + cached + moments) / bandwidth()
    return Floor(flops(shape, work) / matmul_rate(dtype), seconds, least)
