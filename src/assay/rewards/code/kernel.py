"""The kernel calls that confine a process: each one either works or raises ``OSError``.

Runs inside a bare interpreter (``python -I -S``), so it imports nothing beyond C
modules (``posix``, not ``os``, which a bare interpreter has not loaded yet). On a
system other than Linux every call raises ``OSError`` (ENOSYS); the caller reports what is then not covered.
Numbers: the Linux headers ``sched.h``, ``resource.h``, ``mount.h``, ``prctl.h`` and ``unistd.h``.
"""

from __future__ import annotations

import _ctypes
import errno
import posix
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x4, 0x20, 0x1000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x40000, 0x2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
MACHINE = posix.uname().machine
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
NAMESPACES = {
    "user": CLONE_NEWUSER,
    "net": CLONE_NEWNET,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "mnt": CLONE_NEWNS,
}
# name: (x86_64, aarch64); the newer calls have one number everywhere
CALLS = {
    "pivot_root": (155, 41),
    "capset": (126, 91),
    "seccomp": (317, 277),
    "prlimit64": (302, 261),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
LIMITS = {
    "RLIMIT_CPU": 0, "RLIMIT_FSIZE": 1, "RLIMIT_CORE": 4, "RLIMIT_NPROC": 6, "RLIMIT_NOFILE": 7,
    "RLIMIT_MEMLOCK": 8, "RLIMIT_AS": 9, "RLIMIT_MSGQUEUE": 12,
}  # fmt: skip
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(MACHINE)
_IS_LINUX = sys.platform == "linux"


# What ctypes does in Python is done here by hand on its C module: importing ctypes takes a quarter of the
# start-up time of a bare interpreter, and every program pays it.
class _Long(_ctypes._SimpleCData):  # pyright: ignore
    _type_ = "l"


class _Bytes(_ctypes._SimpleCData):  # pyright: ignore
    _type_ = "z"


class _Function(_ctypes.CFuncPtr):  # pyright: ignore
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


class _ThisProcess:
    _handle = _ctypes.dlopen(None, 0)  # pyright: ignore


def _invoke(symbol: str, what: str, arguments: tuple[int | bytes | None, ...]) -> int:
    passed = [_Long(value) if isinstance(value, int) else _Bytes(value) for value in arguments]
    result: int = _Function((symbol, _ThisProcess))(*passed)  # pyright: ignore
    if result in (-1, 0xFFFFFFFF):
        code = _ctypes.get_errno()
        raise OSError(code, f"{what}: {posix.strerror(code)}")
    return result


def syscall(name: str, *arguments: int | bytes | None) -> int:
    """Call by number; integers are passed as 64 bits, bytes as a pointer to them.

    Raises:
        OSError: the call failed, or this machine's numbers are not known (ENOSYS).
    """
    if _COLUMN is None or not _IS_LINUX:
        raise OSError(errno.ENOSYS, f"{name}: not known on {sys.platform} {MACHINE}")
    return _invoke("syscall", name, (CALLS[name][_COLUMN], *arguments))


def _libc(name: str, *arguments: int | bytes | None) -> int:
    if not _IS_LINUX:
        raise OSError(errno.ENOSYS, f"{name}: not on {sys.platform}")
    return _invoke(name, name, arguments)


def pointer_to(data: bytes) -> bytes:
    """The address of ``data`` as the kernel reads it from a structure; valid as long as ``data`` lives."""
    return bytes(_Bytes(data))  # pyright: ignore


def _path(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def unshare(flags: int) -> None:
    """Leave the shared namespaces named by ``flags`` (a new process namespace starts with the next child)."""
    _libc("unshare", flags)


def setns(fd: int, kind: int) -> None:
    """Enter the namespace behind an open descriptor."""
    _libc("setns", fd, kind)


def prctl(option: int, value: int) -> None:
    """``prctl(option, value, 0, 0, 0)``."""
    _libc("prctl", option, value, 0, 0, 0)


def limit(name: str, value: int) -> None:
    """Set a resource limit of this process, soft and hard."""
    syscall("prlimit64", 0, LIMITS[name], words(value, value), None)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """``mount(2)``; None is passed as a null pointer."""
    texts = [None if text is None else _path(text) for text in (source, target, kind, options)]
    _libc("mount", texts[0], texts[1], texts[2], flags, texts[3])


def umount_detached(target: str) -> None:
    """Take a mount out of the tree now; it goes when nothing uses it."""
    _libc("umount2", _path(target), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root of this mount namespace."""
    syscall("pivot_root", _path(new), _path(old))


def make_tree_read_only(path: str) -> None:
    """Mark every mount at and below ``path`` read-only and without set-user-id (Linux 5.12 and later)."""
    at_fdcwd, at_recursive, size = -100, 0x8000, 32
    attributes = words(MS_RDONLY | MS_NOSUID, 0, 0, 0)
    syscall("mount_setattr", at_fdcwd, _path(path), at_recursive, attributes, size)


def drop_capabilities() -> None:
    """Give up every capability (version 3 header, this process, all sets empty)."""
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    syscall("capset", header, bytes(24))


def map_user(own: int, uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    """Map one user and one group into this process's user namespace (``own``: a descriptor of /proc/self)."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        fd = posix.open(name, posix.O_WRONLY, dir_fd=own)
        try:
            posix.write(fd, text.encode())
        finally:
            posix.close(fd)


def words(*values: int) -> bytes:
    """Unsigned 64-bit little-endian words, the layout of the kernel's structures here."""
    return b"".join(value.to_bytes(8, "little") for value in values)
