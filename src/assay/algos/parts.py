"""The small values an algorithm is put together from: credit, surrogate, KL, correction, overlong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from assay.errors import BadInput, nearest
from assay.maths.advantages import TOLERANCE
from assay.maths.importance import WEIGHT_LEVELS, WeightLevel
from assay.maths.kl import Estimator
from assay.maths.policy import Level

Baseline = Literal[
    "none",
    "constant",
    "moving_average",
    "group_mean",
    "leave_one_out",
    "group_standardised",
    "group_mean_batch_scaled",
    "batch_standardised",
]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
GROUP_BASELINES = frozenset(name for name in BASELINES if name.startswith(("group", "leave")))


@dataclass(frozen=True, kw_only=True)
class Credit:
    """From rewards to advantages.

    Attributes:
        baseline: what is subtracted and by what it is scaled; see ``assay.maths.advantages``.
        ddof, epsilon: of the standard deviation, where one is used.
        constant: the baseline ``constant``. decay: of ``moving_average``.
        clip: clamp what the baseline left to ``[-clip, clip]``; None leaves it.
        tolerance: spread below which a group has none.
        spread: ``sequence`` gives every token of a completion the same advantage, (B,). ``returns`` gives
            each token its return-to-go, (B, T), which differs only with a KL in ``token_reward``.
            ``whitened`` standardises those over every trained token of the batch (REINFORCE++), with
            ``whiten_ddof`` and ``whiten_epsilon`` in the root, added or (``whiten_floor``) as a floor.
    """

    baseline: Baseline
    ddof: int = 0
    epsilon: float = 1e-6
    constant: float = 0.0
    decay: float = 0.9
    clip: float | None = None
    tolerance: float = TOLERANCE
    spread: Literal["sequence", "returns", "whitened"] = "sequence"
    whiten_ddof: int = 1
    whiten_epsilon: float = 1e-8
    whiten_floor: bool = False

    def __post_init__(self) -> None:
        if self.baseline not in BASELINES:
            raise BadInput(f"expected a baseline, got {self.baseline!r}{nearest(self.baseline, BASELINES)}")
        if self.ddof not in (0, 1) or self.epsilon < 0:
            raise BadInput(f"expected ddof 0 or 1 and epsilon >= 0, got {self.ddof} and {self.epsilon}")

    @property
    def needs_groups(self) -> bool:
        """Whether at least two completions a prompt are needed."""
        return self.baseline in GROUP_BASELINES


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The policy loss: ``reinforce``, ``clip`` or ``cispo``, on a ratio of the given level.

    Attributes:
        clip_low, clip_high: the ratio is clipped to ``[1 - clip_low, 1 + clip_high]``; ``clip_low`` None has
            no lower bound (CISPO only).
        dual_clip: bound for negative advantages, above 1; None turns it off.
        bound: of the log ratio before ``exp``, nats.
    """

    kind: Literal["reinforce", "clip", "cispo"]
    level: Level = "token"
    clip_low: float | None = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    bound: float = 20.0

    def __post_init__(self) -> None:
        if self.kind not in ("reinforce", "clip", "cispo"):
            raise BadInput(f"expected surrogate reinforce, clip or cispo, got {self.kind!r}")
        if self.kind == "clip" and (self.clip_low is None or not 0 <= self.clip_low <= 1):
            raise BadInput(f"expected clip_low in [0, 1], got {self.clip_low}")
        if self.clip_high < 0:
            raise BadInput(f"expected clip_high >= 0, got {self.clip_high}")


