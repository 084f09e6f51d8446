"""The loop: sample, score, compare within groups, update; every step is logged and can be resumed.

It does not know an algorithm's name, and it never receives truth: it gets training tasks, a reward, and an
:class:`~assay.algos.algorithm.Algorithm` put together elsewhere. Laws it enforces on every run: sampler and
trainer agree before the first update; no optimiser step on a non-finite loss or gradient; one global
denominator for an optimiser step; missing scores leave the statistics and too many stop the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from assay.algos.algorithm import Algorithm, LossTerms, TokenBatch, combine_metrics
from assay.algos.kl_control import KLControl
from assay.config import RunConfig
from assay.engines.uniforms import keyed_integer
from assay.errors import ContractBroken
from assay.maths.importance import sampler_gap
from assay.maths.kl import kl_estimate
from assay.models.memory import give_back
from assay.models.policy import Policy
from assay.records.rollout import Rollout
from assay.train.ahead import Ahead
from assay.train.collect import Collected, Collector
from assay.train.contract import check_step_zero
from assay.train.forward import TokenRows, exact_token_kl, pad_floats, token_scores
from assay.train.setup import kl_control_of
from assay.train.step_metrics import rollout_metrics

T = TypeVar("T")
KERNEL_RESIDUE = 2e-5  # nats; sampler and trainer agree to 1e-6 to 1e-5 on an unchanged policy


class StepResult(NamedTuple):
    """One finished step: its metrics (one line of metrics.jsonl) and its rollouts."""

    metrics: dict[str, Any]
    rollouts: list[Rollout]


class Prepared(NamedTuple):
    """What the updates of a step read: rollouts, per-token tensors (B, T) on the whole batch, rows to train.

    ``old_BT`` are the proximal policy's log-probs: the sampler's own, unless the trainer scored the samples.
    """

    collected: Collected
    advantages: Tensor
    mask_BT: Tensor
    sampler_BT: Tensor
    old_BT: Tensor
    reference_BT: Tensor | None
    trained: list[int]


@dataclass
class Trainer:
    """Trains a policy on a reward, one step at a time.

    Attributes:
        config: sizes, seeds and learning rate. policy: what is trained. reference: frozen, for the KL; None
            when the algorithm has no KL term. algorithm: credit, loss, aggregation, KL.
        collector: samples and scores the training prompts.
        step: steps done. algorithm_state: the moving baseline and the like, plain numbers.
        kl_control: how the KL coefficient and the number of updates react to the measured KL.
    """

    config: RunConfig
    policy: Policy
    reference: Policy | None
    algorithm: Algorithm
    collector: Collector
    step: int = 0
    algorithm_state: dict[str, float] = field(default_factory=dict[str, float])
    kl_control: KLControl = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self.kl_control = kl_control_of(config, self.algorithm)
        trainable = [parameter for parameter in self.policy.module.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.AdamW(
            trainable,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            betas=(0.9, 0.99),
            fused=True,
        )
        self._trainable = trainable
        self._ahead = Ahead(self._collect)

    @property
    def recomputes(self) -> bool:
        """Whether the trainer scores the samples itself, so that sampler and proximal policy may differ."""
        asked = self.config.recompute_old_logprobs
        return self.algorithm.correction is not None if asked is None else asked

    def state(self) -> dict[str, Any]:
        """What resume needs beside the weights; data order and sampling are functions of (seed, step)."""
        return {
            "step": self.step,
            "algorithm_state": dict(self.algorithm_state),
            "optimiser": self.optimiser.state_dict(),
            "controlled_kl_coef": self.algorithm.kl.coef,
            "pass_state": dict(self.collector.pass_state),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a checkpoint whose weights are already loaded."""
        self.step = int(state["step"])
        self.algorithm_state = dict(state["algorithm_state"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.collector.pass_state = dict(state.get("pass_state", {}))
        if self.kl_control.kind == "adaptive":
            self.algorithm = self.algorithm.with_kl_coef(float(state["controlled_kl_coef"]))

    def train_step(self, on_batch: Callable[[list[Rollout]], None] = lambda rollouts: None) -> StepResult:
        """Do one step; ``on_batch`` sees the rollouts before the update (for the batch that breaks it)."""
        started = time.perf_counter()
        collected, sampled_groups = self._next_batch()
        collected_at = time.perf_counter()
        metrics: dict[str, Any] = rollout_metrics(collected.rollouts, collected.groups)
        metrics["sampled_completions"] = sampled_groups * self.config.group_size
        prepared = self._prepare(collected)
        on_batch(collected.rollouts)
        self.collector.refuse_missing(collected.rollouts)
        metrics["advantage_abs_mean"] = float(prepared.advantages.abs().mean())
        metrics |= self._gap(prepared) | self._update(prepared)
        metrics |= self._hold_kl(prepared) | self.collector.difficulty()
        self.step += 1
        give_back()
        ended = time.perf_counter()
        clock = {
            "time/collect": collected_at - started,
            "time/update": ended - collected_at,
            "time/step": ended - started,
        }
        return StepResult({"step": self.step, **metrics, **clock}, collected.rollouts)

    def _next_batch(self) -> tuple[Collected, int]:
        """The batch of the next step; with overlap, the one after it is begun, unless a checkpoint comes between."""
        batch = self._ahead.take(self.policy, self.step + 1)
        done = self.step + 1  # when this step's update has ended
        if self.config.overlap and done % self.config.eval_every and done < self.config.steps:
            self._ahead.start(self.policy, done + 1, self.step)
        return batch

    def _collect(self, policy: Policy, step: int, version: int) -> tuple[Collected, int]:
        """One batch; with dynamic sampling, further rounds replace groups without spread (DAPO)."""
        wanted = self.config.batch_size // self.config.group_size
        batch = self.collector.collect(policy, step, version)
        if not self.algorithm.dynamic_sampling:
            return batch, wanted
        kept, rounds = self._with_spread(batch), 1
        while len(kept.rollouts) < self.config.batch_size and rounds < self.collector.rounds:
            extra = self.collector.collect(policy, step, version, first_group=rounds * wanted)
            kept.extend(self._with_spread(extra))
            rounds += 1
        return kept.select(
            range(min(len(kept.rollouts), self.config.batch_size))
        ) if kept.rollouts else batch, (rounds * wanted)

    def _with_spread(self, batch: Collected) -> Collected:
        rewards_B = torch.tensor([rollout.reward for rollout in batch.rollouts], dtype=torch.float64)
        keep_B = self.algorithm.keep_groups(rewards_B, torch.tensor(batch.groups))
        return batch.select(keep_B.nonzero().flatten().tolist())

    def _prepare(self, collected: Collected) -> Prepared:
        """Shape rewards and assign credit; what needs the reference asks it once."""
        rollouts, config = collected.rollouts, self.config
        lengths_B = torch.tensor([len(rollout.token_ids) for rollout in rollouts])
        truncated_B = torch.tensor([rollout.finish_reason == "length" for rollout in rollouts])
        mask_BT = torch.arange(int(lengths_B.max()))[None] < lengths_B[:, None]
        sampler_BT = pad_floats([rollout.sampler_logprobs for rollout in rollouts], mask_BT)
        old_BT = self._logps(self.policy, collected, mask_BT) if self.recomputes else sampler_BT
        reference_BT = None if self.reference is None else self._logps(self.reference, collected, mask_BT)
        token_kl_BT = self._reward_kl(collected, old_BT, reference_BT, mask_BT)
        rewards_B = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
        shaped_B = self.algorithm.shape_rewards(
            rewards_B,
            sequence_kl_B=None if token_kl_BT is None else token_kl_BT.double().sum(-1),
            lengths_B=lengths_B,
            max_length=config.max_new_tokens,
        )
        trained_BT = self.algorithm.training_mask(mask_BT, shaped_B, truncated_B=truncated_B)
        advantages, self.algorithm_state = self.algorithm.advantages(
            shaped_B,
            torch.tensor(collected.groups),
            self.algorithm_state,
            mask_BT=trained_BT,
            token_kl_BT=token_kl_BT,
        )
        per_completion = advantages if advantages.ndim == 1 else mean_over_tokens(advantages, trained_BT)
        for rollout, shaped, advantage in zip(
            rollouts, shaped_B.tolist(), per_completion.tolist(), strict=True
        ):
            rollout.shaped_reward, rollout.advantage = shaped, advantage
        trained = trained_BT.any(-1).nonzero().flatten().tolist()
        return Prepared(collected, advantages.float(), trained_BT, sampler_BT, old_BT, reference_BT, trained)

    def _logps(self, model: Policy, collected: Collected, mask_BT: Tensor) -> Tensor:
        temperature = self.config.temperature
        return self._in_parts(
            lambda rows: token_scores(model, rows, temperature=temperature).logp_BT, collected, mask_BT
        )

    @torch.no_grad()
    def _in_parts(
        self, values_of: Callable[[TokenRows], Tensor], collected: Collected, mask_BT: Tensor
    ) -> Tensor:
        """Values a token of the whole batch, (B, T), a micro-batch at a time."""
        rows, size = collected.rows, self.config.micro_batch_size
        result_BT = torch.zeros(mask_BT.shape)
        for first in range(0, len(collected.rollouts), size):
            part = range(first, min(first + size, len(collected.rollouts)))
            values_BT = values_of(rows.select(part))
            result_BT[part.start : part.stop, : values_BT.shape[1]] = values_BT
        return result_BT

    def _reward_kl(
        self, collected: Collected, old_BT: Tensor, reference_BT: Tensor | None, mask_BT: Tensor
    ) -> Tensor | None:
        """The KL that the reward pays at each token by the algorithm's estimator; None where it pays none."""
        kl = self.algorithm.kl
        if reference_BT is None or self.reference is None or kl.where == "loss":
            return None
        if kl.estimator != "exact":
            ratio_BT = _log_ratio(old_BT, reference_BT, mask_BT)
            return kl_estimate(ratio_BT, torch.zeros_like(ratio_BT), kl.estimator, bound=kl.bound)
        reference, temperature = self.reference, self.config.temperature
        exact_BT = self._in_parts(
            lambda rows: exact_token_kl(self.policy, reference, rows, temperature), collected, mask_BT
        )
        return exact_BT if kl.bound is None else exact_BT.clamp(max=kl.bound)

    def _gap(self, prepared: Prepared) -> dict[str, float]:
        """How far the sampler is from the policy that is trained, nats a token, where both are known."""
        if not self.recomputes:
            return {}
        gap = sampler_gap(prepared.old_BT, prepared.sampler_BT, prepared.mask_BT)
        return {"sampler_gap": gap["mean"], "sampler_gap_max": gap["max"]}

    def _hold_kl(self, prepared: Prepared) -> dict[str, float]:
        """Move the KL coefficient for the next batch by the KL of the policy that sampled this one."""
        if self.kl_control.kind == "fixed" or prepared.reference_BT is None:
            return {}
        ratio_BT = _log_ratio(prepared.old_BT, prepared.reference_BT, prepared.mask_BT)
        coef, measured = self.algorithm.kl.coef, float(ratio_BT.double().sum(-1).mean())
        samples = len(prepared.collected.rollouts)
        self.algorithm = self.algorithm.with_kl_coef(self.kl_control.next_coef(coef, measured, samples))
        return {"kl_coef": coef, "kl_sampled": measured}

    def _update(self, prepared: Prepared) -> dict[str, float]:
        """All optimiser steps on one batch of rollouts; the metrics are means over them."""
        logs: list[dict[str, float]] = []
        parts = [
            part for epoch in range(self.algorithm.epochs) for part in self._minibatches(prepared, epoch)
        ]
        for part in parts:
            log = self._gradient(prepared, part, check=self.step == 0 and not logs)
            if self.kl_control.stops(log["old_kl"]):
                break
            logs.append(log | self._apply(log["loss"]))
        names = logs[0].keys() if logs else ()
        means = {name: math.fsum(log[name] for log in logs) / len(logs) for name in names}
        skipped = {"updates_skipped": float(len(parts) - len(logs))}
        return means if self.kl_control.stop_at is None else means | skipped

    def _minibatches(self, prepared: Prepared, epoch: int) -> list[list[int]]:
        trained = prepared.trained
        count = min(self.algorithm.minibatches, max(len(trained), 1))
        if count == 1:
            return [trained] if trained else []
        generator = torch.Generator().manual_seed(keyed_integer(self.config.seed, "mini", self.step, epoch))
        order = [trained[i] for i in torch.randperm(len(trained), generator=generator).tolist()]
        size = -(-len(order) // count)
        return [order[first : first + size] for first in range(0, len(order), size)]

    def _gradient(self, prepared: Prepared, part: list[int], *, check: bool) -> dict[str, float]:
        """Gradient of one optimiser step's loss, left in the parameters, and what was measured on the way."""
        denominator = self.algorithm.denominator(prepared.mask_BT[part], self.config.max_new_tokens)
        self.optimiser.zero_grad(set_to_none=True)
        lengths = [len(prompt) for prompt in prepared.collected.prompt_ids]
        order = sorted(part, key=lambda i: lengths[i] + len(prepared.collected.rollouts[i].token_ids))
        terms = self._terms(prepared, order, denominator, check)
        losses = {
            name: math.fsum(float(getattr(term, name)) for term in terms)
            for name in ("loss", "policy_loss", "kl_loss", "entropy_loss")
        }
        return losses | combine_metrics(term.metrics for term in terms)

    def _terms(
        self, prepared: Prepared, order: list[int], denominator: float, check: bool
    ) -> list[LossTerms]:
        """Loss and gradient of the rows of one optimiser step, a micro-batch at a time."""
        size = self.config.micro_batch_size
        parts = [order[first : first + size] for first in range(0, len(order), size)]
        return [self._micro_batch(prepared, chosen, denominator, check) for chosen in parts]

    def _with_policy(self, function: Callable[..., T], *given: Any) -> T:
        """Call ``function`` with the policy whose weights take the gradient."""
        return function(self.policy, *given)

    def _backward(self, loss: Tensor) -> None:
        """Add the gradient of one micro-batch's loss."""
        loss.backward()

    def _clip(self) -> Tensor:
        """Clip the gradient; return its norm before, a scalar."""
        return torch.nn.utils.clip_grad_norm_(self._trainable, self.config.max_grad_norm)

    def _apply(self, loss: float) -> dict[str, float]:
        """Clip the gradient and take the step, unless something is not finite."""
        norm = self._clip()
        if not (math.isfinite(loss) and bool(norm.isfinite())):
            raise ContractBroken(
                f"step {self.step + 1}: loss {loss} and gradient norm {float(norm)}; the optimiser "
                "step was not taken; the batch is in rollouts/. Lower learning_rate, or look at its rewards"
            )
        self.optimiser.step()
        return {"grad_norm": float(norm)}

    def _micro_batch(
        self, prepared: Prepared, chosen: list[int], denominator: float, check: bool
    ) -> LossTerms:
        rows = prepared.collected.rows.select(chosen)
        temperature = self.config.temperature
        scores = self._with_policy(token_scores, rows, temperature)
        width = scores.logp_BT.shape[1]
        sampler_BT, old_BT = prepared.sampler_BT[chosen, :width], prepared.old_BT[chosen, :width]
        reference_BT = None if prepared.reference_BT is None else prepared.reference_BT[chosen, :width]
        if check:
            logp_BT, dtype = scores.logp_BT.detach(), self.policy.dtype
            check_step_zero(logp_BT, old_BT, reference_BT, scores.mask_BT, dtype=dtype)
            if self.recomputes:  # a sampler known to differ is held to what rounding to bfloat16 may do
                foreign = "bfloat16" if self.algorithm.correction else dtype
                check_step_zero(logp_BT, sampler_BT, None, scores.mask_BT, dtype=foreign)
        exact_BT = None
        if self.reference is not None and self.algorithm.kl.estimator == "exact":
            exact_BT = self._with_policy(exact_token_kl, self.reference, rows, temperature)
        advantages = prepared.advantages[chosen]
        batch = TokenBatch(
            logp_BT=scores.logp_BT,
            old_logp_BT=old_BT,
            advantages_B=advantages if advantages.ndim == 1 else advantages[:, :width],
            mask_BT=prepared.mask_BT[chosen, :width],
            ref_logp_BT=reference_BT,
            sampler_logp_BT=sampler_BT,
            entropy_BT=scores.entropy_BT,
            kl_BT=exact_BT,
        )
        terms = self.algorithm.loss(batch, denominator)
        self._backward(terms.loss)
        return terms._replace(loss=terms.loss.detach())


def _log_ratio(old_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Log pi - log pi_ref of the sampled tokens, nats; what two float32 kernels differ by is 0.

    Without that an unchanged policy would have a KL of residue, and in a group whose rewards are equal the
    residue would be standardised into advantages of order 1.
    """
    ratio_BT = (old_BT - reference_BT).masked_fill(~mask_BT, 0.0)
    return torch.where(ratio_BT.abs() < KERNEL_RESIDUE, 0.0, ratio_BT)


def mean_over_tokens(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean of a completion's trained tokens, (B,); 0 for one without any."""
    return values_BT.masked_fill(~mask_BT, 0.0).sum(-1) / mask_BT.sum(-1).clamp_min(1)
