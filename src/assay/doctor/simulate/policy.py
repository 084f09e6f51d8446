"""The simulated policy: a few logits that decide what a completion is, and a bigram softmax over tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.parts import log_softmax
from assay.doctor.simulate.tokenizer import FILLERS, PIECES
from assay.doctor.simulate.world import World

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

SKILL, HACK, FORM, LENGTH, WALK, OTHER, WRONG = range(7)
COUNT = 7
RATES = np.array([1.0, 4.0, 0.7, 0.5, 0.6, 0.6, 6.0])  # learning rates of the parameters, relative
SENSITIVITY = 0.28  # logits of the token table that move with one unit of a parameter
FLUENCY = 1.2  # nats a token away from the start at which competence begins to suffer


@dataclass(frozen=True, eq=False)
class Policy:
    """Parameters (7,) and the token tables they move.

    Attributes:
        theta: the parameters now (the last: log length of wrong completions over right ones); start: those of
            the first step; base: (V, V) logits of the next token by the last one; directions: (7, V, V), how
            each parameter moves them; sharpen: growth of all logits with skill.
    """

    theta: Array
    start: Array
    base: Array
    directions: Array
    sharpen: float
    first: Policy | None = None

    def moved(self, theta: Array) -> Policy:
        """Return the policy with other parameters."""
        return replace(self, theta=theta, first=self.at_start())

    def at_start(self) -> Policy:
        """Return the policy of the first step."""
        return self.first or self

    @cached_property
    def spoken(self) -> Array:
        """Log-probs (W, V) of the next token after each filler word."""
        return log_softmax(self.table[list(FILLERS)])

    @cached_property
    def damage(self) -> float:
        """Logits of skill lost far from the start: a wrecked policy solves nothing."""
        return 6.0 * max(0.0, divergence(self, self.at_start())[0] - FLUENCY)

    @cached_property
    def table(self) -> Array:
        """(V, V) logits of the next token, by the last one."""
        change = self.theta - self.start
        scale = max(0.05, 1.0 + self.sharpen * float(change[SKILL] + change[HACK]))
        return (self.base + SENSITIVITY * np.tensordot(np.clip(change, -60, 60), self.directions, 1)) * scale


def new_policy(world: World, rng: np.random.Generator) -> Policy:
    """Draw the token tables; parts of the vocabulary that are no filler words are all but impossible."""
    size = len(PIECES)
    base = rng.normal(0, 1.4, (size, size))
    directions = rng.normal(0, 1.0, (COUNT, size, size))
    rare = np.ones(size, dtype=bool)
    rare[list(FILLERS)] = False
    base[:, rare] -= 14.0
    directions[:, :, rare] = 0.0
    directions[WRONG] = 0.0
    hack = -12.0 if world.hack is None else world.hack
    theta = np.array([world.skill, hack, world.form, np.log(world.length), 0.0, 0.0, 0.0])
    return Policy(theta, theta.copy(), base, directions, world.sharpen)


def divergence(policy: Policy, other: Policy) -> tuple[float, float]:
    """KL(policy || other) and the policy's entropy, nats a token, exact over the filler states."""
    a, b = policy.spoken, other.spoken
    p = np.exp(a)
    rows = np.where(p > 0, p * (a - np.maximum(b, -700.0)), 0.0).sum(axis=1)
    return float(rows.mean()), float(-np.where(p > 0, p * a, 0.0).sum(axis=1).mean())


def allowed(policy: Policy) -> Array:
    """(V, V) 1 for words that a sampler with suppressed words may write after each: those that skill makes rarer."""
    return (policy.directions[SKILL] <= 0).astype(np.float64)


def sampled_divergence(policy: Policy, other: Policy) -> float:
    """Mean of log(policy / other), nats a token, over what a sampler with suppressed words writes."""
    kept = np.exp(policy.spoken) * allowed(policy)[list(FILLERS)]
    share = kept / kept.sum(axis=1, keepdims=True)
    return float((share * (policy.spoken - other.spoken)).sum(axis=1).mean())


def sample_fillers(policy: Policy, counts: Ids, rng: np.random.Generator, world: World) -> Ids:
    """Draw (B, max count) filler ids from the bigram softmax, restricted as the world's sampler is."""
    top_p = world.top_p
    probabilities = np.exp(log_softmax(policy.table / world.temperature))
    if world.suppressed:
        probabilities *= allowed(policy)
    if top_p < 1.0:
        order = np.argsort(-probabilities, axis=1)
        sorted_p = np.take_along_axis(probabilities, order, axis=1)
        kept = np.cumsum(sorted_p, axis=1) - sorted_p < top_p
        sorted_p = np.where(kept, sorted_p, 0.0)
        np.put_along_axis(probabilities, order, sorted_p, axis=1)
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    longest = int(counts.max(initial=1))
    out = np.zeros((len(counts), longest), dtype=np.int64)
    last = np.full(len(counts), FILLERS[0])
    for t in range(longest):
        draw = rng.random(len(counts))
        last = np.minimum((cumulative[last] < draw[:, None]).sum(axis=1), len(PIECES) - 1)
        out[:, t] = last
    return out


def token_logits(policy: Policy, ids: Ids) -> Array:
    """(B, T, V) logits that predict ids (B, T); the first token follows the first filler word."""
    before = np.concatenate([np.full((len(ids), 1), FILLERS[0]), ids[:, :-1]], axis=1)
    return policy.table[before]
