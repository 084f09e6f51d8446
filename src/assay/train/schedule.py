"""Which prompts are trained on when: a pure function of (seed, place), so that resume restores nothing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from assay.engines.uniforms import keyed_integer


def prompts_of_step(first: int, *, seed: int, tasks: int, prompts: int) -> list[int]:
    """Indices of ``prompts`` prompts from place ``first`` on: epochs are keyed permutations, end to end."""
    return [
        _permutation(seed, place // tasks, tasks)[place % tasks] for place in range(first, first + prompts)
    ]


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, tasks: int) -> list[int]:
    generator = np.random.default_rng(keyed_integer(seed, "epoch", epoch))
    return generator.permutation(tasks).tolist()
