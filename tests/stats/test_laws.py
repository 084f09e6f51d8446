"""Laws that the statistics keep on any data."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.errors import BadInput
from assay.stats import best_of_n as bon
from assay.stats import change_point, overoptimisation, rejection
from assay.stats.binomial import clopper_pearson, jeffreys, time_uniform, wilson
from assay.stats.calibration import rogan_gladen
from assay.stats.clustered import (
    clustered_mean,
    clustered_rate,
    clustered_ratio,
    paired_difference,
    prompt_means,
    t_interval,
)
from assay.stats.interval import Interval, unknown
from assay.stats.mover import gap_interval, newcombe_paired, recombine
from assay.stats.paired import holm, mcnemar
from assay.stats.passk import pass_at_k
from assay.stats.simultaneous import max_t_quantile, simultaneous_band

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
shapes = st.tuples(st.integers(2, 12), st.integers(1, 6))
flags = hnp.arrays(np.float64, shapes, elements=st.sampled_from([0.0, 1.0]))


@given(counts)
def test_every_interval_holds_its_estimate_and_stays_in_0_to_1(count):
    for method in (wilson, clopper_pearson, jeffreys, time_uniform):
        found = method(*count)
        assert 0 <= found.low <= found.estimate <= found.high <= 1


@given(counts)
def test_swapping_successes_and_failures_mirrors_the_interval(count):
    s, n = count
    for method in (wilson, clopper_pearson, jeffreys, time_uniform):
        left, right = method(s, n), method(n - s, n)
        assert left.low == pytest.approx(1 - right.high, abs=1e-9)


@given(counts)
def test_looking_always_costs_more_than_looking_once(count):
    once, always = clopper_pearson(*count), time_uniform(*count)
    assert always.low <= once.low + 1e-9
    assert always.high >= once.high - 1e-9


def test_time_uniform_intervals_hold_at_every_look():
    random = np.random.default_rng(0)
    missed = 0
    for _ in range(200):
        successes = np.cumsum(random.random(300) < 0.3)
        looks = (time_uniform(float(successes[n - 1]), n) for n in range(5, 301, 5))
        missed += any(not look.low <= 0.3 <= look.high for look in looks)
    assert missed <= 16  # 5 % of 200 is 10


@given(flags)
def test_one_sample_a_prompt_is_the_plain_mean(values):
    column = values[:, :1]
    assert clustered_mean(column).estimate == pytest.approx(column.mean())


@given(flags, st.randoms(use_true_random=False))
def test_the_order_of_prompts_and_samples_does_not_matter(values, random):
    rows, columns = list(range(values.shape[0])), list(range(values.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    mixed = values[rows][:, columns]
    for method in (clustered_mean, clustered_rate):
        left, right = method(values), method(mixed)
        assert (left.low, left.high) == pytest.approx((right.low, right.high))


@given(flags)
def test_copies_of_samples_add_nothing_to_the_interval_of_a_mean(values):
    doubled = np.repeat(values, 2, axis=1)
    left, right = clustered_mean(values), clustered_mean(doubled)
    assert (left.low, left.high) == pytest.approx((right.low, right.high))


@given(flags)
def test_unknown_samples_leave_the_statistics(values):
    holed = np.concatenate([values, np.full_like(values, math.nan)], axis=1)
    assert clustered_mean(holed) == clustered_mean(values)
    assert clustered_rate(holed).estimate == pytest.approx(clustered_rate(values).estimate)


@given(flags)
def test_a_gap_is_bounded_and_mirrors(values):
    other = values[::-1].copy()
    gap, mirrored = gap_interval(values, other), gap_interval(other, values)
    assert -1 <= gap.low <= gap.estimate <= gap.high <= 1
    assert (gap.low, gap.high) == pytest.approx((-mirrored.high, -mirrored.low))


def test_nothing_observed_is_unknown():
    nothing = np.full((3, 2), math.nan)
    for found in (clustered_mean(nothing), clustered_rate(nothing), gap_interval(nothing, nothing)):
        assert math.isnan(found.estimate)
        assert math.isnan(found.low)
        assert found.to_json()["estimate"] is None


def test_one_prompt_has_an_estimate_but_no_interval():
    found = clustered_mean(np.array([[1.0, 0.0]]))
    assert found.estimate == 0.5
    assert math.isnan(found.low)
    assert str(found) == "0.500"
    assert str(unknown()) == "unknown"
    assert str(Interval(0.5, 0.25, 0.75, 8)) == "0.500 [0.250, 0.750]"


def test_prompts_that_all_agree_still_have_an_interval():
    found = t_interval(np.zeros(64))
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 64))
    assert clustered_rate(np.zeros((64, 8))).high == pytest.approx(
        wilson(0, 64, critical=1.998340542520741).high
    )


def test_a_pair_cancels_the_difficulty_of_the_prompts():
    random = np.random.default_rng(1)
    ease = random.random((40, 1)) * 10
    before, after = ease + random.random((40, 4)), ease + 0.5 + random.random((40, 4))
    paired = paired_difference(after, before)
    assert paired.low > 0
    assert paired.half_width < 0.2 < clustered_mean(after).half_width
    with pytest.raises(BadInput, match="same prompts"):
        paired_difference(after, before[:5])


def test_a_ratio_weighs_samples_not_prompts():
    hits = np.array([[1.0, 0, 0, 0], [1, 1, 1, 0]])
    base = np.array([[1.0, 0, 0, 0], [1, 1, 1, 1]])
    assert clustered_ratio(hits, base).estimate == pytest.approx(0.8)
    assert prompt_means(hits).tolist() == [0.25, 0.75]
    assert math.isnan(clustered_ratio(hits * 0, base * 0).estimate)


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=25)
def test_a_band_is_wider_than_one_interval_and_narrower_than_bonferroni(contrasts, seed):
    data = np.random.default_rng(seed).normal(size=(40, contrasts))
    critical = max_t_quantile(data, 0.95)
    single, bonferroni = max_t_quantile(data[:, :1], 0.95), max_t_quantile(data[:, :1], 1 - 0.05 / contrasts)
    assert single <= critical <= bonferroni * 1.05


def test_contrasts_that_are_one_cost_nothing():
    data = np.random.default_rng(0).normal(size=(30, 1))
    assert max_t_quantile(np.repeat(data, 9, axis=1), 0.95) == pytest.approx(2.045, abs=0.09)


def test_a_band_covers_all_its_means_at_once():
    random = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        shared = random.normal(size=(48, 1))
        band = simultaneous_band(shared + random.normal(size=(48, 6)))
        missed += bool(((band.low > 0) | (band.high < 0)).any())
    assert 6 <= missed <= 34  # 20 expected


def test_missing_prompts_leave_only_their_own_contrast():
    data = np.random.default_rng(4).normal(size=(50, 3))
    data[:10, 1] = math.nan
    band = simultaneous_band(data)
    assert band.n.tolist() == [50, 40, 50]
    assert band.estimate[1] == pytest.approx(data[10:, 1].mean())
    assert np.isfinite(band.low).all()
    data[:, 1] = math.nan
    assert math.isnan(simultaneous_band(data).low[1])
    assert np.isfinite(simultaneous_band(data).low[[0, 2]]).all()


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case):
    n, c, k = case
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert pass_at_k(n, c, k) == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_refuses_more_samples_than_there_are():
    with pytest.raises(BadInput):
        pass_at_k(4, 2, 5)


scores = st.lists(st.integers(0, 4), min_size=2, max_size=7)


@given(scores, st.data())
@settings(max_examples=60)
def test_the_curve_of_best_of_n_is_the_average_over_all_subsets(proxy, data):
    from itertools import combinations

    gold = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(proxy), max_size=len(proxy))))
    n = data.draw(st.integers(1, len(proxy)))
    values = []
    for subset in combinations(range(len(proxy)), n):
        top = max(proxy[at] for at in subset)
        values.append(np.mean([gold[at] for at in subset if proxy[at] == top]))
    found = bon.best_of_n_curve(np.array(proxy, float), gold, n)
    if len(set(proxy)) == len(proxy):
        assert found == pytest.approx(np.mean(values), abs=1e-9)
    # with ties the tied samples of the whole pool share, which agrees for a gold that depends on the proxy
    tied_gold = np.array(proxy, float) ** 2
    tied = [max(proxy[at] for at in subset) ** 2 for subset in combinations(range(len(proxy)), n)]
    assert bon.best_of_n_curve(np.array(proxy, float), tied_gold, n) == pytest.approx(np.mean(tied))


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=6), st.integers(1, 64), st.data())
@settings(max_examples=60)
def test_best_of_n_is_a_distribution_within_the_bound(weights, n, data):
    reference = np.array(weights) / sum(weights)
    reward = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(weights), max_size=len(weights))), float
    )
    policy = bon.best_of_n(reference, reward, n)
    assert policy.sum() == pytest.approx(1)
    assert bon.kl_divergence(policy, reference) <= bon.kl_bound(n) + 1e-9
    assert bon.win_rate(policy, reference, reward) <= n / (n + 1) + 1e-9
    assert bon.win_rate(reference, reference, reward) == pytest.approx(0.5)


def test_best_of_n_refuses_what_is_no_distribution():
    with pytest.raises(BadInput, match="sums to 1"):
        bon.best_of_n(np.array([0.5, 0.6]), np.array([0.0, 1.0]), 2)
    with pytest.raises(BadInput):
        bon.best_of_n_curve(np.zeros(3), np.zeros(3), 4)
    with pytest.raises(BadInput):
        bon.expected_maximum(0)
    assert bon.kl_divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf


@given(st.floats(0.2, 2), st.floats(0.05, 1), st.sampled_from(["quadratic", "logarithmic"]))
def test_a_curve_is_found_again_and_its_peak_is_its_highest_point(a, b, form):
    d = np.linspace(0, 4, 25)
    true = overoptimisation.Overoptimisation(form, a, b, 0.0, np.zeros(0))
    found = overoptimisation.fit(d, true.gold(d), form)
    assert (found.a, found.b) == pytest.approx((a, b), rel=1e-6, abs=1e-8)
    at, top = found.peak
    if at < 1e6:
        around = found.gold(np.array([at * 0.98, at, at * 1.02]))
        assert around[1] == pytest.approx(top, rel=1e-6)
        assert around[1] >= max(around[0], around[2]) - 1e-9
        zero = overoptimisation.back_to_start(a, b, form)
        assert found.gold(np.array([zero]))[0] == pytest.approx(0, abs=1e-5 * max(1.0, zero))


def test_a_curve_that_never_turns_has_no_peak():
    assert overoptimisation.peak(1.0, -0.1, "quadratic") == (math.inf, math.inf)
    assert overoptimisation.back_to_start(1.0, 0.0, "logarithmic") == math.inf
    with pytest.raises(BadInput, match="two or more"):
        overoptimisation.fit(np.array([0.0, 1.0]), np.array([0.0, 1.0]), "quadratic")


@given(st.integers(4, 14), st.data())
def test_a_clean_broken_stick_is_found_exactly(count, data):
    knot = data.draw(st.integers(1, count - 2))
    index = np.arange(count)
    found = change_point.broken_stick(0.1 * index - 0.4 * np.maximum(0, index - knot))
    assert found.knot == knot
    assert found.slopes == pytest.approx((0.1, -0.3), abs=1e-9)


def test_the_interval_of_a_knot_holds_the_knot():
    random = np.random.default_rng(5)
    index = np.arange(12)
    series = 0.05 * np.maximum(0, index - 6) + random.normal(0, 0.1, (64, 12))
    low, high = change_point.knot_interval(series, draws=100)
    assert low <= 6 <= high
    assert high - low <= 5


def test_alarms_and_short_series():
    assert change_point.alarm(np.array([0.0, 1.0]), 5.0) is None
    with pytest.raises(BadInput):
        change_point.broken_stick(np.arange(3.0))
    with pytest.raises(BadInput):
        change_point.bernoulli_split(np.array([1.0]), 10)
    with pytest.raises(BadInput):
        change_point.log_likelihood_ratios(np.array([1.0]), 10, 0.0, 0.5)


def test_a_false_alarm_of_shiryaev_roberts_is_as_rare_as_its_threshold_says():
    random = np.random.default_rng(6)
    early = 0
    for _ in range(300):
        events = random.binomial(64, 0.05, 50).astype(float)
        path = change_point.shiryaev_roberts(change_point.log_likelihood_ratios(events, 64, 0.05, 0.15))
        early += change_point.alarm(path, math.log(1000)) is not None
    assert early <= 30  # P(alarm within 50) <= 50/1000


def test_a_perfect_evaluator_needs_no_correction():
    found = rogan_gladen(0.3, 1.0, 1.0, n=400, labelled_bad=10**9, labelled_good=10**9, method="wald")
    assert found.estimate == pytest.approx(0.3)
    assert found.half_width == pytest.approx(1.959964 * math.sqrt(0.3 * 0.7 / 400), rel=1e-5)


def test_an_evaluator_no_better_than_chance_is_refused():
    with pytest.raises(BadInput, match="better than chance"):
        rogan_gladen(0.3, 0.5, 0.5, n=100, labelled_bad=50, labelled_good=50)


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_symmetric_and_a_probability(first, second):
    assert mcnemar(first, second) == mcnemar(second, first)
    assert 0 < mcnemar(first, second) <= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_plain_and_bonferroni(p_values):
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1.0, p * len(p_values)) + 1e-12 or q == max(adjusted)
    assert sorted(adjusted) == [
        adjusted[at] for at in sorted(range(len(p_values)), key=lambda at: p_values[at])
    ]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(1, 30))
def test_newcombe_holds_its_difference_and_mirrors(a, b, c, d):
    found, mirrored = newcombe_paired(a, b, c, d), newcombe_paired(a, c, b, d)
    assert -1 <= found.low <= found.estimate <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low), abs=1e-12)


def test_recombining_one_certain_part_changes_nothing():
    first, certain = wilson(5, 20), Interval(0.0, 0.0, 0.0, 20)
    found = recombine(first, certain)
    assert (found.low, found.high) == pytest.approx((first.low, first.high))


@pytest.mark.parametrize("bad", [(-1, 10), (11, 10), (0, 0)])
def test_impossible_counts_are_refused(bad):
    for method in (wilson, clopper_pearson, jeffreys, time_uniform):
        with pytest.raises(BadInput, match="successes"):
            method(*bad)


def test_the_statistics_load_no_heavy_part_of_scipy():
    code = "import sys, assay.hacking; print('scipy.stats' in sys.modules, 'polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=6), st.integers(1, 9), st.floats(-1, 5), st.data())
@settings(max_examples=60)
def test_rejection_sampling_is_the_policy_that_draws_again(weights, tries, threshold, data):
    """Against the distribution built draw by draw: its KL, reward and gold, on one prompt with equal samples."""
    counts = [max(1, round(10 * weight)) for weight in weights]
    rewards = data.draw(st.lists(st.integers(0, 4), min_size=len(counts), max_size=len(counts)))
    reference = np.array(counts) / sum(counts)
    reward, gold = np.array(rewards, float), np.array(rewards, float) % 2
    passes = reward >= threshold
    policy, waiting = np.zeros(len(counts)), 1.0
    for draw in range(tries):
        last = draw == tries - 1
        policy += waiting * reference * (passes | last)
        waiting *= float(reference[~passes].sum())
    samples = np.repeat(np.arange(len(counts)), counts)
    found = rejection.rejection_sampling(reward[samples][None], gold[samples][None], threshold, tries=tries)
    assert found.kl == pytest.approx(bon.kl_divergence(policy, reference), abs=1e-9)
    assert found.reward == pytest.approx(policy @ reward)
    assert found.gold == pytest.approx(policy @ gold)


def test_rejection_sampling_at_a_given_kl():
    reward = np.random.default_rng(0).normal(size=(64, 8))
    found = rejection.rejection_at_kl(reward, reward, bon.kl_bound(4), tries=8)
    assert found.kl == pytest.approx(bon.kl_bound(4), abs=0.05)
    assert found.reward == found.gold > reward.mean() + 0.5
    nothing_passes = rejection.rejection_sampling(reward, reward, 99.0, tries=8)
    assert (nothing_passes.kl, nothing_passes.accepted) == (0.0, 0.0)
    assert nothing_passes.reward == pytest.approx(reward.mean())
    with pytest.raises(BadInput, match="tries"):
        rejection.rejection_sampling(reward, reward, 0.0, tries=0)
    with pytest.raises(BadInput, match="no sample"):
        rejection.rejection_sampling(reward * math.nan, reward, 0.0, tries=1)
