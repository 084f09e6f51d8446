"""The trainer with a critic: advantages of each token by GAE, and a value loss beside the policy's.

The critic is a model of its own, started from the policy's weights with a head that says 0. Its weights and its
optimiser state are part of a checkpoint, so a resumed run is the same bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.algos.algorithm import LossTerms
from assay.algos.ppo import ActorCritic
from assay.errors import BadInput
from assay.maths.aggregation import aggregate
from assay.maths.masking import masked_mean, whiten
from assay.maths.rewards import place_on_last_token
from assay.maths.value import explained_variance, gae, value_loss
from assay.models.heads import ScalarModel
from assay.train.collect import Collected
from assay.train.trainer import Prepared, Trainer, mean_over_tokens

WHITEN_EPSILON = 1e-8


@dataclass
class ActorCriticTrainer(Trainer):
    """PPO: the loop of :class:`Trainer` with a critic.

    Attributes:
        critic: values of the states before each token; trained by the same optimiser.
    """

    critic: ScalarModel = field(kw_only=True)
    _old_values_BT: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0))
    _returns_BT: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0))
    _value_losses: list[float] = field(init=False, default_factory=list[float])

    def __post_init__(self) -> None:
        super().__post_init__()
        own = list(self.critic.parameters())
        self.optimiser.add_param_group({"params": own})
        self._trainable = [*self._trainable, *own]

    @property
    def actor_critic(self) -> ActorCritic:
        """The algorithm, as the kind that has a critic."""
        if not isinstance(self.algorithm, ActorCritic):
            raise BadInput(f"{self.algorithm.name} has no critic; use its own trainer")
        return self.algorithm

    def state(self) -> dict[str, Any]:
        """Adds the critic."""
        return super().state() | {"critic": self.critic.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the critic too."""
        super().restore(state)
        self.critic.load_state_dict(state["critic"])

    def _prepare(self, collected: Collected) -> Prepared:
        prepared = super()._prepare(collected)
        critic, mask_BT = self.actor_critic.critic, prepared.mask_BT
        self._old_values_BT = self._values(collected, mask_BT)
        rewards_BT = token_rewards(
            torch.tensor([rollout.shaped_reward for rollout in collected.rollouts]),
            prepared.sampler_BT,
            prepared.reference_BT,
            mask_BT,
            kl_coef=self.algorithm.kl.coef,
        )
        if critic.whiten in ("rewards", "both"):
            # Scaled, not shifted: a shift would pay or charge for length.
            rewards_BT = whiten(rewards_BT, mask_BT, ddof=1, epsilon=WHITEN_EPSILON, shift_mean=False)
        advantages_BT, self._returns_BT = gae(
            rewards_BT, self._old_values_BT, mask_BT, gamma=critic.gamma, lam=critic.lam
        )
        if critic.whiten in ("advantages", "both"):
            advantages_BT = whiten(advantages_BT, mask_BT, ddof=1, epsilon=WHITEN_EPSILON)
        means_B = mean_over_tokens(advantages_BT, mask_BT)
        for rollout, advantage in zip(collected.rollouts, means_B.tolist(), strict=True):
            rollout.advantage = advantage
        return prepared._replace(advantages=advantages_BT)

    @torch.no_grad()
    def _values(self, collected: Collected, mask_BT: Tensor) -> Tensor:
        rows, size = collected.rows, self.config.micro_batch_size
        values_BT = torch.zeros(mask_BT.shape)
        for first in range(0, len(collected.rollouts), size):
            part = rows.select(range(first, min(first + size, len(collected.rollouts))))
            found_BT = self.critic.values(part.prompt_ids, part.completion_ids)
            values_BT[first : first + len(found_BT), : found_BT.shape[1]] = found_BT
        return values_BT.masked_fill(~mask_BT, 0.0)

    def _update(self, prepared: Prepared) -> dict[str, float]:
        self._value_losses = []
        metrics = super()._update(prepared)
        steps = max(self.algorithm.epochs * min(self.algorithm.minibatches, max(len(prepared.trained), 1)), 1)
        return metrics | {
            "value_loss": math.fsum(self._value_losses) / steps,
            "value_mean": float(masked_mean(self._old_values_BT, prepared.mask_BT)),
            "explained_variance": explained_variance(self._old_values_BT, self._returns_BT, prepared.mask_BT),
            "kl_coef": self.algorithm.kl.coef,
        }

    def _micro_batch(
        self, prepared: Prepared, chosen: list[int], denominator: float, check: bool
    ) -> LossTerms:
        terms = super()._micro_batch(prepared, chosen, denominator, check)
        critic = self.actor_critic.critic
        rows = prepared.collected.rows.select(chosen)
        values_BT = self.critic.values(rows.prompt_ids, rows.completion_ids)
        width = values_BT.shape[1]
        losses_BT = value_loss(
            values_BT,
            self._old_values_BT[chosen, :width],
            self._returns_BT[chosen, :width],
            clip=critic.value_clip,
        )
        mask_BT = prepared.mask_BT[chosen, :width]
        loss = critic.value_coef * aggregate(losses_BT, mask_BT, denominator, self.algorithm.aggregation)
        loss.backward()
        self._value_losses.append(float(loss.detach()))
        return terms._replace(loss=terms.loss + loss.detach())


def token_rewards(
    rewards_B: Tensor,
    sampler_BT: Tensor,
    reference_BT: Tensor | None,
    mask_BT: Tensor,
    *,
    kl_coef: float,
) -> Tensor:
    """The reward of each token, (B, T): minus its KL, plus the score on the last trained token, 0 elsewhere.

    Args:
        rewards_B: scores of the completions. sampler_BT, reference_BT: log-probs; no reference, no KL.
        mask_BT: trained tokens, the sampled end token included, padding never.
    """
    rewards_BT = place_on_last_token(rewards_B.float(), mask_BT)
    if reference_BT is None or not kl_coef:
        return rewards_BT
    return rewards_BT - kl_coef * (sampler_BT - reference_BT).masked_fill(~mask_BT, 0.0)
