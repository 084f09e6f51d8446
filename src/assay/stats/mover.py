"""Intervals of a difference from the intervals of its parts (Newcombe 1998; Zou and Donner 2008).

Student's interval of a gap is symmetrical; a rare event is not. Where the gap is made of rare disagreements,
the Wilson ends of the two kinds of disagreement are recombined instead.
"""

from __future__ import annotations

import math

import numpy as np

from assay.errors import BadInput
from assay.stats.binomial import wilson
from assay.stats.clustered import clustered_mean, clustered_rate, prompt_means
from assay.stats.interval import FloatArray, Interval, unknown


def recombine(first: Interval, second: Interval, correlation: float = 0.0) -> Interval:
    """Interval of first - second from both intervals and the correlation of the two estimates."""
    a, b = first.estimate, second.estimate
    down, up = a - first.low, first.high - a
    other_up, other_down = second.high - b, b - second.low
    low = a - b - math.sqrt(max(0.0, down**2 + other_up**2 - 2 * correlation * down * other_up))
    high = a - b + math.sqrt(max(0.0, up**2 + other_down**2 - 2 * correlation * up * other_down))
    return Interval(a - b, low, high, min(first.n, second.n), first.level)


def gap_interval(reward: FloatArray, truth: FloatArray, level: float = 0.95) -> Interval:
    """Mean reward - mean truth of (P, n) scores in 0..1, clustered by prompt, over samples with both scores.

    Student's interval over prompts, widened to the Wilson interval of "paid too much", "paid too little", or
    both recombined, where that reaches further: with a handful of disagreeing prompts only it covers as it
    should.
    """
    gap = np.where(np.isfinite(reward) & np.isfinite(truth), reward - truth, math.nan)
    primary = clustered_mean(gap, level)
    if math.isnan(primary.low):
        return primary if math.isfinite(primary.estimate) else unknown()
    over, under = np.where(gap < 0, 0.0, gap), np.where(gap > 0, 0.0, -gap)
    if max(np.nanmax(over), np.nanmax(under)) > 1:  # scores beyond what the gold gets have no Wilson interval
        return primary
    parts = _parts(over, under, level)
    low, high = min(primary.low, parts.low), max(primary.high, parts.high)
    return Interval(primary.estimate, max(low, -1.0), min(high, 1.0), primary.n, level)


def _parts(over: FloatArray, under: FloatArray, level: float) -> Interval:
    """Interval of over - under; where all disagreements point one way, of that way alone."""
    too_much, too_little = clustered_rate(over, level), clustered_rate(under, level)
    if too_much.estimate > 0 and too_little.estimate == 0:
        return too_much
    if too_little.estimate > 0 and too_much.estimate == 0:
        return Interval(-too_little.estimate, -too_little.high, -too_little.low, too_little.n, level)
    return recombine(too_much, too_little, _correlation(over, under))


def _correlation(first: FloatArray, second: FloatArray) -> float:
    a, b = prompt_means(first), prompt_means(second)
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < 2 or np.ptp(a[known]) == 0 or np.ptp(b[known]) == 0:
        return 0.0
    return float(np.corrcoef(a[known], b[known])[0, 1])


def newcombe_paired(both: int, first_only: int, second_only: int, neither: int) -> Interval:
    """Newcombe's method 10 for the difference of two paired proportions, first - second (Newcombe 1998).

    Args:
        both, first_only, second_only, neither: counts of pairs.
    """
    n = both + first_only + second_only + neither
    if n <= 0 or min(both, first_only, second_only, neither) < 0:
        raise BadInput("expected counts of pairs, none negative and not all 0")
    margins = (both + first_only) * (second_only + neither) * (both + second_only) * (first_only + neither)
    cross = both * neither - first_only * second_only
    if cross > 0:  # the continuity correction of the method
        cross = max(cross - n / 2, 0)
    phi = cross / math.sqrt(margins) if margins > 0 else 0.0
    return recombine(wilson(both + first_only, n), wilson(both + second_only, n), phi)
