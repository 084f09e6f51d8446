"""A linear Bradley-Terry reward on named features: small enough to read, with the warnings a fit needs.

When some direction of the features never disagrees with a comparison, the likelihood has no maximum: the
weights along it grow for ever, and what is printed is only how long the fit ran (Albert and Anderson 1984).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from assay.errors import BadInput
from assay.maths.preference import bradley_terry_loss

if TYPE_CHECKING:
    from assay.stats.interval import FloatArray

SEPARATION_TOLERANCE = 1e-7


@dataclass(frozen=True)
class LinearReward:
    """A fitted reward.

    Attributes:
        names: of the features. weights: one each, reward a unit of the feature.
        errors: standard errors of the weights (inverse observed information); infinite along a separable
            direction.
        loss: mean Bradley-Terry loss, nats. accuracy: share of comparisons it agrees with.
        gradient: largest absolute partial derivative left at the end; far from 0, the fit is not done.
        separable: features whose weights have no finite best value. warnings: one sentence each.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    errors: tuple[float, ...]
    loss: float
    accuracy: float
    gradient: float
    separable: tuple[str, ...]
    warnings: tuple[str, ...]

    def __call__(self, features: Sequence[float]) -> float:
        """Reward of one answer's features."""
        return float(np.dot(features, self.weights))


def fit_linear_reward(
    differences_NF: FloatArray, names: Sequence[str], *, steps: int = 3_000, rate: float = 1.0
) -> LinearReward:
    """Fit by plain gradient descent from 0, in float64.

    Args:
        differences_NF: features of the chosen minus those of the rejected, a row a comparison.
        names: of the F features. steps, rate: of the descent.

    Raises:
        BadInput: shapes that do not fit, or values that are not finite.
    """
    given = np.asarray(differences_NF, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != len(names) or not len(given) or not np.isfinite(given).all():
        raise BadInput(f"expected finite differences of shape (N, {len(names)}), got {given.shape}")
    difference_NF = torch.from_numpy(given)
    weights_F = torch.zeros(len(names), dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        (gradient_F,) = torch.autograd.grad(_loss(difference_NF, weights_F), weights_F)
        weights_F = (weights_F - rate * gradient_F).detach().requires_grad_()
    loss = _loss(difference_NF, weights_F)
    (gradient_F,) = torch.autograd.grad(loss, weights_F)
    separable = tuple(names[i] for i in separable_features(given))
    return LinearReward(
        names=tuple(names),
        weights=tuple(weights_F.tolist()),
        errors=_standard_errors(difference_NF, weights_F.detach(), [name in separable for name in names]),
        loss=float(loss.detach()),
        accuracy=float((difference_NF @ weights_F > 0).double().mean()),
        gradient=float(gradient_F.abs().max()),
        separable=separable,
        warnings=tuple(_warning(name, weights_F.tolist()[names.index(name)], steps) for name in separable),
    )


def _loss(difference_NF: Tensor, weights_F: Tensor) -> Tensor:
    score_N = difference_NF @ weights_F
    return bradley_terry_loss(score_N, torch.zeros_like(score_N)).mean()


def _warning(name: str, weight: float, steps: int) -> str:
    return (
        f"{name} is separable: no comparison ever goes against it, so its weight has no finite best value and "
        f"would grow for ever; {weight:+.3f} is how far {steps} steps went. Stop early, add a ridge, or "
        "collect comparisons in which raters err"
    )


def _standard_errors(difference_NF: Tensor, weights_F: Tensor, infinite: list[bool]) -> tuple[float, ...]:
    chance_N = torch.sigmoid(difference_NF @ weights_F)
    information_FF = (difference_NF * (chance_N * (1 - chance_N))[:, None]).T @ difference_NF
    variance_F = torch.linalg.pinv(information_FF, hermitian=True).diagonal().clamp_min(0)
    pairs = zip(variance_F.sqrt().tolist(), infinite, strict=True)
    return tuple(float("inf") if endless else error for error, endless in pairs)


def separable_features(differences_NF: FloatArray) -> list[int]:
    """Indices of the features along which the likelihood has no maximum; empty when it has one.

    Solves for a direction d in [-1, 1]^F with ``differences @ d >= 0`` everywhere and above 0 somewhere: the
    maximum of the sum is 0 exactly when no such direction exists.
    """
    from scipy.optimize import linprog

    difference_NF = np.unique(differences_NF, axis=0)
    found = linprog(
        -difference_NF.sum(0), A_ub=-difference_NF, b_ub=np.zeros(len(difference_NF)), bounds=(-1, 1)
    )
    if not found.success or -found.fun <= SEPARATION_TOLERANCE * max(len(difference_NF), 1):
        return []
    return [index for index, part in enumerate(found.x) if abs(part) > SEPARATION_TOLERANCE]
