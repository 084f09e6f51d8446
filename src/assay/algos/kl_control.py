"""How the KL coefficient and the number of updates react to the measured KL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.errors import BadInput
from assay.maths.kl import adaptive_kl_coef, kl_exceeded


@dataclass(frozen=True, kw_only=True)
class KLControl:
    """Fixed or adaptive coefficient, with or without an early stop.

    Attributes:
        kind: ``fixed`` keeps the coefficient; ``adaptive`` moves it towards the target (Ziegler).
        target: KL to the reference to hold, nats a sequence.
        horizon: completions over which the adaptive controller acts.
        stop_at: KL to the proximal policy, nats a token, beyond 1.5 times which the remaining updates of a
            rollout batch are skipped; None never stops.
    """

    kind: Literal["fixed", "adaptive"] = "fixed"
    target: float = 6.0
    horizon: int = 10_000
    stop_at: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "adaptive"):
            raise BadInput(f"expected kl_control fixed or adaptive, got {self.kind!r}")
        if self.target <= 0 or self.horizon <= 0:
            raise BadInput(f"expected a positive target and horizon, got {self.target} and {self.horizon}")

    def next_coef(self, coef: float, sequence_kl: float, samples: int) -> float:
        """Coefficient for the next batch from the KL measured on this one; a NaN KL changes nothing."""
        if self.kind == "fixed" or sequence_kl != sequence_kl:
            return coef
        return adaptive_kl_coef(coef, sequence_kl, target=self.target, samples=samples, horizon=self.horizon)

    def stops(self, old_kl: float) -> bool:
        """Whether the remaining updates on this rollout batch are skipped."""
        return kl_exceeded(old_kl, self.stop_at)
