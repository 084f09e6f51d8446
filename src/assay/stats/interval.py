"""An estimate with its interval: the shape in which every rate and every mean of this project is reported."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from assay.records.finding import jsonable

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its two-sided interval.

    Attributes:
        estimate: the point estimate; NaN when nothing was observed.
        low, high: the ends; NaN when unknown (one cluster has no spread).
        n: what the estimate rests on: independent units (prompts, or samples where each is its own unit).
        level: the confidence level, 0.95 unless said.
    """

    estimate: float
    low: float
    high: float
    n: float
    level: float = 0.95

    @property
    def half_width(self) -> float:
        """Half the distance between the ends; NaN when unknown."""
        return (self.high - self.low) / 2

    def to_json(self) -> dict[str, Any]:
        """Return the object of the JSON contract; unknown numbers are null."""
        return {
            "estimate": jsonable(self.estimate),
            "low": jsonable(self.low),
            "high": jsonable(self.high),
            "n": jsonable(self.n),
            "level": self.level,
        }

    def __str__(self) -> str:
        if math.isnan(self.estimate):
            return "unknown"
        if math.isnan(self.low):
            return f"{self.estimate:.3f}"
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t."""
    return float(special.stdtrit(degrees, probability))


def normal_quantile(probability: float) -> float:
    """Quantile of the standard normal."""
    return float(special.ndtri(probability))


def unknown(n: float = 0) -> Interval:
    """An interval about which nothing is known."""
    return Interval(math.nan, math.nan, math.nan, n)
