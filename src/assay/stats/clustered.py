"""Means and rates over samples that come in clusters: the n completions of one prompt are not independent.

Arrays are (P, n): P prompts, n samples each, NaN where there is no score. The estimate weighs prompts
equally. The standard error is that of the P prompt means, so it holds whatever the correlation inside a
prompt; treating the samples as independent understates it by the square root of the design effect.
"""

from __future__ import annotations

import math

import numpy as np

from assay.errors import BadInput
from assay.stats.binomial import wilson
from assay.stats.interval import FloatArray, Interval, t_quantile, unknown


def prompt_means(values: FloatArray) -> FloatArray:
    """Mean of each row of (P, n), NaN left out; NaN for a row without a score. Returns (P,)."""
    seen = np.isfinite(values)
    count = seen.sum(axis=1)
    total = np.where(seen, values, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(values), math.nan), where=count > 0)


def t_interval(means: FloatArray, level: float = 0.95, spread: float = 1.0) -> Interval:
    """Student's interval for the mean of independent prompt means (P,); NaN entries are left out.

    Where all prompts agree exactly, the standard error of 0 says nothing. The interval then reaches as far
    as P agreeing prompts allow: an outlier of size ``spread`` may hide in a share 1 - ((1 - level) / 2)^(1/P)
    of all prompts.
    """
    known = means[np.isfinite(means)]
    count = len(known)
    if count == 0:
        return unknown()
    centre = float(known.mean())
    if count == 1:
        return Interval(centre, math.nan, math.nan, 1, level)
    half = t_quantile(0.5 + level / 2, count - 1) * float(known.std(ddof=1)) / math.sqrt(count)
    if np.ptp(known) <= 1e-12 * max(1.0, abs(centre)):
        half = spread * (1 - ((1 - level) / 2) ** (1 / count))
    return Interval(centre, centre - half, centre + half, count, level)


def clustered_mean(values: FloatArray, level: float = 0.95, spread: float = 1.0) -> Interval:
    """Mean of (P, n) with Student's interval over prompts."""
    return t_interval(prompt_means(values), level, spread)


def paired_difference(after: FloatArray, before: FloatArray, level: float = 0.95) -> Interval:
    """Mean of after - before, two (P, n) arrays on the same prompts, clustered by prompt.

    The project's one primary comparison: the prompts' own difficulty cancels.
    """
    if len(after) != len(before):
        raise BadInput(f"expected the same prompts on both sides, got {len(after)} and {len(before)}")
    return t_interval(prompt_means(after) - prompt_means(before), level)


def standard_error(values: FloatArray) -> float:
    """Standard error of the mean of (P, n) over prompts; NaN with fewer than two prompts."""
    known = prompt_means(values)
    known = known[np.isfinite(known)]
    return float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan


def intraclass_correlation(values: FloatArray) -> float:
    """Analysis-of-variance estimate of the correlation inside a prompt, for (P, n) without NaN.

    NaN when there is no variation at all, or fewer than two prompts or samples.
    """
    prompts, samples = values.shape
    if prompts < 2 or samples < 2:
        return math.nan
    means = values.mean(axis=1)
    between = samples * float(means.var(ddof=1))
    within = float(((values - means[:, None]) ** 2).sum() / (prompts * (samples - 1)))
    denominator = between + (samples - 1) * within
    return (between - within) / denominator if denominator > 0 else math.nan


def design_effect(correlation: float, samples: float) -> float:
    """How many clustered samples are worth one independent sample: 1 + (n - 1) ICC (Kish 1965)."""
    return 1 + (samples - 1) * correlation


def effective_sample_size(values: FloatArray) -> float:
    """Independent samples worth as much as the P x n clustered ones; at most P n, NaN without variation."""
    prompts, samples = values.shape
    effect = design_effect(intraclass_correlation(values), samples)
    return prompts * samples / max(effect, 1.0) if not math.isnan(effect) else math.nan


def clustered_rate(flags: FloatArray, level: float = 0.95) -> Interval:
    """Share of 1 in (P, n) flags: Wilson on the effective sample size, Student's quantile for P prompts."""
    known = np.isfinite(flags)
    return clustered_ratio(np.where(known, flags, 0.0), known.astype(np.float64), level)


def clustered_ratio(hits: FloatArray, base: FloatArray, level: float = 0.95) -> Interval:
    """Share of ``hits`` among ``base``, two (P, n) arrays of 0 and 1 with hits <= base.

    The design effect is the linearised variance of the ratio across prompts over p(1-p)/N (Korn and Graubard
    1998). Few prompts with a hit (or with a miss) say little about it, so one prompt whose samples all agree
    is averaged in: without any hit the effective sample size is the number of prompts.
    """
    per_prompt, weight = hits.sum(axis=1), base.sum(axis=1)
    total, prompts = float(weight.sum()), int((weight > 0).sum())
    if total == 0:
        return unknown()
    rate = float(per_prompt.sum()) / total
    residual = (per_prompt - rate * weight)[weight > 0]
    variance = float((residual**2).sum()) / total**2 * prompts / max(prompts - 1, 1)
    informative = min(int((per_prompt > 0).sum()), int((per_prompt < weight).sum()))
    effect = variance * total / (rate * (1 - rate)) if 0 < rate < 1 and prompts > 1 else 1.0
    effect = (informative * max(effect, 1.0) + total / prompts) / (informative + 1)
    size = max(total / effect, 1.0)
    critical = t_quantile(0.5 + level / 2, max(prompts - 1, 1))
    found = wilson(rate * size, size, level, critical)
    return Interval(rate, found.low, found.high, size, level)
