"""Goodhart's law with the axes labelled: raters, the reward fitted to them, and what pushing on it does.

    python examples/goodhart.py

An answer is two numbers: is it correct, and how long is it. Raters spot correctness; between two right or two
wrong answers they take the longer one three times in four. The reward fitted to their choices is a good model
of them and a bad objective: pushed on, it climbs at every step while what a reader gets peaks early and falls.
The peak is where the covariance of the two is zero. At the end, DPO reaches the same optimum from the
comparisons alone, and group-relative advantages replace the critic by one line of arithmetic.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.maths.advantages import group_normalized_advantages
from assay.maths.preference import dpo_loss
from assay.maths.tilt import Tilt, kl_tilt, truth_peak
from assay.train.linear_reward import LinearReward, fit_linear_reward

NAMES = ("correct 30", "correct 60", "correct 120", "correct 400", "wrong 190", "wrong 60")
ANSWERS = ((1, 30), (1, 60), (1, 120), (1, 400), (0, 190), (0, 60))
REFERENCE = torch.tensor([0.25, 0.22, 0.13, 0.05, 0.15, 0.20], dtype=torch.float64)
BETAS = (100.0, 10.0, 2.0, 1.0, 0.5, 0.25)
LONGER_WINS = 0.75  # of the pairs that are equally correct
TOKENS = 100.0  # the length feature is in hundreds of tokens

Answer = tuple[int, int]  # correct, tokens


def rated_pairs(count: int = 4000, seed: int = 0) -> list[tuple[Answer, Answer]]:
    """Draw (chosen, rejected) pairs of random answers from the raters above."""
    rng = np.random.default_rng(seed)

    def answer() -> Answer:
        return int(rng.integers(0, 2)), int(rng.integers(20, 200))

    pairs: list[tuple[Answer, Answer]] = []
    for _ in range(count):
        first, second = answer(), answer()
        if first[0] != second[0]:
            pairs.append((first, second) if first[0] else (second, first))
            continue
        longer, shorter = (first, second) if first[1] > second[1] else (second, first)
        pairs.append((longer, shorter) if rng.random() < LONGER_WINS else (shorter, longer))
    return pairs


def features(answer: Answer) -> list[float]:
    """Correctness and length in hundreds of tokens."""
    return [float(answer[0]), answer[1] / TOKENS]


def fitted_reward(pairs: list[tuple[Answer, Answer]]) -> LinearReward:
    """Bradley-Terry on the two features: plain gradient descent, 3,000 steps at rate 1."""
    differences = np.array([np.subtract(features(chosen), features(rejected)) for chosen, rejected in pairs])
    return fit_linear_reward(differences, ["correct", "per 100 tokens"])


def rewards(reward: LinearReward) -> Tensor:
    """Rewards of the six answers."""
    return torch.tensor([reward(features(answer)) for answer in ANSWERS], dtype=torch.float64)


def utility() -> Tensor:
    """What a reader gets: a right answer, with padding counted against it."""
    return torch.tensor([right - 0.4 * tokens / TOKENS for right, tokens in ANSWERS], dtype=torch.float64)


def tilt_rows(reward_K: Tensor) -> list[Tilt]:
    """The best policy at each strength of the KL penalty, in closed form."""
    return [kl_tilt(REFERENCE, reward_K, beta, truth_K=utility()) for beta in BETAS]


def best_tilt(reward_K: Tensor) -> tuple[float, Tilt]:
    """The continuous optimum: the beta at which utility peaks, and the policy there."""
    beta = truth_peak(REFERENCE, reward_K, utility())
    if beta is None:
        raise ValueError("utility has no peak along this curve")
    return beta, kl_tilt(REFERENCE, reward_K, beta, truth_K=utility())


class DPOFit(NamedTuple):
    """Six logits trained on comparisons alone, beside the closed form."""

    loss: float
    policy_K: Tensor
    closed_form_K: Tensor

    @property
    def disagreement(self) -> float:
        """Largest difference of a probability."""
        return float((self.policy_K - self.closed_form_K).abs().max())


def dpo_on_comparisons(reward_K: Tensor, *, beta: float = 1.0, steps: int = 3000) -> DPOFit:
    """Label random pairs by Bradley-Terry on ``reward_K`` and train six logits by DPO on nothing else."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 6, (40_000,), generator=generator)
    second = torch.randint(0, 6, (40_000,), generator=generator)
    first, second = first[first != second], second[first != second]
    wins = torch.rand(len(first), generator=generator) < torch.sigmoid(reward_K[first] - reward_K[second])
    chosen_and_rejected = torch.stack([torch.where(wins, first, second), torch.where(wins, second, first)])
    # Equal pairs have equal losses, so the mean over all pairs is a weighted mean over the 30 different ones.
    (chosen, rejected), counts = chosen_and_rejected.unique(dim=1, return_counts=True)
    share = counts / counts.sum()
    reference_K = REFERENCE.float().log()
    logits_K = torch.zeros(6, requires_grad=True)
    optimiser = torch.optim.Adam([logits_K], lr=0.05)
    loss = torch.tensor(float("nan"))
    for _ in range(steps):
        logp_K = torch.log_softmax(logits_K, 0)
        losses = dpo_loss(
            logp_K[chosen], logp_K[rejected], reference_K[chosen], reference_K[rejected], beta=beta
        )
        loss = (losses * share).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    closed_form_K = kl_tilt(REFERENCE, reward_K, beta).policy_K
    return DPOFit(float(loss.detach()), torch.softmax(logits_K.detach(), 0).double(), closed_form_K)


