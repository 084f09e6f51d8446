"""Scoring probes in a worker process that can be killed, with every outcome remembered."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadInput
from assay.records.finding import jsonable

Mode = Literal["plain", "watched", "isolated", "thread", "traced", "batch"]
State = Literal["scored", "missing", "invalid_task", "crashed", "hang", "died"]
LOAD_LIMIT = 120.0
"""Seconds for the worker to import the reward and what it needs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call gave.

    Attributes:
        value: the score; NaN when there is none. state: as in the records, or ``hang`` (no answer within the
        limit) or ``died`` (the process ended). seen: prints, files, network, evaluation, hidden exceptions.
    """

    value: float = math.nan
    state: State = "scored"
    reason: str = ""
    seconds: float = 0.0
    seen: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to score: the key of a task, and a completion."""

    task: str
    completion: str


class Prober:
    """Scores completions of one reward function in a child process.

    Args:
        spec: ``file.py:function``. tasks: key to task. time_limit: seconds a call may take.
    """

    def __init__(
        self,
        spec: str,
        tasks: Mapping[str, Mapping[str, Any]],
        *,
        signature: str | None = None,
        chat: bool = False,
        time_limit: float = 5.0,
    ) -> None:
        self.spec, self.signature, self.chat, self.time_limit = spec, signature, chat, time_limit
        self.tasks: dict[str, Mapping[str, Any]] = dict(tasks)
        self.known: dict[Call, Outcome] = {}
        self.calls = 0
        self.isolate = False
        self.hung = 0
        self.dropped = 0
        self._deadline = math.inf
        self.usual = 0.0
        self.uses_files = False
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self.about: Mapping[str, Any] = {}

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        _end_marked(self._mark)

    def close(self) -> None:
        """End the worker and its process group."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._child, self._buffer = None, b""

    def add_task(self, key: str, task: Mapping[str, Any]) -> None:
        """Make a task known (a variant of a given one, such as one without a gold)."""
        self.tasks[key] = task
        if self._child is not None:
            self._send({"tasks": {key: jsonable(task)}})

    def scores(self, calls: Sequence[Call]) -> list[Outcome]:
        """Score calls, each at most once (remembered)."""
        fresh = [call for call in dict.fromkeys(calls) if call not in self.known]
        mode: Mode = "isolated" if self.isolate else "plain"
        done = zip(fresh, self.run(fresh, mode), strict=True)
        self.known.update((call, outcome) for call, outcome in done if outcome is not NOT_RUN)
        return [self.known.get(call, NOT_RUN) for call in calls]

    def score(self, task: str, completion: str) -> Outcome:
        """Score one completion."""
        return self.scores([Call(task, completion)])[0]

    def run(self, calls: Sequence[Call], mode: Mode, limit: float | None = None) -> list[Outcome]:
        """Score calls afresh in a mode of :mod:`assay.audit.worker`, remembering nothing."""
        done: list[Outcome] = []
        while len(done) < len(calls):
            if limit is None and (self.hung >= MANY_HANGS or self.out_of_time):
                done += [NOT_RUN] * (len(calls) - len(done))
                self.dropped += 1
                break
            size = len(calls) if mode == "batch" else self._chunk()
            done += self._attempt(calls[len(done) : len(done) + size], mode, limit or self._patience())
        self.calls += sum(outcome is not NOT_RUN for outcome in done)
        return done

    def allow(self, seconds: float) -> None:
        """Run calls for this long from now on; what comes later is not run (calls with a limit of their own are)."""
        self._deadline = time.monotonic() + seconds

    @property
    def out_of_time(self) -> bool:
        """Whether the time that :meth:`allow` gave is over."""
        return time.monotonic() > self._deadline

    def _chunk(self) -> int:
        """Items sent at once: few enough that a pipe never fills in both directions, and about a second's work."""
        return max(1, min(CHUNK, int(1 / max(self.usual, 1e-3))))

    def _patience(self) -> float:
        """Seconds for one call: halved with every third hang, so that a reward that often hangs ends the day."""
        return max(self.time_limit / 2 ** (self.hung // 3), min(self.time_limit, max(0.3, 50 * self.usual)))

    def restart(self) -> None:
        """End the worker; the next call starts a fresh one without any state."""
        self.close()

    def start(self) -> Mapping[str, Any]:
        """Start the worker if it is not running, and return what it says about the reward's signature."""
        if self._child is None:
            command = [sys.executable, "-m", "assay.audit.worker", self.spec, self.signature or ""]
            self._child = subprocess.Popen(
                [*command, "chat" if self.chat else "text"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, MARK: self._mark.partition("=")[2]},
            )
            line = self._line(LOAD_LIMIT)
            if line is None:
                self.close()
                raise BadInput(f"{self.spec} did not load within {LOAD_LIMIT:g} s")
            self.about = json.loads(line) if line else {"error": f"{self.spec}: its process ended on loading"}
            if "error" in self.about:
                self.close()
                raise BadInput(str(self.about["error"]))
            self._send({"tasks": jsonable(self.tasks)})
        return self.about

    def _attempt(self, calls: Sequence[Call], mode: Mode, limit: float) -> list[Outcome]:
        """Score as many calls as the worker survives; the last outcome may be a hang or a death."""
        self.start()
        items = [[call.task, call.completion] for call in calls]
        if not self._send({"items": items, "mode": mode, "at_once": 1 if self.uses_files else AT_ONCE}):
            return [self._dead()]
        done = list(self._answers(len(items), limit))
        return [*done, *done[-1:] * (len(items) - len(done))] if mode == "batch" else done

    def _answers(self, count: int, limit: float) -> Iterator[Outcome]:
        for _ in range(count):
            line = self._line(limit)
            if line is None:
                self.hung += 1
                self.close()
                yield Outcome(state="hang", reason=f"no answer within {limit:g} s", seconds=limit)
                return
            if not line:
                yield self._dead()
                return
            document = json.loads(line)
            if "error" in document:
                self.close()
                raise BadInput(str(document["error"]))
            outcome = _outcome(document)
            self.uses_files |= bool(outcome.seen.get("files") or outcome.seen.get("children"))
            yield outcome

    def _dead(self) -> Outcome:
        self.close()
        return Outcome(state="died", reason="the process that ran the reward ended")

    def _send(self, document: Mapping[str, Any]) -> bool:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write((json.dumps(document) + "\n").encode())
            self._child.stdin.flush()
        except (BrokenPipeError, OSError):
            return False
        return True

    def _line(self, limit: float) -> bytes | None:
        """The next line; empty when the worker has ended, None when it took longer than ``limit``."""
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + limit
        handle = self._child.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                return None
            piece = os.read(handle, 1 << 16)
            if not piece:
                return b""
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _end_marked(mark: str) -> None:
    """End what the reward started and left behind in a session of its own (found by its environment; Linux)."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)


MARK = "ASSAY_AUDIT_WORKER"
"""Environment variable by which everything that a worker starts is known."""
MANY_HANGS = 24
"""After so many calls without an answer only the search for the shortest hanging text goes on."""
AT_ONCE = 8
"""Forks that score side by side, as each costs more waiting than work; one where they could share a file."""
CHUNK = 64
NOT_RUN = Outcome(state="hang", reason="not run: the reward had hung too often, or the time was over")


def _outcome(document: dict[str, Any]) -> Outcome:
    value = document.pop("value", None)
    state, reason = document.pop("state"), document.pop("reason", None) or ""
    seconds = document.pop("seconds", 0.0)
    return Outcome(math.nan if value is None else float(value), state, reason, seconds, document)
