"""Binary groups and noisy verifiers against enumerated and integrated values (``oracles.json``)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from assay.maths import advantages as adv
from assay.maths.policy import reinforce_loss
from assay.maths.tilt import kl_tilt
from assay.stats.calibration import rogan_gladen
from assay.stats.passk import pass_at_k

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text("utf-8"))
TIGHT = {"abs": 1e-8, "rel": 1e-8}


def vector(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Groups of binary rewards.


def binary_groups(size: int, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards and ids of the groups with 0 to G right answers, and the chance of each such group."""
    right = torch.arange(size + 1)
    rewards = (torch.arange(size) < right[:, None]).double()
    chance = vector(stats.binom.pmf(right.numpy(), size, p))
    return rewards.flatten(), right.repeat_interleave(size), chance


def weighted(values: Tensor, chance: Tensor) -> float:
    return float(chance @ values.reshape(len(chance), -1).mean(1))


CONVENTIONS = {"ddof1_eps1e-4": (1, 1e-4), "ddof1_eps1e-6": (1, 1e-6), "ddof0_eps1e-8": (0, 1e-8)}


@pytest.mark.parametrize("key", ORACLES["groups"])
def test_advantages_of_binary_groups(key: str):
    expected = ORACLES["groups"][key]
    size, p = int(key.split(",")[0][2:]), float(key.split("p=")[1])
    rewards, group, chance = binary_groups(size, p)
    stats_ = adv.group_statistics(rewards, group)
    assert weighted(stats_.flat_B.double(), chance) == pytest.approx(expected["flat"], **TIGHT)
    for name, how in (("mean_only", adv.group_mean), ("rloo", adv.leave_one_out)):
        # E[A|good] - E[A|bad] over the draws of one member, given the others
        good, bad = conditional(how(rewards, group), rewards, chance, p)
        assert good - bad == pytest.approx(expected[name], **TIGHT)
    for name, (ddof, epsilon) in CONVENTIONS.items():
        found = adv.group_standardised(rewards, group, ddof=ddof, epsilon=epsilon)
        good, bad = conditional(found, rewards, chance, p)
        measured = [weighted(found.abs(), chance), weighted(found.square(), chance), good, bad]
        assert measured == pytest.approx(expected[name], **TIGHT)


def conditional(advantages: Tensor, rewards: Tensor, chance: Tensor, p: float) -> tuple[float, float]:
    """Mean advantage of a right and of a wrong completion."""
    good = weighted(advantages * rewards, chance) / p
    return good, weighted(advantages * (1 - rewards), chance) / (1 - p)


@pytest.mark.parametrize("size", ORACLES["signal"])
def test_signal_of_a_prompt_by_its_pass_rate(size: str):
    for key, expected in ORACLES["signal"][size].items():
        p = float(key[2:])
        rewards, group, chance = binary_groups(int(size[2:]), p)
        for name, advantages in (
            ("mean_only", adv.group_mean(rewards, group)),
            ("std_ddof1", adv.group_standardised(rewards, group, ddof=1, epsilon=1e-6)),
        ):
            good, bad = conditional(advantages, rewards, chance, p)
            assert p * (1 - p) * (good - bad) == pytest.approx(expected[name], **TIGHT)


@pytest.mark.parametrize("key", ORACLES["examples"])
def test_five_groups_under_every_convention(key: str):
    expected = ORACLES["examples"][key]
    rewards = vector(json.loads(key.removeprefix("rewards ")))
    group = torch.zeros(len(rewards), dtype=torch.long)
    found = {
        "mean": adv.group_statistics(rewards, group).mean_B[0],
        "std_ddof0": adv.group_statistics(rewards, group, ddof=0).std_B[0],
        "std_ddof1": adv.group_statistics(rewards, group, ddof=1).std_B[0],
        "A_TRL_ddof1_1e-4": adv.group_standardised(rewards, group, ddof=1, epsilon=1e-4),
        "A_verl_ddof1_1e-6": adv.group_standardised(rewards, group, ddof=1, epsilon=1e-6),
        "A_oat_ddof1_1e-8": adv.group_standardised(rewards, group, ddof=1, epsilon=1e-8),
        "A_ddof0_1e-8": adv.group_standardised(rewards, group, ddof=0, epsilon=1e-8),
        "A_DrGRPO": adv.group_mean(rewards, group),
        "A_RLOO": adv.leave_one_out(rewards, group),
    }
    for name, values in expected.items():
        assert found[name].tolist() == pytest.approx(values, **TIGHT), name


@pytest.mark.parametrize("key", ORACLES["baseline_variance"])
def test_variance_of_each_baseline(key: str):
    size, p = int(key.split(",")[0][2:]), float(key.split("p=")[1])
    rewards, group, chance = binary_groups(size, p)
    loo = adv.leave_one_out(rewards, group)
    spread = adv.group_statistics(rewards, group).flat_B
    baseline = torch.where(spread, rewards, rewards - loo)
    series = [adv.group_mean(rewards, group), loo, baseline, adv.constant_baseline(rewards, p)]
    found = [weighted(x.square(), chance) - weighted(x, chance) ** 2 for x in series]
    assert found == pytest.approx(ORACLES["baseline_variance"][key], **TIGHT)


@pytest.mark.parametrize("p", ORACLES["smallest_group"])
def test_smallest_group_with_spread_in_95_of_100(p: str):
    def flat(size: int) -> float:
        rewards, group, chance = binary_groups(size, float(p))
        return weighted(adv.group_statistics(rewards, group).flat_B.double(), chance)

    size = ORACLES["smallest_group"][p]
    assert flat(size) < 0.05 <= flat(size - 1)


