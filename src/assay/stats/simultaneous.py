"""Bands that hold for many contrasts of the same prompts at once: looking at every checkpoint costs nothing.

The critical value is the quantile of the largest |t| among the contrasts. Its distribution is drawn with
Gaussian multipliers on the prompts (Chernozhukov, Chetverikov and Kato 2013), divided by one chi per draw as
in the multivariate t (Hothorn, Bretz and Westfall 2008). Contrasts that move together, as checkpoints of one
run do, cost far less than Bonferroni's correction asks; independent ones cost about the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from assay.stats.interval import FloatArray, Interval, t_quantile

DRAWS = 4000
_SEED = 20  # one seed: the same data always gives the same band


@dataclass(frozen=True)
class Band:
    """Simultaneous intervals for C contrasts.

    Attributes:
        estimate, low, high, standard_error: (C,).
        critical: the common multiple of the standard error.
        n: prompts behind each contrast, (C,).
        level: the probability that all intervals hold at once.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    standard_error: FloatArray
    critical: float
    n: FloatArray
    level: float

    def __getitem__(self, index: int) -> Interval:
        return Interval(
            float(self.estimate[index]),
            float(self.low[index]),
            float(self.high[index]),
            float(self.n[index]),
            self.level,
        )


@lru_cache(maxsize=8)
def _multipliers(prompts: int) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(_SEED)
    normal = random.standard_normal((DRAWS, prompts))
    chi = np.sqrt(random.chisquare(prompts - 1, DRAWS) / (prompts - 1))
    return normal, chi


def max_t_quantile(contrasts: FloatArray, level: float, *, sides: int = 2) -> float:
    """Quantile of the largest t (``sides=1``) or |t| (``sides=2``) over contrasts (P, C) without NaN.

    Contrasts without spread are left out. Never below the quantile of a single contrast.
    """
    prompts = len(contrasts)
    single = t_quantile(1 - (1 - level) / sides, prompts - 1)
    centred = contrasts - contrasts.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=0))
    moving = scale > 1e-12
    if moving.sum() < 2:
        return single
    normal, chi = _multipliers(prompts)
    unit = centred[:, moving] / scale[moving]
    draws = normal @ unit[np.lexsort(unit.T)]  # the prompts' order must not matter
    largest = (np.abs(draws) if sides == 2 else draws).max(axis=1) / chi
    return max(single, float(np.quantile(largest, level)))


def simultaneous_band(
    contrasts: FloatArray, level: float = 0.95, *, sides: int = 2, spread: float = 1.0
) -> Band:
    """Band for the means of (P, C) contrasts, one row a prompt; NaN where a prompt lacks a contrast.

    Args:
        contrasts: per-prompt differences, for example prompt means at C checkpoints minus the start's.
        level: probability that all intervals hold (each side apart when ``sides=1``: then a pair of bounds,
            of which either holds at this level).
        sides: 2 for intervals, 1 for bounds.
        spread: reach of a hidden outlier where all prompts agree exactly (see :func:`t_interval`).
    """
    known = np.isfinite(contrasts)
    count = known.sum(axis=0).astype(np.float64)
    filled = np.where(known, contrasts, 0.0)
    missing = np.full(contrasts.shape[1], math.nan)
    mean = np.divide(filled.sum(axis=0), count, out=missing.copy(), where=count > 0)
    square = (np.where(known, contrasts - mean, 0.0) ** 2).sum(axis=0)
    error = np.sqrt(np.divide(square, count * (count - 1), out=missing.copy(), where=count > 1))
    critical = _critical(contrasts, level, sides)
    half = critical * error
    agree = (count > 1) & (error <= 1e-12)
    tail = (1 - level) / sides
    half[agree] = spread * (1 - tail ** (1 / count[agree]))
    return Band(mean, mean - half, mean + half, error, critical, count, level)


def _critical(contrasts: FloatArray, level: float, sides: int) -> float:
    """Max-t over the prompts with every contrast; Bonferroni where those are too few to show correlation."""
    complete = contrasts[np.isfinite(contrasts).all(axis=1)]
    if len(complete) >= max(8, len(contrasts) // 2):
        return max_t_quantile(complete, level, sides=sides)
    degrees = max(len(contrasts) - 1, 1)
    return t_quantile(1 - (1 - level) / sides / max(contrasts.shape[1], 1), degrees)
