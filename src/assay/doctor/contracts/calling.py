"""The one boundary where a user's function runs: what it raises, warns or prints stays here."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInput
from assay.rewards.call import swallowed_output
from assay.rewards.load import describe

Array = npt.NDArray[np.float64]
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call gave: a value, or the one line of what it raised, and the line it left through."""

    value: Any = None
    error: str | None = None
    line: int | None = None


def attempt(fn: Function, *args: Any, **kwargs: Any) -> Outcome:
    """Call a user's function; an exception becomes a text. Numerical warnings are expected and silent."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), swallowed_output():
        warnings.simplefilter("ignore")
        try:
            return Outcome(value=fn(*args, **kwargs))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary where a user's function runs
            return Outcome(error=describe(error))


def attempt_traced(fn: Function, *args: Any) -> Outcome:
    """Call a user's function and note the last line of its own body: the branch that was taken."""
    with _last_line(fn) as seen:
        outcome = attempt(fn, *args)
    return Outcome(outcome.value, outcome.error, seen[-1] if seen else None)


@contextmanager
def _last_line(fn: Function) -> Generator[list[int]]:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    seen: list[int] = []

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            seen[:] = [frame.f_lineno]
        return local

    def enter(frame: Any, _event: str, _: Any) -> Any:
        return local if frame.f_code is code else None

    before = sys.gettrace()
    if code is None or before is not None:  # a debugger or a coverage tool is there: leave it alone
        yield seen
        return
    sys.settrace(enter)
    try:
        yield seen
    finally:
        sys.settrace(before)


def parameters(fn: Function) -> Mapping[str, inspect.Parameter]:
    """Read the parameters of a callable; an empty mapping when it hides them."""
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return {}


def required(fn: Function) -> list[str]:
    """Names without a default, positional or keyword."""
    skip = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [n for n, p in parameters(fn).items() if p.default is p.empty and p.kind not in skip]


def name_of(fn: Function) -> str:
    """Return the function's name for messages."""
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def source_of(fn: Function) -> str:
    """Return the function's source, or an empty text when there is none to read."""
    try:
        return inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return ""


def source_line(fn: Function, line: int | None) -> str:
    """Return the text of one line of the function's file, stripped; empty when unknown."""
    if line is None:
        return ""
    try:
        lines, start = inspect.getsourcelines(inspect.unwrap(fn))
    except (OSError, TypeError):
        return ""
    return lines[line - start].strip() if 0 <= line - start < len(lines) else ""


def literals_of(fn: Function) -> list[str]:
    """Texts that a function compares with: constants of its code, its defaults, and the globals it names.

    Compiled patterns count with their source. Helper functions of the same module are followed once.
    """
    found: list[str] = []
    unwrapped = inspect.unwrap(fn)
    code = getattr(unwrapped, "__code__", None)
    scope: dict[str, Any] = getattr(unwrapped, "__globals__", {})
    for parameter in parameters(fn).values():
        found += _texts(parameter.default)
    if code is not None:
        found += _code_texts(code, scope, depth=1)
    return list(dict.fromkeys(found))


def _code_texts(code: CodeType, scope: Mapping[str, Any], depth: int) -> list[str]:
    found: list[str] = []
    constants = code.co_consts[1:] if _has_docstring(code) else code.co_consts
    for constant in constants:
        found += _code_texts(constant, scope, depth) if isinstance(constant, CodeType) else _texts(constant)
    for name in code.co_names:
        value = scope.get(name)
        inner = getattr(value, "__code__", None)
        if inner is not None and depth > 0:
            found += _code_texts(inner, scope, depth - 1)
        else:
            found += _texts(value)
    return found


def _has_docstring(code: CodeType) -> bool:
    first = code.co_consts[0] if code.co_consts else None
    return isinstance(first, str) and (" " in first.strip() or "\n" in first) and code.co_name != "<lambda>"


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(getattr(value, "pattern", None), str):
        return [value.pattern]
    if isinstance(value, list | tuple | set | frozenset | dict):
        items: Sequence[Any] = list(value)  # pyright: ignore[reportUnknownVariableType]
        return [text for item in items for text in _texts(item)]
    return []


def numbers(value: Any) -> Array:
    """Turn a returned number, list, array or tensor into float64; raises :class:`BadInput` otherwise."""
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.double().cpu().numpy() if hasattr(value, "double") else value
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"expected numbers, got {type(value).__name__} ({error}); return an array") from error


def dtype_of(value: Any) -> str:
    """Name the dtype of what was returned (``float16``, ``bfloat16``, ...); empty for plain numbers."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.")


def shown(value: Any, limit: int = 160) -> str:
    """Write a value in one line for evidence; arrays are rounded."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double().numpy() if hasattr(value, "double") else value
    if isinstance(value, np.ndarray):
        rounded: Any = np.round(np.asarray(value, dtype=np.float64), 6)
        value = rounded.tolist()
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
