"""Rewards made of rewards: weighted sums with every part logged, gates, and parts that only observe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay.errors import BadInput, require_one_of
from assay.records.score import Score, ScoreState, scored
from assay.rewards.call import BoundReward, resolve

Task = Mapping[str, Any]
WhenMissing = Literal["skip", "missing"]
_WORST: tuple[ScoreState, ...] = ("invalid_task", "crashed", "missing")


@dataclass(frozen=True, slots=True)
class Part:
    """One named part; with weight 0 it is logged and changes nothing."""

    name: str
    reward: Callable[..., Any]
    weight: float = 1.0

    def __post_init__(self) -> None:
        resolve(self.reward)
        if not _is_finite(self.weight):
            raise BadInput(f"expected a finite weight for the part {self.name!r}, got {self.weight!r}")


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """The sum of weight times value over its parts; each part's own value is in the score's ``parts``.

    A part without a score is left out of the sum (``when_missing="missing"``: the whole sample is then
    without one), and the reason says so; when no weighted part has a score, neither has the sum. An unusable
    gold in a weighted part makes the task unusable.
    """

    parts: Sequence[Part]
    when_missing: WhenMissing = "skip"

    def __post_init__(self) -> None:
        strangers = [part for part in self.parts if not isinstance(part, Part)]  # pyright: ignore[reportUnnecessaryIsInstance]
        if strangers:
            raise BadInput(f"expected parts such as Part('right', reward), got {strangers[0]!r}")
        require_one_of("when_missing", self.when_missing, get_args(WhenMissing))
        names = [part.name for part in self.parts]
        if not any(part.weight for part in self.parts):
            raise BadInput("expected at least one part with a weight that is not 0")
        if len(set(names)) != len(names):
            raise BadInput(f"expected different names for the parts, got {names}")

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        scores = [(part, score_part(part.reward, completion, task)) for part in self.parts]
        logged: dict[str, float] = {}
        for part, score in scores:
            logged.update(_logged(part.name, score))
        lost = [(part, score) for part, score in scores if not score.is_scored]
        reason = "; ".join(f"{part.name}: {score.state} ({score.reason})" for part, score in lost) or None
        weighted = [(part.weight, score) for part, score in scores if part.weight]
        state = self._state([score for _, score in weighted])
        if state is not None:
            return Score(state=state, reason=reason, parts=logged)
        return scored(sum(w * score.value for w, score in weighted if score.is_scored), reason, logged)

    def _state(self, scores: Sequence[Score]) -> ScoreState | None:
        """The state of the sum when it has no number; None when it has one."""
        states = [score.state for score in scores if not score.is_scored]
        all_lost = len(states) == len(scores)
        if "invalid_task" in states:
            return "invalid_task"
        if states and (all_lost or self.when_missing == "missing"):
            return next(state for state in _WORST if state in states)
        return None


@dataclass(frozen=True, slots=True)
class Gate:
    """Pays ``reward`` only where ``condition`` reaches ``threshold``: format counts when the answer is right.

    Both values are logged as ``condition`` and ``reward``. Without a score of the condition there is none.
    """

    condition: Callable[..., Any]
    reward: Callable[..., Any]
    threshold: float = 0.5

    def __post_init__(self) -> None:
        for reward in (self.condition, self.reward):
            resolve(reward)
        if not _is_finite(self.threshold):
            raise BadInput(f"expected a finite threshold, got {self.threshold!r}")

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        condition = score_part(self.condition, completion, task)
        if not condition.is_scored:
            return condition
        reward = score_part(self.reward, completion, task)
        logged = {**_logged("condition", condition), **_logged("reward", reward)}
        if condition.value < self.threshold:
            return scored(0.0, f"the condition is below {self.threshold:g}", logged)
        return Score(reward.value, reward.state, reward.reason, logged)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def score_part(reward: Callable[..., Any], completion: str, task: Task) -> Score:
    """Score one completion with a reward of any signature; what it raises is ``crashed``."""
    bound: BoundReward = resolve(reward)
    if bound.is_batch:
        return bound.score([completion], [task])[0]
    return bound.score_row(bound.rows([completion], [task], None)[0])


def _logged(name: str, score: Score) -> dict[str, float]:
    inner = {f"{name}/{part}": value for part, value in score.parts.items()}
    return {name: score.value, **inner} if score.is_scored else inner
