"""Every function against exact values enumerated, solved or integrated by other means (``oracles.json``)."""

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import Tensor

from assay.maths import advantages as adv
from assay.maths.kl import exact_kl, kl_estimate
from assay.maths.logprobs import logprobs_from_logits
from assay.maths.policy import cispo_loss, clipped_loss, reinforce_loss
from assay.maths.preference import bradley_terry_loss, smoothed_sigmoid_loss
from assay.maths.tilt import kl_tilt
from assay.stats.best_of_n import best_of_n, kl_bound, kl_divergence
from assay.stats.overoptimisation import fit

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text("utf-8"))
TIGHT = {"abs": 1e-8, "rel": 1e-8}


def vector(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def entropy(policy: Tensor) -> float:
    return float(logprobs_from_logits(policy.log(), torch.tensor(0)).entropy)


# The bandit: four arms, every group of G draws enumerated.

LOGITS, ARM_REWARDS = vector([0.5, 0.0, -0.5, 1.0]), vector([1.0, 0.0, 0.25, 0.0])
ARMS = torch.softmax(LOGITS, 0)
VALUE = float(ARMS @ ARM_REWARDS)
CREDIT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda r, g: adv.no_baseline(r),
    "value": lambda r, g: adv.constant_baseline(r, VALUE),
    "group_mean": adv.group_mean,
    "leave_one_out": adv.leave_one_out,
    "ddof 1, 1e-4": lambda r, g: adv.group_standardised(r, g, ddof=1, epsilon=1e-4),
    "ddof 1, 1e-6": lambda r, g: adv.group_standardised(r, g, ddof=1, epsilon=1e-6),
    "ddof 0, 1e-8": lambda r, g: adv.group_standardised(r, g, ddof=0, epsilon=1e-8),
}


def moments(credit: Callable[[Tensor, Tensor], Tensor], size: int) -> tuple[Tensor, float]:
    """Mean of the group's gradient in the logits, and the trace of its covariance."""
    draws = torch.tensor(list(product(range(4), repeat=size)))
    chance = ARMS[draws].prod(1)
    group = torch.arange(len(draws)).repeat_interleave(size)
    advantages = credit(ARM_REWARDS[draws].flatten(), group).reshape(draws.shape)
    score = torch.eye(4, dtype=torch.float64)[draws] - ARMS  # grad of log pi in the logits
    gradient = (advantages[..., None] * score).mean(1)
    mean = chance @ gradient
    return mean, float(chance @ (gradient - mean).square().sum(1))


@pytest.mark.parametrize(("size", "name"), list(product("234", CREDIT)))
def test_moments_of_every_estimator(size: str, name: str):
    mean, variance = ORACLES["bandit"][size][name]
    found_mean, found_variance = moments(CREDIT[name], int(size))
    assert found_mean.tolist() == pytest.approx(mean, **TIGHT)
    assert found_variance == pytest.approx(variance, **TIGHT)


def test_the_best_constant_baseline_of_one_sample():
    for baseline, variance in ORACLES["single_sample"]:
        found = moments(lambda r, g, b=baseline: adv.constant_baseline(r, b), 1)[1]
        assert found == pytest.approx(variance, **TIGHT)


def test_entropies_of_the_bandit():
    gradient = ARMS * (ARM_REWARDS - VALUE)
    assert entropy(ARMS) == pytest.approx(1.2450504274673975, **TIGHT)
    step = entropy(torch.softmax(LOGITS + 1e-3 * gradient, 0)) - entropy(ARMS)
    assert step == pytest.approx(2.5673127742376067e-05, abs=1e-12)
    moved = torch.softmax(LOGITS + 0.5 * gradient, 0)
    assert float(exact_kl(moved.log(), ARMS.log())) == pytest.approx(0.002437194223028998, **TIGHT)


# The tilt: six answers, one of them a hack.

REF = vector([0.4, 0.25, 0.2, 0.1, 0.045, 0.005])
PROXY, TRUTH = vector([0.0, 0.1, 0.6, 1.0, 1.2, 2.0]), vector([0.0, 0.1, 0.6, 1.0, 0.5, -1.0])


