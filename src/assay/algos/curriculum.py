"""Sampling prompts by their running pass rate: a prompt always or never solved teaches nothing.

The learning signal of a prompt under a group baseline is proportional to ``p (1 - p)``. Every prompt keeps
discounted counts of passes and tries; an unseen one counts as ``p = 1/2``, so that it is tried early. The
state is a plain dict, and the choice depends only on it, the seed and the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from assay.errors import BadInput

State = dict[str, tuple[float, float]]  # prompt id: (discounted passes, discounted tries)


class Histogram(NamedTuple):
    """Prompts by pass rate: ``counts`` between neighbouring ``edges``; ``unseen`` prompts are apart."""

    edges: list[float]
    counts: list[int]
    unseen: int


@dataclass(frozen=True, kw_only=True)
class Curriculum:
    """How prompts are chosen.

    Attributes:
        decay: factor on the old counts at each update; 1 never forgets, smaller follows a moving policy.
        low, high: prompts whose pass rate is outside this band get only ``floor``.
        floor: smallest weight, relative to the best prompt's 1; above 0, so that nothing is lost for good.
        right: reward from which a completion counts as passed.
    """

    decay: float = 0.8
    low: float = 0.1
    high: float = 0.9
    floor: float = 0.05
    right: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.decay <= 1 and 0 <= self.low < self.high <= 1 and 0 < self.floor <= 1):
            raise BadInput(
                "expected decay and floor in (0, 1] and 0 <= low < high <= 1, got "
                f"decay {self.decay}, floor {self.floor}, low {self.low}, high {self.high}"
            )

    def update(
        self, state: Mapping[str, Sequence[float]], prompts: Sequence[str], rewards: Sequence[float]
    ) -> State:
        """State after a batch: a reward per completion with its prompt's id; NaN (not scored) is left out."""
        if len(prompts) != len(rewards):
            raise BadInput(f"expected a reward per prompt id, got {len(rewards)} for {len(prompts)}")
        new: State = {prompt: (counts[0], counts[1]) for prompt, counts in state.items()}
        batch: State = {}
        for prompt, reward in zip(prompts, rewards, strict=True):
            if reward == reward:
                passes, tries = batch.get(prompt, (0.0, 0.0))
                batch[prompt] = (passes + (reward >= self.right), tries + 1.0)
        for prompt, (passes, tries) in batch.items():
            old_passes, old_tries = new.get(prompt, (0.0, 0.0))
            new[prompt] = (self.decay * old_passes + passes, self.decay * old_tries + tries)
        return new

    def weights(self, state: Mapping[str, Sequence[float]], prompts: Sequence[str]) -> list[float]:
        """Relative sampling weight of each prompt, in [floor, 1]: ``4 p (1 - p)`` inside the band."""
        return [self._weight(state.get(prompt)) for prompt in prompts]

    def _weight(self, counts: Sequence[float] | None) -> float:
        if counts is None or counts[1] == 0:
            return 1.0
        rate = counts[0] / counts[1]
        if not self.low <= rate <= self.high:
            return self.floor
        return max(self.floor, 4 * rate * (1 - rate))

    def choose(
        self, state: Mapping[str, Sequence[float]], prompts: Sequence[str], n: int, *, seed: int, step: int
    ) -> list[str]:
        """Choose n different prompts, with probabilities by weight, reproducibly by (seed, step)."""
        if not 0 < n <= len(prompts):
            raise BadInput(f"expected between 1 and {len(prompts)} prompts to choose, got {n}")
        rng = np.random.default_rng([seed, step])
        # The n largest of log(u) / weight are a weighted sample without replacement (Efraimidis, Spirakis).
        keys = np.log(rng.random(len(prompts))) / np.asarray(self.weights(state, prompts))
        return [prompts[int(i)] for i in np.argsort(-keys, kind="stable")[:n]]


def pass_rate(state: Mapping[str, Sequence[float]], prompt: str) -> float:
    """Running pass rate of a prompt; NaN when it was never scored."""
    passes, tries = state.get(prompt, (0.0, 0.0))
    return passes / tries if tries else float("nan")


def difficulty_histogram(
    state: Mapping[str, Sequence[float]], prompts: Iterable[str], *, bins: int = 10
) -> Histogram:
    """Histogram of the running pass rates; exact 0 and exact 1 are bins of their own at the two ends.

    The edges are ``0, 0, 1/bins, ..., 1, 1``: the first count is "never solved", the last "always solved".
    """
    inner = np.linspace(0.0, 1.0, bins + 1)
    counts = [0] * (bins + 2)
    unseen = 0
    for prompt in prompts:
        rate = pass_rate(state, prompt)
        if rate != rate:
            unseen += 1
        elif rate in (0.0, 1.0):
            counts[0 if rate == 0.0 else -1] += 1
        else:
            counts[1 + min(int(rate * bins), bins - 1)] += 1
    return Histogram([0.0, *inner.tolist(), 1.0], counts, unseen)


def difficulty_metrics(state: Mapping[str, Sequence[float]], prompts: Iterable[str]) -> dict[str, float]:
    """Count prompts by pass rate under flat names: ``difficulty/never``, ``difficulty/0.1-0.2``, and so on."""
    histogram = difficulty_histogram(state, prompts)
    inner = zip(histogram.edges[1:-2], histogram.edges[2:-1], strict=True)
    names = ["never", *(f"{low:.1f}-{high:.1f}" for low, high in inner), "always"]
    found = {f"difficulty/{name}": float(n) for name, n in zip(names, histogram.counts, strict=True)}
    return found | {"difficulty/unseen": float(histogram.unseen)}
