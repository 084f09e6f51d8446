"""The process in which a reward under audit runs: it can hang, die, print or write without harming the audit.

One JSON object a line in, one a line out (private copies of stdin and stdout; the real ones lead nowhere, so
that nothing the reward or its children print or read can garble the talk). Requests:

    {"tasks": {key: task, ...}}                       add tasks
    {"items": [[key, completion], ...], "mode": M}    score; one answer a line ("at_once": isolated ones together)

Modes: ``plain`` (one call an item, in order), ``watched`` (also compares the arguments before and after),
``isolated`` (each item in a fork of the untouched process, so no state survives it), ``thread`` (in a thread
that is not the main one), ``traced`` (also reports the exceptions that the reward's file raised and hid),
``batch`` (all items in one call, where the reward takes batches).
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, TextIO

from assay.errors import AssayError
from assay.records.score import Score
from assay.rewards.call import BoundReward, resolve
from assay.rewards.load import load_function

CANARY = "assay_canary"
"""Attribute of ``sys`` that a harmless payload sets when somebody evaluates it in this very process."""

PR_SET_PDEATHSIG = 1
"""From ``linux/prctl.h``."""
WRITES = frozenset({"os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.chmod"})
CHILDREN = frozenset({"subprocess.Popen", "os.system", "os.fork", "os.posix_spawn", "os.exec"})


class Watch:
    """What one call did besides returning: prints, files, network, children, evaluation of the text."""

    def __init__(self) -> None:
        self.active = False
        self.seen: dict[str, Any] = {}
        self._scratch = os.path.realpath(tempfile.gettempdir())
        self._pending = False
        sys.addaudithook(self._hook)

    def start(self) -> None:
        """Forget the last call and begin to look."""
        self.seen = {}
        self._pending = False
        if hasattr(sys, CANARY):
            delattr(sys, CANARY)
        self.active = True

    def stop(self) -> dict[str, Any]:
        """End looking and return what was seen."""
        self.active = False
        if hasattr(sys, CANARY):
            self.seen["executed"] = True
        return self.seen

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            self._opened(arguments)
        elif event == "compile":
            self._pending = isinstance(arguments[0], str | bytes) and CANARY in str(arguments[0])
        elif event == "exec" and self._pending:
            self.seen["evaluated"] = True
        elif event == "socket.connect":
            self.seen["network"] = str(arguments[1])[:80]
        elif event in ("os.remove", "os.rmdir") and arguments[1] != -1:
            pass  # named within an open folder: a part of an rmtree, which was an event of its own
        elif event in WRITES and not self._is_scratch(arguments[0]):
            self.seen["wrote"] = f"{event} {arguments[0]}"[:120]
        elif event in CHILDREN:
            self.seen["children"] = True

    def _opened(self, arguments: tuple[Any, ...]) -> None:
        path, mode, flags = arguments
        writes = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (
            mode is None and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        )
        if not writes or not isinstance(path, str | bytes):
            return
        self.seen["files"] = True
        if not self._is_scratch(path):
            self.seen["wrote"] = os.fsdecode(path)[:120]

    def _is_scratch(self, path: Any) -> bool:
        if not isinstance(path, str | bytes):
            return True
        full = os.path.realpath(os.fsdecode(path))
        return full.startswith((self._scratch + os.sep, "/dev/", "/proc/"))


class _Counter:
    """A stream that counts what is printed and drops it."""

    def __init__(self) -> None:
        self.printed = ""

    def write(self, text: str) -> int:
        """Count and drop."""
        if len(self.printed) < 80:
            self.printed += text[:80]
        return len(text)

    def flush(self) -> None:
        """Nothing to flush."""


def instrumented(bound: BoundReward, notes: dict[str, Any]) -> BoundReward:
    """The same reward, noting prints and changed arguments in ``notes``."""
    function = bound.function

    def call(*positional: Any, **named: Any) -> Any:
        watched = notes.get("watch_arguments")
        before = copy.deepcopy(_data(positional, named)) if watched else None
        counter = _Counter()
        outer, sys.stdout = sys.stdout, counter  # type: ignore[assignment]
        try:
            return function(*positional, **named)
        finally:
            sys.stdout = outer
            if counter.printed.strip():
                notes["printed"] = counter.printed[:80]
            if watched and before != _data(positional, named):
                notes["mutated"] = True

    return replace(bound, function=call)


def _data(positional: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    return [value for value in (*positional, *named.values()) if isinstance(value, list | dict)]


class Tracer:
    """Records the exceptions that pass through the frames of the reward's own file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.raised: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Trace only frames of the reward's file (``sys.settrace``)."""
        if frame.f_code.co_filename != self.file:
            return None
        return self._local

    def _local(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "exception" and len(self.raised) < 20:
            text = str(argument[1]).splitlines()[0][:160] if str(argument[1]) else ""
            self.raised.append(f"{argument[0].__name__}: {text} (line {frame.f_lineno})")
        return self._local


class Worker:
    """Answers requests until the input ends."""

    def __init__(self, bound: BoundReward, out: TextIO) -> None:
        self.notes: dict[str, Any] = {}
        self.bound = instrumented(bound, self.notes)
        self.file = getattr(getattr(bound.function, "__code__", None), "co_filename", "")
        self.out = out
        self.tasks: dict[str, Mapping[str, Any]] = {}
        self.watch = Watch()
        self.scouted = False

    def serve(self, lines: TextIO) -> None:
        """Read requests and write answers."""
        for line in lines:
            request = json.loads(line)
            self.tasks.update(request.get("tasks", {}))
            if "items" in request:
                self._score(request["items"], request["mode"], request.get("at_once", 1))

    def _score(self, items: Sequence[tuple[str, str]], mode: str, at_once: int) -> None:
        if mode == "batch":
            for answer in self._call(items, mode):
                self._answer(answer)
            return
        if mode != "isolated":
            for item in items:
                self._answer(self._one(item, mode))
            return
        self._load_late_imports(items[0])
        for start in range(0, len(items), at_once):
            children = [self._forked(item) for item in items[start : start + at_once]]
            for child, reader in children:
                self._answer(_awaited(child, reader))

    def _one(self, item: tuple[str, str], mode: str) -> dict[str, Any]:
        if mode != "thread":
            return self._call([item], mode)[0]
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.extend(self._call([item], mode)))
        thread.start()
        thread.join()
        return found[0] if found else {"state": "crashed", "reason": "the thread died"}

    def _call(self, items: Sequence[tuple[str, str]], mode: str) -> list[dict[str, Any]]:
        tasks = [copy.deepcopy(self.tasks[key]) for key, _ in items]
        self.notes.clear()
        self.notes["watch_arguments"] = mode == "watched"
        tracer = Tracer(self.file)
        self.watch.start()
        process = os.getpid()
        begin = time.perf_counter()
        if mode in ("traced", "thread"):
            sys.settrace(tracer)
        try:
            scores = self.bound.score([text for _, text in items], tasks)
        finally:
            sys.settrace(None)
            if os.getpid() != process:
                os._exit(0)  # a fork of the reward's own that came back: only one of the two may answer
        seconds = time.perf_counter() - begin
        seen = {**self.watch.stop(), **{k: v for k, v in self.notes.items() if k != "watch_arguments"}}
        if tracer.raised:
            seen["raised"] = tracer.raised
        return [_document(score, seconds, seen) for score in scores]

    def _load_late_imports(self, item: tuple[str, str]) -> None:
        """Import here what a call imports, so that not every fork does it anew; a module is not state."""
        if self.scouted:
            return
        self.scouted = True
        child, reader = self._forked(item, modules=True)
        for name in _awaited(child, reader).get("modules", ()):
            with contextlib.suppress(ImportError, AttributeError, RuntimeError, OSError):
                importlib.import_module(name)

    def _forked(self, item: tuple[str, str], *, modules: bool = False) -> tuple[int, int]:
        """Score one item in a fork; its process, and where its answer can be read."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _reseed()
            known = set(sys.modules)
            answer = self._call([item], "plain")[0]
            if modules:
                answer = {"modules": [name for name in sys.modules if name not in known]}
            with os.fdopen(writer, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(answer))
            os._exit(0)
        os.close(writer)
        return child, reader

    def _answer(self, document: Mapping[str, Any]) -> None:
        self.out.write(json.dumps(document) + "\n")
        self.out.flush()


