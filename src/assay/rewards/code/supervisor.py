"""The two processes of one sandboxed program: the confined child, and the supervisor that outlives it.

A fresh ``python -I -S`` starts here, forks once, and becomes the supervisor. The child (process 1 of its own
process namespace, where there is one) confines itself and hands over to the harness. The supervisor adds up
what all descendants use, kills them when asked to, when a total is exceeded or when the parent is gone, and
reports through the lifeline only when every one of them is dead.

Nothing secret is in either process: they never see an expected value.
"""

from __future__ import annotations

import errno
import posix
import sys
import time

from assay.rewards.code import frames, kernel, plain

TYPE_CHECKING = False  # as in typing, whose import would double the start-up time of every program
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SIGKILL = 9
TICK_S = 0.02
REAP_S = 10.0
MOST_ENTRIES = 4096
PAGE = posix.sysconf("SC_PAGE_SIZE")
CLOCK = posix.sysconf("SC_CLK_TCK")


def main() -> None:
    """Entry: the one argument is the hexadecimal plain-data configuration (see ``sandbox.Session``)."""
    config = plain.decode(bytes.fromhex(sys.argv[1]), hashed=True)
    control, lifeline = config["control"], config["lifeline"]
    try:
        uid = _prepare(config)
        child = posix.fork()
    except OSError as error:
        frames.write_frame(control, plain.encode(["failed", str(error)]))
        return
    if child == 0:
        posix.close(lifeline)
        _run_child(config, uid)
        return
    posix.close(control)
    _supervise(child, uid, config)


def _prepare(config: dict[str, Any]) -> int | None:
    """Everything that must happen before the fork; returns the child's own uid, if it gets one."""
    spaces = config["namespaces"]
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    if "user" in spaces:
        kernel.setns(spaces["user"], kernel.CLONE_NEWUSER)
    if spaces:
        kernel.unshare(kernel.CLONE_NEWPID)
    # a user that nobody else is: no other process of this machine has this process's number now
    return config["first_uid"] + posix.getpid() if config["first_uid"] else None


def _run_child(config: dict[str, Any], uid: int | None) -> None:
    # imported after the fork: the supervisor does not need it, and the two processes start side by side
    from assay.rewards.code import harness

    control = config["control"]
    try:
        posix.setsid()
        _confine(config, uid)
    except OSError as error:
        frames.write_frame(control, plain.encode(["failed", str(error)]))
        frames.leave(1)
    harness.serve(control)


def _confine(config: dict[str, Any], uid: int | None) -> None:
    from assay.rewards.code import filters

    spaces, box = config["namespaces"], config["box"]
    own = posix.open("/proc/self", posix.O_PATH) if spaces else -1
    for name, fd in spaces.items():
        if name != "user":
            kernel.setns(fd, kernel.NAMESPACES[name])
        posix.close(fd)
    owner = 0 if uid is None else uid
    if spaces:
        kernel.unshare(kernel.CLONE_NEWNS)
        size = f"size={config['disk']},nr_inodes={MOST_ENTRIES}"
        options = f"{size},mode=700,uid={owner},gid={owner}"
        kernel.mount("tmpfs", box, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    elif uid is not None:
        posix.chown(box, uid, uid)
    posix.chdir(box)
    _limit(config["limits"])
    if uid is not None:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
    elif "user" in spaces:
        # a user namespace for each program: process limits are counted within it
        kernel.unshare(kernel.CLONE_NEWUSER)
        kernel.map_user(own, 1000, 0, 1000, 0)
    if own >= 0:
        posix.close(own)
    if sys.platform == "linux":
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, SIGKILL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if config["landlock"]:
        readable = ["/"] if spaces else config["readable"]
        filters.restrict_files(readable, [box], kernel.DEVICES)
    if config["seccomp"]:
        filters.restrict_calls(config["seccomp"])


def _limit(limits: dict[str, int]) -> None:
    if sys.platform == "linux":
        for name, value in limits.items():
            kernel.limit(name, value)  # importing the module would cost a fortieth of a program's time
        return
    import resource

    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def _supervise(child: int, uid: int | None, config: dict[str, Any]) -> None:
    lifeline = config["lifeline"]
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)  # the pipes of the program must end with the program
    breach = _watch(child, lifeline, config)
    kill = _killer(child, uid, bool(config["namespaces"]))
    status, cpu, left = _reap(child, kill)
    report = plain.encode([status, breach, cpu, left])
    try:
        posix.write(lifeline, report)
    finally:
        frames.leave(0)  # also when the parent is gone: everything is dead all the same