@pytest.mark.parametrize("row", ORACLES["tilt"], ids=lambda row: f"beta {row[0]}")
def test_the_tilt_at_every_strength(row: list):
    beta, policy, proxy, truth, kl, nats, objective = row
    found = kl_tilt(REF, PROXY, beta, truth_K=TRUTH)
    assert found.policy_K.tolist() == pytest.approx(policy, **TIGHT)
    assert (found.reward, found.truth, found.value) == pytest.approx((proxy, truth, objective), **TIGHT)
    assert found.kl == pytest.approx(kl, abs=1e-8)
    assert entropy(found.policy_K) == pytest.approx(nats, **TIGHT)
    assert kl_divergence(found.policy_K.numpy(), REF.numpy()) == pytest.approx(kl, abs=1e-8)


def test_truth_is_back_at_its_start():
    found = kl_tilt(REF, PROXY, 0.3558433024672297, truth_K=TRUTH)
    assert found.truth == pytest.approx(float(REF @ TRUTH), abs=1e-8)
    assert found.kl == pytest.approx(1.2251864265769479, abs=1e-8)


@pytest.mark.parametrize("row", ORACLES["chi2"], ids=lambda row: f"beta {row[0]}")
def test_true_gain_never_falls_below_its_correlation_bound(row: list):
    beta, proxy_gain, true_gain, bound = row
    found = kl_tilt(REF, PROXY, beta, truth_K=TRUTH)
    sd = [math.sqrt(float(REF @ (x - REF @ x).square())) for x in (PROXY, TRUTH)]
    gains = (found.reward - float(REF @ PROXY)) / sd[0], (found.truth - float(REF @ TRUTH)) / sd[1]
    assert gains == pytest.approx((proxy_gain, true_gain), abs=1e-8)
    assert gains[1] >= bound


def test_both_laws_fitted_to_the_tilt():
    points = [kl_tilt(REF, PROXY, 1 / x, truth_K=TRUTH) for x in np.linspace(0.02, 6, 300)]
    distance = np.sqrt([point.kl for point in points])
    gold = np.array([point.truth for point in points]) - float(REF @ TRUTH)
    expected = {
        "quadratic": (0.5314385717748265, 0.4916730968339261, 0.012602909700019885),
        "logarithmic": (-0.009234038686515868, 0.6051884178586895, 0.06779656753767331),
    }
    for form, values in expected.items():
        found = fit(distance, gold, form)
        assert (found.a, found.b, found.rmse) == pytest.approx(values, **TIGHT)


# Best-of-n against the tilt, and Goodhart in closed form.


def uniform_grid(count: int = 200_001) -> tuple[Tensor, Tensor]:
    middle = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return torch.full_like(middle, 1 / count), middle


@pytest.mark.parametrize("row", ORACLES["continuous"], ids=lambda row: f"n {row[0]}")
def test_best_of_n_is_close_to_the_tilt_of_equal_kl(row: list):
    n, kl, best, strength, tilted = row
    ref, reward = uniform_grid()
    found = kl_tilt(ref, reward, 1 / strength)
    assert kl_bound(n) == pytest.approx(kl, **TIGHT)
    assert (found.reward, found.kl) == pytest.approx((tilted, kl), abs=1e-6)
    chosen = best_of_n(ref.numpy(), reward.numpy(), n)
    assert float(chosen @ reward.numpy()) == pytest.approx(best, abs=1e-5)
    assert found.reward > best


def test_kl_of_best_of_many():
    cases = {
        "binary_uniform": ([0.5, 0.5], [0.0, 1.0]),
        "binary_p0.1": ([0.9, 0.1], [0.0, 1.0]),
        "five_distinct": ([0.4, 0.3, 0.15, 0.1, 0.05], [0.0, 1.0, 2.0, 3.0, 4.0]),
        "ties": ([0.4, 0.2, 0.2, 0.1, 0.1], [0.0, 1.0, 1.0, 2.0, 2.0]),
        "uniform_1000": ([1e-3] * 1000, list(range(1000))),
    }
    for name, (reference, reward) in cases.items():
        ref = np.array(reference)
        policy = best_of_n(ref, np.array(reward, dtype=float), 100_000)
        assert kl_divergence(policy, ref) == pytest.approx(ORACLES["limits"][name], abs=1e-6)


def normal_grid(top: float) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-10, top + 10, 40_001, dtype=torch.float64)
    return torch.softmax(-0.5 * x.square(), 0), x


