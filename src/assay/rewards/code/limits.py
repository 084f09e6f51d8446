"""What one run of a program may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from assay.errors import BadInput

BOX = "/box"  # the temporary folder, as a program sees it where it has a file system of its own


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandboxed process and of the verdict it belongs to.

    The defaults end a verdict within the 10 seconds that :class:`assay.rewards.running.RewardRunner` gives a
    sample: a runner that is quicker makes a slow program ``missing`` instead of wrong.

    Attributes:
        wall_s: seconds for one process, counted from when the sandbox is ready for the program.
        verdict_s: seconds for all processes of one completion (stdin/stdout tests start one for each test).
        cpu_s: processor seconds of one process (rounded up to whole seconds by the kernel).
        memory_mb: address space of each process, and resident memory of all of them together.
        processes: processes and threads at once.
        file_mb: size of one file.
        disk_mb: size of everything in the temporary folder.
        output_kb: bytes on stdout and stderr together, and bytes of one returned value.

    Raises:
        BadInput: a limit that is not above 0.
    """

    wall_s: float = 5.0
    verdict_s: float = 8.0
    cpu_s: float = 5.0
    memory_mb: int = 512
    processes: int = 32
    file_mb: int = 8
    disk_mb: int = 16
    output_kb: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise BadInput(
                    f"a limit must be above 0, got {field.name}={value!r}; leave it out for the default"
                )
