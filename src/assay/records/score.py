"""The result of scoring one completion: a number, or the reason why there is none.

Four states, never folded into one another: a missing score is not a 0, and a crash is not a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ScoreState = Literal["scored", "missing", "invalid_task", "crashed"]
STATES: tuple[ScoreState, ...] = ("scored", "missing", "invalid_task", "crashed")


@dataclass(frozen=True, slots=True)
class Score:
    """One score.

    Attributes:
        value: the number when ``state`` is ``scored``; NaN otherwise, never 0.
        state: ``scored``; ``missing`` (None, a slow or dead service or worker); ``invalid_task`` (the gold
            itself is unusable); ``crashed`` (the function raised, or returned NaN, infinity or another type).
        reason: why, for everything that is not a plain score (also for a 0 by rule, such as a flood).
        parts: the named parts of a composed reward, unweighted.
    """

    value: float = math.nan
    state: ScoreState = "scored"
    reason: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        if self.state == "scored" and not math.isfinite(self.value):
            raise ValueError(f"a scored value must be finite, got {self.value!r}; use the state 'crashed'")
        if self.state != "scored" and not math.isnan(self.value):
            raise ValueError(f"state {self.state!r} carries no number, got {self.value!r}")

    @property
    def is_scored(self) -> bool:
        """Whether there is a number."""
        return self.state == "scored"


def scored(value: float, reason: str | None = None, parts: Mapping[str, float] | None = None) -> Score:
    """A finite number (or bool), optionally with its reason and parts."""
    return Score(float(value), "scored", reason, parts or {})


def missing(reason: str) -> Score:
    """No score, and nobody's fault in the completion: None, a time-out of a service, a dead worker."""
    return Score(math.nan, "missing", reason)


def invalid_task(reason: str) -> Score:
    """No score because the task's own gold is unusable."""
    return Score(math.nan, "invalid_task", reason)


def crashed(reason: str) -> Score:
    """No score because the reward function broke its contract."""
    return Score(math.nan, "crashed", reason)
