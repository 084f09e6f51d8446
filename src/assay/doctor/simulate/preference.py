"""A preference run (DPO) on pairs of answers, each a direction in a small space of features."""

from __future__ import annotations

import numpy as np

from assay.doctor.simulate.loop import State
from assay.doctor.simulate.policy import new_policy
from assay.doctor.simulate.world import World

PAIRS, WIDTH, BATCH = 256, 24, 32
LENGTH = 40.0  # tokens of an answer: a feature is worth this many nats
BETA = 0.1


def preferences(world: World, seed: int) -> State:
    """Run DPO and keep the numbers of each step.

    Args:
        world: ``overlap``, how strongly a rejected answer moves along with its chosen one (0: they move apart;
            above 1: both fall), ``steps``, ``learning_rate``, ``logged_rate``. seed: everything random.
    """
    rng = np.random.default_rng([seed, 17])
    chosen = rng.normal(size=(PAIRS, WIDTH)) / np.sqrt(WIDTH) + rng.normal(size=WIDTH) / np.sqrt(WIDTH)
    other = rng.normal(size=(PAIRS, WIDTH)) / np.sqrt(WIDTH)
    rejected = (world.overlap or 0.0) * chosen + 0.7 * other
    start = -1.1 * LENGTH + rng.normal(0, 4, (2, PAIRS))
    theta, rows = np.zeros(WIDTH), list[dict[str, float]]()
    for step in range(1, world.steps + 1):
        at = rng.permutation(PAIRS)[:BATCH]
        moved = LENGTH * np.stack([chosen[at], rejected[at]]) @ theta
        margin = BETA * (moved[0] - moved[1])
        push = 1 / (1 + np.exp(margin))
        gradient = (push[:, None] * (chosen[at] - rejected[at])).mean(axis=0) * BETA * LENGTH
        theta = theta + world.learning_rate * gradient
        logps = start[:, at] + moved
        rows.append(
            {"step": step, "loss": float(np.log1p(np.exp(-margin)).mean()), "learning_rate": world.logged_rate,
             "gradient_norm": float(np.linalg.norm(gradient)), "logps/chosen": float(logps[0].mean()),
             "logps/rejected": float(logps[1].mean()), "rewards/chosen": float(BETA * moved[0].mean()),
             "rewards/rejected": float(BETA * moved[1].mean()), "rewards/margins": float(margin.mean()),
             "rewards/accuracies": float((margin > 0).mean())}
        )  # fmt: skip
    return State(new_policy(world, rng), metrics=rows)
