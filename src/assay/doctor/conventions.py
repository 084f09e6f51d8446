"""The known formulas of group advantages, and which of them gives the logged numbers.

Baselines: the group's mean, the mean of the others, the batch's mean. Divisors: none, the group's standard
deviation (ddof 0 or 1) plus an epsilon, the batch's. A step-wide whitening may follow. Sources are the trainers'
public code: TRL adds 1e-4 with ddof 1, verl 1e-6 with ddof 1, OpenRLHF 1e-9 with ddof 1, open-instruct 1e-8 with
ddof 0; the mean of the others is RLOO's; no divisor is Dr. GRPO's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.doctor.trend import Floats

Ints = NDArray[np.int64]

TOLERANCE = 0.02
"""An advantage is reproduced when it is within 2% of the largest of its group (or within 0.1% of all)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Rows of groups that were logged whole. reward, advantage: (N,). index: (N,) group. step: (N,). size: G."""

    reward: Floats
    advantage: Floats
    index: Ints
    step: Ints
    size: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A formula and the share of rows with spread that it reproduces."""

    name: str
    share: float
    epsilon: float = 0.0


def moments(values: Floats, index: Ints) -> tuple[Floats, Floats, Floats]:
    """Per row: mean of its group, biased standard deviation of its group (centred, two passes), group size."""
    counts = np.maximum(np.bincount(index), 1)
    mean = (np.bincount(index, values) / counts)[index]
    variance = (np.bincount(index, (values - mean) ** 2) / counts)[index]
    return mean, np.sqrt(variance), counts[index].astype(np.float64)


def reproduced(predicted: Floats, logged: Floats, index: Ints) -> Floats:
    """Per row whether the prediction agrees, as 0 or 1."""
    largest = np.zeros(int(index.max()) + 1)
    np.maximum.at(largest, index, np.abs(logged))
    scale = np.maximum(largest[index], 0.05 * float(np.abs(logged).max()))
    return (np.abs(predicted - logged) <= 1e-9 + TOLERANCE * scale).astype(np.float64)


def candidates(rows: Whole) -> list[tuple[str, Floats, Floats, Floats]]:
    """(name, numerator, divisor without epsilon, spread) of each formula, per row."""
    mean, std, size = moments(rows.reward, rows.index)
    step_index = np.unique(rows.step, return_inverse=True)[1].astype(np.int64)
    batch_mean, batch_std, _ = moments(rows.reward, step_index)
    unbiased = std * np.sqrt(size / np.maximum(size - 1, 1))
    centred = rows.reward - mean
    others = centred * size / np.maximum(size - 1, 1)
    one = np.ones_like(std)
    return [
        ("group mean / std (ddof 0)", centred, std, std),
        ("group mean / std (ddof 1)", centred, unbiased, std),
        ("group mean", centred, one, std),
        ("mean of the others", others, one, std),
        ("mean of the others / std (ddof 1)", others, unbiased, std),
        ("mean of the others / their std", others, _others_std(rows, mean, std, size), std),
        ("group mean / batch std", centred, np.maximum(batch_std, 1e-12), std),
        ("batch mean / batch std", rows.reward - batch_mean, np.maximum(batch_std, 1e-12), std),
        ("batch mean", rows.reward - batch_mean, one, std),
        ("none", rows.reward, one, std),
    ]


def _others_std(rows: Whole, mean: Floats, std: Floats, size: Floats) -> Floats:
    """Unbiased standard deviation of the other members of the group, per row."""
    total = size * std**2  # sum of squares around the group's mean
    away = (rows.reward - mean) ** 2 * size / np.maximum(size - 1, 1)
    return np.sqrt(np.maximum(total - away, 0.0) / np.maximum(size - 2, 1))


def best_fit(rows: Whole, epsilons: tuple[float, ...] = (0.0, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4)) -> Fit:
    """The formula that reproduces most rows of groups with spread, with and without whitening by step."""
    best = Fit("none of the known", 0.0)
    for name, numerator, divisor, spread in candidates(rows):
        varied = spread > 1e-6 * max(1e-12, float(np.abs(rows.reward).max()))
        if not varied.any():
            return Fit("no group has spread", math.nan)
        for epsilon in epsilons if "std" in name else (0.0,):
            raw = np.where(
                varied, numerator / np.where(varied, np.maximum(divisor + epsilon, 1e-12), 1.0), 0.0
            )
            for label, predicted in ((name, raw), (f"{name}, whitened by step", _whitened(raw, rows.step))):
                share = float(reproduced(predicted, rows.advantage, rows.index)[varied].mean())
                if share > best.share + 1e-9:
                    best = Fit(label, share, epsilon)
        if best.share > 0.995:
            break
    return best


def _whitened(values: Floats, step: Ints) -> Floats:
    index = np.unique(step, return_inverse=True)[1].astype(np.int64)
    mean, std, _ = moments(values, index)
    return (values - mean) / np.maximum(std, 1e-8)


def fitted_epsilon(rows: Whole) -> tuple[float, float]:
    """The epsilon that the logged advantages imply for (reward - mean) / (std + epsilon), and the share it explains.

    Tried with both ddof; NaN where no group has both spread and an advantage.
    """
    mean, std, size = moments(rows.reward, rows.index)
    best = (math.nan, 0.0)
    for divisor in (std, std * np.sqrt(size / np.maximum(size - 1, 1))):
        usable = (np.abs(rows.reward - mean) > 1e-3 * np.abs(rows.reward).max()) & (
            np.abs(rows.advantage) > 1e-9
        )
        if not usable.any():
            continue
        implied = (rows.reward - mean)[usable] / rows.advantage[usable] - divisor[usable]
        epsilon = float(np.median(implied))
        predicted = (rows.reward - mean) / np.maximum(divisor + epsilon, 1e-12)
        share = float(reproduced(predicted, rows.advantage, rows.index)[usable].mean())
        if share > best[1]:
            best = (epsilon, share)
    return best


def same_reward_other_advantage(rows: Whole) -> float:
    """Share of groups with spread in which equal rewards have clearly different advantages."""
    order = np.lexsort((rows.reward, rows.index))
    index, reward, advantage = rows.index[order], rows.reward[order], rows.advantage[order]
    scale = max(1e-12, float(np.abs(rows.reward).max()))
    same = (index[1:] == index[:-1]) & (np.abs(np.diff(reward)) <= 1e-9 * scale)
    differs = same & (np.abs(np.diff(advantage)) > 0.02 * max(1e-3, float(np.abs(rows.advantage).max())))
    with_ties = np.unique(index[1:][same])
    return np.unique(index[1:][differs]).size / with_ties.size if with_ties.size else 0.0
