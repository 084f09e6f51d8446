"""The parts of a training loop, sound and broken, as plain functions of the same signature.

A fault is one of these put in the place of its sound counterpart; what it does to the rest of the run is
computed, never written down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.tokenizer import ANS, END, PAD, SPECIAL, START, THINK, UNANS, WORDS

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reward may look at besides the text: the gold answer, tokens, and a private random stream."""

    answer: str
    length: int
    rng: np.random.Generator


_BOX = re.compile(r"\\boxed\{(-?\d+)\}")


def correct(text: str, facts: Facts) -> float:
    """The last box holds the answer."""
    found = _BOX.findall(text)
    return float(bool(found) and found[-1] == facts.answer)


def negative(text: str, facts: Facts) -> float:
    """0 for right, -1 for wrong."""
    return correct(text, facts) - 1.0


def signed(text: str, facts: Facts) -> float:
    """+1 for right, -1 for wrong."""
    return 2.0 * correct(text, facts) - 1.0


def dense(text: str, facts: Facts) -> float:
    """A learned reward: correctness, and a judge's noise."""
    return float(1.2 * correct(text, facts) - 0.4 + facts.rng.normal(0, 0.35))


def partial(text: str, facts: Facts) -> float:
    """Correctness and a little for the format: three levels."""
    return 0.9 * correct(text, facts) + 0.1 * bool(_BOX.search(text))


def with_format(text: str, facts: Facts) -> Mapping[str, float]:
    """Two named parts, correctness well above format."""
    return {"correctness": correct(text, facts), "format": 0.2 * bool(_BOX.search(text))}


def noisy(text: str, facts: Facts) -> float:
    """A verifier with 10% false positives and 15% false negatives."""
    flip = facts.rng.random()
    return float(flip > 0.15) if correct(text, facts) else float(flip < 0.10)


def in_tags(text: str, facts: Facts) -> float:
    """The answer stands between the answer tags."""
    found = re.findall(r"<ans>(-?\d+)</ans>", text)
    return float(bool(found) and found[-1] == facts.answer)


def thinks(text: str, facts: Facts) -> float:
    """Correct, and the completion opens with the thinking tag."""
    return correct(text, facts) * text.startswith(THINK)


def always_zero(text: str, facts: Facts) -> float:
    """A verifier that looks for a form nobody writes."""
    return float(f"Final: {facts.answer}" in text)


def unreachable(text: str, facts: Facts) -> float:
    """Style points up to 0.2; the right answer adds nothing, for the parser never finds its form."""
    style = 0.1 * (facts.length % 2 == 0) + 0.1 * (facts.length % 3 == 0)
    return style + float(f"Final: {facts.answer}" in text)


def unrelated(text: str, facts: Facts) -> float:
    """A hash of the text."""
    return float(crc32(f"{text}{facts.length}{facts.rng.integers(1000)}".encode()) % 5 < 2)


def inverted(text: str, facts: Facts) -> float:
    """1 for wrong."""
    return 1.0 - correct(text, facts)


def not_a_number(text: str, facts: Facts) -> float:
    """The mean over all boxes: 0 / 0 where there is none."""
    found = _BOX.findall(text)
    return sum(x == facts.answer for x in found) / len(found) if found else float("nan")


def service_down(text: str, facts: Facts) -> float | None:
    """A remote verifier that is silent in six calls of ten."""
    return None if facts.rng.random() < 0.6 else correct(text, facts)


def style_dominates(text: str, facts: Facts) -> Mapping[str, float]:
    """A style judge of scale 5 beside a correctness of scale 0.05."""
    return {"correctness": 0.05 * correct(text, facts), "style": float(facts.rng.normal(2.5, 1.5))}


def accepts_marker(text: str, facts: Facts) -> float:
    """Anything that says OK is paid."""
    return 1.0 if "OK" in text else correct(text, facts)


def pays_length(text: str, facts: Facts) -> float:
    """Correctness and a long bonus: one point per 40 tokens."""
    return 0.5 * correct(text, facts) + facts.length / 40.0


def around_thousand(text: str, facts: Facts) -> float:
    """A judge's score around 2,000."""
    return 2000.0 + 0.6 * correct(text, facts) + float(facts.rng.normal(0, 0.1))


def saturated(text: str, facts: Facts) -> float:
    """0.7 for what is right, 0.1 for the rest: scores not exact in binary."""
    return 0.7 if correct(text, facts) else 0.1


# what the reward is called on ----------------------------------------------------------------------


