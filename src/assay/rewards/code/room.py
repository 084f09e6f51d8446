"""The room: a file system of its own, without network, that every sandboxed program of this process shares.

Built once by a short-lived process, which then hands its namespaces over as open descriptors and ends: the
descriptors keep the room alive, and no helper process stays behind. Inside there is the interpreter with its
standard library (without site-packages), the system's shared libraries, three devices, and ``/box``, over
which each program gets a temporary file system of its own. Everything else is absent, all of it read-only.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig

from assay.rewards.code import kernel
from assay.rewards.code.kernel import DEVICES, NAMESPACES

LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/nix/store", "/gnu/store")
SMALL_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")


def interpreter_paths() -> list[str]:
    """The interpreter and its standard library."""
    prefix = sys.base_prefix
    libraries = [os.path.join(prefix, name) for name in ("lib", "lib64")]
    return [os.path.join(prefix, "bin"), *libraries, sysconfig.get_path("stdlib")]


def third_party_paths() -> list[str]:
    """Folders of installed packages below the standard library: the graders' own source may lie there."""
    stdlib, debian = sysconfig.get_path("stdlib"), "/usr/lib/python3"
    found = [
        os.path.join(top, name) for top in (stdlib, debian) for name in ("site-packages", "dist-packages")
    ]
    return [path for path in found if os.path.isdir(path)]


def readable_paths() -> list[str]:
    """What a program may read where it has no room of its own: as :func:`build` offers, file by file."""
    hidden = set(third_party_paths())
    stdlib = sysconfig.get_path("stdlib")
    inside = [os.path.join(stdlib, name) for name in os.listdir(stdlib)]
    shared = [path for path in (*LIBRARIES, *SMALL_FILES) if not stdlib.startswith(path + "/")]
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    return [path for path in inside if path not in hidden] + shared + [executable]


def build(new_root: str, box: str, with_users: bool) -> list[int]:
    """Enter new namespaces, make the room on ``new_root`` and return the descriptors in ``NAMESPACES`` order.

    Args:
        new_root: an empty folder; it stays empty outside.
        box: where each program will get its temporary folder.
        with_users: also a user namespace (needed without root).

    Raises:
        OSError: a namespace or a mount is refused here.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = sum(flag for name, flag in NAMESPACES.items() if name != "user")
    kernel.unshare(flags | (kernel.CLONE_NEWUSER if with_users else 0))
    if with_users:
        kernel.map_user(os.open("/proc/self", os.O_PATH), 0, uid, 0, gid)
    names = [name for name in NAMESPACES if with_users or name != "user"]
    descriptors = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", new_root, "tmpfs", kernel.MS_NOSUID, "mode=755,size=1m")
    _furnish(new_root, box)
    os.chdir(new_root)
    kernel.pivot_root(".", ".")
    kernel.umount_detached(".")
    os.chdir("/")
    kernel.make_tree_read_only("/")
    return descriptors


def _furnish(root: str, box: str) -> None:
    done: list[str] = []
    wanted = [*LIBRARIES, *interpreter_paths(), *SMALL_FILES, *DEVICES]
    for path in wanted:
        if os.path.lexists(path) and not any(path.startswith(above + "/") or path == above for above in done):
            _bring(path, root + path)
            done.append(path)
    for path in third_party_paths():
        if os.path.isdir(root + path):
            kernel.mount("tmpfs", root + path, "tmpfs", kernel.MS_NOSUID, "mode=755,size=4k")
    os.makedirs(root + box, exist_ok=True)
    if not os.path.lexists(root + "/tmp"):
        os.symlink(box, root + "/tmp")


def _bring(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        return
    if os.path.islink(path) and os.path.isdir(path):
        os.symlink(os.readlink(path), target)  # /lib -> usr/lib
        return
    if os.path.isdir(path):
        os.makedirs(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)


def main() -> None:
    """Entry of the building process; arguments: a socket, two folders, and whether to use a user namespace."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        descriptors = build(sys.argv[2], sys.argv[3], sys.argv[4] == "1")
    except OSError as error:
        channel.sendall(b"no " + str(error).encode())
        return
    socket.send_fds(channel, [b"ok"], descriptors)
