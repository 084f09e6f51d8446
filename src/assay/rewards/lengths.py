"""Rewards and penalties of length and repetition. None of them knows whether an answer is right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay.errors import BadInput, require_one_of

Task = Mapping[str, Any]
Unit = Literal["words", "characters"]


def length_of(text: str, unit: Unit) -> int:
    """The length of a text in words (separated by space) or characters."""
    return len(text.split()) if unit == "words" else len(text)


@dataclass(frozen=True, slots=True)
class LengthWithin:
    """1 when the length is within [low, high], else 0."""

    low: int = 1
    high: int = 1_000
    unit: Unit = "words"

    def __post_init__(self) -> None:
        require_one_of("unit", self.unit, get_args(Unit))
        if not 0 <= self.low <= self.high:
            raise BadInput(f"expected 0 <= low <= high, got {self.low} and {self.high}")

    def __call__(self, completion: str, task: Task) -> float:
        """Score one completion."""
        del task
        return float(self.low <= length_of(completion, self.unit) <= self.high)


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """0 up to ``limit - buffer``, then a straight line down to -1 at ``limit``, and -1 beyond it.

    The soft overlong punishment of DAPO (Yu et al. 2025, equation 13), in words or characters.
    """

    limit: int
    buffer: int
    unit: Unit = "words"

    def __post_init__(self) -> None:
        require_one_of("unit", self.unit, get_args(Unit))
        if not 0 < self.buffer <= self.limit:
            raise BadInput(f"expected 0 < buffer <= limit, got buffer {self.buffer} and limit {self.limit}")

    def __call__(self, completion: str, task: Task) -> float:
        """Score one completion, in [-1, 0]."""
        del task
        excess = length_of(completion, self.unit) - (self.limit - self.buffer)
        return -min(max(excess / self.buffer, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Minus the share of n-grams of words that repeat an earlier one; 0 for texts shorter than n words."""

    n: int = 3
    largest: float = 1.0

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 <= self.largest < math.inf:
            raise BadInput(f"expected n >= 1 and largest >= 0, got {self.n} and {self.largest}")

    def __call__(self, completion: str, task: Task) -> float:
        """Score one completion, in [-largest, 0]."""
        del task
        return -self.largest * repeated_share(completion, self.n)


def repeated_share(text: str, n: int) -> float:
    """The share of a text's n-grams of words (without case) that stand in it before."""
    words = text.lower().split()
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True, slots=True)
class CosineLength:
    """A right answer is paid more when short, a wrong one punished less when long.

    The cosine reward of Yeo et al. 2025 (section 4): half a cosine from the value at length 0 to the value
    at ``limit``; beyond the limit: ``overlong``.

    Attributes:
        right, wrong: (value at length 0, value at the limit).
        reward: who is right (at least 0.5), ``(completion, task) -> number or Score``.
    """

    reward: Any
    limit: int
    right: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (-1.0, -0.5)
    overlong: float = -1.0
    unit: Unit = "words"

    def __post_init__(self) -> None:
        require_one_of("unit", self.unit, get_args(Unit))
        if self.limit < 1:
            raise BadInput(f"expected a limit of at least 1, got {self.limit}")

    def __call__(self, completion: str, task: Task) -> Any:
        """Score one completion; an unscored verdict stays what it is."""
        verdict = self.reward(completion, task)
        if not getattr(verdict, "is_scored", True):
            return verdict
        value = float(getattr(verdict, "value", verdict))
        length = length_of(completion, self.unit)
        if length > self.limit:
            return self.overlong
        start, end = self.right if value >= 0.5 else self.wrong
        return end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * length / self.limit))
