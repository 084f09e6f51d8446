"""Simulated raters: people with habits, whose habits become part of the reward that is learned from them.

A rater compares two answers by what they notice: correctness, length, a marker word, agreement with the asker.
What is noticed is added up and the choice is Bradley-Terry on the difference, or certain where a weight is
infinite; then a share of all choices is turned round at random.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from assay.errors import BadInput


@dataclass(frozen=True)
class Answer:
    """One answer as a rater sees it.

    Attributes:
        completion: the text. quality: correctness, 0 to 1. length: tokens (or words, or characters).
        marker: whether it holds the word that raters like. agrees: whether it says what the asker believes.
    """

    completion: str
    quality: float
    length: float
    marker: bool = False
    agrees: bool = False


@dataclass(frozen=True)
class Raters:
    """The habits of a pool of raters.

    Attributes:
        correctness: log-odds for an answer of quality 1 against one of quality 0; ``inf`` always spots it.
        length: log-odds a ``length_unit`` of additional length (seed procedures: 0.5 is a mild habit).
        length_unit: tokens a unit.
        longer_wins: chance that the longer of two wins where nothing else differs, whatever the difference;
            replaces ``length``. 0.75 is three times in four; None uses the slope.
        marker, agreement: log-odds for holding the marker, for agreeing with the asker (sycophancy).
        noise: share of the choices turned round, below 0.5.
    """

    correctness: float = math.inf
    length: float = 0.0
    length_unit: float = 10.0
    longer_wins: float | None = None
    marker: float = 0.0
    agreement: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.noise < 0.5:
            raise BadInput(f"expected noise in [0, 0.5), got {self.noise}; at 0.5 choices carry nothing")
        if self.longer_wins is not None and not 0 < self.longer_wins < 1:
            raise BadInput(f"expected longer_wins between 0 and 1, got {self.longer_wins}")
        if self.length_unit <= 0:
            raise BadInput(f"expected a positive length_unit, got {self.length_unit}")

    def probability(self, first: Answer, second: Answer) -> float:
        """Chance that ``first`` is preferred; swapping the answers gives one minus it."""
        clean = self._certain(first, second)
        if clean is None:
            clean = _sigmoid(self._log_odds(first, second))
        return clean + self.noise * (1 - 2 * clean)

    def _certain(self, first: Answer, second: Answer) -> float | None:
        if math.isinf(self.correctness) and first.quality != second.quality:
            return float((first.quality > second.quality) == (self.correctness > 0))
        return None

    def _log_odds(self, first: Answer, second: Answer) -> float:
        odds = 0.0 if math.isinf(self.correctness) else self.correctness * (first.quality - second.quality)
        odds += self.marker * (first.marker - second.marker)
        odds += self.agreement * (first.agrees - second.agrees)
        longer = first.length - second.length
        if self.longer_wins is not None:
            habit = math.log(self.longer_wins / (1 - self.longer_wins))
            return odds + habit * ((longer > 0) - (longer < 0))
        return odds + self.length * longer / self.length_unit

    def prefers_first(self, first: Answer, second: Answer, *, seed: int, key: str) -> bool:
        """Draw a choice; it depends on the seed and the key alone."""
        digest = hashlib.blake2b(repr((seed, "rater", key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2**64 < self.probability(first, second)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