def iterated(p: float, p_ref: float, beta: float, *, standardised: bool) -> float:
    """Pass rate of the KL-regularised optimum against advantages taken under the pass rate ``p``."""
    scale = 1 / math.sqrt(p * (1 - p)) if standardised else 1.0
    tilted = kl_tilt(vector([1 - p_ref, p_ref]), vector([0.0 - p, 1.0 - p]) * scale, beta)
    return float(tilted.policy_K[1])


@pytest.mark.parametrize("key", ORACLES["fixed_points"])
def test_pass_rates_where_the_population_stays(key: str):
    standardised, first, mean_only = ORACLES["fixed_points"][key]
    p_ref, beta = (float(part.split("=")[1]) for part in key.split(","))
    p = p_ref
    for expected in first:
        if p * (1 - p) < 1e-9:  # all mass on one side: the deviation is a residue
            break
        p = iterated(p, p_ref, beta, standardised=True)
        assert p == pytest.approx(expected, rel=1e-5, abs=1e-6)
    if standardised < 1 - 1e-9:
        again = iterated(standardised, p_ref, beta, standardised=True)
        assert again == pytest.approx(standardised, abs=1e-8)
    assert iterated(0.5, p_ref, beta, standardised=False) == pytest.approx(mean_only, abs=1e-8)


@pytest.mark.parametrize("key", ORACLES["pass_at_k"])
def test_pass_at_k(key: str):
    n, c, k = (int(part.split("=")[1]) for part in key.split(","))
    assert pass_at_k(n, c, k) == pytest.approx(ORACLES["pass_at_k"][key], **TIGHT)


# A verifier that errs.

NOISY_ARMS = vector([0.26489222637335924, 0.16066529828725687, 0.3575671048284954, 0.21687541198316365])


def test_a_rate_seen_through_a_noisy_verifier():
    for false_positive, false_negative, observed, true, *_ in ORACLES["noisy"]:
        if false_positive + false_negative < 1:
            found = rogan_gladen(
                observed, 1 - false_positive, 1 - false_negative, n=1000, labelled_bad=100, labelled_good=100
            )
            assert found.estimate == pytest.approx(true, abs=1e-9)


def test_constant_errors_scale_the_gradient_and_leave_its_direction():
    good = vector([1.0, 0.0, 0.0, 1.0])
    for false_positive, false_negative, *_, naive, true in ORACLES["noisy"]:
        seen = false_positive + (1 - false_positive - false_negative) * good  # expected verdict of each arm
        for reward, expected in ((seen, naive), (good, true)):
            logits = NOISY_ARMS.log().requires_grad_()
            logp = torch.log_softmax(logits, 0)
            loss = (NOISY_ARMS * reinforce_loss(logp, adv.no_baseline(reward))).sum()
            (gradient,) = torch.autograd.grad(loss, logits)
            assert (-gradient).tolist() == pytest.approx(expected, abs=1e-7)


def test_standardised_advantages_do_not_see_constant_errors():
    draws = torch.rand(8, generator=torch.Generator().manual_seed(0)).double()
    group = torch.zeros(8, dtype=torch.long)
    plain, corrected = draws.round(), (draws.round() - 0.1) / 0.7
    assert torch.allclose(
        adv.group_standardised(plain, group, epsilon=0.0),
        adv.group_standardised(corrected, group, epsilon=0.0),
        atol=1e-12,
    )
    found, expected = adv.group_mean(corrected, group), adv.group_mean(plain, group) / 0.7
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("key", ORACLES["bad_mass"])
def test_the_mass_of_wrong_answers_over_time(key: str):
    """Gradient flow of the standardised policy gradient in one logit, at rate 1, from 0.7 of wrong answers."""
    false_negative, false_positive = (float(part.split("=")[1]) for part in key.split(","))

    def slope(_: float, logit: np.ndarray) -> list[float]:
        z = vector(logit[0]).requires_grad_()
        logp = torch.stack([torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)])
        chance = logp.detach().exp()
        verdict = vector([1 - false_negative, false_positive])
        mean = float(chance @ verdict)
        advantage = adv.constant_baseline(verdict, mean) / math.sqrt(mean * (1 - mean))
        loss = (chance * reinforce_loss(logp, advantage)).sum()
        return [-float(torch.autograd.grad(loss, z)[0])]

    times = [float(t) for t in ORACLES["bad_mass"][key]]
    start = math.log(0.3 / 0.7)
    found = integrate.solve_ivp(
        slope, (0, max(times)), [start], t_eval=times, rtol=1e-9, atol=1e-10, method="DOP853"
    )
    mass = special.expit(-found.y[0])
    assert mass.tolist() == pytest.approx(list(ORACLES["bad_mass"][key].values()), abs=1e-7)


MODES = {
    "modes_good=1,hack=1": [1.0, 0.0, 1.0],
    "modes_good=0.9,hack=1": [0.9, 0.0, 1.0],
    "modes_good=1,hack=0.9": [1.0, 0.0, 0.9],
    "modes_good=0.8,hack=1,bad=0.05": [0.8, 0.05, 1.0],
}


@pytest.mark.parametrize("key", MODES)
def test_right_wrong_and_hack_under_the_population_gradient(key: str):
    reward = vector(MODES[key])
    logits = vector([0.3, 0.69, 0.01]).log()
    for step in range(501):
        policy = torch.softmax(logits, 0)
        if str(step) in ORACLES["modes"][key]:
            assert policy.tolist() == pytest.approx(ORACLES["modes"][key][str(step)], **TIGHT)
        logits = logits + policy * adv.constant_baseline(reward, float(policy @ reward))
