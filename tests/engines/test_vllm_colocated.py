"""vLLM inside the training process, against a module of a few lines with the calls of the real one.

The slow test runs the same checks on a real vLLM, in the interpreter that ``ASSAY_VLLM_PYTHON`` names (it needs this
package installed too).
"""

import importlib.machinery
import math
import os
import subprocess
import sys
import types

import pytest
from tests.engines.test_vllm import SETTINGS, check_adapter, gap, moved, requests_of
from tests.hub_models import make_folder
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from assay.config import ModelOptions, RunConfig, VllmOptions, build_config
from assay.engines import local_huggingface
from assay.engines.request import Request, SamplingSettings
from assay.engines.vllm_colocated import ColocatedVllm
from assay.errors import BadInput, ContractBroken
from assay.models.huggingface import HuggingFacePolicy

COLOCATED = VllmOptions(colocated=True)
LLAMA = {"hidden_size": 128, "intermediate_size": 128, "max_position_embeddings": 128}


class Engine:
    """Holds a model made from a configuration, and samples from it with this package's own engine."""

    deaf = False

    def __init__(self, model, **asked):
        assert asked["load_format"] == "dummy"
        assert asked["logprobs_mode"] == "processed_logprobs"
        self.module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))

    def collective_rpc(self, method, kwargs):
        assert method == "reload_weights"
        if not self.deaf:
            found = self.module.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)
            assert not found.unexpected_keys
            self.module.tie_weights()

    def reset_prefix_cache(self):
        pass

    def generate(self, prompts, parameters, use_tqdm):
        return [self.complete(one["prompt_token_ids"], p) for one, p in zip(prompts, parameters, strict=True)]

    def complete(self, prompt, asked):
        policy = HuggingFacePolicy(self.module, self.tokenizer, ModelOptions(), "stand-in")
        settings = SamplingSettings(asked["max_tokens"], asked["temperature"] or 1e-3, asked.get("seed", 0))
        (one,) = local_huggingface.sample(policy, [Request(prompt, ("fixed", "0", 0))], settings)
        logps = [
            {token: types.SimpleNamespace(logprob=value)}
            for token, value in zip(one.token_ids, one.logprobs, strict=True)
        ]
        return types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=one.token_ids, logprobs=logps)])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), "llama", ends=3.0)


@pytest.fixture
def stand_in(model, monkeypatch):
    """The stand-in under the name vllm."""
    for name in list(os.environ):
        if name.startswith("VLLM_"):
            monkeypatch.delenv(name)
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    made = type("LLM", (Engine,), {"tokenizer": PreTrainedTokenizerFast.from_pretrained(model)})
    module.LLM, module.SamplingParams, module.__version__ = made, dict, "0.0"
    monkeypatch.setitem(sys.modules, "vllm", module)
    environment = dict(os.environ)
    yield made
    os.environ.clear()
    os.environ.update(environment)


def check_samples_and_new_weights(policy, requests):
    sampler = ColocatedVllm(COLOCATED)
    drawn = sampler(policy, requests, SETTINGS)
    assert gap(policy, requests, drawn, 0.9) < 1e-4
    assert all(math.isnan(value) for one in drawn for value in one.entropies)
    for one in drawn:
        assert (one.finish_reason == "eos") == (one.token_ids[-1] in policy.eos_ids)
    again = sampler(policy, requests, SETTINGS)
    assert [one.token_ids for one in drawn] == [one.token_ids for one in again], "a seed gives one completion"
    assert len({tuple(one.token_ids) for one in drawn}) > len(drawn) // 2
    assert not {token for one in drawn for token in one.token_ids} & set(policy.forbidden)
    other = moved(policy, 1.1)
    drawn = sampler(other, requests, SETTINGS)
    assert gap(other, requests, drawn, 0.9) < 1e-4 < gap(policy, requests, drawn, 0.9)


def test_samples_are_the_policys_and_new_weights_reach_the_engine(model, stand_in):
    policy = HuggingFacePolicy.load(model)
    check_samples_and_new_weights(policy, requests_of(policy, samples=6))


def test_an_adapter_is_merged(model, stand_in):
    check_adapter(model, ColocatedVllm(COLOCATED))


def test_an_engine_that_keeps_its_old_weights_stops_the_run(model, stand_in):
    policy = HuggingFacePolicy.load(model)
    sampler, requests = ColocatedVllm(COLOCATED), requests_of(policy)
    sampler(policy, requests, SETTINGS)
    sampler.engine.deaf = True
    with pytest.raises(ContractBroken, match="old ones"):
        sampler(moved(policy, 1.1), requests, SETTINGS)


def test_a_prompt_that_does_not_fit_is_refused(model, stand_in):
    policy = HuggingFacePolicy.load(model)
    long = [Request([5] * policy.max_positions, ("train:1", "0", 0))]
    with pytest.raises(BadInput, match="positions"):
        ColocatedVllm(COLOCATED)(policy, long, SETTINGS)


def test_certain_log_probs_are_no_sign_of_old_weights(model, stand_in, monkeypatch):
    policy = HuggingFacePolicy.load(model)
    sampler, requests = ColocatedVllm(COLOCATED), requests_of(policy)
    sampler(policy, requests, SETTINGS)
    monkeypatch.setattr(sampler, "probe", lambda prompt: [0.0] * 4)
    sampler(moved(policy, 1.1), requests, SETTINGS)


def test_an_engine_that_cannot_start_is_one_line(model, stand_in, monkeypatch):
    def fail(self, **asked):
        raise ValueError("no room for the cache")

    monkeypatch.setattr(stand_in, "__init__", fail)
    policy = HuggingFacePolicy.load(model)
    with pytest.raises(BadInput, match="could not start: no room"):
        ColocatedVllm(COLOCATED)(policy, requests_of(policy), SETTINGS)


@pytest.mark.parametrize(
    "asked",
    [
        {"colocated": True, "timeout": 3},
        {"folder": "x", "memory": 0.9},
        {"folder": "x", "url": "foo"},
        {"folder": "x", "timeout": float("inf")},
    ],
)
def test_an_option_that_means_nothing_is_refused(asked):
    with pytest.raises(BadInput, match="vllm"):
        build_config({"model": "folder", "vllm": asked})


@pytest.mark.parametrize("asked", [{"colocated": True}, {"folder": "x"}])
def test_a_run_folder_with_every_key_is_read_again(asked):
    config = build_config({"model": "folder", "vllm": asked})
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config


def test_without_vllm_one_line_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="not installed"):
        ColocatedVllm(COLOCATED)


@pytest.mark.parametrize("asked", [{}, {"colocated": True, "folder": "x"}])
def test_a_server_or_colocated_but_not_both(asked):
    with pytest.raises(BadInput, match=r"vllm\.folder"):
        build_config({"model": "folder", "vllm": asked})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_engine_in_this_process(tmp_path):
    python = os.environ.get("ASSAY_VLLM_PYTHON")
    if not python:
        pytest.skip("ASSAY_VLLM_PYTHON names no interpreter with vLLM")
    make_folder(tmp_path / "model", "llama", scale=2.0, **LLAMA)
    code = (
        "import sys; from tests.engines import test_vllm_colocated as here\n"
        "policy = here.HuggingFacePolicy.load(sys.argv[1])\n"
        "here.check_samples_and_new_weights(policy, here.requests_of(policy, samples=8))\n"
        "here.check_adapter(sys.argv[1], here.ColocatedVllm(here.COLOCATED))\n"
    )
    done = subprocess.run(
        [python, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
