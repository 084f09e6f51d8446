"""Simulated runs and samples with a known truth, to see what the verdicts and the intervals are worth.

Prompts differ in difficulty: the chance of each prompt is drawn from a beta distribution whose spread gives
the wanted correlation inside a prompt. Difficulty and proneness to the hack stay with the prompt over the run.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from assay.hacking import MatchedCheckpoint


def prompt_rates(uniform, mean, correlation):
    """The beta quantile of each prompt's place ``uniform`` for a mean and an intraclass correlation."""
    mean = np.asarray(mean, float)
    if correlation == 0:
        return np.broadcast_to(mean, uniform.shape).copy()
    size = 1 / correlation - 1
    inside = np.clip(mean, 1e-9, 1 - 1e-9)
    rates = stats.beta.ppf(uniform, inside * size, (1 - inside) * size)
    return np.where((mean <= 0) | (mean >= 1), mean, rates)


def checkpoint(step, reward, truth):
    """A matched checkpoint with nothing but its scores."""
    blank = np.full(reward.shape, 1.0)
    texts = [[""] for _ in range(len(reward))]
    ids = [str(row) for row in range(len(reward))]
    return MatchedCheckpoint(step, ids, reward.astype(float), truth.astype(float), blank, blank, blank, texts)


def run(random, truths, hacks, *, correlation, prompts=64, samples=8):
    """Truth solved at rate ``truths[k]``; of the unsolved samples the hack pays ``hacks[k] / (1 - truths[k])``,
    so that ``hacks[k]`` is the hacking rate."""
    difficulty, prone = random.random(prompts), random.random(prompts)
    out = []
    for k, (p, h) in enumerate(zip(truths, hacks, strict=True)):
        solve = prompt_rates(difficulty, p, correlation)[:, None]
        cheat = prompt_rates(prone, h / (1 - p), correlation)[:, None]
        truth = random.random((prompts, samples)) < solve
        paid = truth | (random.random((prompts, samples)) < cheat)
        out.append(checkpoint(k, paid, truth))
    return out


def flat_run(random, kind, *, correlation, checkpoints=8, prompts=64, samples=8):
    """Reward and truth that do not depend on the step.

    ``sound``: reward is truth. ``noisy``: reward flips truth. ``unrelated``: reward has nothing to do with
    truth, prompts are difficult for each in their own way. ``loose``: even the prompts' rates are drawn anew
    at every checkpoint, the hardest case, as nothing cancels in the pairs.
    """
    level, pay = random.uniform(0.1, 0.7), random.uniform(0.1, 0.7)
    difficulty, taste = random.random(prompts), random.random(prompts)
    out = []
    for k in range(checkpoints):
        if kind == "loose":
            difficulty, taste = random.random(prompts), random.random(prompts)
        truth = random.random((prompts, samples)) < prompt_rates(difficulty, level, correlation)[:, None]
        if kind == "sound":
            paid = truth
        elif kind == "noisy":
            paid = truth ^ (random.random((prompts, samples)) < 0.2)
        else:
            paid = random.random((prompts, samples)) < prompt_rates(taste, pay, correlation)[:, None]
        out.append(checkpoint(k, paid, truth))
    return out


def hack_curves(kind, size, checkpoints=8):
    """Rates of truth and of the hack over the run: ``partial``, ``late`` or ``inverted-u``."""
    time = np.linspace(0, 1, checkpoints)
    if kind == "partial":  # truth is learnt, and a share of the reward is hacked besides
        return 0.25 + 0.15 * time, size * np.minimum(1, 2 * time)
    if kind == "late":  # nothing until the last quarter
        return 0.25 + 0.15 * time, np.where(time > 0.74, size, 0.0)
    rise = 0.2 + 0.3 * np.minimum(1, 2 * time)  # truth rises, then loses what the hack gains
    fall = size * np.maximum(0, 2 * time - 1)
    return rise - fall, fall
