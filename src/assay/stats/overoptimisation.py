"""Over-optimisation curves: gold reward against the distance d = sqrt(KL) from the start (Gao et al. 2022).

Two forms: ``quadratic`` d (a - b d), the law of best-of-n, and ``logarithmic`` d (a - b ln d), that of RL.
Both are linear in a and b, so both are fitted by least squares and both residuals are reported: which one
holds is a question to the data, and on policies tilted by a rare hack the quadratic one fits better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from assay.errors import BadInput
from assay.stats.interval import FloatArray

Form = Literal["quadratic", "logarithmic"]


@dataclass(frozen=True)
class Overoptimisation:
    """One fitted curve.

    Attributes:
        form: ``quadratic`` or ``logarithmic``.
        a, b: coefficients. rmse: root mean squared residual. residuals: (K,).
    """

    form: Form
    a: float
    b: float
    rmse: float
    residuals: FloatArray

    def gold(self, d: FloatArray) -> FloatArray:
        """Gold reward over the start at distance ``d`` (nats to the power one half)."""
        return _design(d, self.form) @ np.array([self.a, self.b])

    @property
    def peak(self) -> tuple[float, float]:
        """Distance and gold of the highest point; infinite distance where the curve never turns (b <= 0)."""
        return peak(self.a, self.b, self.form)


def peak(a: float, b: float, form: Form) -> tuple[float, float]:
    """Distance d* and gold of the highest point of a curve."""
    if b <= 0:
        return math.inf, math.inf
    if form == "quadratic":
        return a / (2 * b), a * a / (4 * b)
    distance = math.exp(a / b - 1)
    return distance, b * distance


def back_to_start(a: float, b: float, form: Form) -> float:
    """Distance at which gold is back at its start; infinite where the curve never turns."""
    if b <= 0:
        return math.inf
    return a / b if form == "quadratic" else math.exp(a / b)


def fit(d: FloatArray, gold: FloatArray, form: Form) -> Overoptimisation:
    """Least squares of gold, re-centred so that the start is 0, on (K,) distances.

    Points at d = 0 hold no information and are left out; at least two others are needed.
    """
    used = (d > 0) & np.isfinite(d) & np.isfinite(gold)
    if used.sum() < 2:
        raise BadInput(f"expected two or more points away from the start, got {int(used.sum())}")
    design = _design(d[used], form)
    weights = np.linalg.lstsq(design, gold[used], rcond=None)[0]
    residuals = gold[used] - design @ weights
    error = float(np.sqrt((residuals**2).mean()))
    return Overoptimisation(form, float(weights[0]), float(weights[1]), error, residuals)


def _design(d: FloatArray, form: Form) -> FloatArray:
    d = np.asarray(d, dtype=np.float64)
    if form == "quadratic":
        return np.stack([d, -d * d], axis=-1)
    safe = np.where(d > 0, d, 1.0)
    return np.stack([d, -d * np.log(safe)], axis=-1)
