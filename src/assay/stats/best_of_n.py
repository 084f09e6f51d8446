"""Best-of-n: draw n completions, keep the one with the highest reward. Exact, or estimated.

The draw that wins is the largest of n; equal rewards are broken at random among the tied draws.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate, special

from assay.errors import BadInput
from assay.stats.interval import FloatArray


def best_of_n(reference: FloatArray, reward: FloatArray, n: int) -> FloatArray:
    """Distribution (K,) of the best of ``n`` draws from ``reference`` (K,) by ``reward`` (K,), ties included.

    A reward class of mass m with mass F below it wins with (F + m)^n - F^n, shared out inside the class in
    proportion to the reference (Beirami et al. 2024).
    """
    _check(reference, reward, n)
    classes, member = np.unique(reward, return_inverse=True)
    mass = np.bincount(member, weights=reference, minlength=len(classes))
    upto = np.minimum(np.cumsum(mass), 1.0)
    below = upto - mass
    below[0] = 0.0
    wins = upto**n - np.maximum(below, 0.0) ** n
    share = np.divide(reference, mass[member], out=np.zeros_like(reference), where=mass[member] > 0)
    return wins[member] * share


def kl_divergence(policy: FloatArray, reference: FloatArray) -> float:
    """KL(policy || reference) in nats on a finite support; infinite where the reference has no mass."""
    held = policy > 0
    if (reference[held] <= 0).any():
        return math.inf
    return float((policy[held] * (np.log(policy[held]) - np.log(reference[held]))).sum())


def kl_bound(n: float) -> float:
    """Upper bound ln n - (n - 1)/n of the KL of best-of-n, reached by continuous rewards only."""
    return math.log(n) - (n - 1) / n


def kl_estimate(reference_of_chosen: FloatArray, n: int) -> FloatArray:
    """KL of best-of-n from the reference probability of each chosen completion (Beirami et al. 2024).

    Returns one value for each chosen completion; their average over best-of-n draws is the estimate. It lies
    between the KL and :func:`kl_bound`.
    """
    e = np.asarray(reference_of_chosen, dtype=np.float64)
    stay = np.exp(n * np.log1p(-np.minimum(e, 1 - 1e-16)))
    spread = math.log(n) + (n - 1) * np.log1p(-np.minimum(e, 1 - 1e-16)) - (n - 1) / n
    known = 1 - stay
    capped = np.log(np.divide(known, e, out=np.ones_like(e), where=e > 0))
    return np.where(stay > 0, stay * spread, 0.0) + known * capped


def win_rate(policy: FloatArray, reference: FloatArray, reward: FloatArray) -> float:
    """Probability that a draw of ``policy`` beats one of ``reference`` by reward; a tie counts one half."""
    beats = (reward[:, None] > reward[None, :]) + 0.5 * (reward[:, None] == reward[None, :])
    return float(policy @ beats @ reference)


def best_of_n_curve(proxy: FloatArray, gold: FloatArray, n: int) -> float:
    """Unbiased estimate of the gold of best-of-n by proxy, from N scored samples of one prompt.

    The i-th smallest proxy (from 0) wins with weight C(i, n - 1)/C(N, n) (Nakano et al. 2021); samples of
    equal proxy share their weights.
    """
    total = len(proxy)
    if not (len(gold) == total and 1 <= n <= total):
        raise BadInput(f"expected as many gold as proxy scores and 1 <= n <= {total}, got {len(gold)}, n={n}")
    order = np.argsort(proxy, kind="stable")
    rank = np.arange(total)
    logs = special.gammaln(rank + 1) - special.gammaln(n) - special.gammaln(np.maximum(rank - n + 2, 1))
    logs -= special.gammaln(total + 1) - special.gammaln(n + 1) - special.gammaln(total - n + 1)
    weight = np.where(rank >= n - 1, np.exp(logs), 0.0)
    _, member = np.unique(proxy[order], return_inverse=True)
    tied = np.bincount(member, weights=weight) / np.bincount(member)
    return float((tied[member] * gold[order]).sum())


def expected_maximum(n: int) -> float:
    """Expected largest of ``n`` independent standard normal draws."""
    if n < 1:
        raise BadInput(f"expected n >= 1, got {n}")

    def density(x: float) -> float:
        log_phi = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
        return x * n * math.exp(log_phi + (n - 1) * float(special.log_ndtr(x)))

    centre = float(special.ndtri(1 - 1 / (n + 1)))
    value, _ = integrate.quad(density, -12, 12, points=[centre], epsabs=1e-13, epsrel=1e-13, limit=400)
    return float(value)


def _check(reference: FloatArray, reward: FloatArray, n: int) -> None:
    if reference.shape != reward.shape or n < 1 or (reference < 0).any() or abs(reference.sum() - 1) > 1e-9:
        raise BadInput(
            f"expected a distribution that sums to 1, a reward for each item and n >= 1; got shapes "
            f"{reference.shape} and {reward.shape}, sum {reference.sum():.6g}, n={n}"
        )
