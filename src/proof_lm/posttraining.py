"""Post-training under the course's names; see ``assay.maths`` and ``assay.tasks.proofs``."""

from collections.abc import Sequence

import torch

from assay.maths import advantages, preference
from assay.tasks.proofs import verifier_reward

__all__ = ["dpo_loss", "group_normalized_advantages", "verifier_reward"]


def group_normalized_advantages(
    rewards: Sequence[float] | torch.Tensor, *, epsilon: float = 1e-6
) -> torch.Tensor:
    """Return ``(r - mean) / (std + epsilon)`` of one group, biased standard deviation, shape (G,).

    Numbers give float64; a floating tensor keeps its type.
    """
    rewards_B = _floating(rewards)
    group_B = torch.zeros_like(rewards_B, dtype=torch.long)
    return advantages.group_standardised(rewards_B, group_B, epsilon=epsilon)


def dpo_loss(
    policy_chosen: Sequence[float] | torch.Tensor,
    policy_rejected: Sequence[float] | torch.Tensor,
    reference_chosen: Sequence[float] | torch.Tensor,
    reference_rejected: Sequence[float] | torch.Tensor,
    *,
    beta: float,
) -> torch.Tensor:
    """Direct preference optimisation from summed log-probs, one value an example, shape (B,)."""
    log_probs = (policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return preference.dpo_loss(*map(_floating, log_probs), beta=beta)


def _floating(values: Sequence[float] | torch.Tensor) -> torch.Tensor:
    tensor = torch.as_tensor(values)
    return tensor if isinstance(values, torch.Tensor) and tensor.is_floating_point() else tensor.double()
