"""Running the arms of an experiment: one after the other, or side by side in processes.

An arm's numbers depend on its configuration and start policy alone, never on how many arms run at once: each
uses the same number of threads either way. Child processes die with the parent, whatever kills it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.config import RunConfig
from assay.errors import AssayError, BadInput, ContractBroken, RunStopped
from assay.models.policy import Policy
from assay.records.run_folder import RunFolder
from assay.train.ranks import ranks
from assay.train.run import Listener, train_run
from assay.train.setup import task_set_of
from assay.train.tracking import Tracked

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

RAISED: dict[str, type[AssayError]] = {kind.__name__: kind for kind in (BadInput, ContractBroken, RunStopped)}


class ArmListener(Listener, Protocol):
    """Who wants to know how the arms go."""

    def arm_started(self, arm: str, steps: int) -> None:
        """An arm begins (or goes on)."""

    def arm_ended(self, arm: str) -> None:
        """An arm is done."""


class Arm:
    """One arm: its name, configuration and folder, and where its start policy lies."""

    def __init__(self, name: str, config: RunConfig, folder: Path, start: Path) -> None:
        self.name, self.config, self.folder, self.start = name, config, folder, start

    @property
    def done(self) -> bool:
        """Whether the arm has nothing left to do."""
        folder = RunFolder(self.folder)
        return folder.run_json.is_file() and folder.read_run().get("status") == "done"


def run_arm(arm: Arm, listener: ArmListener) -> None:
    """Train one arm in this process."""
    import torch

    torch.set_num_threads(arm.config.threads)
    config, folder = arm.config, RunFolder(arm.folder)
    with ExitStack() as stack:
        if config.tracker is not None and ranks().main:
            listener = stack.enter_context(Tracked(listener, config.tracker, folder.root, config))
        listener.arm_started(arm.name, config.steps)
        tasks = task_set_of(config)
        train_run(config, folder, load_start(arm.start, config), tasks, listener, arm=arm.name)
        listener.arm_ended(arm.name)


def load_start(folder: Path, config: RunConfig) -> Policy:
    """A start policy, frozen."""
    from assay.models.checkpoint import load_policy

    policy = load_policy(folder, config)
    policy.module.requires_grad_(False).eval()
    return policy


def run_arms(arms: Sequence[Arm], listener: ArmListener, *, jobs: int) -> None:
    """Train every arm that is not done, at most ``jobs`` at once.

    Raises:
        RunStopped, ContractBroken, BadInput: the first arm's failure; the others are stopped and can be resumed.
    """
    waiting = [arm for arm in arms if not arm.done]
    if jobs == 1 or len(waiting) < 2:
        for arm in waiting:
            run_arm(arm, listener)
        return
    context = multiprocessing.get_context("spawn")
    events: multiprocessing.Queue[tuple[str, tuple[Any, ...]]] = context.Queue()
    running: dict[str, SpawnProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                arm = waiting.pop(0)
                process = context.Process(target=_child, args=(arm, events), daemon=True)
                process.start()
                running[arm.name] = process
            _next_event(events, running, listener)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join(5)


def _next_event(
    events: multiprocessing.Queue[tuple[str, tuple[Any, ...]]],
    running: dict[str, SpawnProcess],
    listener: ArmListener,
) -> None:
    try:
        name, values = events.get(timeout=0.5)
    except queue.Empty:
        for arm, process in running.items():
            if not process.is_alive() and process.exitcode:  # a normal end has its message in the queue
                raise RunStopped(
                    f"arm {arm}: its process ended with exit code {process.exitcode}; go on with --resume"
                ) from None
        return
    if name == "failed":
        arm, kind, message = values
        raise RAISED.get(kind, RunStopped)(f"arm {arm}: {message}")
    getattr(listener, name)(*values)
    if name == "arm_ended":
        running.pop(values[0]).join()


class _Sender:
    """Sends every call to the parent."""

    def __init__(self, events: multiprocessing.Queue[tuple[str, tuple[Any, ...]]]) -> None:
        self.events = events

    def arm_started(self, arm: str, steps: int) -> None:
        self.events.put(("arm_started", (arm, steps)))

    def arm_ended(self, arm: str) -> None:
        self.events.put(("arm_ended", (arm,)))

    def step(self, arm: str, metrics: Mapping[str, Any], of: int) -> None:
        self.events.put(("step", (arm, dict(metrics), of)))

    def evaluated(self, arm: str, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        kept = {name: list(columns[name]) for name in ("reward", "truth")}
        self.events.put(("evaluated", (arm, step, kept)))


def _child(arm: Arm, events: multiprocessing.Queue[tuple[str, tuple[Any, ...]]]) -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its children
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run_arm(arm, _Sender(events))
    except AssayError as error:
        events.put(("failed", (arm.name, type(error).__name__, str(error))))
    except OSError as error:
        events.put(("failed", (arm.name, "RunStopped", f"{error}; go on with --resume")))


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise SystemExit(1)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process with its parent (Linux; elsewhere daemons end at a normal exit)."""
    parent = os.getppid()
    if os.path.exists("/proc/self/status"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit(1)
