"""Log-prob functions that score with the sampler's truncation still on, whatever its rule and its mask."""

import numpy as np
import pytest
from tests.doctor.truncation import log_softmax, truncated

from assay.doctor import check_logprobs


def scorer(kind, value, fill):
    def fn(logits, ids):
        values = log_softmax(truncated(logits, kind, value, fill))
        return np.take_along_axis(values, ids[..., None], -1)[..., 0]

    return fn


RULES = [("top_p", p) for p in (0.3, 0.5, 0.6, 0.72, 0.85, 0.95, 0.99)]
RULES += [("min_p", share) for share in (0.02, 0.05, 0.1, 0.2, 0.5)]
RULES += [("top_k", k) for k in (1, 2, 3, 5, 6)]


@pytest.mark.parametrize("fill", [-np.inf, -1e9, -1e4])
@pytest.mark.parametrize(("kind", "value"), RULES)
def test_a_mask_that_truncates_is_named(kind, value, fill):
    found = check_logprobs(scorer(kind, value, fill))
    assert [one.id for one in found] == ["logprob.truncated_support"]
    assert kind.replace("_", "-") in found[0].summary or "top-" in found[0].summary


@pytest.mark.parametrize("k", [8, 20, 50])
def test_a_cut_that_only_a_larger_vocabulary_shows(k):
    found = check_logprobs(scorer("top_k", k, -np.inf))
    assert [one.id for one in found] == ["logprob.truncated_support"]
    assert f"top-k {k}" in found[0].summary


def test_a_mask_that_no_truncation_makes_is_something_else():
    def odd_ids_only(logits, ids):
        values = np.take_along_axis(log_softmax(logits), ids[..., None], -1)[..., 0]
        return np.where(ids % 2 == 1, values, -np.inf)

    assert [one.id for one in check_logprobs(odd_ids_only)] == ["logprob.not_normalised"]


def test_the_right_mask_without_a_new_norm_is_no_truncated_support():
    def fn(logits, ids):
        values = scorer("top_k", 4, -np.inf)(logits, ids)
        whole = np.take_along_axis(log_softmax(logits), ids[..., None], -1)[..., 0]
        return np.where(np.isfinite(values), whole, -np.inf)

    assert "logprob.truncated_support" not in [one.id for one in check_logprobs(fn)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_whole_vocabulary_passes(dtype):
    def fn(logits, ids):
        return np.take_along_axis(log_softmax(logits.astype(dtype)), ids[..., None], -1)[..., 0]

    assert check_logprobs(fn) == []
