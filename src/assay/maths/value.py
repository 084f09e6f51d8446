"""Values and returns: generalised advantage estimation and the clipped value loss.

Sources: Schulman et al. 1506.02438 (GAE) and 1707.06347 (PPO).
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.errors import BadInput
from assay.maths.masking import check_mask


def gae(
    rewards_BT: Tensor,
    values_BT: Tensor,
    mask_BT: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    last_value_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, both (B, T) and 0 where unselected.

    ``delta_t = r_t + gamma V_(t+1) - V_t``, ``A_t = delta_t + gamma lam A_(t+1)``; unselected positions
    (padding, tool output) are skipped: the next selected token follows directly. ``lam = 1`` gives the
    return minus the value. The masked tokens' values never count.

    Args:
        rewards_BT: a reward a token.
        values_BT: V of the state before each token.
        mask_BT: bool, the policy's own tokens.
        last_value_B: V after the last token, for completions that were cut off; None for 0.
    """
    check_mask(mask_BT, rewards_BT)
    if values_BT.shape != rewards_BT.shape:
        raise BadInput(f"expected values of shape {tuple(rewards_BT.shape)}, got {tuple(values_BT.shape)}")
    next_B = torch.zeros_like(values_BT[:, 0]) if last_value_B is None else last_value_B
    running_B = torch.zeros_like(next_B)
    columns: list[Tensor] = []
    for t in reversed(range(rewards_BT.shape[1])):
        here_B = mask_BT[:, t]
        delta_B = rewards_BT[:, t] + gamma * next_B - values_BT[:, t]
        running_B = torch.where(here_B, delta_B + gamma * lam * running_B, running_B)
        next_B = torch.where(here_B, values_BT[:, t], next_B)
        columns.append(torch.where(here_B, running_B, 0.0))
    advantages_BT = torch.stack(columns[::-1], dim=1)
    return advantages_BT, torch.where(mask_BT, advantages_BT + values_BT, 0.0)


def value_loss(
    values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, *, clip: float | None = 0.2
) -> Tensor:
    """Return ``0.5 max((v - R)^2, (clip(v, old - c, old + c) - R)^2)`` a token; None turns the clip off."""
    plain_BT = (values_BT - returns_BT).square()
    if clip is None:
        return 0.5 * plain_BT
    held_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip, clip)
    return 0.5 * torch.maximum(plain_BT, (held_BT - returns_BT).square())


def explained_variance(values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> float:
    """Return ``1 - var(R - V) / var(R)`` over the selected tokens; NaN where the returns do not vary."""
    returns, values = returns_BT[mask_BT], values_BT[mask_BT]
    variance = float(returns.var(correction=0)) if returns.numel() else 0.0
    if variance == 0.0:
        return float("nan")
    return 1.0 - float((returns - values).var(correction=0)) / variance