def main() -> None:
    """Print everything, in the order of the docstring."""
    reward = fitted_reward(rated_pairs())
    print(f"reward weights: correct {reward.weights[0]:+.3f}   per 100 tokens {reward.weights[1]:+.3f}")
    print(f"loss {reward.loss:.4f}, agrees with {reward.accuracy:.1%} of the comparisons")
    print(*(f"warning: {warning}" for warning in reward.warnings), sep="\n")
    reward_K = rewards(reward)
    print(f"\n{'answer':14} {'reward':>8} {'what the reader gets':>22}")
    for name, paid, gets in zip(NAMES, reward_K.tolist(), utility().tolist(), strict=True):
        print(f"{name:14} {paid:+8.3f} {gets:+22.3f}")
    print(f"\n{'beta':>7} {'KL':>7} {'reward':>8} {'utility':>8} {'cov':>8}   most likely answer")
    for beta, row in zip(BETAS, tilt_rows(reward_K), strict=True):
        print_row(beta, row)
    beta, peak = best_tilt(reward_K)
    best = max(tilt_rows(reward_K), key=lambda row: row.truth)
    print(f"best of these rows: KL {best.kl:.3f}, utility {best.truth:+.3f}; the best of all betas:")
    print_row(beta, peak)
    print_dpo(dpo_on_comparisons((reward_K / 4).float()))
    group = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    print("\nrewards of a group", group)
    print("advantages        ", [round(a, 3) for a in group_normalized_advantages(group).tolist()])


def print_row(beta: float, row: Tilt) -> None:
    """One line of the table."""
    name = NAMES[int(row.policy_K.argmax())]
    print(f"{beta:7.2f} {row.kl:7.3f} {row.reward:+8.3f} {row.truth:+8.3f} {row.covariance:+8.3f}   {name}")


def print_dpo(fit: DPOFit) -> None:
    """DPO beside the closed form."""
    print(f"\nDPO loss {fit.loss:.4f}\n{'answer':14} {'before':>7} {'DPO':>7} {'closed form':>12}")
    for row in zip(NAMES, REFERENCE.tolist(), fit.policy_K.tolist(), fit.closed_form_K.tolist(), strict=True):
        print(f"{row[0]:14} {row[1]:7.3f} {row[2]:7.3f} {row[3]:12.3f}")
    print(f"largest disagreement {fit.disagreement:.4f}")


if __name__ == "__main__":
    main()
