"""Reward models: what they learn from raters, what their report says, and files in TRL's form."""

import math
import random

import numpy as np
import pytest
import torch

from assay.errors import BadInput
from assay.models.heads import ScalarModel
from assay.models.tiny_policy import TinyPolicy
from assay.tasks.raters import Answer, Raters
from assay.train.preference_data import Pair, PairRows, pair_of_row, read_pairs, write_pairs
from assay.train.reward_model import (
    LearnedReward,
    RewardModelSettings,
    bootstrap_weights,
    calibrate,
    pair_losses,
    save_reward_model,
    score_rows,
    split_by_prompt,
    train_reward_model,
)
from assay.train.reward_report import (
    calibration_slope,
    gain_within_lengths,
    length_controlled_win_rate,
    length_findings,
    rater_slopes,
    report_pairs,
    report_reward_model,
)

QUALITY_WORD = {1.0: "good", 0.0: "bad"}


def answer(rng: random.Random) -> Answer:
    quality, words = float(rng.random() < 0.5), rng.randint(0, 8)
    return Answer(QUALITY_WORD[quality] + " so" * words, quality, float(words))


def rated(raters: Raters, count: int, seed: int = 0) -> list[Pair]:
    rng = random.Random(seed)
    pairs = []
    while len(pairs) < count:
        first, second = answer(rng), answer(rng)
        if first.completion == second.completion:
            continue
        won = raters.prefers_first(first, second, seed=seed, key=str(len(pairs)))
        pairs.append(Pair(f"q{rng.randint(0, 40)}\n", *((first, second) if won else (second, first))))
    return pairs


@pytest.fixture(scope="module")
def policy():
    texts = ["q1\ngood so so", "q22\nbad so", "q3\ngood"]
    return TinyPolicy.create(
        texts, vocab_size=300, hidden_size=16, layers=1, heads=2, intermediate_size=24, max_positions=48
    )


@pytest.fixture(scope="module")
def fitted(policy):
    pairs = rated(Raters(longer_wins=0.75), 500)
    train, held_out = split_by_prompt(pairs, 0.2, 0)
    model = train_reward_model(policy, train, RewardModelSettings(epochs=3, learning_rate=5e-3, heads=3))
    return model, train, held_out


def test_it_learns_the_raters_and_their_habit(fitted):
    """Quality and length are both in the reward, and the report prices the length at equal quality."""
    model, train, held_out = fitted
    report = report_reward_model(model, held_out, train)
    assert report.accuracy.estimate > 0.75
    assert report.loss < 0.55
    assert report.length_slope.low > 0
    assert report.on_longer_chosen.estimate > report.on_shorter_chosen.estimate
    assert report.data.separable
    assert "no finite best value" in report.warnings[0]
    assert [finding.id for finding in report.findings] == ["pays_length"]
    scores = LearnedReward(model)(["good", "bad", "good so so so so"], [{"prompt": "q1\n"}] * 3)
    assert scores[0].value > scores[1].value
    assert scores[2].value > scores[0].value
    assert report.to_json()["accuracy"]["estimate"] == report.accuracy.estimate


def test_unbiased_raters_leave_no_length_slope(policy):
    pairs = rated(Raters(correctness=3.0), 400, seed=3)
    train, held_out = split_by_prompt(pairs, 0.3, 0)
    model = train_reward_model(policy, train, RewardModelSettings(epochs=1, learning_rate=3e-3, heads=1))
    report = report_reward_model(model, held_out, train)
    quality_margin = report_quality_margin(model)
    assert abs(report.length_slope.estimate) * 8 < quality_margin
    assert not report.data.separable
    assert report.warnings == ()


def report_quality_margin(model):
    good, bad = LearnedReward(model)(["good so", "bad so"], [{"prompt": "q1\n"}] * 2)
    return good.value - bad.value


