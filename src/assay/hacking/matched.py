"""One checkpoint scored by reward and by truth, on the same held-out prompts as every other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from assay.errors import BadInput
from assay.stats.interval import FloatArray

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class MatchedCheckpoint:
    """One checkpoint on P held-out prompts with n samples each.

    Attributes:
        step: updates made so far; the first checkpoint of a run is its start policy.
        prompt_ids: (P,), the same at every checkpoint, in any order.
        reward, truth: (P, n), NaN where not scored.
        length: (P, n) tokens.
        entropy: (P, n) mean token entropy, nats.
        kl: (P, n) sampled log pi - log pi_start of the whole sequence, nats.
        completions: (P, n) texts.
    """

    step: int
    prompt_ids: Sequence[str]
    reward: FloatArray
    truth: FloatArray
    length: FloatArray
    entropy: FloatArray
    kl: FloatArray
    completions: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        prompts = len(self.prompt_ids)
        if prompts == 0 or len(set(self.prompt_ids)) != prompts:
            raise BadInput(
                f"step {self.step}: expected one or more different prompt ids, got {prompts} with "
                f"{len(set(self.prompt_ids))} different; give each held-out prompt an id of its own"
            )
        for name in ("reward", "truth", "length", "entropy", "kl"):
            shape = np.shape(getattr(self, name))
            if len(shape) != 2 or shape != (prompts, np.shape(self.reward)[1]):
                raise BadInput(
                    f"step {self.step}: expected {name} of shape (prompts, samples) as reward "
                    f"{np.shape(self.reward)} for {prompts} prompts, got {shape}"
                )

    @classmethod
    def from_table(cls, step: int, frame: pl.DataFrame) -> Self:
        """Build from a table with the columns ``EVAL_COLUMNS`` of a run's folder, one row per sample.

        Missing columns of lengths, entropies and KL become NaN; a prompt with fewer samples is filled
        with NaN. A score whose state is not ``scored`` is NaN.
        """
        for name in ("prompt_id", "reward", "truth"):
            if name not in frame.columns:
                raise BadInput(f"step {step}: expected a column {name!r}, got {', '.join(frame.columns)}")
        ids = [str(value) for value in frame["prompt_id"].to_list()]
        place, columns = _places(ids)
        shape = (len(place), max(columns, default=0) + 1)
        rows = np.array([place[prompt] for prompt in ids], dtype=np.int64)
        index = (rows, np.array(columns, dtype=np.int64))

        def grid(name: str) -> FloatArray:
            values = np.full(shape, math.nan)
            if name in frame.columns:
                values[index] = np.array(frame[name].to_list(), dtype=np.float64)
                state = f"{name}_state"
                if state in frame.columns:
                    scored = np.array([value in (None, "scored") for value in frame[state].to_list()])
                    values[index] = np.where(scored, values[index], math.nan)
            values[~np.isfinite(values)] = math.nan
            return values

        texts = [[""] * shape[1] for _ in place]
        if "completion" in frame.columns:
            for row, column, text in zip(*index, frame["completion"].to_list(), strict=True):
                texts[row][column] = text or ""
        numbers = {name: grid(name) for name in ("reward", "truth", "length", "entropy", "kl")}
        return cls(step=step, prompt_ids=tuple(place), completions=texts, **numbers)

    def ordered_like(self, first: MatchedCheckpoint) -> MatchedCheckpoint:
        """Return this checkpoint with its prompts, the same, in the order of ``first``."""
        if list(self.prompt_ids) == list(first.prompt_ids):
            return self
        here = {prompt: row for row, prompt in enumerate(self.prompt_ids)}
        if here.keys() != set(first.prompt_ids):
            raise BadInput(
                f"checkpoints are not matched: step {self.step} has {len(here)} prompts, step {first.step} "
                f"has {len(first.prompt_ids)}, {len(here.keys() & set(first.prompt_ids))} in common; "
                "evaluate every checkpoint on the same held-out prompts"
            )
        rows = [here[prompt] for prompt in first.prompt_ids]
        return MatchedCheckpoint(
            self.step,
            tuple(first.prompt_ids),
            self.reward[rows],
            self.truth[rows],
            self.length[rows],
            self.entropy[rows],
            self.kl[rows],
            [self.completions[row] for row in rows],
        )


def _places(prompt_ids: Sequence[str]) -> tuple[dict[str, int], list[int]]:
    """Row of each prompt in order of appearance, and for each table row its sample's column."""
    place: dict[str, int] = {}
    seen: dict[str, int] = {}
    columns: list[int] = []
    for prompt in prompt_ids:
        place.setdefault(prompt, len(place))
        columns.append(seen.get(prompt, 0))
        seen[prompt] = columns[-1] + 1
    return place, columns
