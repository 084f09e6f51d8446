"""An experiment: several arms from one start policy, in one folder, resumable as a whole.

    ROOT/experiment.json   recipe, arms, seed, status
    ROOT/start/            the start policy all arms share
    ROOT/<arm>/            a run's folder each

The warm start is cached by what determines it, so a second experiment with the same tasks and sizes starts
at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from pydantic import ValidationError

import assay
from assay.config import RunConfig
from assay.engines.request import SamplingSettings
from assay.errors import AssayError, BadInput, RunStopped
from assay.models.checkpoint import save_checkpoint
from assay.models.locate import model_folder
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy
from assay.records.run_folder import RunFolder, write_text
from assay.tasks.task_set import TaskSet
from assay.train.arms import Arm, ArmListener, load_start, run_arms
from assay.train.learned import expect_learnable, with_learned_reward
from assay.train.model_notes import model_notes
from assay.train.ranks import ranks
from assay.train.recipe import Recipe
from assay.train.run import evaluator_of, expect_same_tasks
from assay.train.second_path import write_second_path
from assay.train.setup import checkable, open_scoring, pass_rates, task_set_of
from assay.train.sft import fine_tuned, read_examples
from assay.train.warm_start import PassRates, WarmStarted, warm_start

WARM_PROMPTS = 128  # prompts on which pass@1 and pass@G are measured
WARM_SAMPLES = 8  # G there, whatever the group size, so that the arms of a sweep share their start


class ExperimentListener(ArmListener, Protocol):
    """Who wants to know how an experiment goes."""

    def warming(self, updates: int, rates: PassRates, of: int) -> None:
        """The warm start was measured."""

    def warmed(self, rates: PassRates, cached: bool) -> None:
        """The start policy is ready."""

    def noted(self, text: str) -> None:
        """Something to know before the run starts."""


def run_experiment(recipe: Recipe, root: Path, listener: ExperimentListener, *, jobs: int = 1) -> None:
    """Run every arm that is not done, ``jobs`` at once; a folder that holds another experiment is refused."""
    document = describe(recipe)
    with ExitStack() as stack:
        with ranks().main_first():
            if ranks().main:
                _claim(root, document)
                stack.enter_context(_locked(root))
        _run_claimed(recipe, root, listener, document, jobs if ranks().size == 1 else 1)


@contextmanager
def _locked(root: Path) -> Generator[None]:
    """Hold the folder for this process: two writers would mix their steps. The kernel drops a dead one's lock."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"{root} is being written by another process; wait for it, or choose another --out"
            ) from None
        yield


def _run_claimed(
    recipe: Recipe, root: Path, listener: ExperimentListener, document: Mapping[str, Any], jobs: int
) -> None:
    _write_status(root, document, "running")
    try:
        run_arms(
            [_arm(name, config, root, listener) for name, config in recipe.arms.items()], listener, jobs=jobs
        )
    except KeyboardInterrupt:
        _write_status(root, document, "stopped")
        raise RunStopped(f"stopped; go on with: assay run --resume {root}") from None
    except (AssayError, OSError):
        _write_status(root, document, "stopped")
        raise
    if ranks().main:
        write_second_path([root / name for name in recipe.arms])
    _write_status(root, document, "done")


def _write_status(root: Path, document: Mapping[str, Any], status: str) -> None:
    if not ranks().main:
        return
    write_text(root / "experiment.json", json.dumps({**document, "status": status}, indent=2) + "\n")


def describe(recipe: Recipe) -> dict[str, Any]:
    """What experiment.json holds beside its status; enough to go on without the recipe's file."""
    sweep = None if recipe.sweep is None else {"key": recipe.sweep[0], "values": list(recipe.sweep[1])}
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "about": recipe.about,
        "arms": list(recipe.arms),
        "seed": recipe.base.seed,
        "sweep": sweep,
        "scripted": list(recipe.scripted),
        "configs": {arm: config.model_dump(mode="json") for arm, config in recipe.arms.items()},
    }


def reload_recipe(root: Path) -> Recipe:
    """The experiment that a folder was started with, for resume."""
    path = root / "experiment.json"
    if not path.is_file():
        raise BadInput(f"expected the folder of an experiment (with experiment.json), got {root}")
    document = json.loads(path.read_text("utf-8"))
    arms = {arm: RunConfig.model_validate(values) for arm, values in document["configs"].items()}
    sweep = document["sweep"]
    spread = None if sweep is None else (sweep["key"], tuple(sweep["values"]))
    scripted = tuple(document.get("scripted") or ())
    return Recipe(document["recipe"], document["title"], document["about"], arms, spread, scripted)


def _claim(root: Path, document: Mapping[str, Any]) -> None:
    path = root / "experiment.json"
    if path.is_file():
        old = json.loads(path.read_text("utf-8"))
        begun = any(root.glob("*/run.json"))  # a start that failed is nobody's experiment
        if begun and _completed(old.get("configs") or {}) != document["configs"]:
            raise BadInput(f"{root} holds another experiment; choose another --out, or --resume {root}")
    elif root.is_dir() and any(not path.name.startswith(".") for path in root.iterdir()):
        raise BadInput(f"{root} is not empty and holds no experiment; choose another --out")


