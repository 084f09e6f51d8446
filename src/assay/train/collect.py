"""Collecting the rollouts of a step: sample G completions a prompt, score them, keep count of what was lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.algos.curriculum import Curriculum, State, difficulty_metrics
from assay.config import RunConfig
from assay.engines.request import Request, Sampled, SamplingSettings
from assay.engines.sample import sample
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, RunStopped
from assay.models.policy import Policy
from assay.records.rollout import Rollout
from assay.records.score import Score
from assay.tasks.task_set import Task
from assay.train.forward import TokenRows
from assay.train.schedule import prompts_of_step

ScoreBatch = Callable[[Sequence[str], Sequence[Task]], list[Score]]
"""Scores completions against their tasks, in order."""

Sampler = Callable[[Policy, Sequence[Request], SamplingSettings], list[Sampled]]
"""Draws one completion a request, in order: this package's own engine, or a client of another."""

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
    """Samples and scores; a completion depends on (seed, step, place, prompt_id, sample) and weights alone.

    With a curriculum, which prompts are drawn depends also on ``pass_state``: the passes and tries of each
    prompt so far, which a checkpoint keeps.
    """

    config: RunConfig
    tasks: Sequence[Task]
    score: ScoreBatch
    rounds: int = 1  # rounds a step may take: MOST_ROUNDS under dynamic sampling
    pass_state: State = field(default_factory=dict[str, tuple[float, float]])
    sampler: Sampler = sample

    def __post_init__(self) -> None:
        config = self.config
        options = config.curriculum
        self.curriculum = None if options is None else Curriculum(**options.model_dump())
        self._task_of = {str(task["prompt_id"]): task for task in self.tasks}
        prompts = config.batch_size // config.group_size
        if self.curriculum is not None and prompts > len(self._task_of):
            raise BadInput(
                f"a curriculum draws different prompts: expected at least {prompts} tasks (batch_size / "
                f"group_size), got {len(self._task_of)}; add tasks, or lower batch_size"
            )
        self.settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)

    def collect(self, policy: Policy, step: int, version: int, *, first_group: int = 0) -> Collected:
        """Sample and score one batch for ``step``; ``first_group`` > 0 is a later round of the same step."""
        config = self.config
        prompts = config.batch_size // config.group_size
        tasks, keys, groups = [], [], []
        for offset, task in enumerate(
            self._tasks_of((step - 1) * prompts * self.rounds + first_group, prompts)
        ):
            group = first_group + offset
            for index in range(config.group_size):
                tasks.append(task)
                groups.append(group)
                # the group's number tells two draws of one prompt within a step apart
                keys.append((f"train:{step}:{group}", str(task["prompt_id"]), index))
        prompt_ids = [policy.encode_prompt(str(task["prompt"])) for task in tasks]
        requests = [Request(ids, key) for ids, key in zip(prompt_ids, keys, strict=True)]
        rollouts = self._draw(policy, step, version, tasks, requests)
        self._observe(rollouts)
        return Collected(rollouts, prompt_ids, groups)

    def _draw(
        self, policy: Policy, step: int, version: int, tasks: Sequence[Task], requests: Sequence[Request]
    ) -> list[Rollout]:
        """Sample and score; one rollout a request, in their order."""
        drawn = self.sampler(policy, requests, self.settings)
        rollouts = [
            _rollout(policy, step, version, task, request.key[2], one)
            for task, request, one in zip(tasks, requests, drawn, strict=True)
        ]
        drawn_tasks = [
            {**task, "draw": keyed_integer(self.config.seed, *request.key)}
            for task, request in zip(tasks, requests, strict=True)
        ]
        self._score(rollouts, drawn_tasks)
        return rollouts

    def _tasks_of(self, first: int, prompts: int) -> list[Task]:
        """The tasks of the places from ``first`` on: in the order of the epochs, or by pass rate."""
        if self.curriculum is None:
            places = prompts_of_step(first, seed=self.config.seed, tasks=len(self.tasks), prompts=prompts)
            return [self.tasks[place] for place in places]
        chosen = self.curriculum.choose(
            self.pass_state, list(self._task_of), prompts, seed=self.config.seed, step=first // prompts
        )
        return [self._task_of[prompt] for prompt in chosen]

    def _observe(self, rollouts: Sequence[Rollout]) -> None:
        if self.curriculum is not None:
            prompts = [rollout.prompt_id for rollout in rollouts]
            self.pass_state = self.curriculum.update(
                self.pass_state, prompts, [rollout.reward for rollout in rollouts]
            )

    def difficulty(self) -> dict[str, float]:
        """Prompts by their running pass rate; nothing without a curriculum."""
        return {} if self.curriculum is None else difficulty_metrics(self.pass_state, self._task_of)

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
