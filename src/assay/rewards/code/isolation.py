"""What this machine offers to keep untrusted programs apart, tried out once, strongest first.

``namespaces+user``: a process namespace, a file system, and a user of its own for each program (as root).
``namespaces``: the same inside a user namespace (a plain user). ``user``: another user only (root in a
container that may not make namespaces). ``none``: nothing that a fork bomb or an orphan could not escape.
"""

from __future__ import annotations
import __future__

import functools
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Literal

from assay.errors import BadInput
from assay.rewards.code.limits import BOX

Level = Literal["namespaces+user", "namespaces", "user", "none"]
LEVELS: tuple[Level, ...] = ("namespaces+user", "namespaces", "user", "none")
LOW_UID, HIGH_UID = 20_000, 1 << 30  # nobody is here, ordinary users below
OVERRIDE = "ASSAY_ALLOW_UNISOLATED_CODE"
_CODE = Path(__file__).parent
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Isolation:
    """One way to confine programs on this machine.

    Attributes:
        level: see the module.
        namespaces: open descriptors of the room's namespaces, by name; empty without a room.
        first_uid: each program runs as this user plus the number of its supervisor; 0 for our own user.
        landlock: the kernel's Landlock ABI, 0 for none.
        seccomp: the filter of system calls; empty for none.
        readable: what may be read where there is no room.
        rejected: the stronger levels and why each one does not work here.
    """

    level: Level
    namespaces: Mapping[str, int] = field(default_factory=dict[str, int])
    first_uid: int = 0
    landlock: int = 0
    seccomp: bytes = b""
    readable: tuple[str, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def counts_processes(self) -> bool:
        """Whether a limit on processes counts this program's only."""
        return self.level != "none"


def bare_interpreter(module: str) -> tuple[list[str], int]:
    """The command that runs ``main`` of a module of this package in a bare ``python -I -S``, and what it reads.

    The modules come compiled in one file, whose descriptor the process must inherit: looking for each of them on
    disk would take a tenth of a program's time.
    """
    descriptor = _compiled()
    code = (
        "import gc, sys, marshal, posix\n"
        "gc.disable()\n"  # a collection would cost more than all of this start; the harness turns it on again
        f"codes = marshal.loads(posix.pread({descriptor}, 1 << 20, 0))\n"
        f"posix.close({descriptor})\n"
        "class Compiled:\n"
        "    find_spec = lambda name, *_: type(sys.__spec__)(name, Compiled) if name in codes else None\n"
        "    create_module = lambda spec: None\n"
        "    exec_module = lambda module: exec(codes[module.__name__], module.__dict__)\n"
        "sys.meta_path.insert(0, Compiled)\n"
        "usual = sys.path[:]\n"  # the two extension modules stand last: the folders before need not be read
        "sys.path.sort(key=lambda folder: not folder.endswith('lib-dynload'))\n"
        "for name in ('assay', 'assay.rewards', 'assay.rewards.code'):\n"  # without running their __init__
        "    package = sys.modules[name] = type(sys)(name)\n"
        "    package.__path__ = []\n"
        f"from assay.rewards.code.{module} import main\n"
        "import select\n"
        "sys.path[:] = usual\n"
        "main()\n"
    )
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return [executable, "-I", "-S", "-X", "utf8", "-c", code], descriptor


@functools.cache
def _compiled() -> int:
    """A nameless file with the code of the modules that run inside, open as long as this process lives."""
    names = ("plain", "frames", "kernel", "supervisor", "harness", "filters", "room")
    codes = {f"assay.rewards.code.{name}": _code_of(name) for name in names}
    with tempfile.TemporaryFile() as file:
        file.write(marshal.dumps(codes))
        file.flush()
        return os.dup(file.fileno())


def _code_of(name: str) -> CodeType:
    """A module compiled without the import of ``__future__``, which would read the library's folder."""
    source = (
        (_CODE / f"{name}.py").read_text("utf-8").replace("from __future__ import annotations\n", "\n", 1)
    )
    flags = __future__.annotations.compiler_flag
    return compile(source, f"{name}.py", "exec", flags=flags, dont_inherit=True, optimize=2)


def current_isolation() -> Isolation:
    """The strongest isolation that works on this machine; tried out at the first call in each process."""
    with _LOCK:
        return _strongest()


@functools.cache
def _strongest() -> Isolation:
    from assay.rewards.code.probe import why_not  # the probe runs a session, which needs this module

    rejected: dict[str, str] = {}
    for level in LEVELS:
        made = make_isolation(level, rejected)
        reason = made if isinstance(made, str) else why_not(made)
        if reason is None and isinstance(made, Isolation):
            return made
        rejected[level] = reason or "unknown"
    raise BadInput(f"no bare Python interpreter can be run here: {rejected}")


def make_isolation(level: Level, rejected: Mapping[str, str] | None = None) -> Isolation | str:
    """Prepare one level, or say why it is not possible."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if level in ("namespaces+user", "user"):
        if not is_root:
            return "not root"
        if _first_uid() == 0:
            return "too few users are mapped here to give each program its own"
    if level == "namespaces" and is_root and _outer_root():
        return "as root the user inside would still be root, whom process limits do not bind"
    landlock, seccomp = _filters()
    namespaces: Mapping[str, int] = {}
    if level.startswith("namespaces"):
        opened = _open_room(with_users=level == "namespaces")
        if isinstance(opened, str):
            return opened
        namespaces = opened
    readable = () if namespaces or not landlock else _readable()
    first_uid = _first_uid() if level in ("namespaces+user", "user") else 0
    return Isolation(level, namespaces, first_uid, landlock, seccomp, readable, dict(rejected or {}))


def require_isolation(allow_unisolated: bool = False) -> Isolation:
    """The isolation to use, or a refusal.

    Args:
        allow_unisolated: run untrusted code even where nothing holds a fork bomb or an orphan. The
            environment variable ``ASSAY_ALLOW_UNISOLATED_CODE=1`` says the same.

    Raises:
        BadInput: level ``none`` without an override.
    """
    isolation = current_isolation()
    allowed = allow_unisolated or os.environ.get(OVERRIDE) == "1"
    if isolation.level == "none" and not allowed:
        why = "; ".join(f"{level}: {reason}" for level, reason in isolation.rejected.items())
        raise BadInput(
            f"code rewards need a process namespace or another user, and this machine offers neither "
            f"({why}); run on Linux as root or with user namespaces enabled, or set {OVERRIDE}=1 to run "
            "untrusted code all the same"
        )
    return isolation


def _first_uid() -> int:
    """Above it there is a user for each possible process number; 0 where not enough users are mapped."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as lines:
            inside, _, count = map(int, lines.read().split()[-3:])
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
            first = inside + count - 2 - int(file.read())
    except (OSError, ValueError):
        return 0
    return min(first, HIGH_UID) if first > LOW_UID else 0


def _outer_root() -> bool:
    """Whether root here is the machine's root (in a user namespace it may be an ordinary user)."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as lines:
            return int(lines.read().split()[1]) == 0
    except OSError:
        return True


def _filters() -> tuple[int, bytes]:
    if sys.platform != "linux":
        return 0, b""
    from assay.rewards.code import filters

    try:
        with open("/proc/sys/kernel/seccomp/actions_avail", encoding="ascii") as file:
            program = filters.filter_program() if "errno" in file.read() else b""
    except OSError:
        program = b""
    return filters.landlock_abi(), program


def _readable() -> tuple[str, ...]:
    from assay.rewards.code import room

    return tuple(room.readable_paths())


def _open_room(with_users: bool) -> Mapping[str, int] | str:
    if sys.platform != "linux":
        return f"no namespaces on {sys.platform}"
    from assay.rewards.code import kernel

    ours, theirs = socket.socketpair()
    new_root = tempfile.mkdtemp(prefix="assay-room-")
    command, compiled = bare_interpreter("room")
    try:
        arguments = [str(theirs.fileno()), new_root, BOX, "1" if with_users else "0"]
        done = subprocess.run(
            [*command, *arguments],
            pass_fds=(theirs.fileno(), compiled),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        theirs.close()
        said, descriptors, _, _ = socket.recv_fds(ours, 4096, len(kernel.NAMESPACES))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        ours.close()
        theirs.close()
        shutil.rmtree(new_root, ignore_errors=True)
    if said != b"ok":
        return (
            said.decode("utf-8", "replace").removeprefix("no ")
            or done.stderr.decode("utf-8", "replace")[-300:]
        )
    for fd in descriptors:
        os.set_inheritable(fd, False)
    names = [name for name in kernel.NAMESPACES if with_users or name != "user"]
    return dict(zip(names, descriptors, strict=True))
