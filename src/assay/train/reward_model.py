"""A reward model from comparisons: Bradley-Terry on any policy's backbone, read at the last real token.

K heads, each on its own bootstrap of the comparisons, share the backbone: their mean is the reward, their
disagreement says where it was never taught. Sources: Ouyang et al. 2203.02155; Coste et al. 2310.02743.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, ContractBroken, nearest
from assay.maths.preference import bradley_terry_loss
from assay.models.heads import ScalarModel
from assay.models.policy import Policy
from assay.records.score import Score, scored
from assay.tasks.task_set import Task
from assay.train.forward import TokenRows
from assay.train.preference_data import Pair, PairRows

Combine = Literal["mean", "min", "penalised"]
SCORED_TOGETHER = 256


@dataclass(frozen=True)
class RewardModelSettings:
    """How a reward model is trained.

    Attributes:
        epochs: passes over the comparisons; more than one overfits small sets. batch_size: comparisons.
        heads: K. centring: weight of the squared sum of a pair's scores, which keeps them around 0.
        use_margins: subtract each pair's ``margin``. held_out: share of the PROMPTS kept for the report.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    heads: int = 4
    centring: float = 0.01
    use_margins: bool = False
    held_out: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1 or self.epochs < 1 or self.batch_size < 1:
            raise BadInput(
                f"expected held_out in [0, 1), epochs and batch_size of at least 1, got {self.held_out}, "
                f"{self.epochs} and {self.batch_size}"
            )


