"""Try a sandbox out: a small program that attempts what it must not be able to do, and what that shows."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from dataclasses import dataclass
from typing import Any

from assay.rewards.code.calls import Calls
from assay.rewards.code.isolation import Isolation, current_isolation
from assay.rewards.code.limits import Limits
from assay.rewards.code.plain import DictOf
from assay.rewards.code.sandbox import SandboxFailed, Session

PROBE = """
import os

def attempt(action):
    try:
        action()
    except (OSError, RuntimeError, ImportError) as error:
        return type(error).__name__
    return None

def connect():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    os.unlink(path)

def trace():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")

def probe(folders, parent, file):
    outside = [attempt(lambda: write(os.path.join(path, "assay-probe"))) for path in folders]
    return {
        "temporary folder": attempt(lambda: write("probe")),
        "standard library": attempt(lambda: __import__("decimal")),
        "network": attempt(connect),
        "writing elsewhere": None if None in outside else "refused",
        "signals to other processes": attempt(lambda: os.kill(parent, 0)),
        "reading the grader's files": attempt(lambda: open(file).close()),
        "tracing": attempt(trace),
    }
"""
NEEDED = ("temporary folder", "standard library")
COVERED_BY_LEVEL = {
    "every process is dead afterwards": ("namespaces+user", "namespaces", "user"),
    "limit on processes": ("namespaces+user", "namespaces", "user"),
}
ALWAYS_COVERED = ("wall time", "processor time", "memory", "size of files and of their folder", "output")
NEVER_COVERED = (
    "holes in the kernel (programs share the host's kernel)",
    "side channels such as timing and load",
    "an overshoot of totals (memory; files where there are no namespaces) for about 20 ms",
)


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What the sandbox covers on this machine, measured by a program that tried.

    Attributes:
        level: see :mod:`assay.rewards.code.isolation`.
        covered, not_covered: in words.
        rejected: the stronger levels, and why each does not work here.
    """

    level: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    rejected: dict[str, str]

    def __str__(self) -> str:
        lines = [f"code sandbox: {self.level}", *(f"  covered      {name}" for name in self.covered)]
        lines += [f"  NOT COVERED  {name}" for name in self.not_covered]
        return "\n".join(lines + [f"  {level} does not work: {why}" for level, why in self.rejected.items()])


def run_probe(isolation: Isolation) -> dict[str, str | None]:
    """What a program in this sandbox could do: name -> the error that stopped it, or None.

    Raises:
        SandboxFailed: the sandbox did not start, or the probe gave no answer.
    """
    folders = _folders(has_room=bool(isolation.namespaces))
    with Session(Limits(wall_s=20), isolation) as session:
        calls = Calls(session)
        calls.load(PROBE, "probe")
        reply = calls.call([folders, os.getpid(), os.path.abspath(__file__)], {}, last=True)
        if not isinstance(reply.value, DictOf):
            raise SandboxFailed(f"the probe gave no answer: {reply.reason}")
        session.end()
    found: list[tuple[Any, Any]] = reply.value.pairs
    return {str(name): None if stopped is None else str(stopped) for name, stopped in found}


def _folders(has_room: bool) -> list[str]:
    """Where a program must not be able to write."""
    folders = {tempfile.gettempdir(), "/var/tmp", "/dev/shm", os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been removed
        folders.add(os.getcwd())
    return sorted(folders - {"/tmp"} if has_room else folders)  # in a room /tmp is the program's own folder


def why_not(isolation: Isolation) -> str | None:
    """Why a level does not work here, or None when it does."""
    try:
        found = run_probe(isolation)
    except SandboxFailed as error:
        return str(error)
    broken = [f"{name} ({found[name]})" for name in NEEDED if found[name] is not None]
    return f"no {', no '.join(broken)}" if broken else None


@functools.cache
def sandbox_report() -> SandboxReport:
    """What the sandbox covers on this machine and what it does not; tried out at the first call."""
    return report_on(current_isolation())


def report_on(isolation: Isolation) -> SandboxReport:
    """Like :func:`sandbox_report`, for one level."""
    found = run_probe(isolation)
    stopped = {name: found[name] is not None for name in found if name not in NEEDED}
    stopped |= {name: isolation.level in levels for name, levels in COVERED_BY_LEVEL.items()}
    stopped["refused system calls (seccomp)"] = bool(isolation.seccomp)
    stopped["files by list (Landlock)"] = isolation.landlock > 0
    covered = (*ALWAYS_COVERED, *(name for name, is_stopped in stopped.items() if is_stopped))
    not_covered = (*(name for name, is_stopped in stopped.items() if not is_stopped), *NEVER_COVERED)
    return SandboxReport(isolation.level, covered, not_covered, dict(isolation.rejected))
