"""The mathematics reward: 1 when the final answer of a completion equals the task's gold, else 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.records.score import Score, invalid_task, missing, scored
from assay.rewards.mathematics.equality import Verdict, check
from assay.rewards.mathematics.extract import Which, extract_answer
from assay.rewards.mathematics.reading import read
from assay.rewards.mathematics.symbolic import is_available
from assay.rewards.mathematics.tree import Collection
from assay.rewards.signatures import Task

LARGEST_COMPLETION = 1_000_000
"""Characters; a longer completion breaks the limits of its task and is scored 0."""


@dataclass(frozen=True, slots=True)
class MathReward:
    """Extract the final answer and compare it with the gold.

    Attributes:
        column: the task's column with the gold: an answer, or a solution with a box or ``####``.
        which: the last (default) or the first answer counts.
        last_number: whether the last number of a text without a marker counts (it can be gamed).
    """

    column: str = "answer"
    which: Which = "last"
    last_number: bool = False

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion: 1, 0 with the reason, or ``invalid_task`` when the gold is unusable."""
        gold = gold_text(task.get(self.column))
        problem = gold_problem(gold)
        if problem is not None:
            return invalid_task(f"the gold {gold!r} of prompt_id {task.get('prompt_id')!r}: {problem}")
        if len(completion) > LARGEST_COMPLETION:
            return scored(0.0, f"longer than {LARGEST_COMPLETION} characters")
        found = extract_answer(
            completion, which=self.which, last_number=self.last_number, several=_has_parts(gold)
        )
        if found is None:
            return scored(0.0, "no answer found: no box, tag, ####, or final line")
        return as_math_score(check(gold, found.text))


math_reward = MathReward()
"""The default mathematics reward, ``(completion, task) -> Score``; the gold is ``task["answer"]``."""


def as_math_score(verdict: Verdict) -> Score:
    """A verdict as a score; an undecided pair is not paid, and ``missing`` where sympy is not installed."""
    if verdict.is_equal:
        return scored(1.0)
    if verdict.state == "unreadable_gold":
        return invalid_task(verdict.reason or "unreadable gold")
    if verdict.state == "undecided" and not is_available():
        return missing("this pair needs sympy; run: pip install 'assay[math]'")
    if verdict.state == "different":
        return scored(0.0)
    return scored(0.0, f"{verdict.state.replace('_', ' ')}: {verdict.reason}")


def gold_text(gold: Any) -> str:
    """The answer in a gold: as it is, or out of a worked solution with a box or ``####``."""
    if gold is None:
        return ""
    text = str(gold)
    if "####" in text or r"\boxed" in text:
        found = extract_answer(text, several=True)
        return found.text if found else ""
    return text


def _has_parts(gold: str) -> bool:
    """Whether a gold is a list: then boxes beside each other in a completion are its parts."""
    return any(isinstance(tree, Collection) and len(tree.items) > 1 for tree in read(gold).trees)


def gold_problem(gold: str) -> str | None:
    """Why a gold cannot be used; None when it can. Run it over a data set before training."""
    return read(gold).problem


def lint_golds(tasks: Sequence[Task], column: str = "answer") -> dict[int, str]:
    """Row numbers of the unusable golds, and why."""
    found = {row: gold_problem(gold_text(task.get(column))) for row, task in enumerate(tasks)}
    return {row: problem for row, problem in found.items() if problem is not None}