def _completed(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Configurations of an older version with the keys that came since, at their defaults."""
    try:
        return {
            arm: RunConfig.model_validate(values).model_dump(mode="json") for arm, values in configs.items()
        }
    except ValidationError:
        return {}


def _arm(name: str, config: RunConfig, root: Path, listener: ExperimentListener) -> Arm:
    """Make what an arm needs before it starts: the start policy, and the noise arm's measured rates."""
    arm = Arm(name, config, root / name, root)
    if arm.done:
        return arm
    torch.set_num_threads(config.threads)  # else the start would depend on the machine's cores
    tasks = task_set_of(config)
    expect_same_tasks(RunFolder(arm.folder), tasks)  # before a start is made from them
    expect_learnable(config)
    arm.start = start_policy(config, tasks, root, listener)
    start = load_start(arm.start, config)
    for note in model_notes(config, tasks, start):
        listener.noted(note)
    known = _with_noise_rates(config, tasks, start)
    arm.config = with_learned_reward(known, tasks, start, root, note=listener.noted)
    return arm


def _with_noise_rates(config: RunConfig, tasks: TaskSet, start: Policy) -> RunConfig:
    """The noise arm flips at the weak checker's error rates, measured on the start policy."""
    if config.reward != "noise" or config.reward_options:
        return config
    weak = config.model_copy(update={"reward": "marker"})
    with ExitStack() as stack:
        columns = evaluator_of(weak, tasks, open_scoring(weak, tasks, stack), start).evaluate(start)
    pairs = list(zip(columns["reward"], columns["truth"], strict=True))
    wrong = [reward for reward, truth in pairs if truth < 0.5]
    right = [reward for reward, truth in pairs if truth >= 0.5]
    rates = {
        "false_positive": sum(wrong) / max(len(wrong), 1),
        "false_negative": 1 - sum(right) / max(len(right), 1) if right else 0.0,
    }
    return config.model_copy(update={"reward_options": rates})


def start_policy(config: RunConfig, tasks: TaskSet, root: Path, listener: ExperimentListener) -> Path:
    """The folder of the policy all arms start from: the user's or the warm-started tiny model's, fine-tuned or not."""
    with ranks().main_first():
        if config.sft is not None:
            read_examples(config.sft.file)  # a bad row is said before the warm start, not after it
        tiny = config.model == "tiny"
        base = _warm_start(config, tasks, root, listener) if tiny else model_folder(config.model)
        return base if config.sft is None else fine_tuned(config, config.sft, base, root, listener.noted)


def _warm_start(config: RunConfig, tasks: TaskSet, root: Path, listener: ExperimentListener) -> Path:
    folder = warm_folder(config, root, tasks)
    if (folder / "config.json").is_file():
        return folder
    cached = cache_folder() / folder.name
    if (cached / "config.json").is_file():
        _copy_whole(cached, folder)
        listener.warmed(PassRates(float("nan"), float("nan")), True)
    else:
        save_checkpoint(folder, _warm(config, tasks, listener))
        _copy_whole(folder, cached)
    return folder


def warm_folder(config: RunConfig, root: Path, tasks: TaskSet | None = None) -> Path:
    """Where an experiment keeps the start policy of a configuration."""
    if config.model != "tiny":
        return model_folder(config.model)
    return root / "start" / warm_start_key(config, tasks or task_set_of(config))


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a folder so that it appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    try:
        temporary.rename(target)
    except OSError:  # another process was first
        shutil.rmtree(temporary, ignore_errors=True)


def _warm(config: RunConfig, tasks: TaskSet, listener: ExperimentListener) -> TinyPolicy:
    texts = [prompt + completion for prompt, completion in tasks.traces[:2000]]
    policy = TinyPolicy.create(texts, seed=config.seed, **config.sizes.model_dump())
    settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)
    probes = list(tasks.train)[:WARM_PROMPTS]
    with ExitStack() as stack:
        score = open_scoring(checkable(config), tasks, stack).reward

        def measure() -> PassRates:
            return pass_rates(policy, probes, score, samples=WARM_SAMPLES, settings=settings)

        ended: WarmStarted = warm_start(
            policy,
            tasks.traces,
            config.warm_start,
            measure=measure,
            seed=config.seed,
            progress=lambda update, rates, _: listener.warming(update, rates, config.warm_start.max_steps),
        )
    listener.warmed(ended.rates, False)
    return policy


def warm_start_key(config: RunConfig, tasks: TaskSet) -> str:
    """Name of a warm start: a hash of everything that determines it."""
    parts = {
        "version": assay.__version__,
        "seed": config.seed,
        "tasks": tasks.name,
        "data": tasks.data_hash(),
        "traces": hashlib.sha256(repr(list(tasks.traces)).encode()).hexdigest(),
        "sizes": config.sizes.model_dump(),
        "warm_start": config.warm_start.model_dump(),
        "sampling": [config.max_new_tokens, config.temperature, WARM_SAMPLES],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Where warm starts are kept: ``ASSAY_CACHE``, or the user's cache folder."""
    given = os.environ.get("ASSAY_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay" / "warm-starts"
