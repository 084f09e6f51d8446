"""The processes of one job: who this one is, what its share is, and how results come together.

``torchrun`` and ``accelerate launch`` say so in the environment; accelerate opens the process group. A job of
one process has no group, and everything here does nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from assay.errors import RunStopped, require
from assay.records.run_folder import RunFolder

T = TypeVar("T")
GONE = (
    "another process of this job ended, so this one cannot go on; what is on disk is whole: start the job again "
    "with --resume, with as many processes as you like"
)


@dataclass(frozen=True)
class Ranks:
    """This process's number and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of ``count`` things: contiguous, and the parts in order are the whole."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, rows: list[T]) -> list[T]:
        """The lists of all processes end to end, on every process."""
        return rows if self.size == 1 else require("accelerate.utils", "train").gather_object(rows)

    def first(self, value: T) -> T:
        """The main process's value, on every process."""
        if self.size == 1:
            return value
        return require("accelerate.utils", "train").broadcast_object_list([value])[0]

    def main_first(self) -> AbstractContextManager[None]:
        """A block that the main process runs before the others."""
        return nullcontext() if self.size == 1 else _state().main_process_first()

    def folder(self, folder: RunFolder) -> RunFolder:
        """The run's folder: only the main process writes into it."""
        return folder if self.main else ReadOnlyFolder(folder.root)


class ReadOnlyFolder(RunFolder):
    """A run's folder that another process writes: everything can be read, and writing does nothing."""

    def write_run(self, document: Mapping[str, Any]) -> None:
        """Leave it to the main process."""

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Leave it to the main process."""

    def truncate_metrics(self, last_step: int) -> None:
        """Leave it to the main process."""

    def write_table(self, path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
        """Leave it to the main process."""


@cache
def ranks() -> Ranks:
    """The processes of this job; opens the process group at the first call."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        return Ranks()
    state = _state()
    signal.signal(signal.SIGTERM, _stopped)
    return Ranks(int(state.process_index), int(state.num_processes))


def asked_to_shard() -> bool:
    """Whether ``accelerate launch --use_fsdp`` (or its configuration) asks for split weights."""
    return os.environ.get("ACCELERATE_USE_FSDP") == "true"


def _state() -> Any:
    import torch

    return require("accelerate", "train").PartialState(cpu=not torch.cuda.is_available())


def _stopped(number: int, frame: object) -> None:
    del frame
    signal.signal(number, signal.SIG_IGN)  # what is left to write is written in peace
    raise RunStopped(GONE)


@contextmanager
def connected() -> Generator[None]:
    """A block that talks to the other processes: when one of them is gone, this one stops in one line."""
    try:
        yield
    except RuntimeError as error:
        if ranks().size > 1 and _is_a_lost_connection(error):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's: this process is ending already
            raise RunStopped(GONE) from None
        raise


def _is_a_lost_connection(error: RuntimeError) -> bool:
    import torch.distributed

    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
