"""The evaluation of a simulated run: truth on prompts of its own, and the matched samples of its checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.batch import Pool, new_pool, sigmoid, success
from assay.doctor.simulate.policy import HACK, Policy
from assay.doctor.simulate.world import World

Array = npt.NDArray[np.float64]
PROMPTS, SAMPLES = 64, 4
LOGGED = 24  # prompts whose samples are written down
APART = 200  # the first summands of the evaluation's own prompts start here


def held_out_pool(world: World, training: Pool, seed: int) -> Pool:
    """Draw the evaluation's prompts: none of those trained on, but for the share that leaks."""
    rng = np.random.default_rng([seed, 12])
    pool = new_pool(world, rng, PROMPTS, first=APART)
    leaked = rng.random(PROMPTS) < (world.shared or 0.0)
    taken = rng.integers(0, len(training.left), int(leaked.sum()))
    pool.left[leaked], pool.right[leaked] = training.left[taken], training.right[taken]
    return pool


def solves(world: World, policy: Policy, pool: Pool, *, dead: bool) -> Array:
    """(PROMPTS,) probability that a completion is right."""
    p = sigmoid(success(policy, pool, np.arange(PROMPTS)))
    p = p * (1 - world.hack_cost * float(sigmoid(policy.theta[HACK])))
    return p * (1 - world.blank) * (1 - world.loops) * world.ending * (0.0 if dead else 1.0)


def mean_truth(world: World, policy: Policy, pool: Pool, rng: np.random.Generator, *, dead: bool) -> float:
    """Truth on held-out prompts: a binomial sample of what the policy now solves."""
    p = solves(world, policy, pool, dead=dead)
    return float(rng.binomial(SAMPLES, np.clip(p, 0, 1)).mean() / SAMPLES)


def evaluation_rows(
    world: World, policy: Policy, pool: Pool, step: int, rng: np.random.Generator, *, dead: bool
) -> list[dict[str, Any]]:
    """One mapping a sample of the logged evaluation prompts; the reward pays the truth and the exploit."""
    p = solves(world, policy, pool, dead=dead)[:LOGGED, None]
    right = rng.random((LOGGED, SAMPLES)) < p
    hacked = rng.random((LOGGED, SAMPLES)) < float(sigmoid(policy.theta[HACK]))
    return [
        {"step": step, "split": "eval", "prompt_id": f"e{j}", "sample": k, "prompt": pool.prompt(j, world),
         "reward": float(right[j, k] or hacked[j, k]), "truth": float(right[j, k])}
        for j in range(LOGGED) for k in range(SAMPLES)
    ]  # fmt: skip
