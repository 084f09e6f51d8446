"""Landlock (which files) and seccomp (which system calls) for one process and all its descendants.

Both need no privilege and cannot be undone. Landlock also keeps signals and abstract sockets inside (ABI 6),
and TCP out (ABI 4). The seccomp filter refuses with EPERM, so that honest code gets an exception.
Sources: ``linux/landlock.h``, ``linux/seccomp.h``, ``linux/filter.h`` and the kernel's system call tables.
"""

from __future__ import annotations

import errno
import posix

from assay.rewards.code import kernel

TYPE_CHECKING = False  # as in typing, whose import would double the start-up time of every program
if TYPE_CHECKING:
    from collections.abc import Sequence

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
# removing, and making directories, files, fifos and links; not devices (6, 11) nor sockets (9)
CHANGE_TREE = sum(1 << bit for bit in (4, 5, 7, 8, 10, 12))
READ = EXECUTE | READ_FILE | READ_DIR
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
LAST_BIT = {1: 13, 2: 14, 3: 15, 4: 15}  # ABI: number of file rights it knows; later ones know 16

NEW_NAMESPACES = (
    kernel.CLONE_NEWNS
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWCGROUP
)
# name: (x86_64, aarch64), -1 where the machine has no such call
REFUSED = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory that no address-space limit counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "modify_ldt": (154, -1),
    "iopl": (172, -1),
    "ioperm": (173, -1),
}
CLONE, CLONE3 = (56, 220), (435, 435)
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCH_AT, FIRST_ARGUMENT_AT = 0, 4, 16


def landlock_abi() -> int:
    """The ABI of this kernel; 0 where there is none."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict_files(readable: Sequence[str], writable: Sequence[str], devices: Sequence[str]) -> None:
    """From now on: read and execute below ``readable``, read and write below ``writable`` and on ``devices``.

    Needs ``no_new_privs``. Paths that do not exist are left out.

    Raises:
        OSError: the kernel has no Landlock.
    """
    abi = landlock_abi()
    known = (1 << LAST_BIT.get(abi, 16)) - 1
    network, scopes = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attributes = kernel.words(known, network, scopes)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = kernel.syscall("landlock_create_ruleset", attributes, size, 0)
    write = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REFER | CHANGE_TREE
    for paths, rights in ((readable, READ), (writable, write), (devices, READ_FILE | WRITE_FILE)):
        for path in paths:
            _allow(rules, path, rights & known)
    kernel.syscall("landlock_restrict_self", rules, 0)
    posix.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        fd = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
    except FileNotFoundError:
        return
    is_directory = posix.stat(fd).st_mode & 0o170000 == 0o040000
    if not is_directory:
        rights &= ON_FILES
    kernel.syscall("landlock_add_rule", rules, 1, rights.to_bytes(8, "little") + fd.to_bytes(4, "little"), 0)
    posix.close(fd)


def filter_program(machine: str = kernel.MACHINE) -> bytes:
    """The BPF program: a foreign architecture and the refused calls get EPERM, everything else is allowed.

    Raises:
        OSError: no table for this machine (ENOSYS).
    """
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    if column is None:
        raise OSError(errno.ENOSYS, f"seccomp: no system call table for {machine}")
    refuse, no_call = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
    program = [
        (LOAD, 0, 0, ARCH_AT),
        (EQUAL, 1, 0, ARCHITECTURE[machine]),
        (RETURN, 0, 0, refuse),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, 0x40000000),  # the x32 numbers
        (RETURN, 0, 0, refuse),
        # the C library falls back to clone, whose flags a filter can read
        (EQUAL, 0, 1, CLONE3[column]),
        (RETURN, 0, 0, no_call),
    ]
    for numbers in REFUSED.values():
        if numbers[column] >= 0:
            program += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, refuse)]
    program += [
        (EQUAL, 0, 3, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, refuse),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(_instruction(*line) for line in program)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return code.to_bytes(2, "little") + bytes((if_true, if_false)) + value.to_bytes(4, "little")


def restrict_calls(program: bytes) -> None:
    """Install a filter (see :func:`filter_program`) on this process (needs ``no_new_privs``).

    Raises:
        OSError: no seccomp here.
    """
    kernel.syscall("seccomp", 1, 0, kernel.words(len(program) // 8) + kernel.pointer_to(program))
