"""Read what a report is about: one run's folder, or an experiment with one run's folder an arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from assay.errors import BadInput
from assay.hacking import Hacking, MatchedCheckpoint, measure
from assay.records.run_folder import RunFolder

if TYPE_CHECKING:
    import polars as pl


Document = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """One run: its measures, its evaluated samples by step, its metrics by step.

    Attributes:
        name: the arm's name, or the folder's for a single run.
        run: the content of ``run.json``.
        hacking: the measures; None while no checkpoint is evaluated.
        tables: step to the table of the matched checkpoint.
        metrics: rows of ``metrics.jsonl``.
        gold_reward: what the gold is paid. learned: whether the reward is a model without a scale.
        second_path: what is measured of a learned reward beside; None for another.
    """

    name: str
    run: Mapping[str, Any]
    hacking: Hacking | None
    tables: Mapping[int, pl.DataFrame]
    metrics: Sequence[Mapping[str, Any]]
    gold_reward: float = 1.0
    learned: bool = False
    second_path: Document | None = None


@dataclass(frozen=True)
class Experiment:
    """What one report shows; a single run is an experiment with one arm."""

    root: Path
    title: str
    recipe: str
    about: str
    seed: int | None
    status: str
    arms: tuple[Arm, ...]
    sweep: tuple[str, tuple[Any, ...]] | None = None
    absent: tuple[str, ...] = field(default=())
    scripted: tuple[Document, ...] = field(default=())  # loopholes played by their scripts

    @property
    def evaluated(self) -> list[tuple[Arm, Hacking]]:
        """The arms that have measures."""
        return [(arm, arm.hacking) for arm in self.arms if arm.hacking is not None]


def learned_arms(experiment: Experiment) -> list[tuple[str, Document]]:
    """Names and documents of the arms whose reward was learned."""
    return [(arm.name, arm.second_path) for arm in experiment.arms if arm.second_path is not None]


def load(root: Path) -> Experiment:
    """Read a run's or an experiment's folder.

    Raises:
        BadInput: neither ``experiment.json`` nor ``run.json`` is there, or nothing was evaluated yet.
    """
    if (root / "experiment.json").is_file():
        found = _experiment(root)
    elif (root / "run.json").is_file():
        found = _single(root)
    else:
        raise BadInput(f"expected a run's folder (run.json) or an experiment's (experiment.json), got {root}")
    if not found.evaluated:
        raise BadInput(
            f"{root} has no evaluated checkpoint (evals/step-*.parquet); let the run reach its first one"
        )
    return found


def load_arm(name: str, root: Path) -> Arm:
    """Read one run's folder and measure it."""
    folder = RunFolder(root)
    run = folder.read_run()
    tables = {step: folder.read_table(folder.evaluation(step)) for step in folder.steps("evals")}
    gold, learned = float(_setting(run, "gold_reward", 1.0)), bool(_setting(run, "learned", False))
    checkpoints = [MatchedCheckpoint.from_table(step, table) for step, table in tables.items()]
    hacking = measure(checkpoints, gold_reward=gold, learned=learned) if checkpoints else None
    return Arm(name, run, hacking, tables, folder.read_metrics(), gold, learned, _second_path(root))


def _second_path(root: Path) -> Document | None:
    path = root / "overoptimisation.json"
    if not path.is_file():
        return None
    try:
        return cast("Document", json.loads(path.read_text("utf-8")))
    except ValueError as error:
        raise BadInput(f"{path}: expected JSON ({error}); run the experiment again to write it") from None


def _scripted(root: Path) -> tuple[Document, ...]:
    path = root / "scripted.json"
    return tuple(json.loads(path.read_text("utf-8"))) if path.is_file() else ()


def _single(root: Path) -> Experiment:
    arm = load_arm(root.resolve().name, root)
    run = arm.run
    return Experiment(
        root=root,
        title=str(run.get("title") or run.get("name") or arm.name),
        recipe=str(run.get("recipe") or _setting(run, "recipe", "") or ""),
        about=str(run.get("about") or ""),
        seed=_seed(run),
        status=str(run.get("status") or "unknown"),
        arms=(arm,),
    )


def _experiment(root: Path) -> Experiment:
    path = root / "experiment.json"
    try:
        document = cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
        names = [str(name) for name in document["arms"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: expected a JSON object with the list 'arms' ({error!r})") from error
    present = [name for name in names if (root / name / "run.json").is_file()]
    sweep = document.get("sweep")
    return Experiment(
        root=root,
        title=str(document.get("title") or document.get("recipe") or root.name),
        recipe=str(document.get("recipe") or ""),
        about=str(document.get("about") or ""),
        seed=document.get("seed"),
        status=str(document.get("status") or "unknown"),
        arms=tuple(load_arm(name, root / name) for name in present),
        sweep=(str(sweep["key"]), tuple(sweep["values"])) if sweep else None,
        absent=tuple(name for name in names if name not in present),
        scripted=_scripted(root),
    )


def _setting(run: Mapping[str, Any], key: str, default: Any) -> Any:
    """A setting at the top of ``run.json`` or in its configuration."""
    for place in (run, run.get("config"), run.get("configuration")):
        if isinstance(place, Mapping) and key in place:
            value = cast("Mapping[str, Any]", place)[key]
            return default if value is None else value
    return default


def _seed(run: Mapping[str, Any]) -> int | None:
    value = _setting(run, "seed", None)
    return int(value) if isinstance(value, int) else None
