"""Collecting the rollouts of a step: sample G completions a prompt, score them, keep count of what was lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.config import RunConfig
from assay.engines.request import Request, Sampled, SamplingSettings
from assay.engines.sample import sample
from assay.engines.uniforms import keyed_integer
from assay.errors import RunStopped
from assay.models.policy import Policy
from assay.records.rollout import Rollout
from assay.records.score import Score
from assay.tasks.task_set import Task
from assay.train.forward import TokenRows
from assay.train.schedule import prompts_of_step

ScoreBatch = Callable[[Sequence[str], Sequence[Task]], list[Score]]
"""Scores completions against their tasks, in order."""

MOST_ROUNDS = 5  # of dynamic sampling: a step never samples more than this many times its batch


@dataclass
class Collected:
    """The rollouts of a step with the ids of their prompts; ``group`` numbers are unique within the step."""

    rollouts: list[Rollout] = field(default_factory=list[Rollout])
    prompt_ids: list[list[int]] = field(default_factory=list[list[int]])
    groups: list[int] = field(default_factory=list[int])

    @property
    def rows(self) -> TokenRows:
        """Prompts and completions as ids."""
        return TokenRows(self.prompt_ids, [rollout.token_ids for rollout in self.rollouts])

    def extend(self, other: Collected) -> None:
        """Append another round."""
        self.rollouts += other.rollouts
        self.prompt_ids += other.prompt_ids
        self.groups += other.groups

    def select(self, indices: Sequence[int]) -> Collected:
        """The given rollouts."""
        return Collected(
            [self.rollouts[i] for i in indices],
            [self.prompt_ids[i] for i in indices],
            [self.groups[i] for i in indices],
        )


@dataclass
class Collector:
    """Samples and scores; a completion depends on (seed, step, place, prompt_id, sample) and weights alone."""

    config: RunConfig
    tasks: Sequence[Task]
    score: ScoreBatch
    rounds: int = 1  # rounds a step may take: MOST_ROUNDS under dynamic sampling

    def __post_init__(self) -> None:
        config = self.config
        self.settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)

    def collect(self, policy: Policy, step: int, version: int, *, first_group: int = 0) -> Collected:
        """Sample and score one batch for ``step``; ``first_group`` > 0 is a later round of the same step."""
        config = self.config
        prompts = config.batch_size // config.group_size
        first = (step - 1) * prompts * self.rounds + first_group
        places = prompts_of_step(first, seed=config.seed, tasks=len(self.tasks), prompts=prompts)
        tasks, keys, groups = [], [], []
        for offset, place in enumerate(places):
            task, group = self.tasks[place], first_group + offset
            for index in range(config.group_size):
                tasks.append(task)
                groups.append(group)
                # the group's number tells two draws of one prompt within a step apart
                keys.append((f"train:{step}:{group}", str(task["prompt_id"]), index))
        prompt_ids = [policy.encode_prompt(str(task["prompt"])) for task in tasks]
        requests = [Request(ids, key) for ids, key in zip(prompt_ids, keys, strict=True)]
        drawn = sample(policy, requests, self.settings)
        rollouts = [
            _rollout(policy, step, version, task, key[2], one)
            for task, key, one in zip(tasks, keys, drawn, strict=True)
        ]
        drawn_tasks = [
            {**task, "draw": keyed_integer(config.seed, *key)} for task, key in zip(tasks, keys, strict=True)
        ]
        self._score(rollouts, drawn_tasks)
        return Collected(rollouts, prompt_ids, groups)

    def _score(self, rollouts: list[Rollout], tasks: list[dict[str, Any]]) -> None:
        scores = self.score([rollout.reward_text for rollout in rollouts], tasks)
        for rollout, score in zip(rollouts, scores, strict=True):
            rollout.reward, rollout.reward_state = score.value, score.state
            rollout.reward_reason, rollout.reward_parts = score.reason, score.parts

    def refuse_missing(self, rollouts: Sequence[Rollout]) -> None:
        """Stop the run when too much of a step has no score; the message shows the first sample."""
        lost = [rollout for rollout in rollouts if rollout.reward_state != "scored"]
        if len(lost) > self.config.max_missing * len(rollouts):
            first = lost[0]
            raise RunStopped(
                f"step {first.step}: {len(lost)} of {len(rollouts)} completions have no score (max_missing="
                f"{self.config.max_missing}); first: prompt {first.prompt_id} sample {first.sample}, "
                f"{first.reward_state}: {first.reward_reason}; mend the reward, then go on with --resume"
            )


def _rollout(policy: Policy, step: int, version: int, task: Task, index: int, one: Sampled) -> Rollout:
    text = policy.decode(one.token_ids)
    return Rollout(
        step=step,
        prompt_id=str(task["prompt_id"]),
        sample=index,
        prompt=str(task["prompt"]),
        completion=text,
        token_ids=one.token_ids,
        sampler_logprobs=one.logprobs,
        finish_reason=one.finish_reason,
        reward_text=text,
        policy_version=version,
        entropy=math.fsum(one.entropies) / len(one.entropies),
    )
