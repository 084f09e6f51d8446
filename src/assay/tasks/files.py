"""Tasks from the user's own data: JSONL, Parquet and CSV files, and data sets in memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from assay.errors import BadInput
from assay.tasks.rows import Duplicates, as_json_value, refuse_overlap, split_tasks, tasks_from_rows
from assay.tasks.task_set import RewardFunction, Task, TaskSet

FORMATS = (".jsonl", ".json", ".parquet", ".csv")
LARGEST_FIELD = 16 * 2**20
"""Longest CSV field, in characters."""


def read_tasks(
    path: str | Path, *, columns: Mapping[str, str] | None = None, duplicates: Duplicates = "refuse"
) -> list[Task]:
    """Read one file of tasks.

    The suffix says the format: ``.jsonl``, ``.json`` (a list of objects), ``.parquet`` or ``.csv`` (values
    stay text). See :func:`assay.tasks.rows.tasks_from_rows` for the checks.

    Raises:
        BadInput: no such file, an unknown suffix, unreadable content (with its line), or a failed check.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_file() and suffix not in FORMATS:
        raise BadInput(f"{path.name}: expected one of {', '.join(FORMATS)}, got {suffix or 'no suffix'!r}")
    return tasks_from_rows(read_rows(path), path.name, columns=columns, duplicates=duplicates)


def read_rows(path: Path) -> list[tuple[int, Any]]:
    """The rows of a file with their numbers, unchecked; an unknown suffix is read as JSONL.

    Raises:
        BadInput: no such file, an empty one, or unreadable content (with its line).
    """
    if not path.is_file():
        raise BadInput(f"expected a file of tasks, got {str(path)!r}, which is not a file; check the path")
    try:
        if path.stat().st_size == 0:
            raise BadInput(f"{path.name}: expected at least one task, got an empty file")
        return list(_rows(path, path.suffix.lower()))
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name}: expected UTF-8 text, got other bytes ({error.reason})") from error
    except OSError as error:
        raise BadInput(f"{path.name}: cannot be read ({error.strerror or error})") from error


def _rows(path: Path, suffix: str) -> Iterable[tuple[int, Any]]:
    if suffix == ".json":
        return enumerate(_json_rows(path), 1)
    if suffix == ".parquet":
        return enumerate(_parquet_rows(path), 1)
    return _csv_rows(path) if suffix == ".csv" else _jsonl_rows(path)


def _jsonl_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _json(line, f"{path.name}: row {number}")


def _json_rows(path: Path) -> list[Any]:
    document = read_json(path)
    if not isinstance(document, list):
        raise BadInput(f"{path.name}: expected a list of objects; for one object a line use .jsonl")
    return cast("list[Any]", document)


def read_json(path: Path) -> Any:
    """The document in a JSON file; raises BadInput where it is none."""
    return _json(path.read_text("utf-8-sig"), path.name)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: expected JSON, got {text.strip()[:60]!r} ({error})") from error


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    before = csv.field_size_limit(LARGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield from _csv_records(csv.reader(lines, strict=True), path.name)
    except csv.Error as error:
        raise BadInput(f"{path.name}: not readable as CSV ({error})") from error
    finally:
        csv.field_size_limit(before)


def _csv_records(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, dict[str, str]]]:
    header = next(reader, [])
    if len(set(header)) != len(header) or not all(header):
        raise BadInput(f"{name}: expected a first line of different column names, got {header}")
    for number, values in enumerate(reader, 2):
        if len(values) != len(header):
            raise BadInput(f"{name}: row {number}: expected {len(header)} values, got {len(values)}")
        yield number, dict(zip(header, values, strict=True))


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path.name}: not readable as Parquet ({str(error).splitlines()[0]})") from error
    return [{name: as_json_value(value) for name, value in row.items()} for row in frame.to_dicts()]


def file_task_set(
    train: str | Path,
    reward: RewardFunction,
    truth: RewardFunction,
    *,
    evaluation: str | Path | None = None,
    evaluation_share: float = 0.1,
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "refuse",
    seed: int = 0,
    name: str | None = None,
) -> TaskSet:
    """A task set from the user's files, reward and truth.

    Args:
        train: file of training tasks, or of all tasks when ``evaluation`` is None.
        reward, truth: functions in any accepted signature.
        evaluation: file of evaluation tasks; None: a share ``evaluation_share`` of the rows, chosen by hash.
        columns, duplicates: as in :func:`read_tasks`.
        seed: of the split.
        name: of the task set; None: the file's.

    Raises:
        BadInput: as :func:`read_tasks`; a prompt on both sides.
    """
    tasks = read_tasks(train, columns=columns, duplicates=duplicates)
    if evaluation is None:
        train_tasks, evaluation_tasks = split_tasks(tasks, evaluation_share, seed)
    else:
        train_tasks = tasks
        evaluation_tasks = read_tasks(evaluation, columns=columns, duplicates=duplicates)
    refuse_overlap(train_tasks, evaluation_tasks)
    return TaskSet(name or Path(train).stem, train_tasks, evaluation_tasks, reward, truth)


def dataset_task_set(
    data: Any,
    reward: RewardFunction,
    truth: RewardFunction,
    *,
    evaluation_split: str = "test",
    evaluation_share: float = 0.1,
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "refuse",
    seed: int = 0,
    name: str = "dataset",
) -> TaskSet:
    """A task set from a ``datasets`` object, or from any rows that are mappings.

    A mapping of splits (``DatasetDict``) gives ``train`` and ``evaluation_split``; anything else is iterated
    and split by hash.

    Raises:
        BadInput: not rows, a split that is missing, or a failed check.
    """
    if isinstance(data, Mapping):
        splits = cast("Mapping[str, Any]", data)
        for split in ("train", evaluation_split):
            if split not in splits:
                raise BadInput(f"{name}: expected a split {split!r}, got {sorted(map(str, splits))}")
        sides = [
            _dataset_rows(splits[split], f"{name}[{split}]", columns, duplicates)
            for split in ("train", evaluation_split)
        ]
        train_tasks, evaluation_tasks = sides
    else:
        tasks = _dataset_rows(data, name, columns, duplicates)
        train_tasks, evaluation_tasks = split_tasks(tasks, evaluation_share, seed)
    refuse_overlap(train_tasks, evaluation_tasks)
    return TaskSet(name, train_tasks, evaluation_tasks, reward, truth)


def _dataset_rows(
    data: Any, source: str, columns: Mapping[str, str] | None, duplicates: Duplicates
) -> list[Task]:
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise BadInput(f"{source}: expected rows (a datasets.Dataset or a list), got {type(data).__name__}")
    return tasks_from_rows(enumerate(data, 1), source, columns=columns, duplicates=duplicates)
