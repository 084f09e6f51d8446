"""Sums and differences of small numbers: the prompt ``7+5-3=`` is answered by ``9``."""

from __future__ import annotations

import random
import re
from functools import partial

from assay.errors import BadInput
from assay.records.score import Score
from assay.tasks.columns import needs
from assay.tasks.drawing import Drawn, Exploit, Sizes, draw_task_set
from assay.tasks.expressions import value_by_stack
from assay.tasks.task_set import Task, TaskSet

NAME = "arithmetic-v1"
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,12})\s*", re.ASCII)


def arithmetic_task_set(
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    traces: int = 4_000,
    terms: tuple[int, int] = (2, 3),
    largest: int = 12,
    exploit: Exploit | None = None,
    exploit_rate: float = 0.0,
) -> TaskSet:
    """Sums of ``terms[0]`` to ``terms[1]`` numbers from 0 to ``largest``, some of them subtracted.

    Two sums with the same signed terms in another order share a structural key.

    Raises:
        BadInput: terms outside 2 to 8, ``largest`` outside 1 to 999, or sizes that they cannot fill.
    """
    if not (2 <= terms[0] <= terms[1] <= 8 and 1 <= largest <= 999):
        raise BadInput(f"expected 2 to 8 terms and largest within 1 to 999, got {terms} and {largest}")
    return draw_task_set(
        NAME,
        partial(_draw, (terms[0], terms[1]), largest),
        arithmetic_reward,
        arithmetic_truth,
        seed=seed,
        sizes=Sizes(train, evaluation, traces, exploit_rate),
        exploit=exploit,
    )


def _draw(terms: tuple[int, int], largest: int, rng: random.Random) -> Drawn:
    count = rng.randint(*terms)
    signs = [1, *(rng.choice([1, 1, -1]) for _ in range(count - 1))]
    signed = [sign * rng.randint(0, largest) for sign in signs]
    text = "".join(f"{'-' if sign < 0 else '+'}{abs(term)}" for sign, term in zip(signs, signed, strict=True))
    key = " ".join(map(str, sorted(signed)))
    return Drawn(f"{text.removeprefix('+')}=\n", f"{sum(signed)}\n", key, {"value": sum(signed)})


def read_integer(completion: str) -> int | None:
    """The value of a completion that is one integer; None for any other text."""
    found = _INTEGER.fullmatch(completion)
    return int(found.group(1)) if found else None


@needs("value")
def arithmetic_reward(completion: str, task: Task) -> float | Score:
    """1.0 when the completion is one integer, equal to the task's ``value``, else 0.0."""
    return float(read_integer(completion) == task["value"])


@needs("prompt")
def arithmetic_truth(completion: str, task: Task) -> float | Score:
    """1.0 when the completion is one integer and equals the prompt's own sum, worked out anew."""
    given = read_integer(completion)
    return float(given is not None and given == value_by_stack(task["prompt"].strip().removesuffix("=")))
