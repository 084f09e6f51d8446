"""The tasks of an audit: a file's rows, which column is the gold, and which hold known completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.audit.countdown import solved_expression
from assay.audit.golds import Gold, read_gold
from assay.errors import BadInput
from assay.tasks.files import read_json
from assay.tasks.files import read_rows as file_rows

GOLD_NAMES = (
    "answer", "ground_truth", "gold", "target", "label", "final_answer", "expected", "expected_answer",
    "correct_answer", "reference_answer", "reference", "answers", "solution",
)  # fmt: skip
COMPLETION_NAMES = (
    "completion", "response", "canonical_solution", "reference_solution", "reference_completion",
    "demonstration", "solution",
)  # fmt: skip
PROMPT_NAMES = ("prompt", "question", "problem", "instruction", "input", "query")
NOT_GOLD = frozenset({
    *PROMPT_NAMES, "completion", "response", "id", "task_id", "prompt_id", "tests", "test", "data_source",
    "extra_info", "level", "subject", "type", "source", "kind", "stratum", "difficulty", "entry_point",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One task: its row, its gold (in ``column``), and completions that the user says are good."""

    key: str
    row: Mapping[str, Any]
    column: str | None
    gold: Gold
    completions: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The prompt as one text; empty when the row has none."""
        return prompt_of(self.row)

    @property
    def has_gold(self) -> bool:
        """Whether the row has a usable gold."""
        return self.column is not None and self.gold.kind != "unusable"

    def with_gold(self, value: Any) -> dict[str, Any]:
        """The same row with another gold."""
        row = dict(self.row)
        if self.column == "reward_model.ground_truth":
            row["reward_model"] = {**row["reward_model"], "ground_truth": value}
        elif self.column is not None:
            row[self.column] = value
        return row


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Read tasks from JSONL, JSON (a list, one object, or an object of columns), Parquet or CSV.

    Raises:
        BadInput: no such file, a broken line (with its number), or no rows.
    """
    path = Path(path)
    if path.suffix.lower() == ".json" and path.is_file():
        rows = _from_json(read_json(path), path)
    else:
        rows = [row for _, row in file_rows(path)]
    if not rows:
        raise BadInput(f"{path} has no rows; expected one task a line, with a prompt and an answer")
    if not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: expected one JSON object a line; each task is a mapping")
    return rows


def _from_json(document: Any, path: Path) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise BadInput(f"{path}: expected a list of tasks or one object, got {type(document).__name__}")
    if len(document) == 1:
        only = next(iter(document.values()))
        if isinstance(only, list) and only and all(isinstance(row, dict) for row in only):
            return only
    lengths = {len(value) for value in document.values() if isinstance(value, list)}
    if lengths and all(isinstance(value, list) for value in document.values()) and len(lengths) == 1:
        singular = {"prompts": "prompt", "completions": "completion"}
        columns = {singular.get(str(name), str(name)): values for name, values in document.items()}
        return [{name: values[i] for name, values in columns.items()} for i in range(lengths.pop())]
    return [document]


def prompt_of(row: Mapping[str, Any]) -> str:
    """The prompt of a row as one text."""
    for name in PROMPT_NAMES:
        value = row.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "\n".join(str(message.get("content", "")) for message in value)
    return ""


def make_tasks(
    rows: Sequence[Mapping[str, Any]], reads: Sequence[str], keys: Sequence[str]
) -> list[AuditTask]:
    """Find the gold column and make the tasks.

    Args:
        reads: parameter names of the reward; keys: columns that its code asks a mapping for.
    """
    column = gold_column(rows, [*reads, *keys])
    return [_task(i, row, column) for i, row in enumerate(rows)]


def misfits(tasks: Sequence[AuditTask]) -> list[AuditTask]:
    """Tasks whose gold is more likely a fault of the file than of a reward that cannot read it.

    None at all, or words where at least three in four of the golds are numbers ("see the figure").
    """
    usable = [task for task in tasks if task.has_gold]
    numbers = sum(task.gold.number is not None for task in usable)
    words = [t for t in usable if t.gold.kind == "text"] if numbers >= max(3, 0.75 * len(usable)) else []
    return [task for task in tasks if usable and not task.has_gold] + words


def check_golds(rows: Sequence[Mapping[str, Any]], tasks: Sequence[AuditTask]) -> None:
    """Raise :class:`BadInput` where a column is named as a gold and holds none in any row."""
    named = [n for n in GOLD_NAMES if any(n in row for row in rows)]
    if not named or any(task.has_gold or task.completions for task in tasks):
        return
    empty = [
        n for n in named if all(read_gold(r.get(n)).kind == "unusable" and _is_blank(r.get(n)) for r in rows)
    ]
    if len(empty) == len(named):
        value = rows[0].get(named[0])
        raise BadInput(
            f"no task has a gold: expected an answer in column {named[0]!r}, got {value!r} in the first of {len(rows)} "
            "rows; mend the tasks (the reward was not called)"
        )


def _is_blank(value: Any) -> bool:
    return value is None or isinstance(value, str | float)


def gold_column(rows: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> str | None:
    """The column that holds the gold: one that the reward reads first, then the usual names.

    Another name whose value is the same on three tasks or more is a setting (a number of words), not a gold.
    """
    present = {name for row in rows for name in row}
    models = [row.get("reward_model") for row in rows]
    nested = any(isinstance(model, Mapping) and "ground_truth" in model for model in models)
    read = [name for name in wanted if name in present]
    for name in (*[n for n in GOLD_NAMES if n in read], *[n for n in read if n not in NOT_GOLD]):
        if name not in GOLD_NAMES and len(rows) >= 3 and len({str(row.get(name)) for row in rows}) == 1:
            continue
        if any(_scalar(row.get(name)) for row in rows):
            return name
    if nested:
        return "reward_model.ground_truth"
    return next((n for n in GOLD_NAMES if n in present and any(_scalar(r.get(n)) for r in rows)), None)


def _scalar(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str | int | float) for item in value)
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _task(index: int, row: Mapping[str, Any], column: str | None) -> AuditTask:
    prompt = prompt_of(row)
    full = {"prompt_id": str(index), **({"prompt": prompt} if "prompt" not in row else {}), **row}
    raw = row["reward_model"]["ground_truth"] if column == "reward_model.ground_truth" else (
        row.get(column) if column else None)  # fmt: skip
    known = [row[name] for name in COMPLETION_NAMES if isinstance(row.get(name), str) and name != column]
    if column and isinstance(raw, str) and ("####" in raw or "\\boxed" in raw):
        known.append(raw)  # a gold that is a whole solution is a completion as well
    expression = solved_expression(row)
    gold = Gold(expression, "expression") if expression is not None else read_gold(raw)
    return AuditTask(f"t{index}", full, column, gold, tuple(dict.fromkeys(known)))
