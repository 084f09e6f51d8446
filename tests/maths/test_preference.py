"""Preference losses: known values, optima of populations, laws."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from assay.errors import BadInput
from assay.maths.preference import (
    bradley_terry_loss,
    dpo_loss,
    dpo_margin,
    hinge_loss,
    ipo_loss,
    kto_loss,
    log1mexp,
    orpo_loss,
    preference_metrics,
    robust_dpo_loss,
    simpo_loss,
    smoothed_sigmoid_loss,
)
from assay.maths.tilt import kl_tilt

REF = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
REWARD = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
BETA = 0.5


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def minimise(loss_of_logits, start: Tensor) -> Tensor:
    """Logits at the minimum, with the losses' own gradients."""

    def value_and_gradient(x):
        logits = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        loss = loss_of_logits(logits)
        return float(loss.detach()), torch.autograd.grad(loss, logits)[0].numpy()

    found = minimize(value_and_gradient, start.numpy(), jac=True, method="BFGS", options={"gtol": 1e-10})
    return torch.tensor(found.x)


def population(loss_of_margin, flip: float = 0.0):
    """Mean loss over all ordered pairs, preferred with Bradley-Terry probabilities, labels flipped at a rate."""
    i, j = torch.triu_indices(4, 4, 1)
    win = torch.sigmoid(REWARD[i] - REWARD[j])
    win = win * (1 - flip) + (1 - win) * flip

    def loss(logits: Tensor) -> Tensor:
        ratio = torch.log_softmax(logits, 0) - REF.log()
        margin = ratio[i] - ratio[j]
        return (win * loss_of_margin(margin) + (1 - win) * loss_of_margin(-margin)).mean()

    return loss


