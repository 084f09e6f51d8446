"""Countdown: reach the target with every number used once: ``5 3 7 -> 22`` is answered by ``3*5+7``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

from assay.errors import BadInput
from assay.records.score import Score
from assay.tasks.columns import needs
from assay.tasks.drawing import Drawn, Exploit, Sizes, draw_task_set
from assay.tasks.expressions import numbers_in, value_by_stack, value_by_syntax
from assay.tasks.task_set import Task, TaskSet

NAME = "countdown-v1"


def countdown_task_set(
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    traces: int = 4_000,
    count: int = 3,
    largest: int = 9,
    operators: str = "+-*",
    exploit: Exploit | None = None,
    exploit_rate: float = 0.0,
) -> TaskSet:
    """``count`` numbers from 1 to ``largest`` and a target that some expression of all of them reaches.

    The numbers in any order, with their target, are one structural key.

    Raises:
        BadInput: a count outside 2 to 6, ``largest`` outside 2 to 99, unknown operators, or sizes too large.
    """
    if not (2 <= count <= 6 and 2 <= largest <= 99):
        raise BadInput(f"expected a count of 2 to 6 and largest within 2 to 99, got {count} and {largest}")
    if not operators or set(operators) - set("+-*/"):
        raise BadInput(f"expected operators among + - * /, got {operators!r}")
    return draw_task_set(
        NAME,
        partial(_draw, count, largest, operators),
        countdown_reward,
        countdown_truth,
        seed=seed,
        sizes=Sizes(train, evaluation, traces, exploit_rate),
        exploit=exploit,
    )


def _draw(count: int, largest: int, operators: str, rng: random.Random) -> Drawn:
    while True:
        numbers = [rng.randint(1, largest) for _ in range(count)]
        expression = _expression(numbers, operators, rng)
        value = value_by_syntax(expression)
        if value is not None and value.denominator == 1 and 0 < value <= 99:
            break
    given = rng.sample(numbers, count)
    listed = " ".join(map(str, given))
    columns = {"numbers": given, "target": int(value)}
    key = f"{' '.join(map(str, sorted(given)))} -> {int(value)}"
    return Drawn(f"{listed} -> {int(value)}\n", f"{expression}\n", key, columns)


def _expression(numbers: Sequence[int], operators: str, rng: random.Random) -> str:
    """The numbers in order with random operators; a pair in brackets now and then."""
    text = str(numbers[0])
    for number in numbers[1:]:
        symbol = rng.choice(operators)
        bracketed = symbol in "*/" and not text.isdigit() and rng.random() < 0.5
        text = f"({text}){symbol}{number}" if bracketed else f"{text}{symbol}{number}"
    return text


@needs("numbers", "target")
def countdown_reward(completion: str, task: Task) -> float | Score:
    """1.0 for one expression with every number used exactly once and the target's value, else 0.0."""
    used = numbers_in(completion)
    right_numbers = used is not None and Counter(used) == Counter(task["numbers"])
    return float(right_numbers and value_by_syntax(completion) == task["target"])


@needs("numbers", "target")
def countdown_truth(completion: str, task: Task) -> float | Score:
    """The same question by the other evaluator, and the numbers struck off one by one."""
    left = list(task["numbers"])
    for number in numbers_in(completion) or [None]:
        if number not in left:
            return 0.0
        left.remove(number)
    return float(not left and value_by_stack(completion) == task["target"])
