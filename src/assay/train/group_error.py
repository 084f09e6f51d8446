"""For a sweep of the group size: the error of the advantage on the start policy's own samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from assay.config import RunConfig
from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.stats.group_size import GroupSizeError, group_size_errors
from assay.train.arms import load_start
from assay.train.setup import open_scoring, task_set_of

PROMPTS, SAMPLES = 32, 64


def start_group_errors(config: RunConfig, start: Path, sizes: Sequence[int]) -> list[GroupSizeError]:
    """Sample PROMPTS x SAMPLES completions of the start policy and measure every group size on them."""
    tasks, policy = task_set_of(config), load_start(start, config)
    chosen = [task for task in list(tasks.train)[:PROMPTS] for _ in range(SAMPLES)]
    requests = [
        Request(
            policy.encode_prompt(str(task["prompt"])), ("group-size", str(task["prompt_id"]), i % SAMPLES)
        )
        for i, task in enumerate(chosen)
    ]
    settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)
    drawn = sample(policy, requests, settings)
    with ExitStack() as stack:
        scores = open_scoring(config, tasks, stack).reward(
            [policy.decode(one.token_ids) for one in drawn], chosen
        )
    rewards = np.array([score.value for score in scores]).reshape(-1, SAMPLES)
    scored = rewards[np.isfinite(rewards).all(1)]
    return group_size_errors(scored, sizes)
