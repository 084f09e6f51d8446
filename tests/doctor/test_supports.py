"""A truncated support in an excerpt of logits is read off the data, whatever its threshold."""

import numpy as np
import pytest
from tests.doctor.truncation import log_softmax, truncated

from assay.doctor.gathers import explain
from assay.records.run_record import Logits


def excerpt(change, seed, words=32, scale=2.0, noise=0.0, sampled=True):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, scale, (4, 24, words))
    values = change(logits)
    if sampled:
        draws = rng.random((4, 24, 1))
        ids = (np.cumsum(np.exp(values), -1) < draws).sum(-1).clip(max=words - 1)
    else:
        ids = rng.integers(0, words, (4, 24))
    logged = np.take_along_axis(values, ids[..., None], -1)[..., 0] + rng.normal(0, noise, ids.shape)
    return explain(
        Logits(logits.astype(np.float32).astype(float), ids, logged.astype(np.float32).astype(float))
    )


CUTS = [("top_p", p) for p in (0.3, 0.55, 0.6, 0.75, 0.85, 0.9, 0.95)]
CUTS += [("top_k", k) for k in (2, 3, 7, 8)] + [("min_p", share) for share in (0.02, 0.05, 0.1, 0.2)]


@pytest.mark.parametrize(("words", "scale", "noise"), [(32, 2.0, 0.0), (32, 2.0, 0.004), (500, 3.0, 0.0)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(("kind", "value"), CUTS)
def test_any_threshold_is_found(kind, value, seed, words, scale, noise):
    found = explain_cut(kind, value, seed, words=words, scale=scale, noise=noise)
    assert found.id == "logprob.truncated_support"


def explain_cut(kind, value, seed, fill=-1e9, **more):
    return excerpt(lambda logits: log_softmax(truncated(logits, kind, value, fill)), seed, **more)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [("top_k", 7, "over the 7 most likely"), ("top_p", 0.6, "a nucleus of mass 0.6"),
     ("min_p", 0.1, "at least 0.1 of the largest")],
)  # fmt: skip
def test_the_rule_and_its_threshold_are_named(kind, value, words):
    assert words in explain_cut(kind, value, 0).words


@pytest.mark.parametrize("fill", [-np.inf, -1e9, -1e4])
@pytest.mark.parametrize(("kind", "value"), [("top_p", 0.9), ("top_k", 10), ("min_p", 0.05)])
def test_ids_outside_of_the_support_do_not_hide_it(kind, value, fill):
    found = explain_cut(kind, value, 0, fill, sampled=False)
    assert found.id == "logprob.truncated_support"


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.004, 0.02])
@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_whole_support_is_no_fault(seed, scale, noise):
    assert excerpt(log_softmax, seed, scale=scale, noise=noise).id is None


@pytest.mark.parametrize("value", [0.5, 0.7, 0.9, 1.2, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_temperature_is_no_truncation(seed, value):
    assert excerpt(lambda x: log_softmax(x / value), seed).id == "logprob.temperature"


@pytest.mark.parametrize("seed", range(5))
def test_another_model_is_no_truncation(seed):
    rng = np.random.default_rng(seed + 100)
    assert (
        excerpt(lambda x: log_softmax(x + rng.normal(0, 1, x.shape)), seed).id == "logprob.sampler_mismatch"
    )
