"""From what a user's function returned to a :class:`Score`: never a silent 0, never a broadcast."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.records.score import Score, crashed, missing, scored


def as_score(value: Any, who: str) -> Score:
    """Convert one returned value.

    A Score passes through; a finite number or bool (also a numpy or torch scalar) is ``scored``; None is
    ``missing``; NaN, infinity and every other type are ``crashed``. ``who`` names function and sample.
    """
    if isinstance(value, Score):
        return value
    if value is None:
        return missing(f"{who}: returned None")
    number = _number(value)
    if number is None:
        return crashed(f"{who}: expected a number, got {_shown(value)}")
    if not math.isfinite(number):
        return crashed(f"{who}: expected a finite number, got {number}")
    return scored(number)


def as_score_with_parts(value: Any, key: str, who: str) -> Score:
    """Convert a value that may be a mapping with the reward under ``key``; other numbers become parts.

    OpenRLHF's functions (``key`` "rewards") answer a batch of one with a list or a tensor of one.
    """
    if not isinstance(value, Mapping):
        return as_score(_only(value) if key == "rewards" else value, who)
    fields = cast("Mapping[Any, Any]", value)
    if key not in fields:
        return crashed(
            f"{who}: expected the key {key!r} in the returned dict, got {sorted(map(str, fields))}"
        )
    result = as_score(_only(fields[key]), who)
    if not result.is_scored:
        return result
    found = {str(name): _number(_only(item)) for name, item in _flat(fields) if name != key}
    parts = {name: number for name, number in found.items() if number is not None}
    return scored(result.value, result.reason, parts)


def as_scores(values: Any, expected: int, name: str, whos: Sequence[str]) -> list[Score]:
    """Convert what a batch function returned; a wrong count or shape is ``crashed`` for every sample."""
    if hasattr(values, "tolist") and getattr(values, "ndim", 1) > 0:  # numpy array, torch tensor, series
        shape = tuple(getattr(values, "shape", (len(values),)))
        if len(shape) != 1:
            return [crashed(f"{name}: expected {expected} numbers, got an array of shape {shape}")] * expected
        values = values.tolist()
    if not isinstance(values, list | tuple):
        return [crashed(f"{name}: expected a list of {expected} numbers, got {_shown(values)}")] * expected
    items = cast("Sequence[Any]", values)
    if len(items) != expected:
        return [crashed(f"{name}: expected {expected} numbers, got {len(items)}")] * expected
    kinds = {type(item).__name__ for item in items}
    if len(kinds) == 1 and all(_is_unusable(item) for item in items):
        return [
            crashed(f"{name}: expected {expected} numbers, got {expected} of type {kinds.pop()}")
        ] * expected
    return [as_score(item, who) for item, who in zip(items, whos, strict=True)]


def _is_unusable(value: Any) -> bool:
    return value is not None and not isinstance(value, Score) and _number(value) is None


def _number(value: Any) -> float | None:
    if isinstance(value, float | bool | int):
        return _float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a numpy or torch scalar
        value = value.item()
    return _float(value) if isinstance(value, numbers.Real) else None


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _only(value: Any) -> Any:
    """Unwrap a list or array of one element (OpenRLHF calls its functions with batches of one)."""
    if isinstance(value, list | tuple) and len(cast("Sequence[Any]", value)) == 1:
        return cast("Sequence[Any]", value)[0]
    if getattr(value, "ndim", None) and getattr(value, "shape", None) is not None and len(value) == 1:
        return value[0]
    return value


def _flat(fields: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    nested = fields.get("extra_logs")
    inner = list(cast("Mapping[Any, Any]", nested).items()) if isinstance(nested, Mapping) else []
    return [*fields.items(), *inner]


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's object may not even have a readable text
        text = "?"
    return f"{type(value).__name__} {text[:60]}"