@dataclass(frozen=True, kw_only=True)
class KLPenalty:
    """KL to the reference, in the ``loss``, in the ``reward`` or (each token its own) in ``token_reward``.

    Attributes:
        coef: 0 turns it off. estimator: see ``assay.maths.kl`` for what each is good for; ``exact`` is the KL
            over the vocabulary, which the batch then carries.
        bound: clamp on each token's estimate, nats; None leaves it.
        allow_biased: permit what has no or the wrong gradient: k1 in the loss, k2 or k3 in the reward.
    """

    coef: float = 0.0
    estimator: Estimator | Literal["exact"] = "k3"
    where: Literal["loss", "reward", "token_reward"] = "loss"
    bound: float | None = None
    allow_biased: bool = False

    def __post_init__(self) -> None:
        if self.where not in ("loss", "reward", "token_reward"):
            raise BadInput(f"expected kl_where loss, reward or token_reward, got {self.where!r}")
        if self.estimator not in ("k1", "k2", "k3", "exact"):
            raise BadInput(f"expected kl_estimator k1, k2, k3 or exact, got {self.estimator!r}")
        if not self.coef >= 0:
            raise BadInput(f"expected kl_coef >= 0, got {self.coef}")
        if self.coef and not self.allow_biased:
            self._refuse_biased()

    def _refuse_biased(self) -> None:
        if self.where == "loss" and self.estimator == "k1":
            raise BadInput(
                "expected k2, k3 or exact in the loss, got k1: its expected gradient is 0, so the penalty "
                "does nothing; use kl_where=reward, or write kl_where=loss! to have it anyway"
            )
        if self.where != "loss" and self.estimator in ("k2", "k3"):
            raise BadInput(
                f"expected k1 or exact in the reward, got {self.estimator}: its gradient is wrong there, and "
                f"k3 diverges; use kl_where=loss, or write kl_where={self.where}! to have it anyway"
            )


def kl_penalty(coef: float, estimator: str, where: str, *, bound: float | None = None) -> KLPenalty:
    """Make a penalty from options; ``where`` with a trailing ``!`` allows a biased or useless gradient."""
    return KLPenalty(
        coef=coef,
        estimator=estimator,  # pyright: ignore[reportArgumentType]  # checked by KLPenalty
        where=where.removesuffix("!"),  # pyright: ignore[reportArgumentType]  # checked by KLPenalty
        bound=bound,
        allow_biased=where.endswith("!"),
    )


def clip_range(clip: float | Sequence[float]) -> tuple[float, float]:
    """Return (low, high) of an option that is one number for both or a pair."""
    low, high = (clip, clip) if isinstance(clip, int | float) else (clip if len(clip) == 2 else (-1.0, -1.0))
    if not (0 <= low <= 1 and high >= 0):
        raise BadInput(f"expected clip as one number or [low, high] with low in [0, 1], got {clip}")
    return float(low), float(high)


def correction(cap: float | None) -> Correction | None:
    """Truncated importance sampling a token with this cap; None for none."""
    if cap is not None and cap < 1:
        raise BadInput(f"expected importance_cap of at least 1, got {cap}; null turns it off")
    return None if cap is None else Correction(high=cap)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Importance weights for a sampler that differs from the trainer; see ``assay.maths.importance``."""

    level: WeightLevel = "token"
    outside: Literal["truncate", "mask"] = "truncate"
    high: float | None = 2.0
    low: float | None = None

    def __post_init__(self) -> None:
        if self.level not in WEIGHT_LEVELS or self.outside not in ("truncate", "mask"):
            raise BadInput(
                f"expected a level token, sequence or geometric and outside truncate or mask, got "
                f"{self.level!r} and {self.outside!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Overlong:
    """What happens to completions at the length cap.

    Attributes:
        how: ``keep``; ``punish`` (the soft penalty is added to the reward); ``mask`` (truncated completions
            are not trained on, though their rewards stay in the statistics).
        cache: width of the soft penalty's slope, as a share of the maximal length (DAPO: 4,096 of 20,480).
    """

    how: Literal["keep", "punish", "mask"] = "keep"
    cache: float = 0.2

    def __post_init__(self) -> None:
        if self.how not in ("keep", "punish", "mask"):
            raise BadInput(f"expected overlong keep, punish or mask, got {self.how!r}")
        if not 0 < self.cache <= 1:
            raise BadInput(f"expected overlong_cache in (0, 1], got {self.cache}")


def spread_for(kl_where: str) -> Literal["sequence", "returns"]:
    """Return the spread that a place of the KL needs: a KL in ``token_reward`` needs an advantage a token."""
    return "returns" if kl_where.startswith("token_reward") else "sequence"


def overlong_policy(how: str, cache: float = 0.2) -> Overlong:
    """Make the overlong part from options."""
    return Overlong(how=how, cache=cache)  # pyright: ignore[reportArgumentType]  # checked by Overlong
