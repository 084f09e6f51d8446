"""The policy gradient where it can be computed exactly: a softmax policy over four actions.

    python examples/bandit.py

A completion is one action, so a group of G samples has K^G outcomes, and the mean and the variance of every
estimator can be enumerated instead of believed. What to see: REINFORCE and leave-one-out have the true gradient
on average; the plain group mean has (1 - 1/G) of it; dividing by the standard deviation bends its direction; and
with small groups a baseline can cost more variance than it saves.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from assay.maths.advantages import group_mean, group_standardised, leave_one_out, no_baseline
from assay.maths.policy import reinforce_loss

LOGITS = torch.tensor([0.5, 0.0, -0.5, 1.0], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.0, 0.25, 0.0], dtype=torch.float64)

Estimator = Callable[[Tensor, Tensor], Tensor]  # rewards of the samples and their group ids -> advantages


def oracle(rewards_B: Tensor, group_B: Tensor) -> Tensor:
    """The baseline nobody has: the policy's true value."""
    return rewards_B - value(LOGITS, REWARDS)


ESTIMATORS: dict[str, Estimator] = {
    "reinforce": lambda rewards_B, group_B: no_baseline(rewards_B),
    "true value": oracle,
    "group mean": group_mean,
    "leave one out": leave_one_out,
    "standardised, ddof 1": lambda r, g: group_standardised(r, g, ddof=1, epsilon=1e-6),
    "standardised, ddof 0": lambda r, g: group_standardised(r, g, ddof=0, epsilon=1e-8),
}


class Moments(NamedTuple):
    """Mean gradient (K,) of an estimator, the trace of its covariance, and the share of groups without spread."""

    mean_K: Tensor
    variance: float
    flat: float


def value(logits_K: Tensor, rewards_K: Tensor) -> Tensor:
    """J: the expected reward of the softmax policy."""
    return torch.softmax(logits_K, 0) @ rewards_K


def exact_gradient(logits_K: Tensor, rewards_K: Tensor) -> Tensor:
    """dJ/dlogits by enumeration over the actions: sum_a pi(a) r(a) d log pi(a), which is pi * (r - J)."""
    policy_K = torch.softmax(logits_K, 0)
    scores_KK = torch.eye(len(policy_K), dtype=policy_K.dtype) - policy_K  # row a: d log pi(a) / d logits
    return (policy_K * rewards_K) @ scores_KK


def sampled_gradient(logits_K: Tensor, actions_G: Tensor, advantages_G: Tensor) -> Tensor:
    """The estimate from one group, by autograd through the loss that training uses: -mean(A log pi)."""
    logits_K = logits_K.detach().requires_grad_()
    logp_G = torch.log_softmax(logits_K, 0)[actions_G]
    (gradient_K,) = torch.autograd.grad(reinforce_loss(logp_G, advantages_G).mean(), logits_K)
    return -gradient_K  # the loss goes down where J goes up


def moments(logits_K: Tensor, rewards_K: Tensor, estimator: Estimator, group_size: int) -> Moments:
    """Mean and variance of an estimator over every possible group, weighted by its probability."""
    policy_K = torch.softmax(logits_K, 0)
    group_G = torch.zeros(group_size, dtype=torch.long)
    mean_K, square, flat = torch.zeros_like(policy_K), 0.0, 0.0
    for actions in itertools.product(range(len(policy_K)), repeat=group_size):
        actions_G = torch.tensor(actions)
        probability = float(policy_K[actions_G].prod())
        gradient_K = sampled_gradient(logits_K, actions_G, estimator(rewards_K[actions_G], group_G))
        mean_K += probability * gradient_K
        square += probability * float(gradient_K @ gradient_K)
        flat += probability * (len(set(rewards_K[actions_G].tolist())) == 1)
    return Moments(mean_K, square - float(mean_K @ mean_K), flat)


def cosine(a_K: Tensor, b_K: Tensor) -> float:
    return float(a_K @ b_K / (a_K.norm() * b_K.norm()))


def sample_mean_gradient(estimator: Estimator, group_size: int, groups: int, seed: int) -> Tensor:
    """The same estimate as training makes it: sampled groups, averaged."""
    generator = torch.Generator().manual_seed(seed)
    policy_K = torch.softmax(LOGITS, 0)
    actions_B = torch.multinomial(policy_K, groups * group_size, replacement=True, generator=generator)
    group_B = torch.arange(groups).repeat_interleave(group_size)
    return sampled_gradient(LOGITS, actions_B, estimator(REWARDS[actions_B], group_B))


def main() -> None:
    truth_K = exact_gradient(LOGITS, REWARDS)
    print(
        f"J = {float(value(LOGITS, REWARDS)):.6f}, exact gradient {[round(g, 6) for g in truth_K.tolist()]}\n"
    )
    print(f"{'G':>2}  {'estimator':22s} {'length/true':>11s} {'cosine':>8s} {'variance':>9s}  flat groups")
    for group_size in (2, 3, 4):
        for name, estimator in ESTIMATORS.items():
            m = moments(LOGITS, REWARDS, estimator, group_size)
            length = float(m.mean_K.norm() / truth_K.norm())
            print(
                f"{group_size:2d}  {name:22s} {length:11.4f} {cosine(m.mean_K, truth_K):8.5f} "
                f"{m.variance:9.5f}  {m.flat:.4f}"
            )
    sampled_K = sample_mean_gradient(leave_one_out, group_size=4, groups=50_000, seed=0)
    variance = moments(LOGITS, REWARDS, leave_one_out, 4).variance
    off, scale = float((sampled_K - truth_K).norm()), math.sqrt(variance / 50_000)
    print(f"\n50,000 sampled groups of 4, leave one out: off by {off:.5f}, expected about {scale:.5f}")


if __name__ == "__main__":
    main()