def _watch(child: int, lifeline: int, config: dict[str, Any]) -> str | None:
    """Wait for the child's end, the parent's word or a breach; returns the breach."""
    import select  # an extension module, beside the one that the kernel's calls need

    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    handle = posix.pidfd_open(child) if hasattr(posix, "pidfd_open") else -1
    if handle >= 0:
        poll.register(handle, select.POLLIN)
    last = time.monotonic() + config["deadline"]
    while not poll.poll(TICK_S * 1000):
        breach = _over(child, config)
        if breach or time.monotonic() > last:
            return breach or "timeout"
        if handle < 0 and posix.waitid(posix.P_PID, child, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT):
            return None
    return None


def _over(child: int, config: dict[str, Any]) -> str | None:
    memory, cpu = _usage(child)
    if memory > config["memory"]:
        return "memory"
    if cpu > config["cpu"]:
        return "cpu time"
    if config["measure_disk"] and _disk(config["box"]) > config["disk"]:
        return "disk"
    return None


def _usage(pid: int) -> tuple[int, float]:
    """Resident bytes that are not shared, and processor seconds, of a process and its descendants."""
    pages = ticks = 0
    for each in [pid, *descendants(pid)]:
        try:
            with open(f"/proc/{each}/statm", "rb") as file:
                numbers = file.read().split()
            with open(f"/proc/{each}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        pages += int(numbers[1]) - int(numbers[2])
        ticks += sum(int(field) for field in fields[11:15])
    return pages * PAGE, ticks / CLOCK


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, as far as /proc tells (orphans included: they come back to the reaper)."""
    found, waiting = [], [pid]
    while waiting:
        above = waiting.pop()
        below: list[int] = []
        try:
            for thread in posix.listdir(f"/proc/{above}/task"):
                with open(f"/proc/{above}/task/{thread}/children", "rb") as file:
                    below += [int(number) for number in file.read().split()]
        except OSError:
            pass  # it ended meanwhile, or there is no /proc
        found += below
        waiting += below
    return found


def _disk(box: str) -> float:
    """Bytes on disk below a folder; infinite with too many entries, or where a path is too long to follow."""
    total, count, waiting = 0.0, 0, [box]
    while waiting:
        try:
            with posix.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return float("inf")
            continue  # removed meanwhile
        if count > MOST_ENTRIES:
            return float("inf")
    return total


def _killer(child: int, uid: int | None, has_namespace: bool) -> Callable[[], None]:
    """How to kill everything: process 1 takes its namespace along; a user of its own; or the tree."""

    def kill_tree() -> None:
        for pid in descendants(posix.getpid()):
            try:
                posix.kill(pid, SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def kill_user() -> None:
        kill_tree()
        pid = posix.fork()
        if pid == 0:
            posix.setresuid(uid or 0, uid or 0, uid or 0)
            try:
                posix.kill(-1, SIGKILL)
            finally:
                frames.leave(0)
        posix.waitpid(pid, 0)

    def kill_first() -> None:
        # not reaped yet, so that the number cannot be another process's
        posix.kill(child, SIGKILL)

    if has_namespace:
        return kill_first
    return kill_user if uid else kill_tree


def _reap(child: int, kill: Callable[[], None]) -> tuple[int, float, int]:
    """Kill and wait until nothing is left: the child's wait status, processor seconds, survivors."""
    status, cpu, pause = -1, 0.0, 0.0001
    last = time.monotonic() + REAP_S
    kill()
    while time.monotonic() < last:
        try:
            pid, ended, used = posix.wait4(-1, posix.WNOHANG)
        except ChildProcessError:
            return status, cpu, 0  # whatever was orphaned came to us, the subreaper
        if pid == 0:
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
            kill()
            continue
        cpu += used.ru_utime + used.ru_stime
        status = ended if pid == child else status
    return status, cpu, len(descendants(posix.getpid()))
