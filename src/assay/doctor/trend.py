"""Changes over the steps of a run, judged against the run's own step-to-step noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """The mean of the last part of a series against its first part.

    Attributes:
        first, last: means of the first and the last fifth (at least two points each).
        difference: last - first. error: standard error of the difference, from the step-to-step noise.
        points: number of points of the series.
    """

    first: float
    last: float
    difference: float
    error: float
    points: int

    @property
    def z(self) -> float:
        """The difference in standard errors; 0 where nothing is known."""
        if not math.isfinite(self.difference) or self.difference == 0:
            return 0.0
        return self.difference / self.error if self.error > 0 else math.copysign(math.inf, self.difference)

    def low(self, z: float = 3.3) -> float:
        """Lower bound of the difference."""
        return self.difference - z * self.error

    def high(self, z: float = 3.3) -> float:
        """Upper bound of the difference."""
        return self.difference + z * self.error


UNKNOWN = Change(math.nan, math.nan, math.nan, math.nan, 0)


def finite(values: Floats | None) -> Floats:
    """The finite values; an empty array for None."""
    return np.empty(0) if values is None else values[np.isfinite(values)]


def noise(values: Floats) -> float:
    """Standard deviation of one point around a smooth curve, from second differences (a straight trend drops out).

    For independent noise of variance s^2 a second difference has variance 6 s^2. Unknown (NaN) below 4 points.
    """
    if values.size < 4:
        return math.nan
    second = np.diff(values, n=2)
    return float(np.sqrt(np.mean(second**2) / 6))


def change(values: Floats | None, floor: float = 0.0) -> Change:
    """Compare the ends of a series of one value a step; ``floor`` is a known standard deviation of one point."""
    known = finite(values)
    if known.size < 4:
        return UNKNOWN
    part = max(2, known.size // 5)
    first, last = known[:part], known[-part:]
    spread = max(noise(known), floor)
    error = spread * math.sqrt(2 / part)
    return Change(
        float(first.mean()), float(last.mean()), float(last.mean() - first.mean()), error, known.size
    )


def rising_share(values: Floats) -> float:
    """Kendall-like share: pairs in which the later value is larger, minus the others; -1..1."""
    known = finite(values)
    if known.size < 3:
        return 0.0
    if known.size > 200:
        known = known[np.linspace(0, known.size - 1, 200).astype(int)]
    signs = np.sign(known[None, :] - known[:, None])[np.triu_indices(known.size, 1)]
    return float(signs.mean())


def wilson(count: float, total: float, z: float) -> tuple[float, float]:
    """Wilson's interval of a share at ``z`` standard errors; (0, 1) for nothing."""
    if total <= 0:
        return 0.0, 1.0
    share = min(max(count / total, 0.0), 1.0)  # a log may hold any number
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def thirds(values: Floats) -> tuple[float, float]:
    """Medians of the first and of the last third of the finite values; NaN for none."""
    known = finite(values)
    if known.size == 0:
        return math.nan, math.nan
    part = max(1, known.size // 3)
    return float(np.median(known[:part])), float(np.median(known[-part:]))
