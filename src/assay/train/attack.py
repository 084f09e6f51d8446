"""A tiny policy trained against a reward for a minute: what does optimisation find that no probe shows?

The embedded model first copies texts that the caller knows (accepted completions and pieces that a reward may
look for), so that it can write them and mix them up; then it is trained on the score with RLOO, without a KL
penalty: nothing holds it back from what pays. Whatever pays is sampled more and more, and comes back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from assay.algos.recipes import make_algorithm
from assay.config import RunConfig
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy
from assay.records.score import Score, missing, scored
from assay.train.collect import Collector
from assay.train.sft import Example, SFTSettings, fine_tune
from assay.train.trainer import Trainer

ScoreFunction = Callable[[Sequence[str], Sequence[Mapping[str, Any]]], Sequence[float]]
"""Scores of completions against their tasks; NaN where there is none."""

MOST_TASKS, MOST_SAMPLES = 16, 300
PROMPT_CHARACTERS = 160
"""Of a prompt the end is kept, which asks for the form."""
NEW_TOKENS = 48
COPY_SHARE = 0.25
"""Share of the time in which texts are copied."""
SIZES = {"hidden_size": 64, "layers": 2, "heads": 4, "intermediate_size": 160, "max_positions": 320}


def train_against(
    score: ScoreFunction,
    tasks: Sequence[Mapping[str, Any]],
    *,
    seconds: float = 60.0,
    seed: int = 0,
    max_steps: int | None = None,
) -> list[tuple[int, str]]:
    """Train a tiny policy on ``score`` and return what it was paid best for.

    Args:
        tasks: each with ``prompt``, and texts to start from in ``examples`` (and ``completion``, an accepted one).
        seconds: time for everything. max_steps: updates on the score at most; a number makes the outcome a
            function of the seed alone, if the time is enough for it.

    Returns:
        (index of the task, completion), best paid first, each pair once: those paid more than halfway from the
        least to the most that any sample got; at most 300. Empty when all samples were paid alike.
    """
    chosen = list(islice(tasks, MOST_TASKS))
    end = time.monotonic() + seconds
    examples = [example for task in chosen for example in _examples(task)]
    policy = TinyPolicy.create(
        [text for example in examples for text in example], seed=seed, vocab_size=400, **SIZES
    )
    examples = [e for e in examples if _fits(policy, e)]
    if examples:
        _copy(policy, examples, seed, time.monotonic() + COPY_SHARE * (end - time.monotonic()), max_steps)
    seen = _train(policy, score, chosen, seed, end, max_steps)
    return _best(seen)


def _examples(task: Mapping[str, Any]) -> list[Example]:
    texts = [str(text) for text in (task.get("completion"), *task.get("examples", ())) if text]
    return [Example(_prompt(task), text) for text in dict.fromkeys(texts)] or [Example(_prompt(task), "?")]


def _prompt(task: Mapping[str, Any]) -> str:
    return str(task.get("prompt", ""))[-PROMPT_CHARACTERS:] or "?"


def _fits(policy: Policy, example: Example) -> bool:
    return len(policy.encode_completion(example.completion)) <= NEW_TOKENS and (
        len(policy.encode_prompt(example.prompt)) + NEW_TOKENS <= policy.max_positions
    )


def _copy(policy: Policy, examples: Sequence[Example], seed: int, end: float, epochs: int | None) -> None:
    """Learn to write the examples, epoch by epoch until ``end``; smoothing keeps every token possible."""
    epoch = 0
    while time.monotonic() < end and (epochs is None or epoch < epochs):
        settings = SFTSettings(tokens=2048, learning_rate=3e-3, label_smoothing=0.1, seed=seed + epoch)
        loss = fine_tune(policy, examples, settings)[-1]
        epoch += 1
        if loss < 1.3:  # with a smoothing of 0.1 that is nearly by heart, and by heart nothing is mixed up
            return


def _train(
    policy: Policy,
    score: ScoreFunction,
    tasks: Sequence[Mapping[str, Any]],
    seed: int,
    end: float,
    steps: int | None,
) -> dict[tuple[int, str], float]:
    """Update on the score until the time is over; every scored sample with its score."""
    seen: dict[tuple[int, str], float] = {}

    def scores(completions: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Score]:
        values = score(completions, [tasks[int(row["prompt_id"])] for row in rows])
        for text, row, value in zip(completions, rows, values, strict=True):
            if math.isfinite(value):
                seen[int(row["prompt_id"]), text] = value
        return [scored(value) if math.isfinite(value) else missing("no score") for value in values]

    config = RunConfig(
        seed=seed, batch_size=64, group_size=8, max_new_tokens=NEW_TOKENS, learning_rate=1e-3, max_missing=1.0
    )  # fmt: skip
    rows = [{"prompt_id": str(index), "prompt": _prompt(task)} for index, task in enumerate(tasks)]
    algorithm = make_algorithm("reinforce")
    trainer = Trainer(config, policy, None, algorithm, Collector(config, rows, scores))
    while time.monotonic() < end and (steps is None or trainer.step < steps):
        trainer.train_step()
    return seen


def _best(seen: Mapping[tuple[int, str], float]) -> list[tuple[int, str]]:
    if not seen or max(seen.values()) == min(seen.values()):
        return []
    half = (max(seen.values()) + min(seen.values())) / 2
    paid = sorted(
        (pair for pair, value in seen.items() if value > half), key=lambda pair: (-seen[pair], len(pair[1]))
    )
    return paid[:MOST_SAMPLES]
