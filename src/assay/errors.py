"""The error vocabulary: one root, leaves that also inherit the builtin they replace.

    AssayError
    ├── BadInput (ValueError)        what the user gave cannot be used; the message says what to do
    ├── MissingExtra (ImportError)   an optional dependency is absent; the message has the install line
    ├── ContractBroken (RuntimeError) a law of the numerics does not hold; training must not go on
    └── RunStopped (RuntimeError)    a run was stopped on purpose; what is on disk can be resumed

Every message is one line: what was expected, what came, what to do. The command line prints it without a
traceback and exits with 2. Errors hold only strings, so that they survive pickling between processes.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class AssayError(Exception):
    """Root of every error that a user can act on."""


class BadInput(AssayError, ValueError):
    """What the user gave cannot be used."""


class MissingExtra(AssayError, ImportError):
    """An optional dependency is not installed."""


class ContractBroken(AssayError, RuntimeError):
    """A law of the numerics does not hold ; the run stops."""


class RunStopped(AssayError, RuntimeError):
    """A run was stopped on purpose and can be resumed."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or the list when none is close."""
    options = sorted(set(known))
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.55)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(options)}" if options else ""


def require_one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Raise :class:`BadInput` when an option is none of its known values."""
    options = tuple(known)
    if value not in options:
        raise BadInput(f"expected {name} as one of {', '.join(options)}, got {value!r}")


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or raise :class:`MissingExtra` with the exact install line."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this needs {module.split('.')[0]}, which is not installed ({error}); "
            f"run: pip install 'assay[{extra}]'"
        ) from error
