"""Every statistic against exact values computed by other means (``oracles.json``)."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from assay.stats import best_of_n as bon
from assay.stats import change_point, overoptimisation
from assay.stats.binomial import (
    clopper_pearson,
    jeffreys,
    samples_for_two_rates,
    samples_for_zero,
    time_uniform,
    wilson,
)
from assay.stats.calibration import prediction_powered_mean, rogan_gladen
from assay.stats.clustered import (
    clustered_mean,
    design_effect,
    effective_sample_size,
    intraclass_correlation,
    standard_error,
)
from assay.stats.mover import newcombe_paired
from assay.stats.paired import mcnemar

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text("utf-8"))
TIGHT = {"abs": 1e-9, "rel": 1e-9}


@pytest.mark.parametrize("counts", ORACLES["binomial"])
def test_binomial_intervals(counts):
    successes, n = map(int, counts.split("/"))
    for method, expected in zip(
        (wilson, clopper_pearson, jeffreys, time_uniform), ORACLES["binomial"][counts], strict=True
    ):
        found = method(successes, n)
        assert [found.low, found.high] == pytest.approx(expected, **TIGHT), method.__name__


CLUSTERED = np.array(
    [[1, 1, 1, 1], [0] * 4, [1, 1, 0, 1], [0] * 4, [0, 0, 0, 1], [0] * 4, [1, 1, 1, 1], [0] * 4], float
)


def test_clustered_samples():
    assert clustered_mean(CLUSTERED).estimate == 0.375
    assert standard_error(CLUSTERED) == pytest.approx(0.16366341767699427, **TIGHT)
    assert intraclass_correlation(CLUSTERED) == pytest.approx(0.7606837606837606, **TIGHT)
    assert design_effect(0.7606837606837606, 4) == pytest.approx(3.282051282051282, **TIGHT)
    assert effective_sample_size(CLUSTERED) == pytest.approx(9.75, **TIGHT)


def test_paired_proportions():
    assert mcnemar(3, 15) == pytest.approx(0.007537841796875, **TIGHT)
    assert mcnemar(0, 6) == pytest.approx(0.03125, **TIGHT)
    found = newcombe_paired(10, 15, 3, 228)
    expected = [0.046875, 0.01412642056341263, 0.08386900475176416]
    assert [found.estimate, found.low, found.high] == pytest.approx(expected, **TIGHT)
    found = newcombe_paired(0, 6, 0, 58)
    expected = [0.09375, 0.01816254048063999, 0.18982879599645597]
    assert [found.estimate, found.low, found.high] == pytest.approx(expected, **TIGHT)


@pytest.mark.parametrize(
    ("arguments", "theta", "wald", "adjusted"),
    [
        ((0.80, 0.70, 0.90, 1000, 100, 100), 0.8333333333333333, (0.7384704165633565, 0.92819625010331),
         (0.7461095842579817, 0.9437937248477088)),
        ((0.30, 0.95, 0.90, 1000, 50, 50), 0.2941176470588235, (0.22732522986889156, 0.3609100642487554),
         (0.20803350668238973, 0.3586148630530981)),
        ((0.04, 0.97, 0.90, 500, 200, 50), 0.011494252873563227, (0.0, 0.04484927294590921),
         (0.0, 0.04540700594009954)),
    ],
)  # fmt: skip
def test_a_noisy_evaluator_is_corrected(arguments, theta, wald, adjusted):
    p, q0, q1, n, bad, good = arguments
    for method, expected in (("wald", wald), ("adjusted", adjusted)):
        found = rogan_gladen(p, q0, q1, n=n, labelled_bad=bad, labelled_good=good, method=method)
        assert found.estimate == pytest.approx(theta, **TIGHT)
        assert (found.low, found.high) == pytest.approx(expected, **TIGHT)


def test_predictions_stretch_few_labels():
    y = [1.0, 0, 0, 1, 0, 1, 0, 0, 1, 0]
    f = [1.0, 1, 0, 1, 0, 1, 1, 0, 1, 0]
    unlabelled = [1.0] * 130 + [0.0] * 70
    plain = prediction_powered_mean(y, f, unlabelled, tuned=False)
    assert plain == pytest.approx((0.45, 0.1309102746158605), **TIGHT)
    tuned = prediction_powered_mean(y, f, unlabelled)
    assert tuned == pytest.approx((0.43338632750397454, 0.11764575902689356), **TIGHT)


def test_sample_sizes():
    assert [samples_for_zero(u) for u in (0.05, 0.02, 0.01, 0.005, 0.001)] == [59, 149, 299, 598, 2995]
    pairs = [(0.01, 0.03), (0.02, 0.05), (0.02, 0.1), (0.1, 0.2)]
    assert [samples_for_two_rates(*pair) for pair in pairs] == [769, 588, 138, 199]
    halves = {
        64: 0.05646376030732194,
        128: 0.038419839139509734,
        256: 0.027508624117255905,
        512: 0.019239390057941605,
        1024: 0.013405245164446047,
    }
    for n, half in halves.items():
        assert wilson(round(0.05 * n), n).half_width == pytest.approx(half, **TIGHT)


def support(name, case):
    if case["reference"] is None:
        return np.full(1000, 1e-3), np.arange(1000.0)
    return np.array(case["reference"]), np.array(case["reward"])


@pytest.mark.parametrize("name", ORACLES["best_of_n"])
def test_best_of_n_is_exact(name):
    case = ORACLES["best_of_n"][name]
    reference, reward = support(name, case)
    for n, kl, bound, estimate, mean, rate in case["rows"]:
        policy = bon.best_of_n(reference, reward, n)
        assert bon.kl_divergence(policy, reference) == pytest.approx(kl, **TIGHT)
        assert bon.kl_bound(n) == pytest.approx(bound, **TIGHT)
        assert policy @ bon.kl_estimate(reference, n) == pytest.approx(estimate, **TIGHT)
        if mean is not None and case["reference"] is not None:
            assert policy @ reward == pytest.approx(mean, **TIGHT)
        assert bon.win_rate(policy, reference, reward) == pytest.approx(rate, **TIGHT)
        if n == 1:
            assert policy == pytest.approx(reference, **TIGHT)
    for n, expected in ORACLES["best_of_n_policy"].get(name, []):
        assert bon.best_of_n(reference, reward, n) == pytest.approx(expected, **TIGHT)


def test_the_unbiased_curve_of_best_of_n():
    curve = ORACLES["curve"]
    proxy, gold = np.array(curve["proxy"]), np.array(curve["gold"])
    for n, expected in curve["by_n"].items():
        assert bon.best_of_n_curve(proxy, gold, int(n)) == pytest.approx(expected["gold"], **TIGHT)
        assert bon.best_of_n_curve(proxy, proxy, int(n)) == pytest.approx(expected["proxy"], **TIGHT)


def test_best_of_n_of_a_gaussian_proxy():
    for n, maximum, proxy, gold, kl in ORACLES["normal_maximum"]:
        found = bon.expected_maximum(n)
        assert found == pytest.approx(maximum, **TIGHT)
        assert found * math.sqrt(2) == pytest.approx(proxy, **TIGHT)
        assert found / math.sqrt(2) == pytest.approx(gold, **TIGHT)
        assert bon.kl_bound(n) == pytest.approx(kl, **TIGHT)


def test_gold_of_best_of_n_in_the_extremal_world():
    for n, d, gold in ORACLES["extremal"]:
        assert math.sqrt(bon.kl_bound(n)) == pytest.approx(d, **TIGHT)
        # E[(largest of n)^2] is not a function here, so only the curve's own peak is compared below
        assert gold <= 1.2
    d = np.linspace(0.1, 3, 12)
    found = overoptimisation.fit(d, math.sqrt(2) * d - 0.5 * d**2, "quadratic")
    assert (found.a, found.b) == pytest.approx((math.sqrt(2), 0.5), **TIGHT)
    assert found.peak == pytest.approx((math.sqrt(2), 1.0), **TIGHT)
    assert found.rmse == pytest.approx(0, abs=1e-12)


def test_peaks_of_published_curves():
    for a, b, b_rl, d, gold, zero, d_rl, gold_rl, zero_rl in ORACLES["digitised"]:
        assert overoptimisation.peak(a, b, "quadratic") == pytest.approx((d, gold), **TIGHT)
        assert overoptimisation.back_to_start(a, b, "quadratic") == pytest.approx(zero, **TIGHT)
        assert overoptimisation.peak(0.345, b_rl, "logarithmic") == pytest.approx((d_rl, gold_rl), **TIGHT)
        assert overoptimisation.back_to_start(0.345, b_rl, "logarithmic") == pytest.approx(zero_rl, **TIGHT)


SERIES = {name: np.array(values, float) for name, values in ORACLES["series"].items()}


def test_online_alarms():
    ratios = change_point.log_likelihood_ratios(SERIES["hack"], 128, 0.02, 0.06)
    path = change_point.cusum(ratios)
    assert path == pytest.approx(ORACLES["cusum"], **TIGHT)
    assert change_point.alarm(path, 5.0) == 17
    log_path = change_point.shiryaev_roberts(ratios)
    expected = ORACLES["shiryaev_roberts"]
    assert np.isfinite(log_path).all()  # the values themselves overflow at the end
    for value, known in zip(log_path, expected, strict=True):
        if known is not None:
            assert value == pytest.approx(math.log(known), **TIGHT)
    assert change_point.alarm(log_path, math.log(1000)) == 17


def test_the_onset_by_wilson():
    lows = [wilson(events, 128).low for events in SERIES["hack"]]
    assert next(at for at, low in enumerate(lows) if low > 0.02) == 16


def test_the_knot_of_a_broken_stick():
    truth = change_point.broken_stick(SERIES["true"] / 128)
    assert truth.knot == 15
    assert truth.squared_error == pytest.approx(0.03808798151073629, **TIGHT)
    assert truth.slopes == pytest.approx((0.03375874792128605, -0.05057758552423186), **TIGHT)
    gap = change_point.broken_stick((SERIES["weak"] - SERIES["true"]) / 128)
    assert gap.knot == 16
    assert gap.squared_error == pytest.approx(0.011024601297122072, **TIGHT)
    assert gap.slopes == pytest.approx((0.0012866875986971907, 0.06191713068810381), **TIGHT)


def test_a_jump_model_is_late_on_a_ramp():
    at, gain = change_point.bernoulli_split(SERIES["hack"], 128)
    assert at == 20
    assert gain == pytest.approx(684.5178182700242, **TIGHT)


def test_page_hinkley_finds_the_gap():
    gap = (SERIES["weak"] - SERIES["true"]) / 128
    assert change_point.alarm(change_point.page_hinkley(gap, 0.005), 0.1) in range(15, 20)


def test_run_length_of_the_cusum():
    random = np.random.default_rng(0)
    for rate, mean, error in ((0.03, 35.1635, 0.523), (0.06, 2.27575, 0.018), (0.10, 1.17425, 0.0062)):
        lengths = []
        for _ in range(2000):
            events = random.binomial(128, rate, 600 if rate < 0.05 else 60).astype(float)
            ratios = change_point.log_likelihood_ratios(events, 128, 0.02, 0.06)
            lengths.append(change_point.alarm(change_point.cusum(ratios), 5.0) + 1)
        assert np.mean(lengths) == pytest.approx(mean, abs=5 * error)
