"""Shaping a reward before it becomes an advantage; the reward as scored stays what it was.

Source of the soft punishment: Yu et al. 2503.14476 (DAPO).
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.errors import BadInput


def soft_overlong_penalty(lengths_B: Tensor, *, max_length: int, cache: int) -> Tensor:
    """Return 0 up to ``max_length - cache``, then linearly down to -1 at ``max_length``, and -1 beyond, (B,).

    Args:
        lengths_B: completion lengths, tokens.
        max_length: the longest length that is not simply -1, tokens.
        cache: the width of the slope, tokens, in 1..max_length.
    """
    if not 0 < cache <= max_length:
        raise BadInput(f"expected 0 < cache <= max_length, got cache {cache} and max_length {max_length}")
    over_B = (max_length - cache - lengths_B.double()) / cache
    return over_B.clamp(-1.0, 0.0)


def kl_shaped(rewards_B: Tensor, sequence_kl_B: Tensor, coef: float) -> Tensor:
    """Return ``r - coef * KL``, with the KL summed over each completion, nats; not scored stays NaN."""
    return rewards_B - coef * sequence_kl_B.detach().to(rewards_B.dtype)


def returns_to_go(token_rewards_BT: Tensor, mask_BT: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Discounted sum of the rewards from each selected token on, (B, T); unselected positions are skipped."""
    running_B = torch.zeros_like(token_rewards_BT[:, 0])
    columns: list[Tensor] = []
    for t in reversed(range(token_rewards_BT.shape[1])):
        here_B = token_rewards_BT[:, t] + gamma * running_B
        running_B = torch.where(mask_BT[:, t], here_B, running_B)
        columns.append(torch.where(mask_BT[:, t], here_B, 0.0))
    return torch.stack(columns[::-1], dim=1)


def place_on_last_token(rewards_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Put each completion's reward on its last selected token, (B, T): never on a pad token.

    A row without a selected token gets nothing.
    """
    T = mask_BT.shape[1]
    position_T = torch.arange(T, device=mask_BT.device)
    last_B = torch.where(mask_BT, position_T, -1).amax(-1)
    return torch.where(position_T == last_B[:, None], rewards_B[:, None], 0.0)


def missing_eos_penalty(rewards_B: Tensor, ended_B: Tensor, penalty: float) -> Tensor:
    """Subtract ``penalty`` from the completions that did not end by themselves, (B,)."""
    return torch.where(ended_B, rewards_B, rewards_B - penalty)
