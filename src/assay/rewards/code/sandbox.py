"""A sandbox for untrusted Python programs: one fresh interpreter for each, gone with all it started.

Each program runs in its own ``python -I -S`` process. What confines it, where the kernel offers it:

- a process namespace of its own: it sees no other process, and its end is the end of all it started,
  double forks and new sessions included; a user of its own when we are root; process limits for that user
- a file system of its own (see :mod:`assay.rewards.code.room`): no tests, no grader, no /proc, no home;
  one temporary folder in memory, of limited size, which vanishes with it
- no network: an empty network namespace, and no sockets
- Landlock and seccomp on top: files, system calls, new namespaces, tracing, memory that limits do not count
- limits on processor time, wall time, memory, processes, file size, disk and output

What it does not cover:

- a hole in the kernel itself: programs share the host's kernel (against people, use a virtual machine)
- side channels: timing, caches, the load of the machine
- fairness: a program may use its whole processor time, and slows down its neighbours meanwhile
- what a program learns of the machine: kernel version, processor, the standard library's files
- an overshoot of the total memory for about 20 ms, the interval at which it is added up
- systems without process namespaces and without another user (macOS, Windows, a plain user with namespaces
  turned off): there code rewards refuse to start unless told otherwise, and :func:`sandbox_report` says why

:func:`sandbox_report` tells what holds on this machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from assay.rewards.code import plain
from assay.rewards.code.folder import remove_folder
from assay.rewards.code.isolation import Isolation, bare_interpreter, current_isolation
from assay.rewards.code.limits import BOX, Limits

STARTUP_S = 30.0
GOODBYE_S = 15.0
TAIL = 2000
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": BOX,
    "TMPDIR": BOX,
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
}


class SandboxFailed(RuntimeError):
    """The sandbox itself did not work; nothing is known about the program."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended, all its processes being dead.

    Attributes:
        exit_code: its exit status; minus the signal's number when a signal ended it.
        breach: the limit that it broke (``timeout``, ``cpu time``, ``memory``, ``disk``, ``output``), if one.
        cpu_s: processor seconds of everything it started.
        stdout: what it wrote, up to the output limit.
        stderr_tail: the last characters of what it wrote there.
    """

    exit_code: int
    breach: str | None
    cpu_s: float
    stdout: bytes
    stderr_tail: str


class Session:
    """One sandboxed process, from start to end; use it as a context manager, so that nothing is left.

    Raises:
        SandboxFailed: the sandbox could not be started.
    """

    def __init__(self, limits: Limits, isolation: Isolation | None = None, stdin: bytes = b"") -> None:
        self._limits, self._isolation = limits, isolation or current_isolation()
        self._stdin, self._pending = memoryview(stdin), bytearray()
        self._out, self._err, self._written = bytearray(), bytearray(), 0
        self._report, self._report_ended, self._control_ended = bytearray(), False, False
        self.breach: str | None = None
        self._greeted, self._most_s = False, limits.wall_s
        self._selector = selectors.DefaultSelector()
        self._deadline = time.monotonic() + STARTUP_S
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._control, control = socket.socketpair()
        self._lifeline, lifeline = socket.socketpair()
        for end in (self._control, control, self._lifeline, lifeline):
            stack.callback(end.close)
        stack.callback(self._selector.close)
        box = BOX
        if not self._isolation.namespaces:
            box = tempfile.mkdtemp(prefix="assay-box-")
            stack.callback(remove_folder, box)
        config = self._configuration(box, control.fileno(), lifeline.fileno())
        command, compiled = bare_interpreter("supervisor")
        self._process = subprocess.Popen(
            [*command, plain.encode(config).hex()],
            stdin=subprocess.PIPE if self._stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=ENVIRONMENT | {"HOME": box, "TMPDIR": box},
            pass_fds=(control.fileno(), lifeline.fileno(), compiled, *self._isolation.namespaces.values()),
            start_new_session=True,
        )
        stack.callback(self._reap)
        control.close()
        lifeline.close()
        self._register()

    def _configuration(self, box: str, control: int, lifeline: int) -> dict[str, Any]:
        limits, isolation = self._limits, self._isolation
        megabyte = 1 << 20
        kernel_limits = {
            "RLIMIT_AS": limits.memory_mb * megabyte,
            "RLIMIT_CPU": max(1, int(-(-limits.cpu_s // 1))),
            "RLIMIT_FSIZE": limits.file_mb * megabyte,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
        }
        if isolation.counts_processes:
            kernel_limits["RLIMIT_NPROC"] = limits.processes
        return {
            "control": control,
            "lifeline": lifeline,
            "box": box,
            "namespaces": dict(isolation.namespaces),
            "first_uid": isolation.first_uid,
            "landlock": isolation.landlock > 0,
            "seccomp": isolation.seccomp,
            "readable": list(isolation.readable),
            "limits": {
                name: low for name, most in kernel_limits.items() if (low := _allowed(name, most)) >= 0
            },
            "memory": limits.memory_mb * megabyte,
            "cpu": float(limits.cpu_s),
            "disk": limits.disk_mb * megabyte,
            "measure_disk": not isolation.namespaces,
            "deadline": STARTUP_S + limits.wall_s + 5.0,
        }

    def _register(self) -> None:
        def watch(file: IO[bytes] | socket.socket, event: int, action: Callable[[], None]) -> None:
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, event, action)

        stdout, stderr, stdin = self._process.stdout, self._process.stderr, self._process.stdin
        assert stdout is not None
        assert stderr is not None
        watch(stdout, selectors.EVENT_READ, lambda: self._read_output(stdout, self._out))
        watch(stderr, selectors.EVENT_READ, lambda: self._read_output(stderr, self._err))
        watch(self._control, selectors.EVENT_READ, self._read_control)
        watch(self._lifeline, selectors.EVENT_READ, self._read_lifeline)
        if stdin is not None:
            watch(stdin, selectors.EVENT_WRITE, lambda: self._feed(stdin))

    def greet(self) -> None:
        """Wait until the program's process is confined; its time runs from now on. Needed once, done by itself.

        Raises:
            SandboxFailed: it could not be confined.
        """
        if self._greeted:
            return
        self._greeted = True
        greeting = self._next_frame()
        if greeting != plain.encode(["ready"]):
            tail = bytes(self._err[-TAIL:]).decode("utf-8", "replace").strip()
            said = "" if greeting is None else str(plain.decode(greeting)[1:])
            raise SandboxFailed(f"the sandbox did not start: {said or self.breach or ''} {tail}".strip())
        self._deadline = time.monotonic() + self._most_s

    def shorten(self, seconds: float) -> None:
        """End the program at the latest after ``seconds`` (from its start); to be called before it is greeted."""
        self._most_s = min(self._most_s, seconds)

    def ask(self, message: object) -> Any | None:
        """Send plain data and wait for one answer; None when the program ended or broke a limit.

        Raises:
            NotPlain: the message is not plain data, or the answer spells nothing.
            SandboxFailed: the sandbox could not be started.
        """
        self.tell(message)
        return self.listen()

    def listen(self) -> Any | None:
        """Wait for one answer; as :meth:`ask`."""
        self.greet()
        answer = self._next_frame()
        return None if answer is None else plain.decode(answer)

    def tell(self, message: object) -> None:
        """Send plain data; nothing happens when the program is gone."""
        payload = plain.encode(message)
        left = memoryview(len(payload).to_bytes(plain.HEADER, "big") + payload)
        while left and not self._over():
            try:
                left = left[self._control.send(left) :]
            except BlockingIOError:
                self.greet()  # from now on the program's own limit holds, also for what it does not read
                if self._control_ended:
                    return
                self._wait_to_send()
            except OSError:
                return

    def _wait_to_send(self) -> None:
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.modify(self._control, both, self._read_control)
        self._step()
        if not self._control_ended:
            self._selector.modify(self._control, selectors.EVENT_READ, self._read_control)

    def _next_frame(self) -> bytes | None:
        """The next complete frame, or None. Frames that came before a limit was broken still count."""
        while True:
            size = int.from_bytes(self._pending[: plain.HEADER], "big")
            if size > self._most_bytes():
                self.breach = self.breach or "output"
                return None
            if len(self._pending) >= plain.HEADER + size:
                frame = bytes(self._pending[plain.HEADER : plain.HEADER + size])
                del self._pending[: plain.HEADER + size]
                return frame
            if self._over() or self._control_ended:
                return None
            self._step()

    @property
    def unasked(self) -> bool:
        """Whether the program has sent something that nobody asked for."""
        return bool(self._pending)

    def _most_bytes(self) -> int:
        return self._limits.output_kb * 1024

    def _over(self) -> bool:
        if self.breach is None and time.monotonic() >= self._deadline and not self._report_ended:
            self.breach = "timeout"
        return self.breach is not None or self._report_ended

    def _step(self) -> None:
        for key, _ in self._selector.select(max(0.0, self._deadline - time.monotonic())):
            key.data()

    def _read_output(self, file: IO[bytes], kept: bytearray) -> None:
        data = _read(file.fileno())
        if data is None:
            return
        if not data:
            self._selector.unregister(file)
            return
        self._written += len(data)
        kept += data[: max(0, self._most_bytes() - len(kept))]
        if self._written > self._most_bytes():
            self.breach = self.breach or "output"

    def _read_control(self) -> None:
        data = _read(self._control.fileno())
        if data is None:
            return
        if not data:
            self._control_ended = True
            self._selector.unregister(self._control)
        self._pending += data
        if len(self._pending) > 2 * self._most_bytes():
            self.breach = self.breach or "output"

    def _read_lifeline(self) -> None:
        data = _read(self._lifeline.fileno())
        if data:
            self._report += data
        elif data is not None:
            self._report_ended = True
            self._selector.unregister(self._lifeline)

    def _feed(self, file: IO[bytes]) -> None:
        try:
            self._stdin = self._stdin[os.write(file.fileno(), self._stdin[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]  # the program closed it
        if not self._stdin:
            self._selector.unregister(file)
            file.close()

    def wait(self) -> Ending:
        """Let the program run to its end or to a limit; see :meth:`end`."""
        self.greet()
        while not self._over():
            self._step()
        return self.end()

    def end(self) -> Ending:
        """Kill what still runs, and return once every process is dead.

        Raises:
            SandboxFailed: the supervisor died, or could not kill everything.
        """
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
        self._deadline = time.monotonic() + GOODBYE_S
        while not self._report_ended and time.monotonic() < self._deadline:
            self._step()
        self._drain()
        try:
            status, breach, cpu, left = plain.decode(bytes(self._report))
        except (plain.NotPlain, ValueError) as error:
            raise SandboxFailed("the sandbox's supervisor died without a report") from error
        if left:
            raise SandboxFailed(f"{left} processes of the program could not be killed")
        exit_code = os.waitstatus_to_exitcode(status) if status >= 0 else -9
        self.breach = self.breach or breach or self._breach_by_signal(exit_code, cpu)
        tail = bytes(self._err[-TAIL:]).decode("utf-8", "replace")
        return Ending(exit_code, self.breach, cpu, bytes(self._out), tail)

    def _breach_by_signal(self, exit_code: int, cpu: float) -> str | None:
        return "cpu time" if exit_code in (-9, -24) and cpu >= 0.9 * self._limits.cpu_s else None

    def _drain(self) -> None:
        """Read what is still in the pipes: everything that could write is dead."""
        stdout, stderr = self._process.stdout, self._process.stderr
        for file, kept in ((stdout, self._out), (stderr, self._err)):
            while file is not None and len(kept) < self._most_bytes() and (data := _read(file.fileno())):
                kept += data[: self._most_bytes() - len(kept)]
                self._written += len(data)
        if self._written > self._most_bytes():
            self.breach = self.breach or "output"

    def close(self) -> None:
        """Kill what still runs and free everything."""
        self._stack.close()

    def _reap(self) -> None:
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
        if not self._report_ended and not select.select([self._lifeline], [], [], GOODBYE_S)[0]:
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            if file is not None and not file.closed:
                file.close()


def _allowed(name: str, wanted: int) -> int:
    """A limit no higher than this process's own; -1 where the system has no such limit."""
    kind = getattr(resource, name, None)
    if kind is None:
        return -1
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _read(fd: int) -> bytes | None:
    """Bytes, b"" at the end, None when there is nothing now."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""