def test_heads_disagree_where_nobody_taught_them(fitted):
    model, train, _ = fitted
    taught = LearnedReward(model)([p.chosen.completion for p in train[:60]], [{"prompt": "q1\n"}] * 60)
    strange = LearnedReward(model)(["q q" * 5 + str(i) for i in range(20)], [{"prompt": "zz zz\n"}] * 20)
    spread = [np.mean([s.parts["disagreement"] for s in scores]) for scores in (taught, strange)]
    assert spread[1] > spread[0] > 0


def test_combining_the_heads(fitted):
    model = fitted[0]
    args = (["good so", "bad"], [{"prompt": "q1\n"}] * 2)
    mean, least, penalised = (LearnedReward(model, how)(*args) for how in ("mean", "min", "penalised"))
    assert all(low.value < middle.value for low, middle in zip(least, mean, strict=True))
    for low, middle in zip(penalised, mean, strict=True):
        assert low.value == pytest.approx(middle.value - middle.parts["disagreement"] ** 2, abs=1e-6)
    with pytest.raises(BadInput, match="combine"):
        LearnedReward(model, "median")


def test_calibrated_scores_have_mean_0_and_deviation_1(fitted, policy):
    model, train, _ = fitted
    rows = PairRows(policy, train[:80]).chosen
    raw = score_rows(model, rows)
    calibrate(model, rows)
    scaled = score_rows(model, rows)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(3), atol=1e-5, rtol=0)
    assert torch.equal(raw.argsort(0), scaled.argsort(0))
    model.head.mean_K.zero_()
    model.head.scale_K.fill_(1.0)


def test_saved_and_loaded_it_scores_the_same(fitted, tmp_path):
    model, train, _ = fitted
    save_reward_model(tmp_path / "rm", model)
    loaded = ScalarModel.load(tmp_path / "rm")
    rows = PairRows(model.policy, train[:10]).chosen
    assert torch.equal(score_rows(loaded, rows), score_rows(model, rows))


def test_bootstraps_differ_and_add_up():
    weights_NK = bootstrap_weights(200, 4, seed=1)
    assert weights_NK.sum(0).tolist() == [200.0] * 4
    assert not torch.equal(weights_NK[:, 0], weights_NK[:, 1])
    assert bootstrap_weights(5, 1, seed=1).tolist() == [[1.0]] * 5


def test_margins_and_centring_are_in_the_loss(fitted, policy):
    model = fitted[0]
    rows = PairRows(policy, [Pair("q1\n", Answer("good", 1.0, 1.0), Answer("bad", 0.0, 1.0), margin=3.0)])
    good, bad = (score_rows(model, side)[0] for side in (rows.chosen, rows.rejected))
    for use_margins, centring in ((False, 0.0), (True, 0.0), (True, 0.5)):
        settings = RewardModelSettings(use_margins=use_margins, centring=centring)
        expected = torch.log1p(torch.exp(-(good - bad - 3.0 * use_margins))) + centring * (good + bad) ** 2
        torch.testing.assert_close(pair_losses(model, rows, [0], settings)[0], expected)


def test_the_longer_answer_is_a_baseline():
    """Nine of ten chosen answers are longer: counting words has 0.9, and 0 where the chosen is shorter."""
    long, short = Answer("word " * 20, math.nan, 20.0), Answer("word " * 5, math.nan, 5.0)
    data = report_pairs([Pair(f"q{i}", long, short) for i in range(9)] + [Pair("q9", short, long)])
    assert data.longer_wins.estimate == pytest.approx(0.9)
    (finding,) = length_findings(data, report_pairs([]).longer_wins)
    assert (finding.id, finding.status) == ("pays_length", "fail")
    assert finding.evidence["length_baseline_accuracy"] == pytest.approx(0.9)
    balanced = report_pairs([Pair("a", long, short), Pair("b", short, long)])
    assert length_findings(balanced, report_pairs([]).longer_wins) == ()


