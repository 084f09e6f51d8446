"""When did a series change: online alarms on counts, and the knot of a ramp after the fact.

Reward hacking grows as a ramp, so a broken stick finds its beginning where a jump model is late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from assay.errors import BadInput
from assay.stats.interval import FloatArray


def log_likelihood_ratios(events: FloatArray, n: float, normal: float, changed: float) -> FloatArray:
    """Log-likelihood ratio of ``changed`` against ``normal`` for ``events`` (K,) among ``n`` samples each."""
    if not (0 < normal < 1 and 0 < changed < 1):
        raise BadInput(f"expected two rates between 0 and 1, got {normal} and {changed}")
    odds = math.log(changed / normal), math.log((1 - changed) / (1 - normal))
    return events * odds[0] + (n - events) * odds[1]


def cusum(ratios: FloatArray) -> FloatArray:
    """Page's cumulative sum of log-likelihood ratios, held at 0 from below (Page 1954). Returns (K,)."""
    path, level = np.zeros(len(ratios)), 0.0
    for at, ratio in enumerate(ratios):
        level = max(0.0, level + float(ratio))
        path[at] = level
    return path


def shiryaev_roberts(ratios: FloatArray) -> FloatArray:
    """Logarithm of the Shiryaev-Roberts statistic R = (1 + R) LR.

    Raising the alarm at R >= 1/a gives a mean time between false alarms of at least 1/a.
    """
    path, level = np.zeros(len(ratios)), -math.inf
    for at, ratio in enumerate(ratios):
        level = float(np.logaddexp(0.0, level)) + float(ratio)
        path[at] = level
    return path


def page_hinkley(values: FloatArray, tolerance: float) -> FloatArray:
    """Rise of sum(x - running mean - tolerance) above its own minimum: a test for an upward drift."""
    mean = np.cumsum(values) / np.arange(1, len(values) + 1)
    total = np.cumsum(values - mean - tolerance)
    return total - np.minimum.accumulate(total)


def alarm(path: FloatArray, threshold: float) -> int | None:
    """First index at which a path reaches ``threshold``; None if it never does."""
    found = np.flatnonzero(path >= threshold)
    return int(found[0]) if found.size else None


def bernoulli_split(events: FloatArray, n: float) -> tuple[int, float]:
    """First index of the new regime and the log-likelihood gained, for one jump of a rate (GLR).

    Late on a ramp; use :func:`broken_stick` there.
    """
    if len(events) < 2:
        raise BadInput(f"expected two or more points, got {len(events)}")

    def fit(part: FloatArray) -> float:
        hits, trials = float(part.sum()), n * len(part)
        return float(special.xlogy(hits, hits / trials) + special.xlogy(trials - hits, 1 - hits / trials))

    gains = [fit(events[:at]) + fit(events[at:]) - fit(events) for at in range(1, len(events))]
    best = int(np.argmax(gains))
    return best + 1, gains[best]


@dataclass(frozen=True)
class BrokenStick:
    """A continuous line with one knot: its index, the two slopes per index, the squared error, (K,) fit."""

    knot: int
    slopes: tuple[float, float]
    squared_error: float
    fitted: FloatArray


def broken_stick(values: FloatArray) -> BrokenStick:
    """Fit two joined straight lines to (K,) values at indices 0..K-1, the knot at an inner index.

    Least squares for every knot, the best knot kept. Needs four or more points.
    """
    count = len(values)
    if count < 4:
        raise BadInput(f"expected four or more points for a broken stick, got {count}")
    index = np.arange(count, dtype=np.float64)
    best: BrokenStick | None = None
    for knot in range(1, count - 1):
        design = np.stack([np.ones(count), index, np.maximum(0.0, index - knot)], axis=1)
        weights = np.linalg.lstsq(design, values, rcond=None)[0]
        fitted = design @ weights
        error = float(((values - fitted) ** 2).sum())
        if best is None or error < best.squared_error:
            best = BrokenStick(knot, (float(weights[1]), float(weights[1] + weights[2])), error, fitted)
    assert best is not None
    return best


def knot_interval(
    by_prompt: FloatArray, level: float = 0.95, draws: int = 400, seed: int = 0
) -> tuple[int, int]:
    """Interval of the knot of the mean of (P, K) prompt series, by resampling prompts with their series."""
    random = np.random.default_rng(seed)
    prompts = len(by_prompt)
    knots = [
        broken_stick(by_prompt[random.integers(0, prompts, prompts)].mean(axis=0)).knot for _ in range(draws)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(knots, [tail, 1 - tail], method="closest_observation")
    return int(low), int(high)
