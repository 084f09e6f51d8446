"""JSON lines: streamed in chunks of whole lines, strict except for a torn last line, NaN kept, nothing unpickled.

Two ways to parse a chunk that give the same rows. The plain one (:mod:`json`) is the reference and keeps NaN and
mixed types. The fast one (polars) takes long files of plain numbers, texts and lists, and hands any chunk that
it cannot read, or that holds NaN or infinity, to the plain one.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from assay.errors import BadInput

CHUNK = 16 * 2**20
"""Bytes parsed at a time: what keeps the memory of a long log small."""

LONGEST_LINE = 256 * 2**20
"""A line longer than this is refused."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_JSON_NUMBER = re.compile(rb"\b(?:NaN|Infinity)\b")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of a file. ``first_line`` is the number of the first (from 1); ``last`` marks the file's end."""

    data: bytes
    first_line: int
    last: bool


def chunks(stream: BinaryIO, size: int = CHUNK) -> Generator[Chunk]:
    """Yield whole lines; the tail without a newline comes last and may be torn."""
    line, rest = 1, b""
    while True:
        block = stream.read(size)
        data = rest + block
        if not block:
            if data.strip():
                yield Chunk(data, line, True)
            return
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) > LONGEST_LINE:
            raise BadInput(
                f"line {line}: expected lines of at most {LONGEST_LINE} bytes; is this a file of JSON lines?"
            )
        whole, rest = data[:cut], data[cut:]
        if whole:
            yield Chunk(whole, line, False)
            line += whole.count(b"\n")


def parse_plain(chunk: Chunk, name: str) -> tuple[list[Row], str | None]:
    """Parse a chunk line by line.

    Returns the rows and, where the last line of the file was torn, a note. Raises :class:`BadInput` with the
    line's number for anything else that is not a JSON object.
    """
    rows: list[Row] = []
    for offset, raw in enumerate(chunk.data.split(b"\n")):
        line = raw.strip()
        if not line:
            continue
        number = chunk.first_line + offset
        try:
            value: Any = loads(line)
        except (ValueError, RecursionError) as error:
            if chunk.last:
                return rows, f"{name} line {number}: the last line is cut off and was dropped"
            raise BadInput(
                f"{name} line {number}: expected one JSON object, got {_excerpt(line)} ({_reason(error)}); "
                "remove or repair the line"
            ) from error
        if not isinstance(value, dict):
            if chunk.last and number > 1:
                return rows, f"{name} line {number}: the last line is cut off and was dropped"
            raise BadInput(
                f"{name} line {number}: expected one JSON object, got {type(value).__name__} {_excerpt(line)}"
            )
        rows.append(value)
    return rows, None


def loads(data: bytes) -> Any:
    """A JSON value; half of a surrogate pair, which no table can hold, becomes U+FFFD. Raises as :mod:`json`."""
    value: Any = json.loads(data)
    return _whole_characters(value) if _SURROGATE.search(data) else value


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_whole_characters(name): _whole_characters(item) for name, item in value.items()}
    return value


def parse_fast(chunk: Chunk, wanted: Mapping[str, Any]) -> pl.DataFrame | None:
    """Parse a chunk with polars, keeping the columns of ``wanted`` (logged name to type); None where it cannot.

    A chunk with NaN or infinity, with other types than wanted, or with nothing readable is left to the caller.
    """
    if _NOT_JSON_NUMBER.search(chunk.data):
        return None
    try:
        frame = pl.read_ndjson(io.BytesIO(chunk.data), schema=dict(wanted))
    except (pl.exceptions.PolarsError, ValueError, OverflowError):
        return None
    return frame if frame.height else None


def first_rows(path: Path, count: int = 50, size: int = 2**20) -> list[Row]:
    """The first rows of a file of JSON lines, for detection; broken lines are left out."""
    with path.open("rb") as stream:
        data = stream.read(size)
    rows: list[Row] = []
    for line in data.split(b"\n")[: count + 1]:
        try:
            value: Any = loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            rows.append(value)
    return rows


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """All rows of a file of JSON lines by the plain way, and notes about a torn end."""
    rows: list[Row] = []
    notes: list[str] = []
    with path.open("rb") as stream:
        for chunk in chunks(stream):
            part, note = parse_plain(chunk, path.name)
            rows += part
            notes += [note] if note else []
    return rows, notes


def _excerpt(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text + ("..." if len(line) > 60 else ""))


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:100]
