"""Masks select; they never multiply, because 0 * inf is NaN and poisons a whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.errors import BadInput


def select(values_BT: Tensor, mask_BT: Tensor, fill: float = 0.0) -> Tensor:
    """Return values where the mask is true, ``fill`` elsewhere; masked values and gradients never count."""
    return torch.where(mask_BT, values_BT, fill)


def check_mask(mask_BT: Tensor, like_BT: Tensor) -> None:
    """Raise BadInput unless the mask is boolean and has the shape of the values."""
    if mask_BT.dtype != torch.bool or mask_BT.shape != like_BT.shape:
        raise BadInput(
            f"expected a boolean mask of shape {tuple(like_BT.shape)}, got {mask_BT.dtype} of shape "
            f"{tuple(mask_BT.shape)}"
        )


def masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the selected values; NaN when nothing is selected."""
    return values_BT[mask_BT].mean()


def sequence_sum(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Sum of each row's selected values, shape (B,)."""
    return select(values_BT, mask_BT).sum(-1)


def sequence_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean of each row's selected values, shape (B,); 0 for a row with none."""
    return sequence_sum(values_BT, mask_BT) / mask_BT.sum(-1).clamp(min=1)


def whiten(
    values_BT: Tensor,
    mask_BT: Tensor,
    *,
    ddof: int = 1,
    epsilon: float = 1e-8,
    shift_mean: bool = True,
    floor: bool = False,
) -> Tensor:
    """Standardise the selected values over the whole batch; unselected ones become 0.

    Args:
        values_BT, mask_BT: values and the boolean mask of those that count.
        ddof: 1 as in TRL's PPO and verl, 0 as in OpenRLHF.
        epsilon: added to the variance, inside the root.
        shift_mean: False keeps the mean and only rescales around it.
        floor: take ``max(variance, epsilon)`` instead of the sum (OpenRLHF).

    Values without spread give exactly 0 (or their mean with ``shift_mean=False``).
    """
    check_mask(mask_BT, values_BT)
    known = values_BT[mask_BT]
    if known.numel() <= ddof or float(known.max() - known.min()) <= 1e-6 * max(1.0, float(known.abs().max())):
        return torch.zeros_like(values_BT) if shift_mean else select(values_BT, mask_BT)
    mean, variance = known.mean(), known.var(correction=ddof)
    variance = variance.clamp(min=epsilon) if floor else variance + epsilon
    whitened_BT = (values_BT - mean) * variance.rsqrt()
    return select(whitened_BT if shift_mean else whitened_BT + mean, mask_BT)


def positions(mask_BT: Tensor) -> Tensor:
    """Position of each real token counted from the row's first real one, so that padding shifts nothing.

    Padded positions get 0. A model with absolute positions needs these under left padding.
    """
    return torch.where(mask_BT, mask_BT.long().cumsum(-1) - 1, 0)
