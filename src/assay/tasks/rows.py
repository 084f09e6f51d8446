"""From raw rows (of a file or a data set) to tasks: column mapping, checks, duplicates, leaks.

Every message names the row, as it stands in its source, and the column.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from assay.errors import BadInput, nearest
from assay.tasks.task_set import Task

Duplicates = Literal["refuse", "drop"]
"""What to do with a row whose prompt was there before: stop, or keep the first only."""


def tasks_from_rows(
    rows: Iterable[tuple[int, Any]],
    source: str,
    *,
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "refuse",
) -> list[Task]:
    """Check rows and turn them into tasks.

    Args:
        rows: each row's number in its source (for messages) and its mapping by column.
        source: the name that messages give.
        columns: our name to theirs, such as ``{"prompt": "question"}``; other columns keep their names.
        duplicates: ``refuse``, or ``drop`` to keep the first row of each prompt.

    Returns:
        Tasks with a str ``prompt``, a str ``prompt_id`` (the prompt's hash where the source has none) and all
        other columns.

    Raises:
        BadInput: no rows; a row that is no mapping; a missing, empty or wrongly typed prompt; a column that
            only some rows have; a duplicate.
    """
    if duplicates not in ("refuse", "drop"):
        raise BadInput(f"expected duplicates as 'refuse' or 'drop', got {duplicates!r}")
    tasks: list[Task] = []
    seen: dict[str, int] = {}
    ids: dict[str, int] = {}
    expected: list[str] | None = None
    for number, row in rows:
        fields = _fields(row, source, number, columns or {})
        expected = expected or sorted(fields)
        _same_columns(fields, expected, source, number)
        task = _task(fields, source, number)
        if task["prompt"] in seen:
            if duplicates == "drop":
                continue
            raise BadInput(
                f"{source}: row {number} has the prompt of row {seen[task['prompt']]}; "
                "remove one, or set duplicates='drop'"
            )
        if task["prompt_id"] in ids:
            raise BadInput(f"{source}: row {number} has the prompt_id of row {ids[task['prompt_id']]}")
        seen[task["prompt"]] = ids[task["prompt_id"]] = number
        tasks.append(task)
    if not tasks:
        raise BadInput(f"{source}: expected at least one task, got none")
    return tasks


def _fields(row: Any, source: str, number: int, columns: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise BadInput(f"{source}: row {number}: expected an object with columns, got {type(row).__name__}")
    fields = {str(name): value for name, value in cast("Mapping[Any, Any]", row).items()}
    for ours, theirs in columns.items():
        if theirs not in fields:
            raise BadInput(
                f"{source}: row {number}: column {theirs!r} (for {ours!r}) is missing"
                f"{nearest(theirs, fields)}"
            )
    renamed = {ours: fields[theirs] for ours, theirs in columns.items()}
    taken = set(columns.values())
    return renamed | {name: value for name, value in fields.items() if name not in taken | set(columns)}


def _same_columns(fields: dict[str, Any], expected: list[str], source: str, number: int) -> None:
    for name in sorted(set(expected) ^ set(fields)):
        what = "is missing" if name in expected else "is not in the rows before"
        raise BadInput(f"{source}: row {number}: column {name!r} {what}; give every row the same columns")


def _task(fields: dict[str, Any], source: str, number: int) -> Task:
    prompt = fields.get("prompt")
    if "prompt" not in fields:
        raise BadInput(
            f"{source}: row {number}: column 'prompt' is missing; name it with columns={{'prompt': ...}}"
            f"{nearest('prompt', fields)}"
        )
    if not isinstance(prompt, str):
        raise BadInput(
            f"{source}: row {number}: column 'prompt': expected text, got {type(prompt).__name__}"
            + ("; chat messages need a chat template first" if isinstance(prompt, list) else "")
        )
    if not prompt.strip():
        raise BadInput(f"{source}: row {number}: column 'prompt': expected text, got an empty one")
    prompt_id = fields.get("prompt_id", hashlib.sha256(prompt.encode()).hexdigest()[:16])
    if not isinstance(prompt_id, str | int) or isinstance(prompt_id, bool):
        raise BadInput(
            f"{source}: row {number}: column 'prompt_id': expected text, got {type(prompt_id).__name__}"
        )
    return {**fields, "prompt_id": str(prompt_id)}


def split_tasks(tasks: Sequence[Task], evaluation_share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Split by a hash of the prompt, so that adding rows moves no other row to the other side.

    Raises:
        BadInput: a share outside (0, 1), or one that leaves a side empty.
    """
    if not 0 < evaluation_share < 1:
        raise BadInput(f"expected evaluation_share between 0 and 1, got {evaluation_share}")
    train: list[Task] = []
    evaluation: list[Task] = []
    for task in tasks:
        digest = hashlib.sha256(f"{seed}/{task['prompt']}".encode()).digest()
        held_out = int.from_bytes(digest[:8]) < evaluation_share * 2**64
        (evaluation if held_out else train).append(task)
    if not train or not evaluation:
        raise BadInput(
            f"{len(tasks)} tasks and evaluation_share={evaluation_share} leave {len(train)} for training and "
            f"{len(evaluation)} for evaluation; give more tasks, another share, or an evaluation file"
        )
    return train, evaluation


def refuse_overlap(train: Sequence[Task], evaluation: Sequence[Task]) -> None:
    """Raise BadInput when a prompt (white space and case apart) or a prompt_id is on both sides."""
    known = {_fingerprint(task["prompt"]): number for number, task in enumerate(train, 1)}
    ids = {task["prompt_id"] for task in train}
    shared = [
        (known[mark], number)
        for number, task in enumerate(evaluation, 1)
        if (mark := _fingerprint(task["prompt"])) in known
    ]
    if shared:
        here, there = shared[0]
        raise BadInput(
            f"{len(shared)} of {len(evaluation)} evaluation prompts are also in training (first: training "
            f"task {here}, evaluation task {there}); remove them from one side"
        )
    both = [task["prompt_id"] for task in evaluation if task["prompt_id"] in ids]
    if both:
        raise BadInput(
            f"prompt_id {both[0]!r} is in training and in evaluation; give every prompt its own id"
        )


def _fingerprint(prompt: str) -> str:
    return hashlib.sha256(" ".join(prompt.casefold().split()).encode()).hexdigest()


def as_json_value(value: Any) -> Any:
    """The value itself where JSON can hold it, else its text (dates, decimals, bytes as UTF-8)."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
