"""KL estimators: values, expected gradients, optima, control."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.kl import adaptive_kl_coef, exact_kl, kl_estimate, kl_exceeded, straight_through_kl

PI = torch.tensor(
    [0.2834640891825883, 0.17192966101675605, 0.4673532733149715, 0.07725297648568405], dtype=torch.float64
)
REF = torch.tensor(
    [0.230530870552579, 0.34391164625908, 0.254776013853372, 0.17078146933496902], dtype=torch.float64
)
PER_ACTION = {
    "k1": [0.20670066348093138, -0.6932993365190685, 0.6067006634809315, -0.7932993365190687],
    "k2": [0.02136258214172862, 0.2403319850088903, 0.18404284753410127, 0.3146619186607973],
    "k3": [0.01996371636833502, 0.3070049985517882, 0.15184719053150042, 0.4173788419018881],
}
REVERSE = [0.012769592924693778, -0.14699154529420413, 0.20799480879911317, -0.07377285642960282]
FORWARD = [0.0529332186300093, -0.17198198524232394, 0.21257725946159955, -0.09352849284928497]
AS_LOSS = {"k1": [0.0] * 4, "k2": REVERSE, "k3": FORWARD}
IN_REWARD = {
    "k1": REVERSE,
    "k2": [-0.03864600190315423, 0.014207350178416771, 0.012312669169625616, 0.01212598255511186],
    "k3": [-0.04016362570531555, 0.024990439948119798, -0.004582450662486375, 0.019755636419682143],
}


@pytest.mark.parametrize("name", PER_ACTION)
def test_values_at_each_action(name: str):
    assert kl_estimate(PI.log(), REF.log(), name).tolist() == pytest.approx(PER_ACTION[name], abs=1e-8)


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("k1", 0.16165230140615558, 0.5378319),
        ("k2", 0.1576973186319692, 0.0931158),
        ("k3", 0.161652301, 0.1200839),
    ],
)
def test_mean_and_spread_over_the_policy(name: str, mean: float, deviation: float):
    values = kl_estimate(PI.log(), REF.log(), name)
    found = float(PI @ values)
    assert found == pytest.approx(mean, abs=1e-8)
    assert math.sqrt(float(PI @ (values - found).square())) == pytest.approx(deviation, abs=1e-6)


def test_exact_kl_and_its_gradient():
    logits = PI.log().requires_grad_()
    kl = exact_kl(logits, REF.log())
    assert float(kl.detach()) == pytest.approx(0.1616523014061555, abs=1e-10)
    assert torch.autograd.grad(kl, logits)[0].tolist() == pytest.approx(REVERSE, abs=1e-10)
    assert float(exact_kl(REF.log(), PI.log())) == pytest.approx(0.17169088194586082, abs=1e-10)


def expected_gradient(loss_of_action: Tensor, logits: Tensor) -> list[float]:
    """E[d loss / d logits] over actions of the policy, the score function left out: what autograd sees."""
    total = (PI * loss_of_action).sum()  # PI is a constant here
    return torch.autograd.grad(total, logits)[0].tolist()


@pytest.mark.parametrize("name", AS_LOSS)
def test_expected_gradient_in_the_loss(name: str):
    logits = PI.log().requires_grad_()
    values = kl_estimate(torch.log_softmax(logits, 0), REF.log(), name)
    assert expected_gradient(values, logits) == pytest.approx(AS_LOSS[name], abs=1e-10)


@pytest.mark.parametrize("name", IN_REWARD)
def test_expected_gradient_in_the_reward(name: str):
    logits = PI.log().requires_grad_()
    logp = torch.log_softmax(logits, 0)
    surrogate = kl_estimate(logp, REF.log(), name).detach() * logp
    assert expected_gradient(surrogate, logits) == pytest.approx(IN_REWARD[name], abs=1e-10)


def test_straight_through_has_one_value_and_the_other_gradient():
    logits = PI.log().requires_grad_()
    values = straight_through_kl(torch.log_softmax(logits, 0), REF.log(), "k3")
    assert values.detach().tolist() == pytest.approx(PER_ACTION["k3"], abs=1e-10)
    assert expected_gradient(values, logits) == pytest.approx(REVERSE, abs=1e-10)


def optimum(
    name: str, *, in_reward: bool, beta: float = 0.5, rate: float = 4.0, steps: int = 500
) -> tuple[float, float]:
    """Mean reward and KL where gradient ascent on reward - beta KL ends, with population gradients."""
    reward = torch.tensor([0.0, 1.0, 0.0, 0.5], dtype=torch.float64)
    logits = REF.log().clone().requires_grad_()
    for _ in range(steps):
        logp = torch.log_softmax(logits, 0)
        policy = logp.detach().exp()
        kl = kl_estimate(logp, REF.log(), name)
        weight = reward - (beta * kl.detach() if in_reward else 0.0)
        objective = (policy * weight * logp).sum() - (0.0 if in_reward else beta * (policy * kl).sum())
        (gradient,) = torch.autograd.grad(objective, logits)
        logits = (logits + rate * gradient).detach().requires_grad_()
    policy = torch.softmax(logits.detach(), 0)
    return float(policy @ reward), float(exact_kl(policy.log(), REF.log()))


def test_k1_in_the_reward_and_k2_in_the_loss_reach_the_tilt_and_k3_in_the_loss_another_point():
    assert optimum("k1", in_reward=True) == pytest.approx((0.7944771682567698, 0.3388458891666), abs=1e-6)
    assert optimum("k2", in_reward=False) == pytest.approx((0.7944771682567698, 0.3388458891666), abs=1e-6)
    assert optimum("k3", in_reward=False) == pytest.approx((0.7486338019425979, 0.2592771155582), abs=1e-6)


def test_negative_k1_and_never_negative_k3():
    policy, reference = torch.tensor([-1.0, -2.0, -0.7]).double(), torch.tensor([-0.6, -1.5, -0.9]).double()
    assert float(kl_estimate(policy, reference, "k1").mean()) == pytest.approx(-0.2333333, abs=1e-6)
    assert float(kl_estimate(policy, reference, "k3").mean()) == pytest.approx(0.0864255738, abs=1e-7)
    assert kl_estimate(policy, policy, "k3").tolist() == [0.0] * 3


def test_chain_rule_on_a_two_step_tree():
    """The KL of whole sequences is the sum of the KLs at the tokens, weighted by how often each is reached."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)  # policy/reference, state, action
    logp = torch.log_softmax(logits, -1)
    policy, reference = logp
    by_token = exact_kl(policy[0], reference[0]) + policy[0].exp() @ exact_kl(policy[1:], reference[1:])
    paths = [(a, b) for a in (0, 1) for b in (0, 1)]
    sequence = torch.stack([torch.stack([m[0, a] + m[1 + a, b] for a, b in paths]) for m in logp])
    assert float(exact_kl(sequence[0], sequence[1])) == pytest.approx(float(by_token), abs=1e-12)


