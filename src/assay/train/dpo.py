"""Training on pairs: a fixed set of comparisons, or fresh ones from the current policy.

The reference's log-probs of a fixed set are computed once. At the first step the margin is 0 and the DPO loss
ln 2, or the run stops: anything else means another reference, dropout or another precision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.algos.dpo import PairLogps, Preference
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, ContractBroken
from assay.maths.preference import preference_metrics
from assay.models.policy import Policy
from assay.records.rollout import Rollout
from assay.train.collect import Collected
from assay.train.forward import TokenRows, token_scores
from assay.train.preference_data import PairRows
from assay.train.step_metrics import rollout_metrics
from assay.train.trainer import StepResult, Trainer

STEP_ZERO_TOLERANCE = 1e-3  # of the summed log-ratio of a pair, nats


@dataclass
class PreferenceTrainer(Trainer):
    """DPO and its relatives.

    Attributes:
        pairs: the fixed comparisons; None for an online method, whose pairs come from the collector.
            ``batch_size`` counts completions, so a step takes half as many fixed pairs.
    """

    pairs: PairRows | None = field(kw_only=True, default=None)
    _reference_logps: PairLogps | None = field(init=False, default=None)

    @property
    def preference(self) -> Preference:
        """The algorithm, as the kind that learns from pairs."""
        if not isinstance(self.algorithm, Preference):
            raise BadInput(f"{self.algorithm.name} does not learn from pairs")
        return self.algorithm

    def train_step(self, on_batch: Callable[[list[Rollout]], None] = lambda rollouts: None) -> StepResult:
        """One optimiser step on a batch of pairs; only online methods have rollouts."""
        started = time.perf_counter()
        if self.preference.online:
            metrics, rollouts, chosen, rejected = self._fresh_pairs(on_batch)
            reference = self._reference_of(chosen, rejected)
        else:
            metrics, rollouts = {}, []
            chosen, rejected, reference = self._fixed_pairs()
        metrics |= self._pair_step(chosen, rejected, reference) if chosen.prompt_ids else {"pairs": 0.0}
        self.step += 1
        return StepResult(
            {"step": self.step, **metrics, "time/step": time.perf_counter() - started}, rollouts
        )

    def _fixed_pairs(self) -> tuple[TokenRows, TokenRows, PairLogps]:
        if self.pairs is None:
            raise BadInput(
                f"{self.algorithm.name} needs comparisons; give learned_reward, or algorithm=online_dpo"
            )
        if self._reference_logps is None:
            self._reference_logps = self._reference_of(self.pairs.chosen, self.pairs.rejected)
        batch = pairs_of_step(
            self.step, seed=self.config.seed, pairs=len(self.pairs), batch=self.config.batch_size // 2
        )
        reference = self._reference_logps.select(batch)
        return self.pairs.chosen.select(batch), self.pairs.rejected.select(batch), reference

    def _fresh_pairs(
        self, on_batch: Callable[[list[Rollout]], None]
    ) -> tuple[dict[str, Any], list[Rollout], TokenRows, TokenRows]:
        collected, _ = self._collect(self.policy, self.step + 1, self.step)
        metrics: dict[str, Any] = dict(rollout_metrics(collected.rollouts, collected.groups))
        on_batch(collected.rollouts)
        self.collector.refuse_missing(collected.rollouts)
        best, worst = best_and_worst(collected)
        return metrics, collected.rollouts, collected.rows.select(best), collected.rows.select(worst)

    @torch.no_grad()
    def _reference_of(self, chosen: TokenRows, rejected: TokenRows) -> PairLogps:
        model = self.reference if self.reference is not None else self.policy
        size = max(self.config.micro_batch_size // 2, 1)
        rows = range(len(chosen.prompt_ids))
        parts = [
            pair_logps(model, chosen.select(part), rejected.select(part), self.config.temperature)
            for part in (rows[first : first + size] for first in range(0, len(rows), size))
        ]
        if not parts:
            return PairLogps(*[torch.zeros(0)] * 4)
        names = ("chosen_B", "rejected_B", "chosen_tokens_B", "rejected_tokens_B")
        return PairLogps(*[torch.cat([getattr(part, name) for part in parts]) for name in names])

    def _pair_step(self, chosen: TokenRows, rejected: TokenRows, reference: PairLogps) -> dict[str, float]:
        count = len(chosen.prompt_ids)
        size = max(self.config.micro_batch_size // 2, 1)
        self.optimiser.zero_grad(set_to_none=True)
        loss, logs, weights = 0.0, list[dict[str, float]](), list[float]()
        for first in range(0, count, size):
            part = list(range(first, min(first + size, count)))
            policy = pair_logps(
                self.policy, chosen.select(part), rejected.select(part), self.config.temperature
            )
            known = reference.select(part)
            if self.step == 0:
                _check_start(policy, known, self.reference is not None)
            share = self.preference.pair_losses(policy, known).sum() / count
            share.backward()
            loss += float(share.detach())
            logs.append(_measure(self.preference, policy, known))
            weights.append(len(part) / count)
        norm = torch.nn.utils.clip_grad_norm_(self._trainable, self.config.max_grad_norm)
        if not (math.isfinite(loss) and bool(norm.isfinite())):
            raise ContractBroken(
                f"step {self.step + 1}: loss {loss} and gradient norm {float(norm)}; no step was taken; lower "
                "learning_rate"
            )
        self.optimiser.step()
        means = {
            name: math.fsum(w * log[name] for w, log in zip(weights, logs, strict=True)) for name in logs[0]
        }
        return {"loss": loss, "grad_norm": float(norm), "pairs": float(count), **means}


def pair_logps(policy: Policy, chosen: TokenRows, rejected: TokenRows, temperature: float = 1.0) -> PairLogps:
    """Summed log-probs of both sides of every pair in one forward pass."""
    count = len(chosen.prompt_ids)
    rows = TokenRows(
        [*chosen.prompt_ids, *rejected.prompt_ids], [*chosen.completion_ids, *rejected.completion_ids]
    )
    scores = token_scores(policy, rows, temperature=temperature)
    sums, tokens = scores.logp_BT.sum(-1), scores.mask_BT.sum(-1).float()
    return PairLogps(sums[:count], sums[count:], tokens[:count], tokens[count:])


def pairs_of_step(step: int, *, seed: int, pairs: int, batch: int) -> list[int]:
    """Which pairs a step takes: keyed permutations end to end, a function of (seed, step) alone."""
    first = step * batch

    def place(index: int) -> int:
        order = np.random.default_rng(keyed_integer(seed, "pairs", index // pairs)).permutation(pairs)
        return int(order[index % pairs])

    return [place(index) for index in range(first, first + max(batch, 1))]


def best_and_worst(collected: Collected) -> tuple[list[int], list[int]]:
    """Rows of the best and the worst completion of each group; groups without spread or score give none."""
    groups: dict[int, list[int]] = {}
    for row, group in enumerate(collected.groups):
        if not math.isnan(collected.rollouts[row].reward):
            groups.setdefault(group, []).append(row)

    def reward(row: int) -> float:
        return collected.rollouts[row].reward

    ends = [(max(rows, key=reward), min(rows, key=reward)) for rows in groups.values()]
    kept = [(best, worst) for best, worst in ends if reward(best) - reward(worst) > 1e-9]
    return [best for best, _ in kept], [worst for _, worst in kept]


def _measure(method: Preference, policy: PairLogps, reference: PairLogps) -> dict[str, float]:
    margin_B = method.margin(policy, reference).detach()
    found = preference_metrics(policy.chosen_B, policy.rejected_B, margin_B, reference.chosen_B)
    fallen_B = (policy.rejected_B - reference.rejected_B).detach()
    tokens = float(policy.chosen_tokens_B.mean())
    return {
        **found,
        "rejected_displacement": float(fallen_B.mean()),
        "chosen_displacement_per_token": found["chosen_displacement"] / tokens,
        "reward_chosen": method.beta * found["chosen_displacement"],
        "reward_rejected": method.beta * float(fallen_B.mean()),
    }


def _check_start(policy: PairLogps, reference: PairLogps, has_reference: bool) -> None:
    if not has_reference:
        return
    gaps: Sequence[Tensor] = (policy.chosen_B - reference.chosen_B, policy.rejected_B - reference.rejected_B)
    worst = max(float(gap_B.detach().abs().max()) for gap_B in gaps)
    if worst > STEP_ZERO_TOLERANCE:
        raise ContractBroken(
            f"step 0: policy and reference differ by {worst:.3g} nats on a completion, so the loss is not ln 2: "
            "another reference, dropout, or another precision"
        )


DISPLACED_PER_TOKEN = 0.25  # nats a token that the chosen may lose before it is called displacement


def explain_displacement(displacement: float, per_token: float, margin: float) -> str | None:
    """The sentence shown where chosen and rejected both fall while the margin grows; None when they do not.

    Args:
        displacement, per_token: mean change of the chosen's log-prob since the reference, nats a completion and a
            token. margin: mean margin now.
    """
    if margin <= 0 or per_token >= -DISPLACED_PER_TOKEN:
        return None
    return (
        f"not a bug: the margin grows ({margin:+.2f}); but the chosen log-prob fell by {-displacement:.3g} nats "
        f"({-per_token:.2g} a token): likelihood displacement, probability moves to texts nobody labelled. Look at "
        "samples, lower learning_rate, raise beta, or add sft_coef"
    )
