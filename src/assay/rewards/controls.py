"""Control rewards of an experiment: chance, and noise without a hole.

Both decide from ``task["draw"]``, an integer that is unique to a sample of a step, so that equal texts get
independent draws and a resumed run gets the same ones. Without a draw (an audit, say) the text decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput
from assay.records.score import Score


def chance(completion: str, task: Mapping[str, Any], salt: str) -> float:
    """A number in [0, 1) that belongs to this sample and salt."""
    source = task.get("draw", (completion, task.get("prompt_id")))
    digest = hashlib.blake2b(repr((salt, source)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


@dataclass(frozen=True)
class RandomReward:
    """1 with probability ``rate``, whatever the completion says: nothing can be learnt from it."""

    rate: float = 0.5

    def __call__(self, completion: str, task: Mapping[str, Any]) -> float:
        """Flip a coin."""
        return float(chance(completion, task, "random") < self.rate)


@dataclass(frozen=True)
class NoisyReward:
    """A sound reward whose verdict is flipped independently: noise that no policy can aim at.

    Attributes:
        reward: the sound reward, scores in {0, 1}.
        false_positive: share of wrong completions that are paid. false_negative: of right ones that are not.
    """

    reward: Callable[[str, Mapping[str, Any]], float | Score]
    false_positive: float
    false_negative: float

    def __post_init__(self) -> None:
        if not (0 <= self.false_positive <= 1 and 0 <= self.false_negative <= 1):
            raise BadInput(
                f"expected error rates within [0, 1], got {self.false_positive} and {self.false_negative}"
            )

    def __call__(self, completion: str, task: Mapping[str, Any]) -> float | Score:
        """The sound verdict, flipped at the given rates."""
        verdict = self.reward(completion, task)
        value = verdict.value if isinstance(verdict, Score) else float(verdict)
        if isinstance(verdict, Score) and not verdict.is_scored:
            return verdict
        rate = self.false_negative if value >= 0.5 else self.false_positive
        return 1.0 - value if chance(completion, task, "noise") < rate else value