@pytest.mark.parametrize("row", ORACLES["gaussian"], ids=lambda row: f"lambda {row[0]}")
def test_a_gaussian_error_costs_its_square(row: list):
    strength, mean, kl = row
    found = kl_tilt(*normal_grid(strength), 1 / strength)
    assert (found.reward, found.kl) == pytest.approx((mean, kl), abs=1e-6)


@pytest.mark.parametrize("row", ORACLES["tilt_gold"][1:], ids=lambda row: f"KL {row[0]:.2f}")
def test_gold_of_the_tilt_at_the_kl_of_best_of_n(row: list):
    """Gold and error are independent and standard: half of the proxy's rise is gold."""
    kl, gold, _ = row
    strength = math.sqrt(kl)  # of each part: the KL of the pair is twice a half square
    found = kl_tilt(*normal_grid(strength), 1 / strength)
    assert 2 * found.kl == pytest.approx(kl, abs=1e-6)
    assert found.reward == pytest.approx(gold, abs=1e-6)


@pytest.mark.parametrize("row", ORACLES["heavy_tail"], ids=lambda row: f"t {row[0]}")
def test_a_heavy_tail_pays_much_for_little_kl(row: list):
    """A share t^-0.8 of the draws of a Student t(3) is replaced by draws beyond t."""
    t, error, kl = row
    above, share = float(stats.t.sf(t, 3)), t**-0.8
    put = share + (1 - share) * above
    found = kl_divergence(np.array([1 - put, put]), np.array([1 - above, above]))
    assert found == pytest.approx(kl, rel=1e-7)
    density = special.gamma(2) / (math.sqrt(3 * math.pi) * special.gamma(1.5))
    tail = density * 3 / 2 / (1 + t * t / 3)  # integral of x f(x) over x > t
    assert share * tail / above == pytest.approx(error, rel=1e-8)


# Bradley-Terry and DPO.

WINS = vector([[0, 7, 8, 9], [3, 0, 6, 8], [2, 4, 0, 7], [1, 2, 3, 0]])


def fitted(wins: Tensor, ridge: float = 0.0) -> Tensor:
    """Scores of least loss, their mean 0; ``ridge / 2`` weighs the sum of their squares."""

    def value_and_gradient(x: np.ndarray):
        scores = vector(x).requires_grad_()
        loss = (wins * bradley_terry_loss(scores[:, None], scores[None])).sum() + ridge / 2 * scores @ scores
        return float(loss.detach()), torch.autograd.grad(loss, scores)[0].numpy()

    options = {"gtol": 1e-11}
    found = optimize.minimize(
        value_and_gradient, np.zeros(len(wins)), jac=True, method="BFGS", options=options
    )
    return vector(found.x - found.x.mean())


def test_bradley_terry_of_two_and_four_items():
    two = fitted(vector([[0, 30], [10, 0]]))
    assert float(two[0] - two[1]) == pytest.approx(math.log(3), abs=1e-6)
    loss = 0.75 * bradley_terry_loss(two[0], two[1]) + 0.25 * bradley_terry_loss(two[1], two[0])
    assert float(loss) == pytest.approx(0.5623351446188083, abs=1e-8)
    four = fitted(WINS)
    won = torch.exp(-bradley_terry_loss(four[:, None], four[None]))
    assert won.flatten().tolist() == pytest.approx(
        vector(ORACLES["bradley_terry"]["P"]).flatten().tolist(), abs=1e-6
    )


@pytest.mark.parametrize("ridge", ORACLES["bradley_terry"]["ridge"])
def test_a_ridge_shrinks_the_scores(ridge: str):
    expected = ORACLES["bradley_terry"]["ridge"][ridge]
    assert fitted(WINS, float(ridge)).tolist() == pytest.approx(expected, abs=1e-6)


def test_a_ridge_keeps_an_item_that_never_wins():
    wins = vector([[0, 5, 5], [5, 0, 5], [0, 0, 0]])
    expected = [0.6397410691297772, 0.6397410691297772, -1.2794821382595543]
    assert fitted(wins, 1.0).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("row", ORACLES["bradley_terry"]["noise"], ids=str)
