"""Load a user's function from ``path/file.py:name``, with one clear line for everything that can go wrong."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.errors import BadInput, nearest


def load_function(spec: str) -> Callable[..., Any]:
    """Load ``"path/file.py:name"`` (or ``"package.module:name"``; a dotted name reaches into objects).

    The file runs once for one content; what it prints while loading goes to stderr. Its folder is appended
    to ``sys.path``, so that it can import its neighbours.

    Raises:
        BadInput: no such file or name (the nearest is named), a syntax error, an error while loading, or
            something that cannot be called.
    """
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise BadInput(f"expected FILE.py:FUNCTION, got {spec!r}; write for example rewards.py:my_reward")
    module = _load_file(Path(where)) if _is_path(where) else _load_package(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = _public_callables(module) if found is module else [n for n in dir(found) if n[0] != "_"]
            raise BadInput(f"{where} has no function {part!r}{nearest(part, known)}")
        found = getattr(found, part)
    if isinstance(found, type):
        raise BadInput(f"{spec} is a class; expected a function: give an instance of it a name, or wrap it")
    if not callable(found):
        raise BadInput(f"{spec} is a {type(found).__name__}; expected a function")
    return found


def load_module_as(name: str, path: str) -> ModuleType:
    """Load a file under a given module name (so that pickles which refer to that name can be read)."""
    return sys.modules.get(name) or _execute(name, Path(path))


def _is_path(where: str) -> bool:
    return where.endswith(".py") or "/" in where or "\\" in where


def _load_package(name: str) -> ModuleType:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise BadInput(f"no module named {name!r}; give a file such as rewards.py:my_reward")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module runs here
        raise BadInput(f"importing {name} failed: {describe(error)}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        folder = path.parent
        beside = [p.name for p in folder.glob("*.py")] if folder.is_dir() else []
        raise BadInput(f"no such file {str(path)!r}{nearest(path.name, beside)}")
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode() + b"\0" + path.read_bytes()).hexdigest()[:10]
    return load_module_as(f"assay_user_{path.stem}_{digest}", str(path))


def _execute(name: str, path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise BadInput(f"{path} is not a Python file; expected a name ending in .py")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look a class's module up by name
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise BadInput(
            f"{error.filename or path}, line {error.lineno}: syntax error: {error.msg}; mend the file"
        ) from error
    except (Exception, SystemExit) as error:  # a user's module runs here
        del sys.modules[name]
        hint = (
            "; a file of a package is named package.module:function"
            if "relative import" in str(error)
            else ""
        )
        raise BadInput(f"loading {path} failed: {describe(error)}{hint}") from error
    return module


def _public_callables(module: ModuleType) -> Iterable[str]:
    return [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]


def describe(error: BaseException) -> str:
    """One line about an exception: its type, its first line, and the file and line that raised it."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - a user's exception may not even have a readable text
        lines = []
    text = type(error).__name__ + (f": {lines[0][:300]}" if lines else "")
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{text} ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
