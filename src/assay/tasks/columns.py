"""A task without the columns that a reward reads is an invalid task, not a wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from assay.records.score import Score, invalid_task
from assay.tasks.task_set import Task

Scorer = Callable[[str, Task], float | Score]
"""Our own signature: ``(completion, task)`` to a number or a score."""


def needs(*columns: str) -> Callable[[Scorer], Scorer]:
    """Make a scorer answer ``invalid_task`` for tasks that lack one of ``columns``."""

    def decorate(function: Scorer) -> Scorer:
        @wraps(function)
        def checked(completion: str, task: Task) -> float | Score:
            for name in columns:
                if task.get(name) is None:
                    return invalid_task(f"expected a task with the column {name!r}, got {sorted(task)}")
            return function(completion, task)

        return checked

    return decorate
