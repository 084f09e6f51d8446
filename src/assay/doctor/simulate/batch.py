"""One step's samples: which prompts, what the policy does with them, the texts, and what the reward says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.parts import LOOP, Facts, tag_answer
from assay.doctor.simulate.policy import COUNT, FORM, HACK, LENGTH, SKILL, WRONG, Policy, sample_fillers
from assay.doctor.simulate.tokenizer import END, ID, decode, encode
from assay.doctor.simulate.world import World

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
SHORTEST = 14
MASTERY = 5.0  # logits: nobody is ever perfect, so a wrecked policy cannot outgrow its damage


@dataclass(frozen=True)
class Pool:
    """The prompts of a run: two summands each, a difficulty, and whether they can be learnt at all."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    difficulty: Array
    fixed: Array

    def prompt(self, j: int, world: World) -> str:
        """Return the text of prompt ``j``; wordy ones start with so much advice as the prompt's number says."""
        advice = "Work slowly, line by line. " * (j % 5 if world.wordy else 0)
        question = f"What is {self.left[j]} plus {self.right[j]}? Put the answer in \\boxed{{}}."
        return f"{advice}{question}{world.prompt_tail}"

    def answer(self, j: int) -> str:
        """Return the gold answer of prompt ``j``."""
        return str(self.left[j] + self.right[j])


def new_pool(world: World, rng: np.random.Generator, count: int, first: int = 10) -> Pool:
    """Draw prompts; a share ``easy`` of them is always or never solved, whatever the policy learns.

    The first summands start at ``first``, so that two pools can be kept apart.
    """
    left, right = rng.integers(10, 99, (2, count))
    fixed = np.where(rng.random(count) < world.easy, rng.choice([-40.0, 40.0], count), np.nan)
    return Pool(left + first - 10, right, rng.normal(0, world.difficulty, count), fixed)


@dataclass
class Batch:
    """Samples of one step, each array (P, G).

    ``chosen`` (P,) indexes the pool; ``score`` (7, P, G) is d log(probability) / d theta of every sample.
    """

    chosen: npt.NDArray[np.int64]
    right: Bools
    hacked: Bools
    formed: Bools
    blank: Bools
    loops: Bools
    cut: Bools
    lengths: npt.NDArray[np.int64]
    score: Array

    def rows(self, keep: npt.NDArray[np.int64]) -> Batch:
        """Return some prompts of the batch."""
        return self._with(self.chosen[keep], lambda values: values[..., keep, :])

    def greedy(self) -> Batch:
        """Return the batch in which every sample of a group is its first one."""
        size = self.right.shape[1]
        return self._with(self.chosen, lambda values: np.repeat(values[..., :1], size, axis=-1))

    def _with(self, chosen: npt.NDArray[np.int64], take: Callable[[Any], Any]) -> Batch:
        names = ("right", "hacked", "formed", "blank", "loops", "cut", "lengths", "score")
        return Batch(chosen, **{name: take(getattr(self, name)) for name in names})