def split_by_prompt(pairs: Sequence[Pair], share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out comparisons; no prompt is on both sides."""

    def held_out(prompt: str) -> bool:
        return keyed_integer(seed, "held-out", prompt) / 2**63 < share

    train = [pair for pair in pairs if not held_out(pair.prompt)]
    return train, [pair for pair in pairs if held_out(pair.prompt)]


def train_reward_model(
    policy: Policy,
    pairs: Sequence[Pair],
    settings: RewardModelSettings,
    *,
    progress: Callable[[int, int, float], None] = lambda update, of, loss: None,
) -> ScalarModel:
    """Train a scalar model on comparisons; ``policy`` gives the backbone to start from and is not changed.

    Raises:
        BadInput: no comparisons. ContractBroken: a loss that is not finite.
    """
    if not pairs:
        raise BadInput("expected comparisons to learn a reward from, got none")
    model = ScalarModel(policy, heads=settings.heads)
    rows = PairRows(policy, pairs)
    weights_NK = bootstrap_weights(len(pairs), settings.heads, settings.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    plan = _plan(len(pairs), settings)
    for update, batch in enumerate(plan):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * (1 - 0.9 * update / len(plan))
        loss = pair_losses(model, rows, batch, settings) * weights_NK[batch]
        total = loss.mean()
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not (bool(total.isfinite()) and bool(norm.isfinite())):
            raise ContractBroken(f"reward model, update {update + 1}: loss {float(total.detach())}")
        optimiser.step()
        progress(update + 1, len(plan), float(total.detach()))
    model.requires_grad_(False).eval()
    return model


def bootstrap_weights(pairs: int, heads: int, seed: int) -> Tensor:
    """How often each head sees each comparison, (N, K); one head alone sees every comparison once."""
    if heads == 1:
        return torch.ones(pairs, 1)
    generator = np.random.default_rng(keyed_integer(seed, "bootstrap"))
    counts = [np.bincount(generator.integers(0, pairs, size=pairs), minlength=pairs) for _ in range(heads)]
    return torch.from_numpy(np.stack(counts, axis=1)).float()


def _plan(pairs: int, settings: RewardModelSettings) -> list[list[int]]:
    batches: list[list[int]] = []
    for epoch in range(settings.epochs):
        generator = np.random.default_rng(keyed_integer(settings.seed, "reward-model", epoch))
        order = generator.permutation(pairs).tolist()
        batches += [order[i : i + settings.batch_size] for i in range(0, pairs, settings.batch_size)]
    return batches


def pair_losses(
    model: ScalarModel, rows: PairRows, batch: Sequence[int], settings: RewardModelSettings
) -> Tensor:
    """Bradley-Terry losses of a batch under every head, (B, K)."""
    chosen_BK, rejected_BK = pair_scores(model, rows, batch)
    margins = [rows.pairs[index].margin if settings.use_margins else 0.0 for index in batch]
    return bradley_terry_loss(
        chosen_BK, rejected_BK, margin_B=torch.tensor(margins)[:, None], centring=settings.centring
    )


def pair_scores(model: ScalarModel, rows: PairRows, batch: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Scores of chosen and rejected, each (B, K), in one forward pass."""
    chosen, rejected = rows.chosen.select(batch), rows.rejected.select(batch)
    scores_2BK = model.last_token(
        [*chosen.prompt_ids, *rejected.prompt_ids], [*chosen.completion_ids, *rejected.completion_ids]
    )
    return scores_2BK[: len(batch)], scores_2BK[len(batch) :]


@torch.no_grad()
def score_rows(model: ScalarModel, rows: TokenRows) -> Tensor:
    """Scores of any number of rows, (N, K), rows of like length together."""
    count = len(rows.prompt_ids)
    order = sorted(range(count), key=lambda i: len(rows.prompt_ids[i]) + len(rows.completion_ids[i]))
    result_NK = torch.zeros(count, model.heads)
    for first in range(0, count, SCORED_TOGETHER):
        chosen = order[first : first + SCORED_TOGETHER]
        part = rows.select(chosen)
        result_NK[chosen] = model.last_token(part.prompt_ids, part.completion_ids)
    return result_NK


def calibrate(model: ScalarModel, rows: TokenRows) -> None:
    """Set each head's mean to 0 and deviation to 1 on these rows: samples of the start policy, usually.

    A reward from comparisons has no zero and no scale of its own; this gives a KL coefficient a unit.
    """
    model.head.mean_K.zero_()
    model.head.scale_K.fill_(1.0)
    scores_NK = score_rows(model, rows)
    if len(scores_NK) < 2 or bool((scores_NK.std(0) < 1e-6).any()):
        raise BadInput("the reward model gives every sample the same score; it learned nothing to scale")
    model.head.mean_K.copy_(scores_NK.mean(0))
    model.head.scale_K.copy_(scores_NK.std(0))


@dataclass
class LearnedReward:
    """A reward model as a reward: call it with completions and their tasks, like any scorer.

    Attributes:
        combine: ``mean`` of the heads; ``min`` (the worst head); ``penalised`` (mean minus ``penalty`` times
            the heads' variance).
    """

    model: ScalarModel
    combine: Combine = "mean"
    penalty: float = 1.0
    _prompts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def __post_init__(self) -> None:
        if self.combine not in get_args(Combine):
            raise BadInput(f"expected combine {', '.join(get_args(Combine))}, got {self.combine!r}"
                           f"{nearest(self.combine, get_args(Combine))}")  # fmt: skip

    def __call__(self, completions: Sequence[str], tasks: Sequence[Task]) -> list[Score]:
        """Scores in order; ``parts`` has the heads' deviation, the sign that nobody taught this region."""
        policy = self.model.policy
        rows = TokenRows(
            [self._encode(str(task["prompt"])) for task in tasks],
            [policy.encode_completion(completion) for completion in completions],
        )
        scores_NK = score_rows(self.model, rows)
        spread_N = scores_NK.std(1, correction=0)
        match self.combine:
            case "mean":
                value_N = scores_NK.mean(1)
            case "min":
                value_N = scores_NK.amin(1)
            case "penalised":
                value_N = scores_NK.mean(1) - self.penalty * spread_N.square()
        pairs = zip(value_N.tolist(), spread_N.tolist(), strict=True)
        return [scored(value, parts={"disagreement": spread}) for value, spread in pairs]

    def _encode(self, prompt: str) -> list[int]:
        if prompt not in self._prompts:
            self._prompts[prompt] = self.model.policy.encode_prompt(prompt)
        return self._prompts[prompt]


def save_reward_model(folder: Path, model: ScalarModel) -> None:
    """Write a reward model so that it appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        model.save(temporary)
        for path in temporary.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