def _awaited(child: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader, "r", encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"state": "died", "reason": "the process ended"}


def _document(score: Score, seconds: float, seen: Mapping[str, Any]) -> dict[str, Any]:
    value = score.value if score.is_scored else None
    return {"state": score.state, "value": value, "reason": score.reason, "seconds": seconds, **seen}


def _reseed() -> None:
    """A fork inherits its parent's random state; without this a random reward would look deterministic."""
    random.seed(os.urandom(8))
    numpy_random = sys.modules.get("numpy.random")  # numpy loads it when first used, which takes long
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def _end_with_parent() -> None:
    """Ask the kernel to end this process with the audit: a reward that hangs would run on for ever (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """Load the reward, say so (or why not), and serve."""
    spec, signature, chat = arguments[0], arguments[1] or None, arguments[2] == "chat"
    _end_with_parent()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 0)  # a reward that reads its input finds an end, not our requests
    sys.dont_write_bytecode = True  # a late import of the reward is not a side effect
    try:
        bound = resolve(load_function(spec), signature=signature, chat=chat)
        worker = Worker(bound, out)
    except AssayError as error:
        out.write(json.dumps({"error": str(error)}) + "\n")
        return 2
    needed = [name for name in bound.parameters.names if name in bound.parameters.required]
    ready = {"ready": True, "kind": bound.kind, "batch": bound.is_batch, "names": bound.parameters.names}
    out.write(json.dumps({**ready, "required": needed, "any": bound.parameters.takes_any}) + "\n")
    out.flush()
    try:
        worker.serve(requests)
    except AssayError as error:
        out.write(json.dumps({"error": str(error)}) + "\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