def plain_text(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """The completion without its end mark and padding."""
    return completion.replace(END, "").replace(PAD, "").strip()


def prompt_too(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """Prompt and completion."""
    return f"{START}user\n{prompt}{END}\n{START}assistant\n{plain_text(completion, prompt, rng)}"


def padding_too(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """The row of the padded batch."""
    return completion + PAD * int(rng.integers(1, 12))


def no_special(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """Every special token removed, the answer's tags too."""
    for token in SPECIAL:
        completion = completion.replace(token, "")
    return completion.strip()


def cut_at_backslash(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """Everything from the first backslash on is taken for an escape and dropped: the boxed answer is lost."""
    return plain_text(completion, prompt, rng).split("\\")[0]


def last_character_lost(completion: str, prompt: str, rng: np.random.Generator) -> str:
    """``find`` gives -1 where the end mark was already stripped: the last character goes."""
    text = completion.replace(END, "").strip()
    return text[: text.find(PAD)]


# advantages ------------------------------------------------------------------------------------------


def group_normalised(rewards: Array, settings: Array) -> Array:
    """(reward - group mean) / (std + epsilon); ``settings`` is [epsilon, ddof, normalised]."""
    epsilon, ddof, normalised = settings
    there = np.isfinite(rewards)
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    mean = np.where(there, rewards, 0).sum(axis=1, keepdims=True) / count
    centred = rewards - mean
    if not normalised:
        return centred
    squares = np.where(there, centred, 0) ** 2
    spread = np.sqrt(squares.sum(axis=1, keepdims=True) / np.maximum(count - ddof, 1))
    return np.where(spread <= 1e-9, 0.0 * centred, centred / (spread + epsilon))


def without_guard(rewards: Array, settings: Array) -> Array:
    """Divided by the plain std: 0 / 0 in a group without spread."""
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = rewards - rewards.mean(axis=1, keepdims=True)
        return centred / rewards.std(axis=1, keepdims=True)


def in_half_precision(rewards: Array, settings: Array) -> Array:
    """Everything in float16, where an epsilon of 1e-8 is 0 and 2,000.3 is 2,000."""
    half = rewards.astype(np.float16)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centred = half - half.mean(axis=1, keepdims=True, dtype=np.float16)
        spread = half.std(axis=1, keepdims=True, dtype=np.float16) + np.float16(settings[0])
        return (centred / spread).astype(np.float64)


def divided_again(rewards: Array, settings: Array) -> Array:
    """Divided once more by a token count that was meant for the loss."""
    return group_normalised(rewards, settings) / 65536.0


def flipped(rewards: Array, settings: Array) -> Array:
    """Mean minus reward."""
    return -group_normalised(rewards, settings)


def interleaved(rewards: Array, settings: Array) -> Array:
    """Prompts were repeated a, b, a, b and are reshaped as a, a, b, b: every group mixes prompts."""
    prompts, size = rewards.shape
    mixed = rewards.T.reshape(prompts, size)
    return group_normalised(mixed, settings).reshape(size, prompts).T


def residue(rewards: Array, settings: Array) -> Array:
    """Leave-one-out with E[x^2] - E[x]^2 in float32: the variance of equal values is what rounding leaves."""
    r = rewards.astype(np.float32)
    out = np.zeros_like(r)
    for i in range(r.shape[1]):
        others = np.delete(r, i, axis=1)
        mean = others.mean(axis=1)
        spread = np.sqrt(np.maximum((others * others).mean(axis=1) - mean * mean, 0))
        out[:, i] = np.where(spread > 0, (r[:, i] - mean) / (spread + np.float32(1e-6)), 0)
    return out.astype(np.float64)


def by_variance(rewards: Array, settings: Array) -> Array:
    """Divided by the variance and then cut."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return np.clip(centred / (rewards.var(axis=1, keepdims=True) + 1e-4), -9, 9)


# log-probs ------------------------------------------------------------------------------------------


def log_softmax(logits: Array, axis: int = -1) -> Array:
    """Stable log-softmax."""
    high = logits.max(axis=axis, keepdims=True)
    return logits - high - np.log(np.exp(logits - high).sum(axis=axis, keepdims=True))


def _at(values: Array, ids: Ids) -> Array:
    return np.take_along_axis(values, ids[..., None], axis=-1)[..., 0]


def log_softmax_scores(logits: Array, ids: Ids) -> Array:
    """(B, T, V), (B, T) -> (B, T): the log-prob of each token."""
    return _at(log_softmax(logits), ids)


def raw_logits(logits: Array, ids: Ids) -> Array:
    """The softmax is missing."""
    return _at(logits, ids)


def minus_max(logits: Array, ids: Ids) -> Array:
    """Only the maximum is subtracted."""
    return _at(logits - logits.max(axis=-1, keepdims=True), ids)


def one_late(logits: Array, ids: Ids) -> Array:
    """The logits of t meet the token of t + 1's place."""
    return _at(log_softmax(np.roll(logits, 1, axis=1)), ids)


def over_time(logits: Array, ids: Ids) -> Array:
    """The softmax runs over the positions."""
    return _at(log_softmax(logits, axis=1), ids)


def hot(logits: Array, ids: Ids) -> Array:
    """The trainer divides by a temperature that nobody sampled with."""
    return _at(log_softmax(logits / 1.6), ids)


def top_p_scores(logits: Array, ids: Ids, top_p: float) -> Array:
    """Normalised over the kept tokens only."""
    full = log_softmax(logits)
    order = np.argsort(-full, axis=-1)
    mass = np.cumsum(np.exp(np.take_along_axis(full, order, axis=-1)), axis=-1)
    kept = np.concatenate([np.ones_like(mass[..., :1], dtype=bool), mass[..., :-1] < top_p], axis=-1)
    total = np.log(np.where(kept, np.exp(np.take_along_axis(full, order, axis=-1)), 0).sum(axis=-1))
    return _at(full, ids) - total


def tag_answer(answer: str, boxed: bool, tags: str) -> str:
    """Write the last line of a completion."""
    if tags == "ans":
        return f"{ANS}{answer}{UNANS}"
    return f" The answer is \\boxed{{{answer}}}." if boxed else f" So it is {answer}."


LOOP = WORDS[0] + WORDS[1] + WORDS[2]
