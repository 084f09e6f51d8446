"""From rewards to advantages by a :class:`Credit`: which function of ``assay.maths.advantages`` is meant."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.algos.parts import Credit
from assay.errors import BadInput
from assay.maths import advantages as adv
from assay.maths.masking import check_mask, select, whiten
from assay.maths.rewards import place_on_last_token, returns_to_go

STATE_KEY = "moving_average"


def assign_credit(
    credit: Credit,
    rewards_B: Tensor,
    group_B: Tensor,
    state: Mapping[str, float],
    mask_BT: Tensor | None,
    token_kl_BT: Tensor | None,
    *,
    kl_coef: float,
) -> tuple[Tensor, dict[str, float]]:
    """Advantages and the new state; see ``Algorithm.advantages`` for the arguments."""
    rewards_B = rewards_B.detach().double()
    adv.check_rewards(rewards_B, group_B)
    new_state = dict(state)
    if credit.baseline == "moving_average":
        advantage_B, mean = adv.moving_average(rewards_B, state.get(STATE_KEY), decay=credit.decay)
        new_state |= {} if mean is None else {STATE_KEY: mean}
    else:
        advantage_B = _sequence_advantages(credit, rewards_B, group_B)
    if credit.clip is not None:
        advantage_B = advantage_B.clamp(-credit.clip, credit.clip)
    if credit.spread == "sequence":
        return advantage_B, new_state
    if mask_BT is None:
        raise BadInput(f"advantages with spread={credit.spread} are a value a token; pass mask_BT")
    live_BT = mask_BT & ~rewards_B.isnan()[:, None]
    returns_BT = _returns(advantage_B, live_BT, token_kl_BT, kl_coef)
    if credit.spread == "returns":
        return returns_BT, new_state
    white_BT = whiten(
        returns_BT,
        live_BT,
        ddof=credit.whiten_ddof,
        epsilon=credit.whiten_epsilon,
        floor=credit.whiten_floor,
    )
    if credit.needs_groups and not kl_coef:
        # The whitening shifts by the batch's mean; a group without spread stays exactly 0 all the same.
        flat_B = adv.group_statistics(rewards_B, group_B, tolerance=credit.tolerance).flat_B
        white_BT = select(white_BT, ~flat_B[:, None].expand_as(white_BT))
    return white_BT, new_state


def _sequence_advantages(credit: Credit, rewards_B: Tensor, group_B: Tensor) -> Tensor:
    tolerance = credit.tolerance
    match credit.baseline:
        case "none":
            return adv.no_baseline(rewards_B)
        case "constant":
            return adv.constant_baseline(rewards_B, credit.constant)
        case "group_mean":
            return adv.group_mean(rewards_B, group_B, tolerance=tolerance)
        case "leave_one_out":
            return adv.leave_one_out(rewards_B, group_B, tolerance=tolerance)
        case "group_standardised":
            how = adv.group_standardised
        case "group_mean_batch_scaled":
            how = adv.group_mean_batch_scaled
        case _:
            group_B, how = torch.zeros_like(group_B), adv.group_standardised
    return how(rewards_B, group_B, ddof=credit.ddof, epsilon=credit.epsilon, tolerance=tolerance)


def _returns(advantage_B: Tensor, live_BT: Tensor, token_kl_BT: Tensor | None, kl_coef: float) -> Tensor:
    """Return-to-go of every trained token: the completion's advantage minus the KL from that token on."""
    token_BT = place_on_last_token(advantage_B, live_BT)
    if kl_coef:
        if token_kl_BT is None:
            raise BadInput("a KL in token_reward needs token_kl_BT; pass it to advantages()")
        check_mask(live_BT, token_kl_BT)
        token_BT = token_BT - kl_coef * select(token_kl_BT.detach().double(), live_BT)
    return returns_to_go(token_BT, live_BT)
