"""Sampling: log-probs are the trainer's, and a completion depends on its key alone."""

import pytest
import torch

from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.engines.uniforms import keyed_integer, keyed_uniforms
from assay.errors import BadInput
from assay.models.tiny_policy import TinyPolicy
from assay.train.forward import TokenRows, token_scores

TEXTS = ["1. P premise\n|- P & P\n2. P & P &I 1 1\n", "sort 31:\n13\n"] * 20
SETTINGS = SamplingSettings(max_new_tokens=24, seed=5)


@pytest.fixture(scope="module")
def policy():
    sizes = {"hidden_size": 32, "layers": 2, "heads": 4, "intermediate_size": 48, "max_positions": 96}
    made = TinyPolicy.create(TEXTS, seed=1, vocab_size=280, **sizes)
    with torch.no_grad():  # make EOS likely enough that lengths differ
        made.module.model.embed_tokens.weight[made.eos_id] *= 2.5
    return made


def requests_of(policy):
    prompts = [policy.encode_prompt(text) for text in ("|- P", "1. P premise\n|- P & P\n", "sort 31:\n")]
    return [Request(prompt, ("train:1", str(p), s)) for p, prompt in enumerate(prompts) for s in range(8)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.4])
def test_sampler_and_trainer_log_probs_agree(policy, temperature):
    requests = requests_of(policy)
    drawn = sample(policy, requests, SamplingSettings(24, temperature, seed=5))
    assert len({len(one.token_ids) for one in drawn}) > 3, "lengths should differ for rows to be retired"
    rows = TokenRows([r.prompt_ids for r in requests], [one.token_ids for one in drawn])
    scores = token_scores(policy, rows, temperature=temperature)
    for i, one in enumerate(drawn):
        width = len(one.token_ids)
        torch.testing.assert_close(
            scores.logp_BT[i, :width], torch.tensor(one.logprobs), atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            scores.entropy_BT[i, :width], torch.tensor(one.entropies), atol=1e-4, rtol=1e-4
        )


def test_prompts_of_one_length_need_no_mask_and_agree_too(policy):
    prompts = [policy.encode_prompt(f"sort {digits}:\n") for digits in (31, 52, 70)]
    assert len({len(prompt) for prompt in prompts}) == 1
    requests = [Request(prompt, ("train:1", str(p), s)) for p, prompt in enumerate(prompts) for s in range(8)]
    drawn = sample(policy, requests, SamplingSettings(max_new_tokens=12))
    assert len({len(one.token_ids) for one in drawn}) > 2, "rows retire at different steps"
    rows = TokenRows([request.prompt_ids for request in requests], [one.token_ids for one in drawn])
    with torch.no_grad():
        logp_BT = token_scores(policy, rows, 1.0).logp_BT
    for i, one in enumerate(drawn):
        assert logp_BT[i, : len(one.logprobs)].tolist() == pytest.approx(one.logprobs, abs=1e-5)


def test_a_completion_depends_on_its_key_alone(policy):
    requests = requests_of(policy)
    together = sample(policy, requests, SETTINGS)
    backwards = sample(policy, requests[::-1], SETTINGS)[::-1]
    alone = [sample(policy, [request], SETTINGS)[0] for request in requests]
    for one, two, three in zip(together, backwards, alone, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids


def test_another_seed_stream_or_sample_gives_another_completion(policy):
    request = requests_of(policy)[0]
    texts = {
        tuple(
            sample(policy, [Request(request.prompt_ids, key)], SamplingSettings(24, seed=seed))[0].token_ids
        )
        for seed, key in [(5, ("a", "0", 0)), (6, ("a", "0", 0)), (5, ("b", "0", 0)), (5, ("a", "0", 1))]
    }
    assert len(texts) == 4


def test_eos_ends_a_completion_and_is_kept_and_padding_never_comes(policy):
    for one in sample(policy, requests_of(policy), SETTINGS):
        ended = one.token_ids[-1] == policy.eos_id
        assert one.finish_reason == ("eos" if ended else "length")
        assert policy.eos_id not in one.token_ids[:-1]
        assert policy.pad_id not in one.token_ids
        assert ended or len(one.token_ids) == SETTINGS.max_new_tokens
        assert len(one.token_ids) == len(one.logprobs) == len(one.entropies)


def test_nothing_asked_nothing_sampled(policy):
    assert sample(policy, [], SETTINGS) == []


def test_a_prompt_that_does_not_fit_is_refused(policy):
    with pytest.raises(BadInput, match="lower max_new_tokens"):
        sample(policy, [Request([1] * 90, ("a", "0", 0))], SETTINGS)


def test_uniforms_are_keyed_and_in_range():
    keys = [("eval", "p", 0), ("eval", "p", 1)]
    both = keyed_uniforms(3, keys, 1000)
    assert torch.equal(both[1:], keyed_uniforms(3, keys[1:], 1000))
    assert bool((both >= 0).all() & (both < 1).all())
    assert abs(float(both.mean()) - 0.5) < 0.02
    assert keyed_integer(3, "a") == keyed_integer(3, "a") != keyed_integer(4, "a")
