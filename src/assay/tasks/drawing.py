"""From a function that draws one problem to training prompts, evaluation prompts and traces.

Which side a problem belongs to is a property of its structural key alone, so that no seed, size or trace can
leak an evaluation problem into training.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import BadInput
from assay.tasks.task_set import RewardFunction, Task, TaskSet

HELD_OUT_SHARE = 4
"""One structural key in four belongs to evaluation."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One problem.

    Attributes:
        prompt: what the model reads.
        answer: one right completion.
        structural_key: equal for problems that are the same up to what the task calls a renaming.
        columns: what reward and truth read.
    """

    prompt: str
    answer: str
    structural_key: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_task(self, name: str) -> Task:
        """The task's mapping; its ``prompt_id`` is a hash of the prompt."""
        return {
            "prompt_id": f"{name}/{hashlib.sha256(self.prompt.encode()).hexdigest()[:12]}",
            "prompt": self.prompt,
            "answer": self.answer,
            "structural_key": self.structural_key,
            **self.columns,
        }


Draw = Callable[[random.Random], Drawn]
"""Draws one problem from a random stream."""
Exploit = Callable[[random.Random, Task], str]
"""Writes a completion that a weak reward pays and the truth need not."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many prompts and traces to draw, and which share of the traces is an exploit."""

    train: int = 512
    evaluation: int = 64
    traces: int = 4_000
    exploit_rate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("train", "evaluation", "traces"):
            if getattr(self, name) < 0:
                raise BadInput(f"expected {name} of at least 0, got {getattr(self, name)}")
        if not 0 <= self.exploit_rate <= 1:
            raise BadInput(f"expected a rate within 0 to 1, got {self.exploit_rate}")


def draw_task_set(
    name: str,
    draw: Draw,
    reward: RewardFunction,
    truth: RewardFunction,
    *,
    seed: int,
    sizes: Sizes,
    exploit: Exploit | None = None,
) -> TaskSet:
    """Draw a task set; one seed gives one task set, bit for bit.

    No key of evaluation is one of training or of a trace, and all prompts of a side differ. Within a side keys
    come as often as ``draw`` makes them, so that both sides are equally hard. A share ``sizes.exploit_rate``
    of the traces is written by ``exploit``; the others are the problems' own right answers.

    Raises:
        BadInput: the task has too few different problems, or a rate without an exploit.
    """
    if sizes.exploit_rate > 0 and exploit is None:
        raise BadInput(
            f"{name} has no exploit to put into {sizes.exploit_rate:.0%} of its traces; set it to 0"
        )
    rng = random.Random(f"{name}/{seed}")
    evaluation = [drawn.as_task(name) for drawn in _distinct(name, draw, rng, sizes.evaluation, True)]
    train = [drawn.as_task(name) for drawn in _distinct(name, draw, rng, sizes.train, False)]
    traces = [_trace(name, draw, rng, exploit, sizes.exploit_rate) for _ in range(sizes.traces)]
    return TaskSet(name, train, evaluation, reward, truth, traces)


def is_held_out(key: str) -> bool:
    """Whether a structural key belongs to evaluation."""
    return hashlib.sha256(key.encode()).digest()[0] % HELD_OUT_SHARE == 0


def _distinct(name: str, draw: Draw, rng: random.Random, count: int, held_out: bool) -> Iterator[Drawn]:
    seen: set[str] = set()
    for _ in range(200 * count + 1_000):
        if len(seen) == count:
            return
        drawn = draw(rng)
        mark = drawn.prompt
        if is_held_out(drawn.structural_key) == held_out and mark not in seen:
            seen.add(mark)
            yield drawn
    if len(seen) < count:
        side = "evaluation" if held_out else "train"
        raise BadInput(
            f"{name} has only about {len(seen)} different problems for {side} at this difficulty, "
            f"{count} were asked; ask for fewer or make the task richer"
        )


def _trace(
    name: str, draw: Draw, rng: random.Random, exploit: Exploit | None, rate: float
) -> tuple[str, str]:
    drawn = draw(rng)
    while is_held_out(drawn.structural_key):
        drawn = draw(rng)
    if exploit is not None and rng.random() < rate:
        return drawn.prompt, exploit(rng, drawn.as_task(name))
    return drawn.prompt, drawn.answer
