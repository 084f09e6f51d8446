"""Learning from pairs without a reward model: DPO and its relatives, offline or on fresh pairs.

The credit, surrogate and aggregation of the base class play no part: a pair's loss is one number. Sources: see
``assay.maths.preference``; online: Guo et al. 2402.04792.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from assay.algos.algorithm import Algorithm
from assay.algos.parts import Credit, KLPenalty, Surrogate
from assay.algos.presets import Preset
from assay.errors import BadInput, nearest
from assay.maths import preference as pref

PRESETS: Mapping[str, Preset] = {}

LossName = Literal["dpo", "robust", "ipo", "hinge", "orpo", "simpo"]
LOSSES: tuple[LossName, ...] = get_args(LossName)


@dataclass(frozen=True, kw_only=True)
class Preference(Algorithm):
    """A preference method.

    Attributes:
        loss: which one. beta: strength of the pull to the reference (IPO: tau; SimPO: scale).
        label_smoothing: assumed share of turned labels (cDPO with ``dpo``, exact with ``robust``).
        gamma: SimPO's margin. sft_coef: weight of the chosen's mean negative log-prob, against displacement.
        online: pairs are made from the current policy's samples, best against worst of a group.
    """

    loss_name: LossName = "dpo"
    beta: float = 0.1
    label_smoothing: float = 0.0
    gamma: float = 1.0
    sft_coef: float = 0.0
    online: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_name not in LOSSES:
            raise BadInput(f"expected a loss, got {self.loss_name!r}{nearest(self.loss_name, LOSSES)}")
        if self.beta <= 0 or self.sft_coef < 0:
            raise BadInput(f"expected beta above 0 and sft_coef >= 0, got {self.beta} and {self.sft_coef}")

    @property
    def needs_reference(self) -> bool:
        """ORPO and SimPO have none; the KL is measured at matched checkpoints all the same."""
        return self.loss_name not in ("orpo", "simpo")

    @property
    def needs_groups(self) -> bool:
        """Online pairs need two completions a prompt."""
        return self.online

    def margin(self, policy: PairLogps, reference: PairLogps) -> Tensor:
        """Differences of the implicit rewards, (B,)."""
        return pref.dpo_margin(
            policy.chosen_B, policy.rejected_B, reference.chosen_B, reference.rejected_B, beta=self.beta
        )

    def pair_losses(self, policy: PairLogps, reference: PairLogps) -> Tensor:
        """One loss a pair, (B,)."""
        match self.loss_name:
            case "dpo":
                loss_B = pref.smoothed_sigmoid_loss(self.margin(policy, reference), self.label_smoothing)
            case "robust":
                loss_B = pref.robust_dpo_loss(
                    self.margin(policy, reference), label_smoothing=self.label_smoothing
                )
            case "hinge":
                loss_B = pref.hinge_loss(self.margin(policy, reference))
            case "ipo":
                loss_B = pref.ipo_loss(self.margin(policy, reference) / self.beta, tau=self.beta)
            case "orpo":
                loss_B = pref.orpo_loss(policy.chosen_mean_B, policy.rejected_mean_B, weight=self.beta)
            case "simpo":
                loss_B = pref.simpo_loss(
                    policy.chosen_mean_B, policy.rejected_mean_B, beta=self.beta, gamma=self.gamma
                )
        return loss_B - self.sft_coef * policy.chosen_mean_B if self.sft_coef else loss_B


@dataclass(frozen=True)
class PairLogps:
    """Log-probs of B pairs summed over the completion, and the numbers of tokens, each (B,)."""

    chosen_B: Tensor
    rejected_B: Tensor
    chosen_tokens_B: Tensor
    rejected_tokens_B: Tensor

    @property
    def chosen_mean_B(self) -> Tensor:
        """Mean log-prob a token of the chosen."""
        return self.chosen_B / self.chosen_tokens_B

    @property
    def rejected_mean_B(self) -> Tensor:
        """Mean log-prob a token of the rejected."""
        return self.rejected_B / self.rejected_tokens_B

    def select(self, rows: list[int]) -> PairLogps:
        """The given pairs."""
        return PairLogps(
            self.chosen_B[rows],
            self.rejected_B[rows],
            self.chosen_tokens_B[rows],
            self.rejected_tokens_B[rows],
        )


def dpo(
    *,
    loss: str = "dpo",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    gamma: float = 1.0,
    sft_coef: float = 0.0,
) -> Algorithm:
    """DPO on a fixed set of pairs.

    Args:
        loss: ``dpo``, ``robust``, ``ipo``, ``hinge``, ``orpo`` or ``simpo``.
        beta: strength of the pull to the reference. label_smoothing: assumed share of turned labels.
        gamma: SimPO's margin. sft_coef: weight of the chosen's negative log-prob.
    """
    return _preference("dpo", loss, beta, label_smoothing, gamma, sft_coef, online=False)


def online_dpo(
    *,
    loss: str = "dpo",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    gamma: float = 1.0,
    sft_coef: float = 0.0,
) -> Algorithm:
    """DPO on fresh pairs: the best and the worst completion of each group, ranked by the reward.

    Args:
        loss, beta, label_smoothing, gamma, sft_coef: as for :func:`dpo`.
    """
    return _preference("online_dpo", loss, beta, label_smoothing, gamma, sft_coef, online=True)


def _preference(
    name: str, loss: str, beta: float, smoothing: float, gamma: float, sft_coef: float, *, online: bool
) -> Preference:
    return Preference(
        name=name,
        credit=Credit(baseline="none"),
        surrogate=Surrogate(kind="reinforce"),
        aggregation="sequence_mean_token_sum",
        kl=KLPenalty(),
        loss_name=loss,  # pyright: ignore[reportArgumentType]  # checked by Preference
        beta=beta,
        label_smoothing=smoothing,
        gamma=gamma,
        sft_coef=sft_coef,
        online=online,
    )
