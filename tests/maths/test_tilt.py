"""The KL tilt: reward always rises, truth peaks where its covariance with the reward is zero."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.maths.tilt import kl_tilt, truth_peak

REF = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.045, 0.005], dtype=torch.float64)
PROXY = torch.tensor([0.0, 0.1, 0.6, 1.0, 1.2, 2.0], dtype=torch.float64)
TRUTH = torch.tensor([0.0, 0.1, 0.6, 1.0, 0.5, -1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("beta", "proxy", "truth", "kl", "value"),
    [
        (100, 0.31064218514742986, 0.26360484522088323, 8.217586677869039e-06, 0.309820426479643),
        (1.0, 0.5145713851246345, 0.37085251640593875, 0.10984307207615465, 0.4047283130484799),
        (0.5, 0.8025152065512868, 0.3972057542928418, 0.5481734115329574, 0.5284285007848082),
        (0.2, 1.752821502269184, -0.5661256547826428, 3.767184277364798, 0.9993846467962243),
        (0.05, 1.999999148485843, -0.9999983982864307, 5.298299282198146, None),
    ],
)
def test_curve(beta: float, proxy: float, truth: float, kl: float, value: float | None):
    tilt = kl_tilt(REF, PROXY, beta, truth_K=TRUTH)
    assert tilt.reward == pytest.approx(proxy, abs=1e-8)
    assert tilt.truth == pytest.approx(truth, abs=1e-8)
    assert tilt.kl == pytest.approx(kl, abs=1e-8)
    if value is not None:
        assert tilt.value == pytest.approx(value, abs=1e-8)


def test_truth_peaks_where_the_covariance_is_zero():
    beta = truth_peak(REF, PROXY, TRUTH)
    assert beta == pytest.approx(0.590435468522519, abs=1e-6)
    at_peak = kl_tilt(REF, PROXY, beta, truth_K=TRUTH)
    assert at_peak.truth == pytest.approx(0.4066838224785253, abs=1e-9)
    assert at_peak.kl == pytest.approx(0.37023112426233284, abs=1e-6)
    assert at_peak.covariance == pytest.approx(0.0, abs=1e-9)
    assert truth_peak(REF, PROXY, PROXY) is None  # a truthful reward never turns


def test_six_answers_of_different_length():
    """A reward that pays for length: it climbs all the way while the reader's utility collapses."""
    reward = torch.tensor([8.095, 8.469, 9.215, 12.700, 2.365, 0.747]).double()
    ref = torch.tensor([0.25, 0.22, 0.13, 0.05, 0.15, 0.20]).double()
    utility = torch.tensor([0.88, 0.76, 0.52, -0.60, -0.76, -0.24]).double()
    rows = {100.0: (0.001, 6.358, 0.277), 10.0: (0.059, 7.443, 0.378), 2.0: (0.795, 10.141, 0.185)}
    rows |= {1.0: (2.165, 12.047, -0.390), 0.5: (2.962, 12.685, -0.595), 0.25: (2.996, 12.700, -0.600)}
    for beta, expected in rows.items():
        tilt = kl_tilt(ref / ref.sum(), reward, beta, truth_K=utility)
        assert (tilt.kl, tilt.reward, tilt.truth) == pytest.approx(expected, abs=1.5e-3)


def test_dpo_optimum_values():
    tilt = kl_tilt(
        torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64), torch.tensor([0, 0.5, 1, 2]).double(), 0.5
    )
    assert tilt.kl == pytest.approx(1.0673973277102011, abs=1e-10)
    assert tilt.reward == pytest.approx(1.3535610114907162, abs=1e-10)
    assert tilt.value == pytest.approx(0.8198623476356156, abs=1e-10)
    assert math.isnan(tilt.truth)


@pytest.mark.parametrize("catastrophic", [True, False])
def test_a_gaussian_reward_costs_its_square(catastrophic: bool):
    """KL = lambda^2 / 2 on a fine grid; the light tail is what makes it dear."""
    x = torch.linspace(-9, 14, 20_001, dtype=torch.float64)
    ref = torch.softmax(-0.5 * x.square(), 0)
    tilt = kl_tilt(ref, x, 1 / 2.0, truth_K=x - 0.25 * x.square() + 0.25 if catastrophic else x)
    assert tilt.reward == pytest.approx(2.0, abs=1e-6)
    assert tilt.kl == pytest.approx(2.0, abs=1e-6)
    d = math.sqrt(2.0)  # then gold = d (sqrt(2) - d / 2) exactly
    assert tilt.truth == pytest.approx(2 - 0.25 * (1 + 4) + 0.25 if catastrophic else 2.0, abs=1e-6)
    if catastrophic:
        assert tilt.truth == pytest.approx(d * (math.sqrt(2) - 0.5 * d), abs=1e-6)


@pytest.mark.parametrize(
    ("ref", "reward", "beta"),
    [
        ([0.5, 0.5], [1.0, 0.0], 0.0),
        ([0.5, 0.6], [1.0, 0.0], 1.0),
        ([1.0], [1.0, 0.0], 1.0),
        ([1.5, -0.5], [1, 0], 1.0),
    ],
)
def test_bad_input(ref: list[float], reward: list[float], beta: float):
    with pytest.raises(BadInput, match="expected"):
        kl_tilt(torch.tensor(ref), torch.tensor(reward), beta)


weights = st.lists(st.tuples(st.floats(0.01, 1), st.floats(-2, 2), st.floats(-2, 2)), min_size=2, max_size=6)


@given(rows=weights, beta=st.floats(0.3, 5))
def test_laws(rows: list[tuple[float, float, float]], beta: float):
    ref, reward, truth = torch.tensor(rows, dtype=torch.float64).T
    ref = ref / ref.sum()
    tilt, closer = kl_tilt(ref, reward, beta, truth_K=truth), kl_tilt(ref, reward, 2 * beta, truth_K=truth)
    assert tilt.reward >= closer.reward - 1e-12
    assert tilt.kl >= closer.kl - 1e-9
    assert tilt.kl == pytest.approx(float((tilt.policy_K * (tilt.policy_K / ref).log()).sum()), abs=1e-9)
    assert tilt.value == pytest.approx(tilt.reward - beta * tilt.kl, abs=1e-9)
    step = 1e-5  # the slope of truth in 1 / beta is its covariance with the reward
    ahead = kl_tilt(ref, reward, 1 / (1 / beta + step), truth_K=truth)
    assert (ahead.truth - tilt.truth) / step == pytest.approx(tilt.covariance, abs=1e-3)
