"""Simulated runs for calibrating a doctor: a policy that really moves with its advantages, one planted fault.

Written apart from the checks and sharing no number with them: a fault is a wrong function or setting inside
a small training loop, and what the log shows of it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.doctor.simulate.kinds import FAULTS, SHAPES, Kind
from assay.doctor.simulate.loop import State, train
from assay.doctor.simulate.metric_names import FRAMEWORKS, Framework, lines, rename
from assay.doctor.simulate.preference import preferences
from assay.doctor.simulate.world import World
from assay.errors import BadInput, nearest
from assay.records.finding import Stage

__all__ = ["FAULTS", "FRAMEWORKS", "SHAPES", "Kind", "SimulatedRun", "simulate", "write"]

Size = Literal["small", "large"]
_LARGE = {"logged_groups": 16, "log_every": 8}  # the same run, four to five times the rows


@dataclass(frozen=True)
class SimulatedRun:
    """One run as it would lie on disk.

    Attributes:
        kind, shape, seed, framework: how it was made. healthy: no fault planted.
        ids: any of these names the fault; also: ids that are true beside it; stage: where it sits.
        config: what the trainer was told. metrics: a row a step, in the framework's names.
        rollouts: rows of the generic form. logits: arrays of the first logged step, where kept.
    """

    kind: str
    shape: str
    seed: int
    framework: Framework
    healthy: bool
    ids: tuple[str, ...]
    also: tuple[str, ...]
    stage: Stage | None
    config: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]
    logits: Mapping[str, Any] = field(default_factory=dict[str, Any])


def simulate(
    kind: str = "healthy",
    *,
    seed: int,
    steps: int | None = None,
    prompts: int | None = None,
    group_size: int | None = None,
    size: Size = "small",
    shape: str = "plain",
    framework: Framework = "generic",
) -> SimulatedRun:
    """Simulate one run.

    Args:
        kind: ``healthy`` or a name of ``FAULTS``. seed: everything random follows from it.
        steps, prompts, group_size: default: those of the shape (200, 16, 8).
        size: ``small`` logs about 14 steps of 6 prompts, ``large`` 26 steps of 16.
        shape: a name of ``SHAPES``, what is unusual about the healthy part of the run.
        framework: whose names the metrics carry.

    Raises:
        BadInput: an unknown kind, shape, size or framework, or a size below 1.
    """
    _check(kind, shape, size, framework)
    given = {"steps": steps, "prompts": prompts, "group": group_size}
    chosen = {name: value for name, value in given.items() if value is not None}
    if any(value < 1 for value in chosen.values()):
        raise BadInput(
            f"expected steps, prompts and group_size of at least 1, got {chosen}; give larger ones"
        )
    fault = None if kind == "healthy" else FAULTS[kind]
    change = dict(fault.change) if fault else {}
    settings: dict[str, Any] = {**SHAPES[shape], **(_LARGE if size == "large" else {}), **chosen, **change}
    world = World(**settings)
    state = train(world, seed) if world.overlap is None else preferences(world, seed)
    shown = train(replace(world, skill=world.skill + 1.8), seed + 7919) if world.other_log else state
    return SimulatedRun(
        kind=kind,
        shape=shape,
        seed=seed,
        framework=framework,
        healthy=fault is None,
        ids=fault.ids if fault else (),
        also=fault.also if fault else (),
        stage=fault.stage if fault else None,
        config=_config(world),
        metrics=[rename(row, framework, with_kl=world.beta > 0) for row in shown.metrics],
        rollouts=state.rows,
        logits=_logits(state),
    )


def _check(kind: str, shape: str, size: str, framework: str) -> None:
    for word, known, what in (
        (kind, ("healthy", *FAULTS), "kind of run"),
        (shape, SHAPES, "shape"),
        (size, ("small", "large"), "size"),
        (framework, FRAMEWORKS, "framework"),
    ):
        if word not in known:
            raise BadInput(f"no {what} named {word!r}{nearest(word, known)}")


def _logits(state: State) -> Mapping[str, Any]:
    return state.logits[0] if state.logits else {}


def _config(world: World) -> dict[str, Any]:
    return {
        "algorithm": "grpo" if world.overlap is None else "dpo",
        "num_generations": world.group,
        "per_device_train_batch_size": world.group * world.prompts,
        "max_completion_length": world.max_length,
        "beta": world.beta,
        "learning_rate": world.logged_rate,
        "epsilon": world.clip,
        "epsilon_high": world.clip,
        "num_iterations": world.updates,
        "gradient_accumulation_steps": world.micro_batches,
        "advantage_epsilon": world.epsilon,
        "advantage_ddof": world.ddof,
        "advantage_dtype": world.dtype,
        "scale_rewards": world.normalised,
        "max_steps": world.steps,
        "temperature": 1.0,
        "model_name": "simulated",
    } | dict(world.config or {})


def write(run: SimulatedRun, folder: str | Path) -> Path:
    """Write ``config.json``, ``metrics.jsonl``, ``rollouts.jsonl`` and, where kept, ``logits.npz``.

    Raises:
        BadInput: the folder exists and is not empty.
    """
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise BadInput(f"{root} is not empty: expected a new folder for a simulated run; give another name")
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(lines([run.config]), "utf-8")
    (root / "metrics.jsonl").write_text(lines(run.metrics), "utf-8")
    if run.rollouts:
        (root / "rollouts.jsonl").write_text(lines(run.rollouts), "utf-8")
    if run.logits:
        np.savez_compressed(root / "logits.npz", **run.logits)
    return root
