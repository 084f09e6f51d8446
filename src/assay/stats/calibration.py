"""A rate seen through a noisy evaluator, corrected by what the evaluator gets wrong on labelled samples."""

from __future__ import annotations

import math
from typing import Literal

from assay.errors import BadInput
from assay.stats.interval import Interval, normal_quantile


def rogan_gladen(
    passed: float,
    specificity: float,
    sensitivity: float,
    *,
    n: int,
    labelled_bad: int,
    labelled_good: int,
    method: Literal["adjusted", "wald"] = "adjusted",
    level: float = 0.95,
) -> Interval:
    """True rate from the share ``passed`` by an evaluator of known errors (Rogan and Gladen 1978).

    theta = (p + q0 - 1)/(q0 + q1 - 1), cut to 0..1, where q0 = specificity and q1 = sensitivity were measured
    on ``labelled_bad`` and ``labelled_good`` samples, p on ``n``. The interval counts all three errors:
    ``wald`` plugs the estimates in; ``adjusted`` (Lee et al. 2025) adds pseudo-counts and a shift that keep
    it honest near the edges and with few labels.

    Raises:
        BadInput: an evaluator no better than chance (q0 + q1 <= 1) says nothing about the rate.
    """
    if specificity + sensitivity <= 1:
        raise BadInput(
            f"expected an evaluator better than chance, got specificity {specificity} + sensitivity "
            f"{sensitivity} <= 1; use another evaluator"
        )
    z = normal_quantile(0.5 + level / 2)
    theta = min(1.0, max(0.0, _corrected(passed, specificity, sensitivity)))
    p, q0, q1, size, bad, good = passed, specificity, sensitivity, float(n), labelled_bad, labelled_good
    centre, shift = theta, 0.0
    if method == "adjusted":
        size = n + z * z
        p = (n * passed + z * z / 2) / size
        q0, bad = (labelled_bad * specificity + 1) / (labelled_bad + 2), labelled_bad + 2
        q1, good = (labelled_good * sensitivity + 1) / (labelled_good + 2), labelled_good + 2
        centre = _corrected(p, q0, q1)
        shift = 2 * z * z * (centre * q1 * (1 - q1) / good - (1 - centre) * q0 * (1 - q0) / bad)
    variance = p * (1 - p) / size
    variance += (1 - centre) ** 2 * q0 * (1 - q0) / bad + centre**2 * q1 * (1 - q1) / good
    half = z * math.sqrt(variance) / (q0 + q1 - 1)
    low, high = centre + shift - half, centre + shift + half
    return Interval(theta, max(0.0, low), min(1.0, high), n, level)


def _corrected(p: float, q0: float, q1: float) -> float:
    return (p + q0 - 1) / (q0 + q1 - 1)


def prediction_powered_mean(
    labelled: list[float], predicted: list[float], unlabelled: list[float], *, tuned: bool = True
) -> tuple[float, float]:
    """Mean of an expensive truth from few labels and many cheap predictions (Angelopoulos et al. 2023).

    Args:
        labelled: the truth of n samples.
        predicted: the cheap score of the same samples.
        unlabelled: the cheap score of N further samples.
        tuned: weigh the predictions by Cov(Y, F)/((1 + n/N) Var F), cut to 0..1, with the variance of all
            predictions; else by 1.

    Returns:
        The estimate and its standard error.
    """
    n, total = len(labelled), len(unlabelled)
    if n < 2 or len(predicted) != n or total < 2:
        raise BadInput(f"expected two or more labelled and unlabelled samples, got {n} and {total}")
    weight = 1.0
    if tuned:
        every = [*predicted, *unlabelled]
        spread = _covariance(every, every)
        weight = _covariance(labelled, predicted) / ((1 + n / total) * spread) if spread > 0 else 0.0
        weight = min(1.0, max(0.0, weight))
    rest = [y - weight * f for y, f in zip(labelled, predicted, strict=True)]
    scaled = [weight * f for f in unlabelled]
    error = math.sqrt(_covariance(scaled, scaled) / total + _covariance(rest, rest) / n)
    return sum(scaled) / total + sum(rest) / n, error


def _covariance(first: list[float], second: list[float]) -> float:
    a, b = sum(first) / len(first), sum(second) / len(second)
    return sum((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / len(first)
