"""The embedded tasks by versioned name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from assay.errors import BadInput, nearest
from assay.tasks import arithmetic, brackets, code, countdown, padded, sorting
from assay.tasks.loopholes.table import LOOPHOLES
from assay.tasks.proofs import task as proofs
from assay.tasks.task_set import TaskSet

CATALOGUE: dict[str, Callable[..., TaskSet]] = {
    proofs.NAME: proofs.proofs_task_set,
    sorting.NAME: sorting.sorting_task_set,
    arithmetic.NAME: arithmetic.arithmetic_task_set,
    countdown.NAME: countdown.countdown_task_set,
    brackets.NAME: brackets.brackets_task_set,
    code.NAME: code.code_task_set,
    padded.NAME: padded.padded_task_set,
    **{loophole.version: loophole.task_set for loophole in LOOPHOLES.values()},
}
"""Versioned name to builder. What a name and a seed give never changes: a new version gets a new name."""


def build_task_set(name: str, **options: Any) -> TaskSet:
    """Build an embedded task set.

    Args:
        name: versioned, such as ``proofs-v1``.
        options: the builder's keyword arguments (``seed``, ``train``, ``evaluation``, ``traces``, ...).

    Raises:
        BadInput: an unknown name or option (with the nearest known one), or a value the builder refuses.
    """
    if name not in CATALOGUE:
        raise BadInput(f"unknown task {name!r}{nearest(name, CATALOGUE)}")
    known = inspect.signature(CATALOGUE[name]).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"{name}: unknown option {option!r}{nearest(option, known)}")
    return CATALOGUE[name](**options)
