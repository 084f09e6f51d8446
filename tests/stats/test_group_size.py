"""The group baseline's error falls like sigma^2/k while the variance of r - mean rises."""

import numpy as np
import pytest

from assay.errors import BadInput
from assay.stats.group_size import group_size_errors

BANDIT = np.array([[1.0, 0.0, 0.25, 0.0]])  # four equally likely rewards


def test_error_and_variance_match_the_formulas():
    rows = group_size_errors(BANDIT, [1, 2, 4, 8, 16], draws=40_000)
    sigma2 = BANDIT.var()
    for row in rows:
        assert row.predicted == pytest.approx(sigma2 / row.group_size)
        assert row.mean_squared_error == pytest.approx(row.predicted, rel=0.05)
        assert row.variance == pytest.approx(row.predicted_variance, rel=0.05, abs=1e-12)
    errors = [row.mean_squared_error for row in rows]
    variances = [row.variance for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert variances == sorted(variances)


def test_two_by_hand():
    # rewards 0 and 1: the means of two draws are 0, 1/2, 1/2, 1 around the value 1/2
    row = group_size_errors(np.array([[0.0, 1.0]]), [2], draws=40_000)[0]
    assert row.predicted == pytest.approx(1 / 8)
    assert row.mean_squared_error == pytest.approx(1 / 8, rel=0.03)


@pytest.mark.parametrize(
    ("rewards", "sizes"),
    [(np.zeros(3), [2]), (np.zeros((3, 1)), [2]), (BANDIT, [0]), (np.full((2, 2), np.nan), [2])],
)
def test_bad_input_is_refused(rewards, sizes):
    with pytest.raises(BadInput):
        group_size_errors(rewards, sizes)