def test_exact_kl_with_excluded_tokens_and_low_precision():
    inf = math.inf
    policy = torch.tensor([0.0, 0.0, -inf])
    reference = torch.tensor([0.0, 0.0, 0.0])
    assert float(exact_kl(policy, reference)) == pytest.approx(math.log(1.5), abs=1e-6)
    assert math.isinf(float(exact_kl(reference, policy)))
    assert exact_kl(policy.bfloat16(), reference.bfloat16()).dtype == torch.float32


def test_k3_is_bounded_before_exp_and_bounds_clamp():
    far = kl_estimate(torch.tensor(-300.0), torch.tensor(0.0), "k3")
    assert math.isfinite(float(far))
    assert float(kl_estimate(torch.tensor(-300.0), torch.tensor(0.0), "k3", bound=10.0)) == 10.0
    with pytest.raises(BadInput, match="did you mean 'k3'"):
        kl_estimate(PI, REF, "k33")


def test_adaptive_controller():
    coef, found = 0.1, []
    for kl in (10.0, 6.0, 3.0, 12.0):
        coef = adaptive_kl_coef(coef, kl, target=6.0, samples=256, horizon=10_000)
        found.append(coef)
    assert found == pytest.approx([0.100512, 0.100512, 0.09999737856, 0.10050936513822721], abs=1e-12)
    with pytest.raises(BadInput, match="positive KL target"):
        adaptive_kl_coef(0.1, 1.0, target=0.0, samples=1)


def test_early_stop():
    assert not kl_exceeded(9.0, None)
    assert not kl_exceeded(0.15, 0.1)
    assert kl_exceeded(0.16, 0.1)


logits = st.lists(st.floats(-15, 15), min_size=3, max_size=3)


@given(a=logits, b=logits)
def test_laws(a: list[float], b: list[float]):
    policy, reference = torch.tensor(a).double(), torch.tensor(b).double()
    kl = float(exact_kl(policy, reference))
    assert kl >= -1e-12
    assert float(exact_kl(policy, policy + 1.0)) == pytest.approx(0.0, abs=1e-12)
    logp, ref_logp = torch.log_softmax(policy, 0), torch.log_softmax(reference, 0)
    if float((logp - ref_logp).abs().max()) < 15:
        for name in ("k1", "k3"):  # both unbiased
            assert float(logp.exp() @ kl_estimate(logp, ref_logp, name)) == pytest.approx(kl, abs=1e-8)
    assert bool((kl_estimate(logp, ref_logp, "k3") >= 0).all())
