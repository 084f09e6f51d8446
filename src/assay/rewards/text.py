"""Rewards that read plain text: exact match, contains, regular expression, a number within a tolerance.

An unusable gold (None, empty) is ``invalid_task``: the empty text is contained in everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from assay.errors import BadInput
from assay.records.score import Score, invalid_task, scored
from assay.rewards.mathematics.extract import extract_answer, without_thinking
from assay.rewards.mathematics.normalise import normalise
from assay.rewards.mathematics.reading import simple_number

Task = Mapping[str, Any]


def golds_of(task: Task, column: str) -> list[str]:
    """The golds of a task: its column as text, or every item of a list; empty ones are left out."""
    gold = task.get(column)
    items: list[Any] = list(gold) if isinstance(gold, list | tuple) else [gold]
    texts = [str(item) for item in items if item is not None]
    return [text for text in texts if text.strip()]


def no_gold(task: Task, column: str) -> Score:
    """``invalid_task``: the column holds nothing that a completion could be compared with."""
    return invalid_task(f"prompt_id {task.get('prompt_id')!r} has no usable {column!r}: {task.get(column)!r}")


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """1 when the completion is one of the golds, surrounding space apart.

    Attributes:
        column: the column with the gold, or a list of golds.
        ignore_case: compare without case. skip_thinking: leave ``<think>`` blocks out of the completion.
    """

    column: str = "answer"
    ignore_case: bool = False
    skip_thinking: bool = True

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        golds = golds_of(task, self.column)
        if not golds:
            return no_gold(task, self.column)
        text = without_thinking(completion) if self.skip_thinking else completion
        return scored(self._key(text) in {self._key(gold) for gold in golds})

    def _key(self, text: str) -> str:
        return text.strip().casefold() if self.ignore_case else text.strip()


@dataclass(frozen=True, slots=True)
class Contains:
    """1 when the gold stands in the completion as whole words.

    A weak reward by nature: a completion that lists every candidate contains the gold too. Use it as a
    part, or audit it first.
    """

    column: str = "answer"
    ignore_case: bool = False
    whole_words: bool = True

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        golds = golds_of(task, self.column)
        if not golds:
            return no_gold(task, self.column)
        return scored(any(self._is_in(gold.strip(), completion) for gold in golds))

    def _is_in(self, gold: str, text: str) -> bool:
        if self.ignore_case:
            gold, text = gold.casefold(), text.casefold()
        if not self.whole_words:
            return gold in text
        return re.search(rf"(?<!\w){re.escape(gold)}(?!\w)(?!\.\d)", text) is not None


@dataclass(frozen=True, slots=True)
class RegexMatch:
    """1 when the whole completion matches a pattern (``search``: when a part of it does).

    The pattern is the user's own: one with nested repetition can take for ever, and is then stopped by the
    time limit of the worker.
    """

    pattern: str
    search: bool = False
    flags: int = 0

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern, self.flags)
        except (re.error, TypeError) as error:
            raise BadInput(f"the pattern {self.pattern!r} is no regular expression: {error}") from error

    def __call__(self, completion: str, task: Task) -> float:
        """Score one completion."""
        del task
        compiled = re.compile(self.pattern, self.flags)
        return float((compiled.search if self.search else compiled.fullmatch)(completion) is not None)


@dataclass(frozen=True, slots=True)
class NumericMatch:
    """1 when the final number is the gold's, within explicit tolerances (exactly equal by default).

    Attributes:
        absolute, relative: largest allowed difference, and as a share of the gold's size.
        last_number: whether the last number of a text without a marked answer counts.
    """

    column: str = "answer"
    absolute: float = 0.0
    relative: float = 0.0
    last_number: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.absolute < math.inf and 0 <= self.relative < math.inf):
            raise BadInput(f"expected tolerances of at least 0, got {self.absolute} and {self.relative}")

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        golds = golds_of(task, self.column)
        gold = read_number(golds[0]) if golds else None
        if gold is None:
            return no_gold(task, self.column)
        found = extract_answer(completion, last_number=self.last_number)
        value = read_number(found.text) if found else None
        if value is None:
            return scored(0.0, "no readable number")
        allowed = max(Fraction(self.absolute), Fraction(self.relative) * abs(gold))
        return scored(abs(value - gold) <= allowed)


def read_number(text: str) -> Fraction | None:
    """A plain number or fraction, currency and percent signs understood; None for anything else."""
    clean = normalise(text).strip("$€£ ")
    if clean.endswith("%"):
        value = simple_number(clean[:-1])
        return value / 100 if value is not None else None
    return simple_number(clean)
