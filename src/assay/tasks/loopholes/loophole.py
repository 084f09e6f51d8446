"""What one loophole is, and what its script earns by the weak reward, the sound one and the truth."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from assay.errors import BadInput
from assay.records.score import Score
from assay.tasks.columns import Scorer
from assay.tasks.drawing import Exploit
from assay.tasks.task_set import TaskSet

Checker = Literal["weak", "sound"]
Build = Callable[..., TaskSet]
"""``(seed, train, evaluation, traces, exploit, exploit_rate) -> TaskSet``, all by keyword."""


@dataclass(frozen=True, slots=True)
class Loophole:
    """One hole in a reward.

    Attributes:
        name: as in the table.
        pays: what the weak reward pays for, in a few words.
        fix: what the sound reward does about it.
        build: makes the prompts and the traces of the underlying task.
        weak: the reward with the hole.
        sound: the reward without it.
        truth: the held-out score, by another instrument than either.
        exploit: a scripted policy: writes a completion that the weak reward pays.
        trained: whether a tiny model can find it by training; the others are attacked by their script only.
        exploit_rate: share of the warm start's traces that the script writes, by default.
    """

    name: str
    pays: str
    fix: str
    build: Build
    weak: Scorer
    sound: Scorer
    truth: Scorer
    exploit: Exploit
    trained: bool = True
    exploit_rate: float = 0.1

    @property
    def version(self) -> str:
        """Its name in the catalogue of tasks."""
        return f"loophole-{self.name}-v1"

    def task_set(
        self,
        *,
        checker: Checker = "weak",
        seed: int = 0,
        train: int = 256,
        evaluation: int = 64,
        traces: int = 4_000,
        exploit_rate: float | None = None,
    ) -> TaskSet:
        """Prompts, traces with the exploit now and then, and the chosen reward.

        Both checkers get the same prompts and traces, so that their runs differ in the reward alone. Traces
        written by the exploit need not be true.

        Raises:
            BadInput: an unknown checker, a rate outside [0, 1], or sizes that the task cannot fill.
        """
        if checker not in ("weak", "sound"):
            raise BadInput(f"expected checker 'weak' or 'sound', got {checker!r}")
        tasks = self.build(
            seed=seed,
            train=train,
            evaluation=evaluation,
            traces=traces,
            exploit=self.exploit,
            exploit_rate=self.exploit_rate if exploit_rate is None else exploit_rate,
        )
        reward = self.weak if checker == "weak" else self.sound
        return replace(tasks, name=self.version, reward=reward, truth=self.truth)


class ScriptedAttack(NamedTuple):
    """Mean scores of a loophole's exploit over prompts (NaN: nothing could be scored)."""

    name: str
    weak: float
    sound: float
    truth: float
    prompts: int

    @property
    def hacking_rate(self) -> float:
        """Weak reward minus truth."""
        return self.weak - self.truth


def attack_by_script(loophole: Loophole, *, seed: int = 0, prompts: int = 64) -> ScriptedAttack:
    """Play the exploit once on each of ``prompts`` training prompts and score it three ways."""
    tasks = loophole.task_set(seed=seed, train=prompts, evaluation=0, traces=0).train
    rng = random.Random(f"{loophole.name}/{seed}")
    played = [(loophole.exploit(rng, task), task) for task in tasks]
    means = [
        _mean([scorer(completion, task) for completion, task in played])
        for scorer in (loophole.weak, loophole.sound, loophole.truth)
    ]
    return ScriptedAttack(loophole.name, *means, prompts=len(played))


def _mean(scores: list[float | Score]) -> float:
    values = [score.value if isinstance(score, Score) else float(score) for score in scores]
    return statistics.fmean(values) if values else float("nan")
