"""PPO with a critic: generalised advantages, clipped ratio, clipped value, the KL a price of each token.

Sources: Schulman et al. 1707.06347 and 1506.02438; Ziegler et al. 1909.08593 for language models. The defaults
are TRL's, which follow the latter: a fixed KL coefficient of 0.05, four passes over a batch, rewards not
whitened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from assay.algos.algorithm import Algorithm
from assay.algos.kl_control import KLControl
from assay.algos.parts import Credit, Surrogate, clip_range, kl_penalty
from assay.algos.presets import Preset
from assay.errors import BadInput

PRESETS: Mapping[str, Preset] = {"trl": Preset()}

Whiten = Literal["advantages", "rewards", "both", "none"]


@dataclass(frozen=True, kw_only=True)
class Critic:
    """What the critic is for.

    Attributes:
        gamma, lam: of the generalised advantages. value_coef: weight of the value loss.
        value_clip: bound on a value's move from the one at sampling; None for none.
        whiten: what is standardised over the batch's tokens; rewards only scaled, not shifted.
    """

    gamma: float = 1.0
    lam: float = 0.95
    value_coef: float = 0.1
    value_clip: float | None = 0.2
    whiten: Whiten = "advantages"

    def __post_init__(self) -> None:
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise BadInput(f"expected gamma and lam in [0, 1], got {self.gamma} and {self.lam}")
        if self.value_coef < 0 or (self.value_clip is not None and self.value_clip <= 0):
            raise BadInput(
                f"expected value_coef >= 0 and value_clip above 0 or null, got {self.value_coef} and "
                f"{self.value_clip}"
            )
        if self.whiten not in ("advantages", "rewards", "both", "none"):
            raise BadInput(f"expected whiten advantages, rewards, both or none, got {self.whiten!r}")


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Algorithm):
    """An algorithm whose advantages come from a critic; the trainer that has one asks for these parts."""

    critic: Critic = field(default_factory=Critic)
    kl_control: KLControl = field(default_factory=KLControl)


def ppo(
    *,
    clip: float | Sequence[float] = 0.2,
    value_clip: float | None = 0.2,
    value_coef: float = 0.1,
    gamma: float = 1.0,
    lam: float = 0.95,
    whiten: str = "advantages",
    kl_coef: float = 0.05,
    kl_target: float | None = None,
    minibatches: int = 1,
    epochs: int = 4,
) -> Algorithm:
    """PPO.

    Args:
        clip: of the ratio, one number or [low, high]. value_clip, value_coef: of the value loss.
        gamma, lam: of the generalised advantages.
        whiten: ``advantages``, ``rewards``, ``both`` or ``none``.
        kl_coef: price of the KL to the reference, in the reward of each token (k1).
        kl_target: nats a sequence that an adaptive coefficient holds; None keeps it fixed.
        minibatches, epochs: optimiser steps a rollout batch, and passes over it.
    """
    low, high = clip_range(clip)
    control = KLControl() if kl_target is None else KLControl(kind="adaptive", target=kl_target)
    return ActorCritic(
        name="ppo",
        # A single reward at the end; what the critic knows is subtracted by the trainer that has one.
        credit=Credit(baseline="none", spread="returns"),
        surrogate=Surrogate(kind="clip", clip_low=low, clip_high=high),
        aggregation="token_mean",
        kl=kl_penalty(kl_coef, "k1", "token_reward"),
        minibatches=minibatches,
        epochs=epochs,
        critic=Critic(
            gamma=gamma,
            lam=lam,
            value_coef=value_coef,
            value_clip=value_clip,
            whiten=whiten,  # pyright: ignore[reportArgumentType]  # checked by Critic
        ),
        kl_control=control,
    )
