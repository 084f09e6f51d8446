"""Every generator of the reasoning-gym library as a task set (``pip install 'assay[tasks]'``)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from assay.errors import BadInput, nearest, require
from assay.records.score import Score, crashed, scored
from assay.tasks.columns import needs
from assay.tasks.rows import as_json_value, refuse_overlap
from assay.tasks.task_set import Task, TaskSet

FULL_SCORE = 1.0


def generator_names() -> list[str]:
    """The names of all generators; MissingExtra without the library."""
    require("reasoning_gym", "tasks")
    return sorted(require("reasoning_gym.factory", "tasks").DATASETS)


def reasoning_gym_task_set(
    generator: str,
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    config: Mapping[str, Any] | None = None,
) -> TaskSet:
    """Prompts of one generator, scored by the library's own scorer.

    The reward is the library's score, partial credit included; the truth pays full scores only. Both rest on
    that one scorer: to find faults of the scorer itself, give another truth.

    Args:
        generator: its name, such as ``chain_sum``.
        seed: of the generator.
        train, evaluation: number of prompts; repeated questions are drawn once.
        config: the generator's own settings.

    Raises:
        MissingExtra: the library is not installed.
        BadInput: an unknown generator, settings it refuses, or too few different questions.
    """
    names = generator_names()
    if generator not in names:
        raise BadInput(f"unknown reasoning-gym generator {generator!r}{nearest(generator, names)}")
    entries = _entries(generator, 2 * (train + evaluation), seed, config or {})
    tasks = list({task["prompt"]: task for task in (_task(generator, entry) for entry in entries)}.values())
    if len(tasks) < train + evaluation:
        raise BadInput(
            f"{generator} has only {len(tasks)} different questions in {2 * (train + evaluation)} draws, "
            f"{train + evaluation} were asked; ask for fewer or widen its config"
        )
    sides = tasks[:train], tasks[train : train + evaluation]
    refuse_overlap(*sides)
    version = metadata.version("reasoning-gym")
    return TaskSet(f"reasoning-gym-{version}/{generator}", *sides, library_reward, library_truth)


def _entries(generator: str, size: int, seed: int, config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    create = require("reasoning_gym", "tasks").create_dataset
    try:
        return list(create(generator, size=size, seed=seed, **config))
    except (TypeError, ValueError, AssertionError) as error:
        raise BadInput(f"{generator}: refuses the config {dict(config)} ({error})") from error


def _task(generator: str, entry: Mapping[str, Any]) -> Task:
    prompt = str(entry["question"])
    details = {name: as_json_value(value) for name, value in entry.get("metadata", {}).items()}
    return {
        "prompt_id": f"{generator}/{hashlib.sha256(prompt.encode()).hexdigest()[:12]}",
        "prompt": prompt,
        "answer": entry["answer"],
        "generator": generator,
        "metadata": details,
    }


@cache
def _scorer(generator: str) -> Any:
    return require("reasoning_gym", "tasks").get_score_answer_fn(generator)


@needs("generator", "prompt", "metadata")
def library_reward(completion: str, task: Task) -> float | Score:
    """The library's score of the completion (0 to 1); a scorer that raises is ``crashed``."""
    entry = {"question": task["prompt"], "answer": task["answer"], "metadata": task["metadata"]}
    try:
        value = float(_scorer(task["generator"])(completion, entry))
    except Exception as error:  # noqa: BLE001 - the one boundary: another library's scorer
        return crashed(f"{task['generator']} raised {type(error).__name__}: {error}")
    return scored(value) if math.isfinite(value) else crashed(f"{task['generator']} returned {value}")


def library_truth(completion: str, task: Task) -> float | Score:
    """1.0 for a full score by the library, else 0.0."""
    score = library_reward(completion, task)
    if isinstance(score, Score) and not score.is_scored:
        return score
    value = score.value if isinstance(score, Score) else score
    return float(value >= FULL_SCORE)
