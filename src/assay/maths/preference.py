"""Preference losses, one value an example (never reduced here), from log-probs summed over the completion.

``margin`` is ``beta * ((chosen - ref_chosen) - (rejected - ref_rejected))``, the difference of DPO's implicit
rewards. Swapping the pair flips its sign; at the reference it is 0 and the DPO loss is ln 2.

Sources: Bradley-Terry 1952; DPO Rafailov et al. 2305.18290; cDPO Mitchell 2023; robust DPO Chowdhury et al.
2403.00409; IPO Azar et al. 2310.12036; hinge (SLiC) Zhao et al. 2305.10425; KTO Ethayarajh et al. 2402.01306;
ORPO Hong et al. 2403.07691; SimPO Meng et al. 2405.14734.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

from assay.errors import BadInput


def bradley_terry_loss(
    chosen_B: Tensor, rejected_B: Tensor, *, margin_B: Tensor | float = 0.0, centring: float = 0.0
) -> Tensor:
    """Return ``-log sigmoid(chosen - rejected - margin) + centring * (chosen + rejected)^2``, shape (B,).

    Args:
        chosen_B, rejected_B: scores of the reward model.
        margin_B: by how much the chosen should win (Llama 2's graded margins).
        centring: weight of the squared sum, which keeps scores around 0 (Eisenstein et al. 2312.09244).
    """
    loss_B = -logsigmoid(chosen_B - rejected_B - margin_B)
    return loss_B + centring * (chosen_B + rejected_B).square() if centring else loss_B


def dpo_margin(
    policy_chosen_B: Tensor,
    policy_rejected_B: Tensor,
    reference_chosen_B: Tensor,
    reference_rejected_B: Tensor,
    *,
    beta: float,
) -> Tensor:
    """Difference of the implicit rewards ``beta * log(pi / ref)`` of chosen and rejected, shape (B,)."""
    if beta <= 0:
        raise BadInput(f"expected beta above 0, got {beta}; it scales the implicit reward")
    chosen_B = policy_chosen_B - reference_chosen_B
    return beta * (chosen_B - (policy_rejected_B - reference_rejected_B))


def dpo_loss(
    policy_chosen_B: Tensor,
    policy_rejected_B: Tensor,
    reference_chosen_B: Tensor,
    reference_rejected_B: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> Tensor:
    """DPO, one value an example; ``label_smoothing`` above 0 is cDPO (a share of the labels is flipped).

    Args:
        policy_chosen_B, policy_rejected_B: summed log-probs under the policy.
        reference_chosen_B, reference_rejected_B: the same under the reference.
        beta: strength of the KL to the reference (usually 0.1).
        label_smoothing: assumed flip rate, in [0, 0.5).
    """
    margin_B = dpo_margin(
        policy_chosen_B, policy_rejected_B, reference_chosen_B, reference_rejected_B, beta=beta
    )
    return smoothed_sigmoid_loss(margin_B, label_smoothing)


def smoothed_sigmoid_loss(margin_B: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return ``-(1 - e) log sigmoid(margin) - e log sigmoid(-margin)`` (cDPO; e = 0 is DPO)."""
    _check_flip_rate(label_smoothing)
    if not label_smoothing:
        return -logsigmoid(margin_B)
    return -(1 - label_smoothing) * logsigmoid(margin_B) - label_smoothing * logsigmoid(-margin_B)


def robust_dpo_loss(margin_B: Tensor, *, label_smoothing: float) -> Tensor:
    """Return the loss whose mean under a share ``e`` of flipped labels is the clean DPO loss (rDPO)."""
    _check_flip_rate(label_smoothing)
    kept_B = (1 - label_smoothing) * -logsigmoid(margin_B)
    return (kept_B - label_smoothing * -logsigmoid(-margin_B)) / (1 - 2 * label_smoothing)


def _check_flip_rate(rate: float) -> None:
    if not 0 <= rate < 0.5:
        raise BadInput(f"expected label_smoothing in [0, 0.5), got {rate}; at 0.5 labels carry nothing")


def ipo_loss(log_ratio_margin_B: Tensor, *, tau: float) -> Tensor:
    """Return ``(h - 1 / (2 tau))^2`` with h the difference of log ratios, NOT scaled by beta (IPO).

    h is :func:`dpo_margin` with ``beta=1``. Preferences of probability p have their optimum at
    ``(2p - 1) / (2 tau)``, finite even when p = 1.
    """
    if tau <= 0:
        raise BadInput(f"expected tau above 0, got {tau}")
    return (log_ratio_margin_B - 1 / (2 * tau)).square()


def hinge_loss(margin_B: Tensor) -> Tensor:
    """Return ``max(0, 1 - margin)`` (SLiC's loss on DPO's margin)."""
    return relu(1 - margin_B)


def kto_loss(
    log_ratio_B: Tensor,
    desirable_B: Tensor,
    kl: Tensor | float,
    *,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO on single completions labelled good or bad, shape (B,).

    Args:
        log_ratio_B: summed ``log(pi / ref)`` of each completion.
        desirable_B: bool, the label.
        kl: the batch's KL estimate, nats; detached and floored at 0 (mismatched pairs estimate it).
        beta: as in DPO. The two weights balance unequal numbers of labels.
    """
    reference_point = torch.as_tensor(kl, dtype=log_ratio_B.dtype).detach().clamp(min=0)
    gain_B = beta * (log_ratio_B - reference_point)
    good_B = desirable_weight * (1 - torch.sigmoid(gain_B))
    return torch.where(desirable_B, good_B, undesirable_weight * (1 - torch.sigmoid(-gain_B)))


def orpo_loss(chosen_mean_B: Tensor, rejected_mean_B: Tensor, *, weight: float = 0.1) -> Tensor:
    """ORPO: negative log-likelihood of the chosen plus ``weight`` times the odds-ratio loss; no reference.

    Takes MEAN log-probs a token (below 0). The odds of a completion are ``p / (1 - p)`` of that mean.
    """
    log_odds_B = (chosen_mean_B - rejected_mean_B) - (log1mexp(chosen_mean_B) - log1mexp(rejected_mean_B))
    return -chosen_mean_B - weight * logsigmoid(log_odds_B)


def log1mexp(x: Tensor) -> Tensor:
    """Return ``log(1 - exp(x))`` for x < 0 without losing digits at either end."""
    near_zero = x > -math.log(2.0)
    close = torch.where(near_zero, x, -1.0)
    far = torch.where(near_zero, -1.0, x)
    return torch.where(near_zero, torch.log(-torch.expm1(close)), torch.log1p(-torch.exp(far)))


def simpo_loss(
    chosen_mean_B: Tensor, rejected_mean_B: Tensor, *, beta: float = 2.0, gamma: float = 1.0
) -> Tensor:
    """Return ``-log sigmoid(beta (chosen - rejected) - gamma)`` of MEAN log-probs: SimPO, no reference."""
    return -logsigmoid(beta * (chosen_mean_B - rejected_mean_B) - gamma)


def preference_metrics(
    policy_chosen_B: Tensor, policy_rejected_B: Tensor, margin_B: Tensor, reference_chosen_B: Tensor
) -> dict[str, float]:
    """What to watch beside the loss, all means over the batch.

    ``accuracy``: share of margins above 0 (a tie counts half). ``margin``. ``chosen_logp``,
    ``rejected_logp``: nats a completion. ``chosen_displacement``: ``log(pi / ref)`` of the chosen; below 0
    while the margin grows, both completions lose probability (likelihood displacement).
    """
    ties = (margin_B == 0).double()
    return {
        "accuracy": float(((margin_B > 0).double() + 0.5 * ties).mean()),
        "margin": float(margin_B.detach().mean()),
        "chosen_logp": float(policy_chosen_B.detach().mean()),
        "rejected_logp": float(policy_rejected_B.detach().mean()),
        "chosen_displacement": float((policy_chosen_B - reference_chosen_B).detach().mean()),
    }
