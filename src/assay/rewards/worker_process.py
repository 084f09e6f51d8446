"""The parent's side of one worker: start, send a chunk, collect what is done, kill."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import pickle
import pickletools
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from assay.errors import BadInput
from assay.rewards.signatures import function_name
from assay.rewards.worker import IDLE, PROGRESS, WHOLE_CALL, Setup, send, split_messages

_OUTPUT_TAIL = 4096
_SILENCE_SECONDS = 30.0
_START_SECONDS = 120.0

Chunk = Sequence[int]
"""Indices of the samples that one worker has in hand."""


def pack_reward(reward: Callable[..., Any] | str) -> tuple[str | bytes, dict[str, str]]:
    """Prepare a reward for a worker: a spec as it is, a callable as a pickle and its modules' files.

    Raises:
        BadInput: it cannot be pickled (a lambda, a closure), or it was typed into an interpreter.
    """
    if isinstance(reward, str):
        where, colon, name = reward.rpartition(":")
        return (os.path.abspath(where) + colon + name if os.path.exists(where) else reward), {}
    try:
        data = pickle.dumps(reward)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"the reward {function_name(reward)} cannot be sent to a worker ({error}); define it at the "
            "top of a module (no lambda, no closure), give 'file.py:name', or run it in_process"
        ) from error
    return data, _module_files(data)


def _module_files(data: bytes) -> dict[str, str]:
    """Files of the user's modules that a pickle names."""
    names = {arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)}
    library = tuple(sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib"))
    found: dict[str, str] = {}
    for name in sorted(names & sys.modules.keys()):
        path = getattr(sys.modules[name], "__file__", None)
        if name == "__main__" and path is None:
            raise BadInput("the reward was typed into an interpreter; put it in a file, or run it in_process")
        if path and (name == "__main__" or not os.path.abspath(path).startswith(library)):
            found[name] = os.path.abspath(path)
    return found


class WorkerProcess:
    """One worker and the chunk it has in hand."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.ready: tuple[str, str, bool] | None = None
        self.chunk: list[int] = []
        self.done = 0
        self.output = bytearray()
        self._buffer = bytearray()
        self._since = time.monotonic()
        self._start()

    def _start(self) -> None:
        mine, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        with tempfile.TemporaryFile() as shared:
            shared.write(PROGRESS.pack(math.inf, IDLE))
            shared.flush()
            self._progress = mmap.mmap(shared.fileno(), PROGRESS.size)
            fds = (theirs.fileno(), lifeline_read, shared.fileno())
            code = (
                f"import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = ['assay-reward-worker']; "
                f"from assay.rewards.worker import serve; serve{fds!r}"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=fds,
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        theirs.close()
        os.close(lifeline_read)
        assert self._process.stdout is not None
        self.out_fd = self._process.stdout.fileno()
        os.set_blocking(self.out_fd, False)
        self.channel = mine
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen as a death when it is read
            send(mine, self._setup)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the reward is loaded; raises :class:`BadInput` when it cannot be."""
        while self.ready is None:
            readable, _, _ = select.select([self.channel, self.out_fd], [], [], _START_SECONDS)
            if self.out_fd in readable and not self.read_output():
                readable = [self.channel]
            if self.channel not in readable and readable:
                continue
            messages = self.read() if readable else None
            if messages is None:
                how = self.how_it_died() if readable else f"nothing came for {_START_SECONDS:g} s"
                raise BadInput(f"the reward's worker did not start: it {how}")
            for message in messages:
                if message[0] == "bad":
                    raise BadInput(message[1])
                self.ready = message[1:]

    @property
    def is_idle(self) -> bool:
        """Whether it is loaded and has nothing in hand."""
        return self.ready is not None and not self.chunk

    def give(self, chunk: list[int], message: Any) -> None:
        """Send a chunk; the worker must be idle."""
        self.chunk, self.done, self._since = chunk, 0, time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # seen as a death when it is read
            send(self.channel, message)

    def read(self) -> list[Any] | None:
        """Messages that have arrived; None when the worker has died."""
        try:
            data = self.channel.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        self._buffer += data
        return split_messages(self._buffer)

    def read_output(self, *, at_end: bool = False) -> bool:
        """Keep the end of what it printed; False when the stream is closed (``at_end``: or has no more)."""
        try:
            data = os.read(self.out_fd, 1 << 16)
        except BlockingIOError:
            return not at_end
        self.output += data
        del self.output[:-_OUTPUT_TAIL]
        return bool(data)

    def position(self) -> tuple[float, int]:
        """Until when the current sample may take (monotonic seconds), and its place in the chunk."""
        deadline, place = PROGRESS.unpack(self._progress[:])
        if place == IDLE:  # reading a chunk, sending results, or loading the reward
            spare = _START_SECONDS if self.ready is None else self._setup.time_limit + _SILENCE_SECONDS
            return self._since + spare, self.done
        return deadline, place

    def stuck_at(self) -> tuple[int | None, list[int]]:
        """The sample that a dead worker was at (None: it cannot be told), and the other unfinished ones."""
        place = self.position()[1]
        rest = self.chunk[self.done :]
        if len(rest) == 1:
            return rest[0], []
        if place == WHOLE_CALL or not self.done <= place < len(self.chunk):
            return None, rest
        return self.chunk[place], [i for i in rest if i != self.chunk[place]]

    def how_it_died(self) -> str:
        """One clause about a worker that ended by itself, with the last line that it printed."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        while self.read_output(at_end=True):
            pass
        lines = self.output.decode(errors="replace").strip().splitlines()
        return f"{how}; its last line: {lines[-1][:200]}" if lines else how

    def let_go(self) -> None:
        """Close the channel: an idle worker then ends by itself."""
        self.channel.close()

    def kill(self, patience: float = 0.0) -> None:
        """End the worker and all its descendants of its process group, after ``patience`` seconds."""
        if patience:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.channel.close()
        self._progress.close()
        os.close(self._lifeline)
        if self._process.stdout:
            self._process.stdout.close()
