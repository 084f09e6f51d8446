"""The comparisons, the tilt and DPO on six answers: every number of the walk-through, by our functions."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from assay.maths.preference import bradley_terry_loss
from assay.train.linear_reward import fit_linear_reward, separable_features

PATH = Path(__file__).parents[2] / "examples" / "goodhart.py"
spec = importlib.util.spec_from_file_location("goodhart_example", PATH)
assert spec is not None
assert spec.loader is not None
goodhart = importlib.util.module_from_spec(spec)
spec.loader.exec_module(goodhart)

# beta: KL, mean reward, what a reader gets, most likely answer
TABLE = {
    100.0: (0.001, 6.358, 0.277, "correct 30"),
    10.0: (0.059, 7.443, 0.378, "correct 30"),
    2.0: (0.795, 10.141, 0.185, "correct 400"),
    1.0: (2.165, 12.047, -0.390, "correct 400"),
    0.5: (2.962, 12.685, -0.595, "correct 400"),
    0.25: (2.996, 12.700, -0.600, "correct 400"),
}
LAST_DIGIT = 0.5001e-3


@pytest.fixture(scope="module")
def fit():
    return goodhart.fitted_reward(goodhart.rated_pairs())


@pytest.fixture(scope="module")
def reward_K(fit):
    return goodhart.rewards(fit)


def test_the_reward_fitted_to_the_raters(fit):
    assert fit.weights == pytest.approx((7.722, 1.245), abs=LAST_DIGIT)
    assert fit.loss == pytest.approx(0.3033, abs=0.5001e-4)
    assert fit.accuracy == pytest.approx(0.869, abs=LAST_DIGIT)


def test_the_fit_warns_of_the_weight_that_never_ends(fit):
    assert fit.separable == ("correct",)
    assert "grow for ever" in fit.warnings[0]
    assert fit.errors[0] == float("inf")
    assert 0 < fit.errors[1] < 0.2  # the length is not separable: raters disagree about it
    differences = np.array([[1.0, 0.2], [1.0, -0.4], [0.0, 0.3], [0.0, -0.3], [0.0, 0.3]])
    short, long = (fit_linear_reward(differences, ["correct", "length"], steps=n) for n in (300, 3000))
    assert long.weights[0] > short.weights[0] + 1
    assert long.weights[1] == pytest.approx(short.weights[1], abs=0.2)


def test_raters_who_err_leave_nothing_to_warn_of():
    differences = np.array([[1.0, 0.2], [1.0, -0.4], [-1.0, 0.1], [0.0, 0.3], [0.0, -0.3]])
    fit = fit_linear_reward(differences, ["correct", "length"])
    assert fit.separable == ()
    assert fit.warnings == ()
    assert fit.gradient < 1e-6


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0]),
        ([[1.0, -1.0], [-0.5, 1.0]], [0, 1]),  # separated by a mixture: neither feature alone is
        ([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], []),
        ([[0.0, 0.0]], []),
    ],
)
def test_separation_is_found_where_it_is(rows, found):
    assert separable_features(np.array(rows)) == found


def test_six_answers(reward_K):
    assert reward_K.tolist() == pytest.approx([8.095, 8.469, 9.215, 12.700, 2.365, 0.747], abs=LAST_DIGIT)
    assert goodhart.utility().tolist() == pytest.approx([0.88, 0.76, 0.52, -0.60, -0.76, -0.24])


def test_reward_climbs_while_the_reader_loses(reward_K):
    for (beta, expected), row in zip(TABLE.items(), goodhart.tilt_rows(reward_K), strict=True):
        assert (row.kl, row.reward, row.truth) == pytest.approx(expected[:3], abs=LAST_DIGIT), beta
        assert goodhart.NAMES[int(row.policy_K.argmax())] == expected[3]


def test_best_row_and_best_beta(reward_K):
    best = max(goodhart.tilt_rows(reward_K), key=lambda row: row.truth)
    assert best.kl == pytest.approx(0.059, abs=LAST_DIGIT)
    beta, peak = goodhart.best_tilt(reward_K)
    assert beta == pytest.approx(4.98, abs=0.005)
    assert (peak.kl, peak.truth) == pytest.approx((0.196, 0.417), abs=LAST_DIGIT)
    assert peak.covariance == pytest.approx(0.0, abs=1e-9)
    assert peak.truth > best.truth


def test_dpo_reaches_the_closed_form_from_comparisons_alone(reward_K):
    fit = goodhart.dpo_on_comparisons((reward_K / 4).float())
    assert fit.loss == pytest.approx(0.4994, abs=0.5001e-4)
    dpo, closed = [0.271, 0.276, 0.199, 0.175, 0.040, 0.038], [0.281, 0.272, 0.193, 0.178, 0.040, 0.036]
    assert fit.policy_K.tolist() == pytest.approx(dpo, abs=LAST_DIGIT)
    assert fit.closed_form_K.tolist() == pytest.approx(closed, abs=LAST_DIGIT)
    assert fit.disagreement == pytest.approx(0.0102, abs=0.5001e-4)


def test_group_advantages():
    rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    advantages = goodhart.group_normalized_advantages(rewards)
    expected = [1.291 if reward else -0.775 for reward in rewards]
    assert advantages.tolist() == pytest.approx(expected, abs=LAST_DIGIT)
    assert float(advantages.mean()) == pytest.approx(0.0, abs=1e-12)


def test_the_loss_is_the_one_everybody_prints():
    chosen, rejected = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.5])
    assert bradley_terry_loss(chosen, rejected).mean() == -logsigmoid(chosen - rejected).mean()