def test_step_zero_is_ln_2_with_the_known_gradient():
    loss = population(lambda h: smoothed_sigmoid_loss(BETA * h))
    logits = REF.log().clone().requires_grad_()
    value = loss(logits)
    assert float(value.detach()) == pytest.approx(math.log(2.0), abs=1e-15)
    expected = [0.061192915650811815, 0.026464539682803632, -0.010204944266821217, -0.07745251106679424]
    assert torch.autograd.grad(value, logits)[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_dpo_on_a_population_is_the_tilt():
    loss = population(lambda h: smoothed_sigmoid_loss(BETA * h))
    logits = minimise(loss, REF.log())
    policy = torch.softmax(logits, 0)
    assert policy.tolist() == pytest.approx(kl_tilt(REF, REWARD, BETA).policy_K.tolist(), abs=1e-6)
    assert policy.tolist() == pytest.approx([0.09701673, 0.15823128, 0.21505861, 0.52969338], abs=1e-6)
    assert float(loss(logits)) == pytest.approx(0.5550810456190483, abs=1e-9)


@pytest.mark.parametrize(
    ("flip", "policy"),
    [
        (0.1, [0.17954058, 0.22727242, 0.24266784, 0.35051915]),
        (0.25, [0.31051569, 0.28782624, 0.22614048, 0.17551759]),
    ],
)
def test_smoothing_shrinks_and_the_robust_loss_undoes_flips(flip: float, policy: list[float]):
    smoothed = minimise(population(lambda h: smoothed_sigmoid_loss(BETA * h, flip)), REF.log())
    assert torch.softmax(smoothed, 0).tolist() == pytest.approx(policy, abs=1e-6)
    robust = population(lambda h: robust_dpo_loss(BETA * h, label_smoothing=flip), flip)
    clean = population(lambda h: smoothed_sigmoid_loss(BETA * h))
    for logits in (REF.log(), vector(0.3, -1.0, 0.2, 2.0)):
        assert float(robust(logits)) == pytest.approx(float(clean(logits)), abs=1e-12)


@pytest.mark.parametrize(
    ("tau", "policy", "value"),
    [
        (0.1, [0.08577419, 0.14587408, 0.21913350, 0.54921822], 18.671213713293476),
        (0.5, [0.41165863, 0.30421633, 0.18954165, 0.09458339], 0.7468485485317389),
    ],
)
def test_ipo_on_a_population(tau: float, policy: list[float], value: float):
    loss = population(lambda h: ipo_loss(h, tau=tau))
    logits = minimise(loss, REF.log())
    assert torch.softmax(logits, 0).tolist() == pytest.approx(policy, abs=1e-6)
    assert float(loss(logits)) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("p", [0.6, 0.75, 0.9, 1.0])
def test_ipo_optimum_of_two_actions_is_finite(p: float):
    tau = 0.1
    h = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    loss = p * ipo_loss(h, tau=tau) + (1 - p) * ipo_loss(-h, tau=tau)
    (gradient,) = torch.autograd.grad(loss, h)
    at_optimum = vector((2 * p - 1) / (2 * tau)).requires_grad_()
    loss = (p * ipo_loss(at_optimum, tau=tau) + (1 - p) * ipo_loss(-at_optimum, tau=tau)).sum()
    assert float(torch.autograd.grad(loss, at_optimum)[0]) == pytest.approx(0.0, abs=1e-12)
    assert float(gradient) < 0


def test_margins_both_falling_is_displacement_not_an_error():
    policy_c, policy_r = vector(-40, -44, -60), vector(-45, -59, -95)
    ref_c, ref_r = vector(-40, -40, -40), vector(-45, -45, -45)
    margin = dpo_margin(policy_c, policy_r, ref_c, ref_r, beta=0.1)
    assert margin.tolist() == pytest.approx([0.0, 1.0, 3.0])
    losses = dpo_loss(policy_c, policy_r, ref_c, ref_r, beta=0.1)
    assert losses.tolist() == pytest.approx([0.693147180559, 0.313261687518, 0.048587351573], abs=1e-9)
    seen = preference_metrics(policy_c[2:], policy_r[2:], margin[2:], ref_c[2:])
    assert seen["chosen_displacement"] == -20.0
    assert seen["accuracy"] == 1.0
    assert preference_metrics(policy_c[:1], policy_r[:1], margin[:1], ref_c[:1])["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("margin", "weight"), [(-2, 0.44039853898894116), (0, 0.25), (4, 0.00899310498104578)]
)
def test_weight_of_a_pair_falls_with_its_margin(margin: float, weight: float):
    log_ratio = vector(margin / BETA).requires_grad_()
    (gradient,) = torch.autograd.grad(smoothed_sigmoid_loss(BETA * log_ratio).sum(), log_ratio)
    assert -float(gradient) == pytest.approx(weight, abs=1e-12)


def test_bradley_terry_fits_counts():
    wins = torch.tensor([[0, 7, 8, 9], [3, 0, 6, 8], [2, 4, 0, 7], [1, 2, 3, 0]], dtype=torch.float64)

    def loss(scores: Tensor) -> Tensor:
        return (wins * bradley_terry_loss(scores[:, None], scores[None, :])).sum()

    scores = minimise(loss, torch.zeros(4, dtype=torch.float64))
    found = (scores - scores.mean()).tolist()
    assert found == pytest.approx([1.10766534, 0.23143937, -0.23143937, -1.10766534], abs=1e-6)
    assert float(loss(scores)) == pytest.approx(32.21571488200068, abs=1e-8)


@pytest.mark.parametrize(
    ("flip", "gap"), [(0.1, 0.7761365852607371), (0.25, 0.4706149197340815), (0.4, 0.1853759)]
)
def test_label_noise_shrinks_the_fitted_gap(flip: float, gap: float):
    win = 1 / (1 + math.exp(-1.0))
    win = win * (1 - flip) + (1 - win) * flip
    loss = lambda s: win * bradley_terry_loss(s[0], s[1]) + (1 - win) * bradley_terry_loss(s[1], s[0])  # noqa: E731
    scores = minimise(loss, vector(0.1, 0.0))
    assert float(scores[0] - scores[1]) == pytest.approx(gap, abs=1e-6)


def test_margin_and_centring_of_the_reward_model():
    chosen, rejected = vector(2.0), vector(1.0)
    assert float(bradley_terry_loss(chosen, rejected, margin_B=1.0)) == pytest.approx(math.log(2))
    centred = bradley_terry_loss(chosen, rejected, centring=0.01)
    assert float(centred) == pytest.approx(math.log1p(math.exp(-1)) + 0.01 * 9)


def test_hinge_kto_orpo_simpo_by_hand():
    assert hinge_loss(vector(-1, 0.25, 2)).tolist() == [2.0, 0.75, 0.0]
    kto = kto_loss(vector(3.0, 3.0), torch.tensor([True, False]), 1.0, beta=0.5, undesirable_weight=2.0)
    sigmoid = 1 / (1 + math.exp(-1.0))
    assert kto.tolist() == pytest.approx([1 - sigmoid, 2 * sigmoid])
    below = kto_loss(vector(3.0), torch.tensor([True]), -5.0, beta=0.5)  # the KL is floored at 0
    assert float(below) == pytest.approx(1 - 1 / (1 + math.exp(-1.5)))
    p, q = 0.6, 0.3
    odds = math.log((p / (1 - p)) / (q / (1 - q)))
    orpo = orpo_loss(vector(math.log(p)), vector(math.log(q)), weight=0.1)
    assert float(orpo) == pytest.approx(-math.log(p) + 0.1 * math.log1p(math.exp(-odds)))
    simpo = simpo_loss(vector(-0.5), vector(-1.0), beta=2.0, gamma=0.4)
    assert float(simpo) == pytest.approx(math.log1p(math.exp(-0.6)))


@given(x=st.floats(-700, -1e-12))
def test_log1mexp_keeps_its_digits(x: float):
    """Against the form that is accurate on each side of ln 2, in Python's floats."""
    expected = math.log(-math.expm1(x)) if x > -0.69 else math.log1p(-math.exp(x))
    assert float(log1mexp(vector(x))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("bad", [-0.1, 0.5, 0.9])
def test_bad_label_smoothing(bad: float):
    with pytest.raises(BadInput, match="label_smoothing in"):
        smoothed_sigmoid_loss(vector(0.0), bad)


def test_bad_beta_and_tau():
    with pytest.raises(BadInput, match="beta above 0"):
        dpo_margin(*[vector(0.0)] * 4, beta=0.0)
    with pytest.raises(BadInput, match="tau above 0"):
        ipo_loss(vector(0.0), tau=0.0)


logps = st.floats(-60, 0)


@given(c=logps, r=logps, rc=logps, rr=logps, beta=st.floats(0.01, 2))
def test_swapping_a_pair_flips_the_margin(c: float, r: float, rc: float, rr: float, beta: float):
    forward = dpo_margin(vector(c), vector(r), vector(rc), vector(rr), beta=beta)
    backward = dpo_margin(vector(r), vector(c), vector(rr), vector(rc), beta=beta)
    assert float(forward) == pytest.approx(-float(backward), abs=1e-12)
    assert float(dpo_margin(vector(c), vector(r), vector(c), vector(r), beta=beta)) == 0.0
    assert float(dpo_loss(vector(c), vector(r), vector(c), vector(r), beta=beta)) == pytest.approx(
        math.log(2)
    )


def test_gradcheck():
    a, b, c, d = -torch.rand(4, 3, generator=torch.Generator().manual_seed(1)).double() - 0.1
    a, b = a.requires_grad_(), b.requires_grad_()
    good = torch.tensor([True, False, True])
    losses = (
        lambda x, y: dpo_loss(x, y, c, d, beta=0.3, label_smoothing=0.1),
        lambda x, y: robust_dpo_loss(dpo_margin(x, y, c, d, beta=0.3), label_smoothing=0.1),
        lambda x, y: ipo_loss(dpo_margin(x, y, c, d, beta=1.0), tau=0.2),
        lambda x, y: hinge_loss(dpo_margin(x, y, c, d, beta=0.3)),
        lambda x, y: kto_loss(x - y, good, 0.1),
        orpo_loss,
        simpo_loss,
        lambda x, y: bradley_terry_loss(x, y, margin_B=0.3, centring=0.1),
    )
    for loss in losses:
        assert torch.autograd.gradcheck(loss, (a, b))
