"""Policy losses, a value a token: what is minimised. Ratios are bounded in log space before ``exp``.

With ``ratio = pi / pi_old`` (the proximal policy) and the advantage A:

* ``reinforce_loss``: ``-A log pi``. Right on policy only; its gradient is the policy gradient.
* ``clipped_loss``: ``-min(ratio A, clip(ratio) A)`` (PPO, Schulman et al. 1707.06347); ``clip_high`` larger
  than ``clip_low`` is DAPO's clip-higher; ``dual_clip`` bounds the loss of a bad action (Ye et al.
  1912.09729; the same function as the two-sided clip ``delta`` of other libraries).
* ``cispo_loss``: ``-stop(clip(ratio)) A log pi`` (2506.13585): no token loses its gradient.

The ratio may be a token's or a sequence's: see :func:`log_ratios`. At ratio 1 every loss here has the
REINFORCE gradient.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from assay.errors import BadInput, nearest
from assay.maths.masking import select, sequence_mean, sequence_sum

Level = Literal["token", "sequence", "sequence_token", "sequence_sum"]
LEVELS: tuple[Level, ...] = get_args(Level)
LOG_RATIO_BOUND = 20.0


class ClipCounts(NamedTuple):
    """Which tokens lost their gradient to a clip, boolean (B, T): ratio too low, or too high."""

    low_BT: Tensor
    high_BT: Tensor


def log_ratios(
    logp_BT: Tensor,
    old_logp_BT: Tensor,
    mask_BT: Tensor,
    level: Level = "token",
    *,
    bound: float = LOG_RATIO_BOUND,
) -> Tensor:
    """Log of the policy ratio at each token, shape (B, T), bounded to ``[-bound, bound]``; 0 where masked.

    Levels:
        ``token``: each token's own.
        ``sequence``: the mean over the sequence's tokens (GSPO, 2507.18071), repeated.
        ``sequence_token``: the same value, but each token's gradient is its own (GSPO's token form:
            ``stop(s_i) pi / stop(pi)``).
        ``sequence_sum``: the sum over the sequence's tokens, the true sequence ratio (RLOO elsewhere).
    """
    token_BT = select(logp_BT, mask_BT) - select(old_logp_BT, mask_BT)
    match level:
        case "token":
            ratio_BT = token_BT
        case "sequence":
            ratio_BT = sequence_mean(token_BT, mask_BT)[:, None].expand_as(token_BT)
        case "sequence_token":
            own_BT = select(logp_BT, mask_BT)
            mean_BT = sequence_mean(token_BT, mask_BT).detach()[:, None]
            ratio_BT = own_BT - own_BT.detach() + mean_BT
        case "sequence_sum":
            ratio_BT = sequence_sum(token_BT, mask_BT)[:, None].expand_as(token_BT)
        case _:
            raise BadInput(f"expected a ratio level, got {level!r}{nearest(str(level), LEVELS)}")
    return select(ratio_BT, mask_BT).clamp(-bound, bound)


def reinforce_loss(logp_BT: Tensor, advantage_BT: Tensor) -> Tensor:
    """Return ``-A log pi`` at each token."""
    return -advantage_BT * logp_BT


def clipped_loss(
    log_ratio_BT: Tensor,
    advantage_BT: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Tensor:
    """Return the clipped surrogate ``-min(ratio A, clip(ratio, 1 - low, 1 + high) A)`` at each token.

    ``dual_clip = c > 1`` keeps the loss of a negative advantage at ``-c A`` at most.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise BadInput(f"expected dual_clip above 1 (usually 3), got {dual_clip}; None turns it off")
    ratio_BT = log_ratio_BT.exp()
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    objective_BT = torch.minimum(ratio_BT * advantage_BT, clipped_BT * advantage_BT)
    if dual_clip is not None:
        floor_BT = torch.maximum(objective_BT, dual_clip * advantage_BT)
        objective_BT = torch.where(advantage_BT < 0, floor_BT, objective_BT)
    return -objective_BT


def cispo_loss(
    log_ratio_BT: Tensor,
    logp_BT: Tensor,
    advantage_BT: Tensor,
    *,
    clip_low: float | None = None,
    clip_high: float = 4.0,
) -> Tensor:
    """Return ``-stop(clip(ratio, 1 - low, 1 + high)) A log pi`` at each token (CISPO).

    ``clip_low=None`` has no lower bound. The cap on the ratio is ``1 + clip_high``; a library that clamps at
    ``epsilon_high`` itself calls the same cap by a number that is larger by one.
    """
    weight_BT = log_ratio_BT.detach().exp().clamp(max=1 + clip_high)
    if clip_low is not None:
        weight_BT = weight_BT.clamp(min=1 - clip_low)
    return -weight_BT * advantage_BT * logp_BT


def clipped_tokens(
    log_ratio_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float | None,
    clip_high: float,
) -> ClipCounts:
    """Tell where the clip acts: ratio too low with A < 0, too high with A > 0 (there PPO's gradient is 0)."""
    ratio_BT = log_ratio_BT.detach().exp()
    high_BT = (ratio_BT > 1 + clip_high) & (advantage_BT > 0) & mask_BT
    floor = -1.0 if clip_low is None else 1 - clip_low
    return ClipCounts((ratio_BT < floor) & (advantage_BT < 0) & mask_BT, high_BT)
