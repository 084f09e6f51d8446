"""Sampling that overlaps the update: the next batch is drawn while this one is trained on, one step off-policy.

The weights that draw a batch are the ones before the update that runs meanwhile; each rollout records their number
as ``policy_version``, and truncated importance weights correct the difference (the run turns them on). Before a
matched checkpoint nothing is drawn ahead, so that resume needs no second set of weights and stays bit-exact.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from assay.models.policy import Policy

T = TypeVar("T")


@dataclass
class Ahead(Generic[T]):
    """One batch in the making. ``gather(policy, step, version)`` draws and scores the batch of a step."""

    gather: Callable[[Policy, int, int], T]
    _coming: Future[T] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "ahead"))

    def take(self, policy: Policy, step: int) -> T:
        """The batch of ``step``: the one drawn ahead, else a fresh one. What broke in the thread is raised here."""
        coming, self._coming = self._coming, None
        return self.gather(policy, step, step - 1) if coming is None else coming.result()

    def start(self, policy: Policy, step: int, version: int) -> None:
        """Begin to draw the batch of ``step`` with the weights as they are now."""
        self._coming = self._thread.submit(self.gather, policy.frozen_copy(), step, version)
