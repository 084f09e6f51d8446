"""Files of rollouts to one frame with the columns of :data:`assay.records.run_record.ROLLOUT_SCHEMA`.

Numbers are read for every row. Texts and token lists (the bulk of a log) are read for chunks spread evenly over
a long file, up to :data:`HEAVY_BUDGET` bytes of it, and are null in the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl

from assay.records.readers.aliases import PART_PREFIXES, ROLLOUTS, find
from assay.records.readers.flatten import as_text, items, mapping, number
from assay.records.readers.formats import GENERIC, RolloutFormat, step_of
from assay.records.readers.lines import CHUNK, Chunk, Row, chunks, first_rows, parse_fast, parse_plain
from assay.records.run_record import HEAVY, ROLLOUT_SCHEMA

HEAVY_BUDGET = 96 * 2**20
"""Bytes of a file whose texts and token lists are kept."""

FAST_FROM = 32 * 2**20
"""Files shorter than this are read by the plain parser only."""

_SCHEMA: dict[str, Any] = {**ROLLOUT_SCHEMA, "entropy": pl.Float64, "kl": pl.Float64}
_TRUNCATED = {"length", "max_tokens", "truncated", "max_length", "context_length"}
_FINISHED = {
    "stop",
    "eos",
    "end_turn",
    "stop_sequence",
    "completed",
    "finished",
    "stop_token",
    "tool_calls",
    "done",
}


def read_rollouts(path: Path, form: RolloutFormat) -> tuple[pl.DataFrame, list[str]]:
    """Read one file of JSON lines.

    Returns the frame (columns that were never logged are absent) and notes. Raises :class:`BadInput` with the
    line's number for a broken line that is not the last.
    """
    size = path.stat().st_size
    wanted = _wanted(first_rows(path)) if form.plain and size > FAST_FROM else None
    step = step_of(path, form.step_in_path)
    frames: list[pl.DataFrame] = []
    notes: list[str] = []
    stride = max(1, math.ceil(size / HEAVY_BUDGET))
    with path.open("rb") as stream:
        for index, chunk in enumerate(chunks(stream)):
            frame, note = _read_chunk(chunk, path.name, form, wanted, heavy=index % stride == 0)
            if step is not None and frame.height and "step" not in frame.columns:
                frame = frame.with_columns(pl.lit(step, pl.Int64).alias("step"))
            frames.append(frame)
            notes += [note] if note else []
    if stride > 1:
        notes.append(
            f"{path.name}: texts and token lists of one part in {stride} ({CHUNK // 2**20} MB each) were read"
        )
    return joined(frames), notes


def _read_chunk(
    chunk: Chunk, name: str, form: RolloutFormat, wanted: dict[str, tuple[str, Any]] | None, *, heavy: bool
) -> tuple[pl.DataFrame, str | None]:
    if wanted is not None:
        kept = {logged: kind for logged, (known, kind) in wanted.items() if heavy or known not in HEAVY}
        frame = parse_fast(chunk, kept)
        if frame is not None:
            return _renamed(frame, wanted), None
    rows, note = parse_plain(chunk, name)
    return frame_of_rows(rows, form, heavy=heavy), note


def joined(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Frames below one another; a column that one of them lacks is null there."""
    kept = [frame for frame in frames if frame.height]
    return pl.concat(kept, how="diagonal") if kept else pl.DataFrame()


def _wanted(rows: list[Row]) -> dict[str, tuple[str, Any]] | None:
    """Logged name to (our name, type) for the fast parser; None where the rows need the plain one."""
    wanted: dict[str, tuple[str, Any]] = {}
    columns = _columns(rows)
    if any(isinstance(value, dict) for row in rows for value in row.values()):
        return None
    for known, logged in columns.items():
        values = [row[logged] for row in rows if row.get(logged) is not None]
        kind = _SCHEMA.get(known, pl.Float64)
        if known == "prompt_id" and all(type(value) is int for value in values):
            kind = pl.Int64
        if kind == pl.Float64 and not all(isinstance(value, int | float) for value in values):
            return None
        if kind == pl.Float64 and any(isinstance(value, bool) for value in values):
            return None
        if kind == pl.String and not all(isinstance(value, str) for value in values):
            return None
        wanted[logged] = (known, kind)
    return wanted


def _renamed(frame: pl.DataFrame, wanted: dict[str, tuple[str, Any]]) -> pl.DataFrame:
    names = {logged: wanted[logged][0] for logged in frame.columns}
    frame = frame.rename(names)
    casts = [pl.col(name).cast(_SCHEMA[name]) for name in frame.columns if name in _SCHEMA]
    return _with_finished(frame.with_columns(casts))


