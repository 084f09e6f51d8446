"""Rejection sampling: draw until a completion is paid at least a threshold, or the tries are used up.

The policy is the start's own, reweighted: what passes is drawn in the start's proportions, and so is what fails.
Hence its KL from the start is that of two coins, exactly, whatever the completions are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay.errors import BadInput
from assay.stats.interval import FloatArray


@dataclass(frozen=True)
class Rejection:
    """One threshold on P prompts.

    Attributes:
        threshold: a completion below it is drawn again. accepted: mean share of the start's draws that pass.
        kl: mean over prompts, nats. reward, gold: means over prompts under the resulting policy.
    """

    threshold: float
    accepted: float
    kl: float
    reward: float
    gold: float


def coin_kl(first: float, second: float) -> float:
    """KL of a coin that shows heads with ``first`` from one with ``second``, nats."""
    parts = ((first, second), (1 - first, 1 - second))
    return math.fsum(p * math.log(p / q) if q > 0 else math.inf for p, q in parts if p > 0)


def rejection_sampling(
    reward_PN: FloatArray, gold_PN: FloatArray, threshold: float, *, tries: int
) -> Rejection:
    """Estimate the policy from the start's N scored samples a prompt; the last of ``tries`` draws is kept anyway.

    Args:
        reward_PN, gold_PN: of the start's samples; a sample without both is left out.

    Raises:
        BadInput: other shapes, no sample with both scores, or fewer than one try.
    """
    if reward_PN.ndim != 2 or reward_PN.shape != gold_PN.shape or tries < 1:
        raise BadInput(
            f"expected rewards and gold of one shape (prompts, samples) and tries >= 1, got {reward_PN.shape}, "
            f"{gold_PN.shape} and {tries}"
        )
    rows = [
        _one(reward_N[known_N], gold_N[known_N], threshold, tries)
        for reward_N, gold_N in zip(reward_PN, gold_PN, strict=True)
        if (known_N := np.isfinite(reward_N) & np.isfinite(gold_N)).any()
    ]
    if not rows:
        raise BadInput("no sample has both a reward and a gold score")
    accepted, kl, reward, gold = np.mean(rows, axis=0).tolist()
    return Rejection(threshold, accepted, kl, reward, gold)


def _one(
    reward_N: FloatArray, gold_N: FloatArray, threshold: float, tries: int
) -> tuple[float, float, float, float]:
    passed_N = reward_N >= threshold
    share = float(passed_N.mean())
    found = 1 - (1 - share) ** tries
    weight_N = np.where(passed_N, found / max(share, 1e-300), (1 - found) / max(1 - share, 1e-300))
    weight_N /= len(reward_N)
    return share, coin_kl(found, share), float(weight_N @ reward_N), float(weight_N @ gold_N)


def rejection_at_kl(reward_PN: FloatArray, gold_PN: FloatArray, kl: float, *, tries: int) -> Rejection:
    """The threshold whose KL is nearest to ``kl``, among quantiles of all rewards up to the highest KL."""
    pooled = reward_PN[np.isfinite(reward_PN)]
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, 41))) if pooled.size else np.zeros(1)
    found = [rejection_sampling(reward_PN, gold_PN, float(at), tries=tries) for at in thresholds]
    # Past its highest point the KL falls again, because ever more prompts run out of tries.
    rising = found[: 1 + int(np.argmax([one.kl for one in found]))]
    return min(rising, key=lambda one: abs(one.kl - kl))
