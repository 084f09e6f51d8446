"""The worker: a bare process that loads one reward and scores what it is sent. It never sees torch unless
the reward itself imports it.

It shows through 16 shared bytes which sample it is at and until when that one may take; the parent kills
the whole process group when the time is over. When the parent dies, the kernel ends the worker (SIGIO on a
pipe whose other end the parent holds), even in the middle of a C call.
"""

from __future__ import annotations

import fcntl
import importlib.util
import math
import mmap
import os
import pickle
import socket
import struct
import sys
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput
from assay.records.score import Score
from assay.rewards.call import BoundReward, resolve
from assay.rewards.load import load_function, load_module_as

PROGRESS = struct.Struct("<dq")
"""What the worker shows: until when (monotonic seconds), and which sample of the chunk."""
IDLE, WHOLE_CALL = -2, -1
_HEADER = struct.Struct("<Q")
_FLUSH_SECONDS = 0.02
_ASYNC_GRACE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs: the reward (a spec, or a pickle and its modules' files) and how to call it."""

    reward: str | bytes
    modules: Mapping[str, str]
    signature: str | None
    chat: bool
    time_limit: float
    concurrency: int


def serve(channel_fd: int, lifeline_fd: int, progress_fd: int) -> None:
    """Load the reward, say so, and score chunks until the parent closes the channel."""
    _die_with_the_parent(lifeline_fd)
    channel = socket.socket(fileno=channel_fd)
    progress = mmap.mmap(progress_fd, PROGRESS.size)
    setup = receive(channel)
    if setup is None:
        return
    try:
        bound = resolve(_load(setup), signature=setup.signature, chat=setup.chat)
    except BadInput as error:
        send(channel, ("bad", str(error)))
        return
    send(channel, ("ready", bound.kind, bound.name, bound.is_async))
    while (chunk := receive(channel)) is not None:
        try:
            _score_chunk(bound, setup, chunk, channel, progress)
        except BadInput as error:
            send(channel, ("bad", str(error)))
        sys.stdout.flush()


def _score_chunk(
    bound: BoundReward, setup: Setup, chunk: Any, channel: socket.socket, progress: mmap.mmap
) -> None:
    completions, tasks, prompts = chunk
    limit = setup.time_limit
    if bound.is_batch or bound.is_async:
        waves = 1 if bound.is_batch else math.ceil(len(completions) / setup.concurrency)
        grace = _ASYNC_GRACE_SECONDS if bound.is_async else 0.0
        progress[:] = PROGRESS.pack(time.monotonic() + limit * waves + grace, WHOLE_CALL)
        scores = bound.score(completions, tasks, prompts, time_limit=limit, concurrency=setup.concurrency)
        progress[:] = PROGRESS.pack(math.inf, IDLE)
        send(channel, ("done", [compact(score) for score in scores]))
        return
    done: list[Any] = []
    flushed = time.monotonic()
    for index, row in enumerate(bound.rows(completions, tasks, prompts)):
        now = time.monotonic()
        if now - flushed > _FLUSH_SECONDS:  # what a kill could lose took less than this
            send(channel, ("part", done))
            done, flushed = [], now
        progress[:] = PROGRESS.pack(now + limit, index)
        done.append(compact(bound.score_row(row)))
    progress[:] = PROGRESS.pack(math.inf, IDLE)
    send(channel, ("done", done))


def compact(score: Score) -> Any:
    """A score as plain data: a bare float in the common case."""
    if score.state == "scored" and score.reason is None and not score.parts:
        return score.value
    parts = {str(name): float(value) for name, value in score.parts.items()}
    return (float(score.value), score.state, score.reason, parts)


def restore(data: Any) -> Score:
    """The score that :func:`compact` packed."""
    return Score(data) if isinstance(data, float) else Score(*data)


def send(channel: socket.socket, message: Any) -> None:
    """Send one message: its length and its pickle."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    channel.sendall(_HEADER.pack(len(data)) + data)


def receive(channel: socket.socket) -> Any:
    """Receive one message; None when the other side has gone."""
    header = _read(channel, _HEADER.size)
    data = _read(channel, _HEADER.unpack(header)[0]) if header else None
    return pickle.loads(data) if data else None


def split_messages(buffer: bytearray) -> list[Any]:
    """Take the complete messages from the front of ``buffer``."""
    found: list[Any] = []
    while len(buffer) >= _HEADER.size:
        end = _HEADER.size + _HEADER.unpack_from(buffer)[0]
        if len(buffer) < end:
            break
        found.append(pickle.loads(buffer[_HEADER.size : end]))
        del buffer[:end]
    return found


def _read(channel: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _load(setup: Setup) -> Any:
    if isinstance(setup.reward, str):
        return load_function(setup.reward)
    for name, path in setup.modules.items():
        _provide(name, path)
    try:
        return pickle.loads(setup.reward)
    except (AttributeError, ImportError, pickle.UnpicklingError) as error:
        raise BadInput(
            f"the reward cannot be loaded in a worker ({error}); define it at the top of a module"
        ) from error


def _provide(name: str, path: str) -> None:
    """Make ``name`` importable here as it was in the parent: by its name, or from its file."""
    if name == "__main__":
        sys.modules["__main__"] = load_module_as("__assay_main__", path)
    elif name not in sys.modules and not _imports_from(name, path):
        for end in [place for place, letter in enumerate(name) if letter == "."]:
            parent = name[:end]  # pickle imports the top package of a dotted name
            if parent not in sys.modules and not _exists(parent):
                sys.modules[parent] = types.ModuleType(parent)
        load_module_as(name, path)


def _imports_from(name: str, path: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin == path


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _die_with_the_parent(lifeline_fd: int) -> None:
    if hasattr(os, "O_ASYNC"):
        fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
        flags = fcntl.fcntl(lifeline_fd, fcntl.F_GETFL)
        fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
