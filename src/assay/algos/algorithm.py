"""An algorithm: credit + surrogate + aggregation + KL, small values put together; the trainer knows no names.

One optimiser step over a rollout batch::

    shaped_B = algorithm.shape_rewards(rewards_B, ...)
    advantages_B, state = algorithm.advantages(shaped_B, group_B, state, mask_BT=mask_BT)
    mask_BT = algorithm.training_mask(mask_BT, shaped_B, truncated_B=truncated_B)
    total = algorithm.denominator(mask_BT, max_length)         # the whole step, all ranks
    for batch in micro_batches:                                # rows of the step
        terms = algorithm.loss(batch, total); terms.loss.backward()
    metrics = combine_metrics([terms.metrics, ...])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from assay.algos.batch import LossTerms, TokenBatch, prepare
from assay.algos.credit import assign_credit
from assay.algos.measure import Weights, combine_metrics, step_metrics
from assay.algos.parts import Correction, Credit, KLPenalty, Overlong, Surrogate
from assay.errors import BadInput
from assay.maths.advantages import group_statistics
from assay.maths.aggregation import Aggregation, aggregate, check_aggregation
from assay.maths.aggregation import denominator as step_denominator
from assay.maths.importance import importance_weights
from assay.maths.kl import kl_estimate
from assay.maths.policy import cispo_loss, clipped_loss, log_ratios, reinforce_loss
from assay.maths.rewards import kl_shaped, soft_overlong_penalty

__all__ = ["Algorithm", "LossTerms", "TokenBatch", "combine_metrics"]


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A method, as values.

    Attributes:
        name: the recipe's name, for messages.
        credit, surrogate, aggregation, kl: the four parts every method has.
        entropy_coef: weight of the entropy bonus in the loss.
        correction: importance weights for a sampler that differs from the trainer; None for none.
        overlong: what happens to completions at the length cap.
        minibatches: optimiser steps a rollout batch is split into; epochs: passes over it.
        dynamic_sampling: groups without spread are dropped and replaced by fresh samples.
    """

    name: str
    credit: Credit
    surrogate: Surrogate
    aggregation: Aggregation
    kl: KLPenalty = field(default_factory=KLPenalty)
    entropy_coef: float = 0.0
    correction: Correction | None = None
    overlong: Overlong = field(default_factory=Overlong)
    minibatches: int = 1
    epochs: int = 1
    dynamic_sampling: bool = False

    def __post_init__(self) -> None:
        check_aggregation(self.aggregation)
        if self.minibatches < 1 or self.epochs < 1:
            raise BadInput(
                f"expected minibatches and epochs of at least 1, got {self.minibatches} and {self.epochs}"
            )
        if self.kl.coef and self.kl.where == "token_reward" and self.credit.spread == "sequence":
            raise BadInput(
                f"expected kl_where loss or reward, got token_reward: {self.name} has one advantage a "
                "completion; use kl_where=reward"
            )

    @property
    def needs_reference(self) -> bool:
        """Whether the reference's log-probs are needed."""
        return self.kl.coef > 0

    @property
    def needs_groups(self) -> bool:
        """Whether at least two completions a prompt are needed."""
        return self.credit.needs_groups or self.dynamic_sampling

    @property
    def single_update(self) -> bool:
        """Whether every batch is used for one update, so that the ratio is identically 1."""
        return self.minibatches == 1 and self.epochs == 1

    def with_kl_coef(self, coef: float) -> Algorithm:
        """Return the same algorithm with another KL coefficient (an adaptive controller sets it)."""
        return replace(self, kl=replace(self.kl, coef=coef))

    def shape_rewards(
        self,
        rewards_B: Tensor,
        *,
        sequence_kl_B: Tensor | None = None,
        lengths_B: Tensor | None = None,
        truncated_B: Tensor | None = None,
        max_length: int | None = None,
    ) -> Tensor:
        """Return the shaped rewards: minus the KL in the reward, plus the soft overlong penalty.

        Args:
            rewards_B: as scored, NaN where not.
            sequence_kl_B: KL estimate summed over each completion, nats; needed by a KL in the reward.
            lengths_B, max_length: tokens; needed by the soft penalty.
            truncated_B: accepted for symmetry; masking happens in :meth:`training_mask`.
        """
        del truncated_B
        shaped_B = rewards_B.double()
        if self.kl.coef and self.kl.where == "reward":
            if sequence_kl_B is None:
                raise BadInput(f"{self.name} has its KL in the reward; pass sequence_kl_B")
            shaped_B = kl_shaped(shaped_B, sequence_kl_B, self.kl.coef)
        if self.overlong.how == "punish":
            if lengths_B is None or max_length is None:
                raise BadInput(f"{self.name} punishes long completions; pass lengths_B and max_length")
            cache = max(1, round(self.overlong.cache * max_length))
            shaped_B = shaped_B + soft_overlong_penalty(lengths_B, max_length=max_length, cache=cache)
        return shaped_B

    def advantages(
        self,
        rewards_B: Tensor,
        group_B: Tensor,
        state: Mapping[str, float],
        *,
        mask_BT: Tensor | None = None,
        token_kl_BT: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Advantages of one rollout batch, and the state for the next.

        Args:
            rewards_B: shaped rewards, float64, NaN where not scored (advantage 0, outside the statistics).
            group_B: group ids, any integers in any order.
            state: what the last call returned (``{}`` at the start); only a moving average keeps something.
            mask_BT: trained tokens; needed where advantages are a value a token (``credit.spread``).
            token_kl_BT: KL estimate at each token, nats; needed by a KL in ``token_reward``.

        Returns:
            Float64 advantages, (B,) or (B, T), detached, and the new state.
        """
        kl_coef = self.kl.coef if self.kl.where == "token_reward" else 0.0
        if token_kl_BT is not None and self.kl.bound is not None:
            token_kl_BT = token_kl_BT.clamp(-self.kl.bound, self.kl.bound)
        return assign_credit(self.credit, rewards_B, group_B, state, mask_BT, token_kl_BT, kl_coef=kl_coef)

    def keep_groups(self, rewards_B: Tensor, group_B: Tensor) -> Tensor:
        """Tell which completions belong to a group with spread, bool (B,): what dynamic sampling keeps."""
        return ~group_statistics(rewards_B, group_B, tolerance=self.credit.tolerance).flat_B

    def training_mask(
        self, mask_BT: Tensor, rewards_B: Tensor, *, truncated_B: Tensor | None = None
    ) -> Tensor:
        """Restrict the mask to what is trained: scored completions, and no truncated ones under ``mask``."""
        keep_B = ~rewards_B.isnan()
        if self.overlong.how == "mask":
            if truncated_B is None:
                raise BadInput(f"{self.name} masks truncated completions; pass truncated_B")
            keep_B = keep_B & ~truncated_B
        return mask_BT & keep_B[:, None]

    def denominator(self, mask_BT: Tensor, max_length: int) -> float:
        """Return the denominator of one optimiser step, from the mask of ALL its completions.

        Add up the values of several ranks.
        """
        return step_denominator(mask_BT, self.aggregation, max_length=max_length)

    def loss(self, batch: TokenBatch, denominator: float) -> LossTerms:
        """Compute one micro-batch's share of the step's loss; see :class:`LossTerms`."""
        b = prepare(batch)
        log_ratio_BT = log_ratios(
            b.logp_BT, b.old_logp_BT, b.mask_BT, self.surrogate.level, bound=self.surrogate.bound
        )
        policy_BT = self._policy_loss(b, log_ratio_BT)
        weights = self._weights(b)
        if weights is not None:
            policy_BT = policy_BT * weights.used_BT
        policy = aggregate(policy_BT, b.mask_BT, denominator, self.aggregation)
        kl = self._kl_loss(b, denominator)
        entropy = self._entropy_loss(b, denominator)
        metrics = step_metrics(b, log_ratio_BT, self.surrogate, weights)
        return LossTerms(policy + kl + entropy, policy.detach(), kl.detach(), entropy.detach(), metrics)

    def _policy_loss(self, b: TokenBatch, log_ratio_BT: Tensor) -> Tensor:
        s, advantage_BT = self.surrogate, b.advantages_B
        if s.kind == "reinforce":
            return reinforce_loss(b.logp_BT, advantage_BT)
        if s.kind == "cispo":
            return cispo_loss(
                log_ratio_BT, b.logp_BT, advantage_BT, clip_low=s.clip_low, clip_high=s.clip_high
            )
        return clipped_loss(
            log_ratio_BT,
            advantage_BT,
            clip_low=s.clip_low or 0.0,
            clip_high=s.clip_high,
            dual_clip=s.dual_clip,
        )

    def _weights(self, b: TokenBatch) -> Weights | None:
        if self.correction is None:
            return None
        if b.sampler_logp_BT is None:
            raise BadInput(f"{self.name} has an importance correction; the batch needs sampler_logp_BT")
        c, inputs = self.correction, (b.old_logp_BT, b.sampler_logp_BT, b.mask_BT)
        free_BT = importance_weights(*inputs, level=c.level, high=None)
        used_BT = importance_weights(*inputs, level=c.level, high=c.high, low=c.low, outside=c.outside)
        return Weights(used_BT, free_BT)

    def _kl_loss(self, b: TokenBatch, denominator: float) -> Tensor:
        if not (self.kl.coef and self.kl.where == "loss"):
            return b.logp_BT.new_zeros(())
        if self.kl.estimator == "exact":
            if b.kl_BT is None:
                raise BadInput(f"{self.name} has the exact KL in its loss; the batch needs kl_BT")
            kl_BT = b.kl_BT
        elif b.ref_logp_BT is None:
            raise BadInput(f"{self.name} has a KL penalty in its loss; the batch needs ref_logp_BT")
        else:
            kl_BT = kl_estimate(b.logp_BT, b.ref_logp_BT, self.kl.estimator, bound=self.kl.bound)
        return self.kl.coef * aggregate(kl_BT, b.mask_BT, denominator, self.aggregation)

    def _entropy_loss(self, b: TokenBatch, denominator: float) -> Tensor:
        if not self.entropy_coef:
            return b.logp_BT.new_zeros(())
        if b.entropy_BT is None:
            raise BadInput(f"{self.name} has an entropy bonus; the batch needs entropy_BT")
        return -self.entropy_coef * aggregate(b.entropy_BT, b.mask_BT, denominator, self.aggregation)