def _columns(rows: list[Row]) -> dict[str, str]:
    """Our column to the logged name, over all rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {known: found[0] for known, table in ROLLOUTS.items() if (found := find(names, table))}
    taken = set(columns.values())
    for name in names:
        part = next((name.removeprefix(prefix) for prefix in PART_PREFIXES if name.startswith(prefix)), None)
        if part and name not in taken and any(isinstance(row.get(name), int | float) for row in rows):
            columns[f"part:{part}"] = name
    if columns.get("prompt_ids") == "prompt_ids" and "prompt_id" not in columns:
        columns.pop("prompt_ids")
    return columns


def frame_of_rows(rows: list[Row], form: RolloutFormat = GENERIC, *, heavy: bool = True) -> pl.DataFrame:
    """Flatten, rename and type rows; a cell of another type than its column is null."""
    flat = [_with_parts(part) for row in rows for part in form.flatten(row)]
    if not flat:
        return pl.DataFrame()
    columns = _columns(flat)
    data: dict[str, list[Any]] = {}
    for known, logged in columns.items():
        if heavy or known not in HEAVY:
            convert = _CONVERT.get(known, number)
            data[known] = [convert(row.get(logged)) for row in flat]
    _add_reward(data, flat, columns.get("reward"))
    schema = {name: _SCHEMA.get(name, pl.Float64) for name in data}
    frame = pl.DataFrame(data, schema=schema)
    known = [n for n in frame.columns if frame[n].null_count() < frame.height]
    silent = (
        ["reward"] if "reward" in frame.columns and "reward" not in known and "completion" in known else []
    )
    return _with_finished(frame.select(known + silent))  # a reward that is null in every row says something


_NESTED_PARTS = ("reward_parts", "reward_components", "rewards_by_function", "parts")


def _with_parts(row: Row) -> Row:
    """Named parts of a reward that were logged as a mapping become columns."""
    name = next((n for n in _NESTED_PARTS if isinstance(row.get(n), dict)), None)
    if name is None:
        return row
    return {**row, **{f"part:{part}": value for part, value in row[name].items()}}


def _add_reward(data: dict[str, list[Any]], flat: list[Row], logged: str | None) -> None:
    """Rewards that are not one number: parts by name, or the name of their type."""
    if logged is None:
        return
    shapes = [_shape(row.get(logged)) for row in flat]
    if any(shapes):
        data["reward_shape"] = shapes
    for index, row in enumerate(flat):
        for name, value in mapping(row.get(logged)).items():
            column = data.setdefault(f"part:{name}", [None] * len(flat))
            column[index] = number(value)
    if all(value is None for value in data["reward"]):
        data["reward"] = [
            math.nan if shape == "NaN" else value for shape, value in zip(shapes, data["reward"], strict=True)
        ]


def _shape(value: Any) -> str | None:
    return None if value is None or isinstance(value, bool | int | float | dict) else type(value).__name__


def _reward(value: Any) -> float | None:
    if isinstance(value, dict):
        known = [score for score in (number(part) for part in value.values()) if score is not None]
        return sum(known) if known else None
    return number(value)


def _advantage(value: Any) -> float | None:
    """A token-level advantage counts as its first entry (the same for every token of a completion)."""
    return number(value[0]) if isinstance(value, list) and value else number(value)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return (
            int(value)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19
            else None
        )
    return int(value) if abs(value) < 2**63 and value == int(value) else None


def _identity(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else repr(value)


def _boolean(value: Any) -> bool | None:
    return bool(value) if isinstance(value, bool | int) else None


def _answer(value: Any) -> str | None:
    return as_text(value) if not isinstance(value, int | float) else repr(value)


def _floats(value: Any) -> list[float | None] | None:
    return [number(item) for item in value] if isinstance(value, list) else None


def _ids(value: Any) -> list[int] | None:
    ids = [_integer(item) for item in items(value)]
    return (
        [token for token in ids if token is not None] if isinstance(value, list) and None not in ids else None
    )


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "step": _integer, "sample": _integer, "policy_version": _integer, "prompt_id": _identity, "prompt": as_text,
    "completion": as_text, "reward_text": as_text, "answer": _answer, "reward": _reward, "advantage": _advantage,
    "finished": _boolean, "finish_reason": _word, "split": _word, "reward_state": _word, "token_ids": _ids,
    "prompt_ids": _ids, "logprobs": _floats, "old_logprobs": _floats, "sampler_logprobs": _floats,
    "ref_logprobs": _floats, "mask": _floats, "token_rewards": _floats,
}  # fmt: skip


def _with_finished(frame: pl.DataFrame) -> pl.DataFrame:
    """``finished`` from the finish reason, where only that was logged."""
    if "finish_reason" not in frame.columns or "finished" in frame.columns:
        return frame
    reason = pl.col("finish_reason").str.to_lowercase()
    known = pl.when(reason.is_in(_TRUNCATED)).then(False).when(reason.is_in(_FINISHED)).then(True)
    return frame.with_columns(known.otherwise(None).alias("finished"))
