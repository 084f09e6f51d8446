"""A task set: prompts for training and for evaluation, the reward that training sees, and the held-out truth.

A task is a plain mapping with at least ``prompt_id`` and ``prompt``; ``answer`` and any other column are the
reward's business. Training and evaluation prompts never overlap.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Task = Mapping[str, Any]
"""One prompt: ``prompt_id``, ``prompt``, and the columns that its reward and truth read."""

RewardFunction = Callable[..., Any]
"""A reward in any accepted signature; ours is ``(completion: str, task: Task) -> float | Score``."""


@dataclass(frozen=True)
class TaskSet:
    """Prompts with a reward and a truth.

    Attributes:
        name: versioned, such as ``proofs-v1``.
        train, evaluation: tasks; no ``structural_key`` (or prompt) is in both.
        reward: what training optimises (the proxy).
        truth: the held-out score, by another instrument; only evaluation calls it.
        traces: (prompt, completion) pairs, verified by the truth, for a supervised warm start.
    """

    name: str
    train: Sequence[Task]
    evaluation: Sequence[Task]
    reward: RewardFunction
    truth: RewardFunction
    traces: Sequence[tuple[str, str]] = ()

    def data_hash(self) -> str:
        """SHA-256 over every prompt and column, for run.json and for the train/evaluation leak check."""
        return tasks_hash([*self.train, *self.evaluation])


def tasks_hash(tasks: Sequence[Task]) -> str:
    """SHA-256 of the tasks' canonical JSON."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps(task, sort_keys=True, default=str, ensure_ascii=False).encode())
    return digest.hexdigest()
