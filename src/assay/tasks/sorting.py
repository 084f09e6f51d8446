"""Sort digits: the prompt ``sort 5 3 9`` is answered by ``3 5 9``."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial
from itertools import pairwise

from assay.errors import BadInput
from assay.records.score import Score
from assay.tasks.columns import needs
from assay.tasks.drawing import Drawn, Exploit, Sizes, draw_task_set
from assay.tasks.task_set import Task, TaskSet

NAME = "sorting-v1"
_DIGITS = re.compile(r"\s*[0-9](?:\s+[0-9]){0,63}\s*")


def sorting_task_set(
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    traces: int = 4_000,
    shortest: int = 3,
    longest: int = 5,
    exploit: Exploit | None = None,
    exploit_rate: float = 0.0,
) -> TaskSet:
    """Lists of ``shortest`` to ``longest`` digits to sort; no multiset of digits is on both sides.

    Raises:
        BadInput: lengths outside 1 to 12, or sizes that the lengths cannot fill.
    """
    if not 1 <= shortest <= longest <= 12:
        raise BadInput(f"expected 1 <= shortest <= longest <= 12, got {shortest} and {longest}")
    draw = partial(_draw, shortest, longest)
    sizes = Sizes(train, evaluation, traces, exploit_rate)
    return draw_task_set(NAME, draw, sorting_reward, sorting_truth, seed=seed, sizes=sizes, exploit=exploit)


def _draw(shortest: int, longest: int, rng: random.Random) -> Drawn:
    numbers = [rng.randint(0, 9) for _ in range(rng.randint(shortest, longest))]
    answer = spell(sorted(numbers))
    return Drawn(f"sort {spell(numbers)}", answer, answer.strip(), {"numbers": numbers})


def spell(numbers: list[int]) -> str:
    """Digits with single spaces and a newline."""
    return " ".join(map(str, numbers)) + "\n"


def read_digits(completion: str) -> list[int] | None:
    """The digits of a completion that is one list of single digits; None for any other text."""
    return [int(word) for word in completion.split()] if _DIGITS.fullmatch(completion) else None


@needs("numbers")
def sorting_reward(completion: str, task: Task) -> float | Score:
    """1.0 for a list that is in order and a permutation of the task's ``numbers``, else 0.0."""
    given = read_digits(completion)
    if given is None:
        return 0.0
    in_order = all(left <= right for left, right in pairwise(given))
    return float(in_order and Counter(given) == Counter(task["numbers"]))


@needs("answer")
def sorting_truth(completion: str, task: Task) -> float | Score:
    """1.0 when the text is the task's ``answer``, white space apart."""
    return float(completion.split() == str(task["answer"]).split())
