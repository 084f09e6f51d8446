"""Intervals for one proportion of independent outcomes.

Wilson is the default, Clopper-Pearson the one that guarantees its level, Jeffreys the Bayesian one, and the
beta-binomial mixture holds at every look at once. Wald is absent: at 1 of 64 it reaches below 0.
Counts may be fractional, so that an effective sample size can be used.
"""

from __future__ import annotations

import math

from scipy import optimize, special

from assay.errors import BadInput
from assay.stats.interval import Interval, normal_quantile


def _check(successes: float, n: float) -> None:
    if not (n > 0 and 0 <= successes <= n):
        raise BadInput(f"expected 0 <= successes <= n and n > 0, got {successes} of {n}")


def wilson(successes: float, n: float, level: float = 0.95, critical: float | None = None) -> Interval:
    """Wilson's score interval (Wilson 1927).

    Args:
        successes, n: counts, fractional ones allowed.
        level: confidence level.
        critical: quantile to use in place of the normal one (a t quantile for few clusters).
    """
    _check(successes, n)
    z = normal_quantile(0.5 + level / 2) if critical is None else critical
    p, z2 = successes / n, z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(p, low, high, n, level)


def _beta_interval(successes: float, n: float, level: float, low_ab: float, high_ab: float) -> Interval:
    tail = (1 - level) / 2
    failures = n - successes
    low = 0.0 if successes == 0 else float(special.betaincinv(successes + low_ab, failures + high_ab, tail))
    high = (
        1.0 if failures == 0 else float(special.betaincinv(successes + high_ab, failures + low_ab, 1 - tail))
    )
    return Interval(successes / n, low, high, n, level)


def clopper_pearson(successes: float, n: float, level: float = 0.95) -> Interval:
    """The exact interval (Clopper and Pearson 1934): covers at least ``level`` for every proportion."""
    _check(successes, n)
    return _beta_interval(successes, n, level, 0.0, 1.0)


def jeffreys(successes: float, n: float, level: float = 0.95) -> Interval:
    """The equal-tailed posterior interval under the Beta(1/2, 1/2) prior; an end is 0 or 1 at the edges."""
    _check(successes, n)
    return _beta_interval(successes, n, level, 0.5, 0.5)


def time_uniform(successes: float, n: float, level: float = 0.95) -> Interval:
    """The beta-binomial mixture confidence sequence: holds for all n at once, however often one looks.

    Keeps every p with B(1/2 + s, 1/2 + n - s) / B(1/2, 1/2) < p^s (1 - p)^(n - s) / (1 - level): Ville's
    inequality for the Jeffreys mixture (Robbins 1970; Howard et al. 2021).
    """
    _check(successes, n)
    failures = n - successes
    evidence = float(special.betaln(0.5 + successes, 0.5 + failures) - special.betaln(0.5, 0.5))
    floor = evidence + math.log(1 - level)

    def excess(p: float) -> float:
        return float(special.xlogy(successes, p) + special.xlog1py(failures, -p)) - floor

    best, edge = successes / n, 1e-300
    low = 0.0 if successes == 0 else float(optimize.root_scalar(excess, bracket=(edge, best)).root)
    high = 1.0 if failures == 0 else float(optimize.root_scalar(excess, bracket=(best, 1 - 1e-16)).root)
    return Interval(best, low, high, n, level)


def samples_for_zero(upper: float, level: float = 0.95) -> int:
    """Samples without a single event that put the one-sided upper bound of its rate at ``upper``."""
    if not 0 < upper < 1:
        raise BadInput(f"expected a rate between 0 and 1, got {upper}")
    return math.ceil(math.log(1 - level) / math.log1p(-upper))


def samples_for_two_rates(first: float, second: float, power: float = 0.8, level: float = 0.95) -> int:
    """Samples per arm that tell two rates apart (two-sided z test, pooled variance under the null)."""
    if not (0 <= first <= 1 and 0 <= second <= 1 and first != second):
        raise BadInput(f"expected two different rates in [0, 1], got {first} and {second}")
    za, zb = normal_quantile(0.5 + level / 2), normal_quantile(power)
    pooled = (first + second) / 2
    spread = za * math.sqrt(2 * pooled * (1 - pooled))
    spread += zb * math.sqrt(first * (1 - first) + second * (1 - second))
    return math.ceil((spread / (first - second)) ** 2)
