"""What an algorithm takes and gives for one micro-batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput
from assay.maths.masking import check_mask, select


class TokenBatch(NamedTuple):
    """One micro-batch: B completions, T completion positions.

    Attributes:
        logp_BT: log-probs of the sampled tokens under the current policy, with gradient.
        old_logp_BT: under the proximal policy (before the first update on this rollout batch), detached.
        advantages_B: (B,), or (B, T) for a value a token.
        mask_BT: bool, the tokens that are trained.
        ref_logp_BT: under the reference; needed by a KL penalty in the loss.
        sampler_logp_BT: under the policy that sampled; needed by an importance correction.
        entropy_BT: of the policy at each position, nats; with gradient if an entropy bonus is used.
        kl_BT: exact KL to the reference over the vocabulary at each position, with gradient; needed by the
            estimator ``exact``.
    """

    logp_BT: Tensor
    old_logp_BT: Tensor
    advantages_B: Tensor
    mask_BT: Tensor
    ref_logp_BT: Tensor | None = None
    sampler_logp_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    kl_BT: Tensor | None = None


class LossTerms(NamedTuple):
    """A micro-batch's share of the step's loss.

    Attributes:
        loss: scalar with gradient; summed over the micro-batches of a step it is the step's loss.
        policy_loss, kl_loss, entropy_loss: detached, scaled alike; they add up to the loss.
        metrics: sums with their counts; ``combine_metrics`` turns those of a step into its metrics.
    """

    loss: Tensor
    policy_loss: Tensor
    kl_loss: Tensor
    entropy_loss: Tensor
    metrics: dict[str, float]


def prepare(batch: TokenBatch) -> TokenBatch:
    """Select the trained tokens, in float32 at least, and give every token its advantage."""
    mask_BT, logp_BT = batch.mask_BT, batch.logp_BT
    check_mask(mask_BT, logp_BT)
    dtype = torch.promote_types(logp_BT.dtype, torch.float32)

    def clean(x: Tensor | None) -> Tensor | None:
        return None if x is None else select(x.to(dtype), mask_BT)

    advantage = batch.advantages_B
    if advantage.shape not in (logp_BT.shape[:1], logp_BT.shape):
        raise BadInput(
            f"expected advantages of shape {tuple(logp_BT.shape[:1])} or {tuple(logp_BT.shape)}, "
            f"got {tuple(advantage.shape)}"
        )
    advantage_BT = (advantage if advantage.ndim == 2 else advantage[:, None].expand_as(logp_BT)).detach()
    return TokenBatch(
        select(logp_BT.to(dtype), mask_BT),
        select(batch.old_logp_BT.detach().to(dtype), mask_BT),
        select(advantage_BT.to(dtype), mask_BT),
        mask_BT,
        clean(batch.ref_logp_BT),
        clean(batch.sampler_logp_BT),
        clean(batch.entropy_BT),
        clean(batch.kl_BT),
    )