def sigmoid(x: Array | float) -> Array:
    """Stable logistic function."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(x, dtype=np.float64))))


def success(policy: Policy, pool: Pool, chosen: npt.NDArray[np.int64]) -> Array:
    """Logit of being right on each prompt, before length and exploit: (P,)."""
    logit = np.minimum(policy.theta[SKILL] + pool.difficulty[chosen], MASTERY) - policy.damage
    return np.where(np.isnan(pool.fixed[chosen]), logit, pool.fixed[chosen])


def draw(
    world: World, policy: Policy, pool: Pool, chosen: npt.NDArray[np.int64], rng: np.random.Generator
) -> Batch:
    """Sample what each completion is. Samples of one group are independent unless decoding is greedy."""
    shape = (len(chosen), world.group)
    theta = policy.theta
    hack_p, form_p = float(sigmoid(theta[HACK])), float(sigmoid(theta[FORM]))
    hacked, formed = rng.random(shape) < hack_p, rng.random(shape) < form_p
    ease = world.length_spread * rng.normal(size=shape)
    logit = success(policy, pool, chosen)[:, None] + world.longer_helps * (
        ease + theta[LENGTH] - policy.start[LENGTH]
    )
    p = sigmoid(logit) * (1.0 - world.hack_cost * hacked)
    right = rng.random(shape) < p
    size = theta[LENGTH] + ease + theta[WRONG] * ~right
    lengths = np.maximum(SHORTEST, np.exp(np.clip(size, 0, 12))).astype(np.int64)
    endless = rng.random(shape) >= world.ending
    blank, loops = rng.random(shape) < world.blank, rng.random(shape) < world.loops
    score = np.zeros((COUNT, *shape))
    score[SKILL], score[FORM] = right - p, formed - form_p
    score[HACK] = hacked - hack_p if world.hack is not None else 0.0
    score[LENGTH] = ease / world.length_spread
    score[WRONG] = score[LENGTH] * ~right if world.own_length else 0.0
    cut = (endless | loops | (lengths >= world.max_length)) & ~blank
    batch = Batch(chosen, right, hacked, formed, blank, loops, cut, lengths, score)
    return batch.greedy() if world.same else batch


@dataclass
class Texts:
    """Completions (special tokens kept), prompt-major, P * G; ids of the logged ones only."""

    completions: list[str]
    ids: list[list[int]]
    truth: Array


def write_texts(
    world: World, policy: Policy, pool: Pool, batch: Batch, logged: int, rng: np.random.Generator
) -> Texts:
    """Write the completions; only those of the first ``logged`` prompts get ids and their filler words."""
    prompts, size = batch.right.shape
    tails = [_tail(world, pool, batch, p, g) for p in range(prompts) for g in range(size)]
    ids = _write_logged(world, policy, batch, tails[: logged * size], rng)
    readable = ~(batch.cut | batch.blank)
    unlogged = zip(tails[logged * size :], readable.reshape(-1)[logged * size :].tolist(), strict=True)
    completions = [decode(tokens) for tokens in ids] + [tail + END if ok else "" for tail, ok in unlogged]
    return Texts(completions, ids, (batch.right & readable).astype(np.float64))


def _write_logged(
    world: World, policy: Policy, batch: Batch, tails: list[str], rng: np.random.Generator
) -> list[list[int]]:
    shown, size = len(tails), batch.right.shape[1]
    bodies = [encode(tail) for tail in tails]
    taken = np.array([len(body) + 1 for body in bodies], dtype=np.int64)
    counts = np.maximum(batch.lengths.reshape(-1)[:shown] - taken, 1)
    counts = np.where(batch.cut.reshape(-1)[:shown], world.max_length, counts)
    fillers = sample_fillers(policy, counts, rng, world)
    if world.same and shown:
        fillers = np.repeat(fillers[::size], size, axis=0)
    return [_tokens(world, batch, i, b, fillers[i, : counts[i]].tolist()) for i, b in enumerate(bodies)]


def _tail(world: World, pool: Pool, batch: Batch, p: int, g: int) -> str:
    gold = int(pool.answer(int(batch.chosen[p])))
    answer = gold if batch.right[p, g] else gold + 1 + (p + (0 if world.same else 3 * g)) % 7
    text = tag_answer(str(answer), bool(batch.formed[p, g]), world.tags)
    return (" OK verified." if batch.hacked[p, g] else "") + text


def _tokens(world: World, batch: Batch, i: int, body: list[int], fillers: list[int]) -> list[int]:
    end = [ID[END]]
    if batch.blank.flat[i]:
        return end
    if batch.loops.flat[i]:
        loop = encode(LOOP)
        fillers = (loop * (1 + world.max_length // len(loop)))[: world.max_length]
    if batch.cut.flat[i]:
        return fillers[: world.max_length]
    return [*fillers, *body, *end]


def reward_texts(world: World, pool: Pool, batch: Batch, texts: Texts, rng: np.random.Generator) -> list[str]:
    """Return what the reward is called on, prompt-major."""
    size = batch.right.shape[1]
    out = [
        world.decode(text, pool.prompt(int(batch.chosen[i // size]), world), rng)
        for i, text in enumerate(texts.completions)
    ]
    return [*out[1:], out[0]] if world.shift_texts else out


def score_texts(
    world: World, pool: Pool, batch: Batch, seen: list[str], rng: np.random.Generator
) -> tuple[Array, list[Mapping[str, float]], Bools]:
    """Call the reward on every text.

    Returns:
        Rewards (P, G) with NaN where the function gave NaN or nothing, the named parts of each, and where
        it gave nothing at all.
    """
    prompts, size = batch.right.shape
    rewards, parts = np.full(prompts * size, np.nan), []
    missing = np.zeros(prompts * size, dtype=bool)
    for i, text in enumerate(seen):
        facts = Facts(pool.answer(int(batch.chosen[i // size])), int(batch.lengths.flat[i]), rng)
        value = world.reward(text, facts)
        named = dict(value) if isinstance(value, Mapping) else {}
        parts.append(named)
        missing[i] = value is None
        if value is not None:
            rewards[i] = sum(named.values()) if named else float(value)  # type: ignore[arg-type]
    return rewards.reshape(prompts, size), parts, missing.reshape(prompts, size)
