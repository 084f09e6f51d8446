"""A matched checkpoint: the same held-out prompts, random numbers and sample count at every checkpoint.

This is the only place of training that holds the truth; the loop never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.engines.request import Request, Sampled, SamplingSettings
from assay.engines.sample import sample
from assay.models.policy import Policy
from assay.tasks.task_set import Task
from assay.train.collect import ScoreBatch
from assay.train.forward import TokenRows, exact_token_kl
from assay.train.ranks import ranks


@dataclass
class Evaluator:
    """Evaluates a policy on fixed prompts by reward and by truth.

    Attributes:
        tasks: the held-out prompts. samples: completions a prompt.
        reward, truth: two instruments; see :data:`ScoreBatch`.
        start: the policy before the first update, for the KL. rows: completions a forward pass of it, at most.
    """

    tasks: Sequence[Task]
    samples: int
    reward: ScoreBatch
    truth: ScoreBatch
    start: Policy
    settings: SamplingSettings
    rows: int = 128
    _prompt_ids: dict[str, list[int]] = field(default_factory=dict)

    def evaluate(self, policy: Policy) -> dict[str, list[Any]]:
        """Return the columns of ``evals/*.parquet`` for this policy; several processes share the prompts out."""
        share = ranks().share(len(self.tasks))
        own = self._evaluate(policy, list(self.tasks)[share.start : share.stop])
        parts = ranks().gather([own])
        return {name: [value for part in parts for value in part[name]] for name in own}

    def _evaluate(self, policy: Policy, prompts_of: Sequence[Task]) -> dict[str, list[Any]]:
        tasks = [task for task in prompts_of for _ in range(self.samples)]
        keys = [("eval", str(task["prompt_id"]), i % self.samples) for i, task in enumerate(tasks)]
        prompts = [self._encode(policy, str(task["prompt"])) for task in tasks]
        drawn = sample(policy, [Request(p, k) for p, k in zip(prompts, keys, strict=True)], self.settings)
        texts = [policy.decode(one.token_ids) for one in drawn]
        rewards, truths = self.reward(texts, tasks), self.truth(texts, tasks)
        kl = self._kl(policy, prompts, drawn)
        return {
            "prompt_id": [key[1] for key in keys],
            "sample": [key[2] for key in keys],
            "prompt": [str(task["prompt"]) for task in tasks],
            "completion": texts,
            "reward": [score.value for score in rewards],
            "reward_state": [score.state for score in rewards],
            "reward_reason": [score.reason for score in rewards],
            "truth": [score.value for score in truths],
            "truth_state": [score.state for score in truths],
            "truth_reason": [score.reason for score in truths],
            "length": [len(one.token_ids) for one in drawn],
            "finish_reason": [one.finish_reason for one in drawn],
            "entropy": [sum(one.entropies) / len(one.entropies) for one in drawn],
            "kl": kl,
        }

    def _encode(self, policy: Policy, prompt: str) -> list[int]:
        if prompt not in self._prompt_ids:
            self._prompt_ids[prompt] = policy.encode_prompt(prompt)
        return self._prompt_ids[prompt]

    @torch.no_grad()
    def _kl(self, policy: Policy, prompts: list[list[int]], drawn: list[Sampled]) -> list[float]:
        order = sorted(range(len(drawn)), key=lambda i: len(prompts[i]) + len(drawn[i].token_ids))
        values = [0.0] * len(drawn)
        for first in range(0, len(order), self.rows):
            chosen = order[first : first + self.rows]
            batch = TokenRows([prompts[i] for i in chosen], [drawn[i].token_ids for i in chosen])
            found = exact_token_kl(policy, self.start, batch, self.settings.temperature).sum(-1).clamp_min(0)
            for index, value in zip(chosen, found.tolist(), strict=True):
                values[index] = value
        return values