def test_flipped_labels_shrink_the_gap(row: list):
    gap, flip, expected = row
    win = 1 / (1 + math.exp(-gap))
    win = win * (1 - flip) + (1 - win) * flip
    scores = fitted(vector([[0, win], [1 - win, 0]]))
    assert float(scores[0] - scores[1]) == pytest.approx(expected, abs=1e-6)


CELLS = vector(list(product((-1, 0, 1), (-1, 0, 1))))  # difference of quality and of length
LENGTH_WEIGHTS = vector([0.18, 0.08, 0.04, 0.08, 0.24, 0.08, 0.04, 0.08, 0.18])


def regressed(columns: Tensor, weights: Tensor) -> list[float]:
    """Coefficients of a margin, linear in its columns, of least loss on labels with margin q + l / 2."""
    win = torch.sigmoid(CELLS @ vector([1.0, 0.5]))

    def value_and_gradient(x: np.ndarray):
        coefficients = vector(x).requires_grad_()
        margin, zero = columns @ coefficients, torch.zeros(9, dtype=torch.float64)
        losses = win * bradley_terry_loss(margin, zero) + (1 - win) * bradley_terry_loss(zero, margin)
        loss = weights @ losses
        return float(loss.detach()), torch.autograd.grad(loss, coefficients)[0].numpy()

    start = np.zeros(columns.shape[1])
    options = {"gtol": 1e-12}
    return list(optimize.minimize(value_and_gradient, start, jac=True, method="BFGS", options=options).x)


def test_length_takes_the_credit_of_quality_that_is_not_in_the_fit():
    assert regressed(CELLS, LENGTH_WEIGHTS) == pytest.approx([1.0, 0.5], abs=1e-6)
    assert regressed(CELLS[:, 1:], LENGTH_WEIGHTS) == pytest.approx([0.8802431081552896], abs=1e-6)
    assert regressed(CELLS[:, :1], LENGTH_WEIGHTS) == pytest.approx([1.1997944625488821], abs=1e-6)
    longer = vector([0.05, 0.1, 0.15, 0.05, 0.1, 0.2, 0.05, 0.1, 0.2])
    with_intercept = torch.cat([CELLS, torch.ones(9, 1, dtype=torch.float64)], 1)
    quality, length, intercept = regressed(with_intercept, longer)
    assert (quality, length, intercept) == pytest.approx((1.0, 0.5, 0.0), abs=1e-6)
    for slope, expected in ((length, 0.5537591379891393), (0.0, 0.5115529289315003)):
        margin = CELLS @ vector([quality, slope])
        won = torch.exp(-bradley_terry_loss(margin, torch.zeros_like(margin)))
        assert float(longer @ won) == pytest.approx(expected, abs=1e-6)


DPO_REF, DPO_REWARD = vector([0.5, 0.3, 0.15, 0.05]), vector([0.0, 0.5, 1.0, 2.0])
PAIRS = torch.triu_indices(4, 4, 1)


def pair_loss(logits: Tensor, win: Tensor, smoothing: float = 0.0) -> Tensor:
    ratio = torch.log_softmax(logits, 0) - DPO_REF.log()
    margin = 0.5 * (ratio[PAIRS[0]] - ratio[PAIRS[1]])
    losses = win * smoothed_sigmoid_loss(margin, smoothing)
    return (losses + (1 - win) * smoothed_sigmoid_loss(-margin, smoothing)).mean()


def test_labels_without_noise_have_no_optimum():
    """Gradient descent at rate 1 on certain preferences: the KL grows towards that of the best answer alone."""
    logits, win = DPO_REF.log(), torch.zeros(6, dtype=torch.float64)
    rows = {row[0]: row[1:] for row in ORACLES["hard_labels"]}
    for step in range(1, 1001):
        logits = logits.detach().requires_grad_()
        value = pair_loss(logits, win)
        logits = logits - torch.autograd.grad(value, logits)[0]
        if step in rows:
            loss, kl, policy = rows[step]
            assert torch.softmax(logits, 0).tolist() == pytest.approx(policy, **TIGHT)
            assert float(value.detach()) == pytest.approx(loss, **TIGHT)
            found = exact_kl(torch.log_softmax(logits, 0), DPO_REF.log())
            assert float(found.detach()) == pytest.approx(kl, **TIGHT)


