"""Sampling from transformers models: the trainer's log-probs, and completions that depend on their key alone."""

import pytest
import torch
from tests.hub_models import make_folder

import assay.engines.request as engine_requests
from assay.config import LoraOptions, ModelOptions
from assay.engines import local_huggingface, local_llama
from assay.engines.inverse_cdf import draw
from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.errors import BadInput
from assay.models.huggingface import HuggingFacePolicy
from assay.models.memory import cache_bytes_a_token
from assay.train.forward import TokenRows, token_scores

SETTINGS = SamplingSettings(max_new_tokens=16, seed=5)
KINDS = {"llama": {}, "qwen2": {}, "gpt2": {}, "mistral": {"sliding_window": 6}, "cohere": {}}


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = HuggingFacePolicy.load(
                make_folder(tmp_path_factory.mktemp(kind), kind, ends=3.0, **KINDS[kind])
            )
        return made[kind]

    return get


def requests_of(policy, samples=8):
    prompts = [policy.encode_prompt(text) for text in ("|- P", "1. P premise\n|- P & P\n", "echo 31:\n")]
    assert len({len(prompt) for prompt in prompts}) == 3
    return [
        Request(prompt, ("train:1", str(p), s)) for p, prompt in enumerate(prompts) for s in range(samples)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_trainer_log_probs_agree(policies, kind):
    policy = policies(kind)
    requests = requests_of(policy)
    drawn = sample(policy, requests, SamplingSettings(16, 0.8, seed=5))
    rows = TokenRows([r.prompt_ids for r in requests], [one.token_ids for one in drawn])
    with torch.no_grad():
        scores = token_scores(policy, rows, temperature=0.8)
    for i, one in enumerate(drawn):
        width = len(one.token_ids)
        torch.testing.assert_close(
            scores.logp_BT[i, :width], torch.tensor(one.logprobs), atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(
            scores.entropy_BT[i, :width], torch.tensor(one.entropies), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_are_those_of_the_model_class_on_one_row_alone(policies, kind):
    """Neither padding side, nor positions, nor the scale of the logits changes a value."""
    policy = policies(kind)
    requests = requests_of(policy, samples=2)
    for request, one in zip(requests, sample(policy, requests, SETTINGS), strict=True):
        ids = [*request.prompt_ids, *one.token_ids]
        with torch.no_grad():
            logits = policy.module(input_ids=torch.tensor([ids])).logits[0].float()
        logits[:, policy.pad_id] = -torch.inf
        logp = logits.log_softmax(-1)
        first = len(request.prompt_ids) - 1
        expected = [float(logp[first + k, token]) for k, token in enumerate(one.token_ids)]
        assert one.logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_completion_depends_on_its_key_alone(policies, kind):
    policy = policies(kind)
    requests = requests_of(policy, samples=3)
    together = sample(policy, requests, SETTINGS)
    backwards = sample(policy, requests[::-1], SETTINGS)[::-1]
    alone = [sample(policy, [request], SETTINGS)[0] for request in requests]
    for one, two, three in zip(together, backwards, alone, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids
    assert len({tuple(one.token_ids) for one in together}) == len(together)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_waves_change_nothing_but_memory(policies, monkeypatch, kind):
    policy = policies(kind)
    requests = requests_of(policy)
    whole = sample(policy, requests, SETTINGS)
    monkeypatch.setattr(engine_requests, "WAVE_BYTES", 200_000)
    parts = engine_requests.waves(requests, SETTINGS, 285, cache_bytes_a_token(policy))
    assert len(parts) > 2
    assert sorted(i for part in parts for i in part) == list(range(len(requests)))
    assert [one.token_ids for one in sample(policy, requests, SETTINGS)] == [one.token_ids for one in whole]


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize(("kind", "engine"), [("gpt2", local_huggingface), ("llama", local_llama)])
def test_retiring_rows_changes_nothing(policies, monkeypatch, kind, engine, share):
    policy = policies(kind)
    requests = requests_of(policy)
    usual = sample(policy, requests, SETTINGS)
    assert len({len(one.token_ids) for one in usual}) > 3, "rows should end at different steps"
    monkeypatch.setattr(engine, "RETIRE_BELOW", share)
    assert [one.token_ids for one in sample(policy, requests, SETTINGS)] == [one.token_ids for one in usual]


def test_any_end_token_ends_and_is_kept_and_padding_never_comes(tmp_path):
    folder = make_folder(tmp_path, ends=4.0, generation={"eos_token_id": [1, 65, 66, 67]})
    policy = HuggingFacePolicy.load(folder)
    drawn = sample(policy, requests_of(policy, samples=24), SETTINGS)
    assert len({one.token_ids[-1] for one in drawn if one.finish_reason == "eos"}) > 1
    for one in drawn:
        ended = one.token_ids[-1] in policy.eos_ids
        assert one.finish_reason == ("eos" if ended else "length")
        assert not policy.eos_ids & set(one.token_ids[:-1])
        assert policy.pad_id not in one.token_ids
        assert ended or len(one.token_ids) == SETTINGS.max_new_tokens
        assert len(one.token_ids) == len(one.logprobs) == len(one.entropies)


def test_rows_of_the_head_that_no_token_has_are_never_sampled(tmp_path):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, scale=0.0, spare=400))
    drawn = sample(policy, requests_of(policy, samples=8), SETTINGS)
    assert max(token for one in drawn for token in one.token_ids) < len(policy.tokenizer)
    usable = len(policy.tokenizer) - 1  # all but padding
    assert drawn[0].logprobs == pytest.approx(
        [-torch.tensor(float(usable)).log().item()] * len(drawn[0].logprobs)
    )


def test_nothing_asked_nothing_sampled(policies):
    assert sample(policies("llama"), [], SETTINGS) == []


def test_a_prompt_that_does_not_fit_is_refused(policies):
    with pytest.raises(BadInput, match="lower max_new_tokens"):
        sample(policies("gpt2"), [Request([3] * 90, ("a", "0", 0))], SETTINGS)


def test_llama_shaped_models_take_the_fast_path_and_no_other(policies):
    fast = {kind for kind in KINDS if policies(kind).llama_weights(8) is not None}
    assert fast == {"llama", "qwen2"}


@pytest.mark.parametrize(
    "changes", [{"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}, {"head_dim": 12},
                {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                                     "high_freq_factor": 4.0, "original_max_position_embeddings": 16}},
                {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
                {"num_key_value_heads": 1}],
)  # fmt: skip
def test_every_variant_has_the_log_probs_of_the_model_class(tmp_path, changes):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, "llama", ends=3.0, **changes))
    requests = requests_of(policy, samples=2)
    for request, one in zip(requests, sample(policy, requests, SETTINGS), strict=True):
        with torch.no_grad():
            logits = policy.module(input_ids=torch.tensor([[*request.prompt_ids, *one.token_ids]])).logits[0]
        logits[:, policy.pad_id] = -torch.inf
        logp = logits.log_softmax(-1)[len(request.prompt_ids) - 1 :]
        expected = [float(logp[k, token]) for k, token in enumerate(one.token_ids)]
        assert one.logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", [ModelOptions(lora=LoraOptions(rank=4)), ModelOptions(dtype="bfloat16")])
def test_a_trained_adapter_and_half_precision_are_sampled_as_they_are_trained(tmp_path, options):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, "llama", ends=3.0), options).trainable_copy()
    generator = torch.Generator().manual_seed(3)
    for parameter in policy.module.parameters():
        if parameter.requires_grad and options.lora:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    requests = requests_of(policy)
    drawn = sample(policy, requests, SETTINGS)
    rows = TokenRows([r.prompt_ids for r in requests], [one.token_ids for one in drawn])
    with torch.no_grad():
        scores = token_scores(policy, rows)
    difference = torch.cat(
        [
            (scores.logp_BT[i, : len(one.logprobs)] - torch.tensor(one.logprobs)).abs()
            for i, one in enumerate(drawn)
        ]
    )
    assert difference.mean() < (2e-2 if options.dtype == "bfloat16" else 1e-5)


def test_entropy_is_not_rounded_under_autocast(tmp_path, monkeypatch):
    folder = make_folder(tmp_path, "gpt2")
    policy = HuggingFacePolicy.load(folder, ModelOptions(dtype="bfloat16"))
    seen = []

    def remember(logits, uniforms):
        seen.append((logits, uniforms, draw(logits, uniforms)))
        return seen[-1][-1]

    monkeypatch.setattr(local_huggingface, "draw", remember)
    sample(policy, requests_of(policy), SETTINGS)
    assert len(seen) > 1
    for logits, uniforms, drawn in seen:
        plain = draw(logits, uniforms)
        torch.testing.assert_close(drawn.entropy_B, plain.entropy_B, atol=1e-6, rtol=1e-6)
