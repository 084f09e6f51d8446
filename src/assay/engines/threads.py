"""How many threads a small model's products get while sampling.

Handing half of a product to a second thread and waiting for it takes tens of microseconds: as long as the whole
product of a small model on few rows. Such a layer runs on one thread.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

FEW = 6_000_000  # multiply-adds of a product; on two cores one thread is faster at 4 million, and slower at 9


@contextmanager
def threads_for(multiply_adds: int) -> Generator[None]:
    """Run products of this size on one thread where that is faster.

    Other Python threads that have used torch before keep theirs; one that begins meanwhile starts with one.
    """
    usual = torch.get_num_threads()
    if multiply_adds < FEW:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