@pytest.mark.parametrize(
    ("smoothing", "loss", "kl"),
    [(0.1, 0.6077447573314338, 0.5523506633591331), (0.25, 0.6608761458493535, 0.1533908849855026)],
)
def test_smoothed_labels_reach_a_smaller_kl(smoothing: float, loss: float, kl: float):
    win = torch.sigmoid(DPO_REWARD[PAIRS[0]] - DPO_REWARD[PAIRS[1]])

    def value_and_gradient(x: np.ndarray):
        logits = vector(x).requires_grad_()
        value = pair_loss(logits, win, smoothing)
        return float(value.detach()), torch.autograd.grad(value, logits)[0].numpy()

    found = optimize.minimize(
        value_and_gradient, DPO_REF.log().numpy(), jac=True, method="BFGS", options={"gtol": 1e-11}
    )
    assert found.fun == pytest.approx(loss, abs=1e-8)
    policy = torch.log_softmax(vector(found.x), 0)
    assert float(exact_kl(policy, DPO_REF.log())) == pytest.approx(kl, abs=1e-6)


@pytest.mark.parametrize("margin", ORACLES["pair_weights"])
def test_weight_of_a_pair(margin: str):
    log_ratio = vector(float(margin) / 0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(smoothed_sigmoid_loss(0.5 * log_ratio), log_ratio)
    assert -float(gradient) == pytest.approx(ORACLES["pair_weights"][margin], **TIGHT)


# KL estimators: where each leads.

START, GOALS = (
    vector([0.230530870552579, 0.34391164625908, 0.254776013853372, 0.17078146933496902]),
    vector([0.0, 1.0, 0.0, 0.5]),
)


def test_the_penalised_optimum_of_each_estimator():
    optima = ORACLES["optima"]
    tilted = kl_tilt(START, GOALS, 0.5)
    for name in ("closed_form", "k1_reward", "k2_loss"):
        assert tilted.policy_K.tolist() == pytest.approx(optima[name]["pi"], abs=1e-6)
        assert (tilted.reward, tilted.kl) == pytest.approx(
            (optima[name]["E_r"], optima[name]["KL"]), abs=1e-6
        )
    end = vector(optima["k3_loss"]["pi"]).log().requires_grad_()
    logp = torch.log_softmax(end, 0)
    policy = logp.detach().exp()
    penalty = kl_estimate(logp, START.log(), "k3")
    value = float(policy @ GOALS)
    loss = (policy * (reinforce_loss(logp, GOALS - value) + 0.5 * penalty)).sum()
    assert torch.autograd.grad(loss, end)[0].abs().max() < 1e-6
    expected = 0.5 * START / (0.5 + value - GOALS)
    assert policy.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_k3_in_the_reward_kills_an_action():
    logits = START.log()
    for _ in range(400):
        policy = torch.softmax(logits, 0)
        paid = GOALS - 0.5 * kl_estimate(policy.log(), START.log(), "k3")
        logits = logits + policy * (paid - policy @ paid)
        if float(policy.min()) < 1e-10:
            break
    assert float(torch.softmax(logits, 0).min()) < 1e-10
    assert float(kl_tilt(START, GOALS, 0.5).policy_K.min()) > 0.06  # where it should have gone


# Losses at nine ratios.


@pytest.mark.parametrize("row", ORACLES["clips"], ids=lambda row: f"ratio {row[0]:.3g}, A {row[1]:+.0f}")
def test_values_and_slopes_at_every_ratio(row: list):
    ratio, advantage, *expected, cispo, free = row
    found: list[float] = []
    for options in ({"clip_high": 0.28}, {"clip_high": 0.2}, {"clip_high": 0.28, "dual_clip": 3.0}):
        x = vector(math.log(ratio)).requires_grad_()
        loss = clipped_loss(x, vector(advantage), **options)
        found += [-float(loss.detach()), -float(torch.autograd.grad(loss, x)[0])]
    assert found == pytest.approx(expected, abs=1e-8)
    for high, slope in ((4.0, cispo), (math.inf, free)):  # the cap of 5; no cap at all
        logp = vector(-1.0).requires_grad_()
        loss = cispo_loss(logp - logp.detach() + math.log(ratio), logp, vector(advantage), clip_high=high)
        assert -float(torch.autograd.grad(loss, logp)[0]) == pytest.approx(slope, abs=1e-8)