def test_the_raters_slope_is_recovered():
    """Logistic in length with slope 0.5: its interval covers it in at least 17 of 20 draws."""
    covered = 0
    for seed in range(20):
        pairs = rated(Raters(correctness=1.5, length=0.5, length_unit=4.0), 250, seed)
        slopes = rater_slopes(pairs, length_unit=4.0)
        covered += slopes["length"].low <= 0.5 <= slopes["length"].high
        assert slopes["quality"].low > 0
    assert covered >= 17


def test_length_controlled_win_rate():
    """Cells of (quality, length) difference with known weights: a logistic with the length term at 0."""
    cells = [(q, d) for q in (-1, 0, 1) for d in (-1, 0, 1)]
    weights = np.array([0.05, 0.1, 0.15, 0.05, 0.1, 0.2, 0.05, 0.1, 0.2])
    wins = np.array([1 / (1 + math.exp(-(q + 0.5 * d))) for q, d in cells])
    raw = float(weights @ wins / weights.sum())
    controlled = length_controlled_win_rate(wins, np.array([float(d) for _, d in cells]), weights).estimate
    fair = float(weights @ np.array([1 / (1 + math.exp(-q)) for q, _ in cells]) / weights.sum())
    assert raw == pytest.approx(0.55376, abs=1e-5)
    assert fair == pytest.approx(0.51155, abs=1e-5)
    assert abs(controlled - fair) < 0.25 * (raw - fair)  # at least three quarters of the inflation is gone


def test_at_equal_quality_nobody_wins_for_being_longer():
    rng = np.random.default_rng(0)
    longer = rng.normal(1.0, 1.0, 1000)
    wins = (rng.random(1000) < 1 / (1 + np.exp(-0.8 * longer))).astype(float)
    found = length_controlled_win_rate(wins, longer)
    assert wins.mean() > 0.6
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.2


def test_gain_within_lengths_removes_what_length_explains():
    rng = np.random.default_rng(0)
    before, after = rng.uniform(0, 10, 800), rng.uniform(4, 14, 800)
    none = gain_within_lengths((0.3 * after, after), (0.3 * before, before))
    some = gain_within_lengths((0.3 * after + 1, after), (0.3 * before, before))
    assert abs(none.estimate) < 0.25 < 0.3 * (after.mean() - before.mean())
    assert some.estimate == pytest.approx(none.estimate + 1)


def test_calibration_slope():
    rng = np.random.default_rng(0)
    score = rng.normal(0, 2, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(-score))
    margin = np.where(right, score, -score)  # of the chosen over the rejected
    assert calibration_slope(margin) == pytest.approx(1.0, abs=0.06)
    assert calibration_slope(3 * margin) == pytest.approx(1 / 3, abs=0.03)
    assert math.isnan(calibration_slope(np.array([1.0, 2.0])))


def test_no_prompt_is_on_both_sides():
    train, held_out = split_by_prompt(rated(Raters(), 200), 0.3, 0)
    assert not {p.prompt for p in train} & {p.prompt for p in held_out}
    assert 0 < len(held_out) < 150


def test_files(tmp_path):
    pairs = rated(Raters(), 5)
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs
    implicit = pair_of_row({"chosen": "Q: a? A: yes", "rejected": "Q: a? A: no"}, "row 1")
    assert (implicit.prompt, implicit.chosen.completion) == ("Q: a? A: ", "yes")
    user = {"role": "user", "content": "hi"}
    chat = pair_of_row(
        {
            "chosen": [user, {"role": "assistant", "content": "yes"}],
            "rejected": [user, {"role": "assistant", "content": "no"}],
        },
        "row 1",
    )
    assert (chat.prompt, chat.chosen.completion, chat.rejected.completion) == ("user: hi\n", "yes", "no")
    with pytest.raises(BadInput, match="row 7: chosen and rejected are the same"):
        pair_of_row({"prompt": "a", "chosen": "b", "rejected": "b"}, "row 7")
    with pytest.raises(BadInput, match="expected columns"):
        pair_of_row({"prompt": "a", "completion": "b"}, "row 7")
