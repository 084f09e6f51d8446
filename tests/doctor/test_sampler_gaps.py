"""A sampler's log-probs against the trainer's: what truncation does to them, what a temperature does, and neither."""

import numpy as np
import pytest
from tests.doctor.truncation import log_softmax, truncated

TOKENS = 45


def cut(kind, value):
    """Logits to logits of a sampler that keeps the most likely tokens only."""
    return lambda rng, logits: truncated(logits, kind, value)


def divided(temperature):
    return lambda rng, logits: logits / temperature


def perturbed(size):
    return lambda rng, logits: logits + rng.normal(0, size, logits.shape)


def sampled(change, seed, words, noise):
    """(trainer's log-probs, sampler's), each (rows, TOKENS), of tokens drawn from the sampler; 0.7 nats a token."""
    rng = np.random.default_rng(seed)
    count = 16 * TOKENS
    scale = np.where(
        rng.random((count, 1)) < 0.6, rng.uniform(4, 9, (count, 1)), rng.uniform(1.3, 3, (count, 1))
    )
    ranks = rng.permuted(np.tile(-np.log(np.arange(1, words + 1)), (count, 1)), axis=1)
    logits = ranks * scale + rng.normal(0, 0.3, ranks.shape)
    trainer, sampler = log_softmax(logits), log_softmax(change(rng, logits))
    ids = (np.cumsum(np.exp(sampler), -1) < rng.random((count, 1))).sum(-1).clip(max=words - 1)
    first, second = (np.take_along_axis(x, ids[:, None], -1)[:, 0] for x in (trainer, sampler))
    first = np.minimum(first + rng.normal(0, noise, count), 0)
    return first.reshape(16, TOKENS), second.reshape(16, TOKENS)


def found(make_log, change, seed=0, words=300, noise=0.004):
    """The diagnosis of a flat run whose rows of a step hold such tokens."""
    log = make_log(steps=15, groups=2, end=0.35)
    trainer, sampler = sampled(change, seed, words, noise)
    for number, row in enumerate(log.rollouts):
        one, two = trainer[number % 16].tolist(), sampler[number % 16].tolist()
        row |= {"old_logprobs": one, "logprobs": one, "sampler_logprobs": two, "ref_logprobs": one}
        row["token_ids"] = [1] * TOKENS
    return log.diagnose()


def failures(diagnosis):
    return {one.id for one in diagnosis.of("fail") if one.id.startswith("logprob.")}


CUTS = [("top_p", p) for p in (0.3, 0.6, 0.8, 0.9, 0.95)]
CUTS += [("top_k", k) for k in (1, 3, 5, 10)] + [("min_p", share) for share in (0.05, 0.1, 0.2)]


WORLDS = pytest.mark.parametrize(
    ("words", "noise", "seed"),
    [
        (300, 0.004, 0),
        pytest.param(300, 0.02, 1, marks=pytest.mark.slow),
        pytest.param(1000, 0.004, 2, marks=pytest.mark.slow),
    ],
)


@WORLDS
@pytest.mark.parametrize(("kind", "value"), CUTS)
def test_a_truncated_sampler_is_named(make_log, kind, value, words, noise, seed):
    root = found(make_log, cut(kind, value), seed, words, noise).root_cause
    assert root.id == "logprob.truncated_support"
    assert root.evidence["mean_ratio"] < 1 - 5 * root.evidence["standard_error"]


def test_the_kept_mass_is_the_mean_ratio(make_log):
    trainer, sampler = sampled(cut("top_p", 0.6), 0, 300, 0.0)
    root = found(make_log, cut("top_p", 0.6), noise=0.0).root_cause
    assert root.evidence["mean_ratio"] == pytest.approx(np.exp(trainer - sampler).mean())
    assert f"{np.exp(trainer - sampler).mean():.0%}" in root.summary


@WORLDS
@pytest.mark.parametrize("value", [0.5, 0.6, 0.7, 0.8, 0.9, 1.2, 1.3, 1.5])
def test_a_temperature_on_one_side_is_named(make_log, value, words, noise, seed):
    root = found(make_log, divided(value), seed, words, noise).root_cause
    assert root.id == "logprob.temperature"
    assert root.evidence["sampler"] == ("sharper" if value < 1 else "flatter")
    assert ("raises likely" in root.summary) == (value < 1)


@pytest.mark.parametrize("noise", [0.0, 0.004, 0.02])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rounding_is_no_fault(make_log, seed, noise):
    assert failures(found(make_log, perturbed(0.0), seed, noise=noise)) == set()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
def test_another_model_is_neither(make_log, size, seed):
    assert failures(found(make_log, perturbed(size), seed)) == {"logprob.sampler_mismatch"}


def test_noise_on_every_token_is_neither(make_log):
    assert failures(found(make_log, perturbed(0.0), noise=0.4)) == {"logprob.sampler_mismatch"}


def test_a_gap_within_rounding_is_left_alone_even_where_it_is_one_sided(make_log):
    assert failures(found(make_log, cut("top_p", 0.995))) == set()


def gaps_of(log, change):
    """Early rows get other sampler log-probs: ``change`` of the trainer's, by step."""
    for row in log.rollouts:
        trainer = np.array(row["old_logprobs"])
        row["sampler_logprobs"] = change(row["step"], trainer).tolist()
    return log.diagnose()


def test_a_gap_that_is_not_there_at_the_first_step_is_no_temperature(make_log):
    def older(step, trainer):
        return trainer if step == 1 else np.minimum(1.3 * trainer + 0.05, 0)

    log = make_log(end=0.35)
    assert failures(gaps_of(log, older)).isdisjoint({"logprob.temperature", "logprob.truncated_support"})


@pytest.mark.parametrize(("value", "words"), [(0.6, 32), (1.6, 32)])
def test_a_temperature_shows_where_hardly_any_token_is_likely(make_log, value, words):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.2, (16 * TOKENS, words))
    trainer, sampler = log_softmax(logits), log_softmax(logits / value)
    ids = (np.cumsum(np.exp(sampler), -1) < rng.random((16 * TOKENS, 1))).sum(-1).clip(max=words - 1)
    first, second = (np.take_along_axis(x, ids[:, None], -1).reshape(16, TOKENS) for x in (trainer, sampler))
    assert (first > np.log(0.5)).mean() < 0.03
    log = make_log(steps=15, groups=2, end=0.35)
    for number, row in enumerate(log.rollouts):
        row |= dict.fromkeys(("old_logprobs", "logprobs", "ref_logprobs"), first[number % 16].tolist())
        row |= {"sampler_logprobs": second[number % 16].tolist(), "token_ids": [1] * TOKENS}
    assert log.diagnose().root_cause.id == "logprob.temperature"
