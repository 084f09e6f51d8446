"""The client of a vLLM server, against a server of a few lines that answers in the shape of a real one.

The slow test speaks to a real vLLM where ``ASSAY_VLLM_PYTHON`` names an interpreter that has it.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from tests.hub_models import make_folder
from transformers import AutoModelForCausalLM

from assay.config import LoraOptions, ModelOptions, VllmOptions, build_config
from assay.engines import local_huggingface
from assay.engines.request import Request, SamplingSettings
from assay.engines.vllm import VllmSampler, read_choice
from assay.errors import BadInput, ContractBroken, RunStopped
from assay.models.export import merged_weights
from assay.models.huggingface import HuggingFacePolicy
from assay.train.forward import TokenRows, token_scores
from assay.train.setup import algorithm_of

SETTINGS = SamplingSettings(max_new_tokens=8, temperature=0.9, seed=4)


class Stand(BaseHTTPRequestHandler):
    """Serves the policy in ``server.folder``; the answers have the fields that vLLM 0.32 sends."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "policy", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        if self.path == "/collective_rpc":
            if not self.server.stale:
                self.server.policy = HuggingFacePolicy.load(self.server.folder)
            self.answer({"results": [None]})
        elif self.path == "/reset_prefix_cache":
            self.answer(None)
        elif self.server.broken:
            self.answer({"error": {"message": "out of memory", "code": 500}}, 500)
        else:
            self.answer(self.complete(body))

    def complete(self, body):
        settings = SamplingSettings(body["max_tokens"], body["temperature"] or 1e-3, body.get("seed", 0))
        request = Request(body["prompt"], ("fixed", "0", 0))
        with self.server.lock:
            one = local_huggingface.sample(self.server.policy, [request], settings)[0]
        stopped = one.finish_reason == "eos"
        choice = {
            "index": 0, "text": "", "finish_reason": "stop" if stopped else "length",
            "stop_reason": one.token_ids[-1] if stopped else None,
            "logprobs": {"token_logprobs": one.logprobs, "tokens": [], "top_logprobs": [], "text_offset": []},
        }  # fmt: skip
        if body.get("return_token_ids"):
            choice |= {"token_ids": one.token_ids, "prompt_token_ids": body["prompt"]}
        return {"id": "cmpl-1", "object": "text_completion", "model": "policy", "choices": [choice]}

    def answer(self, document, code=200):
        data = b"" if document is None else json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), "llama", ends=3.0)


@pytest.fixture
def server(model, tmp_path):
    shutil.copytree(model, tmp_path / "served")
    made = ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    made.folder, made.asked, made.lock = tmp_path / "served", [], threading.Lock()
    made.stale, made.broken = False, False
    made.policy = HuggingFacePolicy.load(made.folder)
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def options_of(server):
    return VllmOptions(url=f"http://127.0.0.1:{server.server_port}/", folder=str(server.folder))


def requests_of(policy, samples=3):
    prompts = [policy.encode_prompt(text) for text in ("|- P", "echo 31:\n")]
    return [Request(ids, ("train:1", str(i), s)) for i, ids in enumerate(prompts) for s in range(samples)]


def gap(policy, requests, drawn, temperature):
    rows = TokenRows([request.prompt_ids for request in requests], [one.token_ids for one in drawn])
    with torch.no_grad():
        logp_BT = token_scores(policy, rows, temperature).logp_BT
    return max(
        abs(float(logp_BT[i, k]) - value)
        for i, one in enumerate(drawn)
        for k, value in enumerate(one.logprobs)
    )


def moved(policy, by):
    twin = policy.trainable_copy()
    with torch.no_grad():
        for parameter in twin.module.parameters():
            parameter.mul_(by)
    return twin


def test_ids_and_log_probs_come_back_in_order_and_are_the_policys(model, server):
    policy = HuggingFacePolicy.load(model)
    requests = requests_of(policy)
    drawn = VllmSampler(options_of(server))(policy, requests, SETTINGS)
    assert len(drawn) == len(requests)
    assert gap(policy, requests, drawn, 0.9) < 1e-5
    assert all(math.isnan(value) for one in drawn for value in one.entropies)
    for one in drawn:
        assert (one.finish_reason == "eos") == (one.token_ids[-1] in policy.eos_ids)
    bodies = [body for path, body in server.asked if path == "/v1/completions"]
    assert len({body["seed"] for body in bodies}) == len(requests), "one seed a sample"
    assert all((body["top_p"], body["top_k"], body["temperature"]) == (1.0, 0, 0.9) for body in bodies)
    assert all(str(policy.pad_id) in body["logit_bias"] for body in bodies), "padding is never sampled"


def test_new_weights_reach_the_server_once(model, server):
    policy = HuggingFacePolicy.load(model)
    sampler, requests = VllmSampler(options_of(server)), requests_of(policy)
    sampler(policy, requests, SETTINGS)
    other = moved(policy, 1.1)
    drawn = sampler(other, requests, SETTINGS)
    assert gap(other, requests, drawn, 0.9) < 1e-5 < gap(policy, requests, drawn, 0.9)
    sampler(other, requests, SETTINGS)
    assert [path for path, _ in server.asked].count("/collective_rpc") == 2, "unchanged weights are not sent"


def test_a_server_that_keeps_its_old_weights_stops_the_run(model, server):
    policy = HuggingFacePolicy.load(model)
    sampler, requests = VllmSampler(options_of(server)), requests_of(policy)
    sampler(policy, requests, SETTINGS)
    server.stale = True
    with pytest.raises(ContractBroken, match="old ones"):
        sampler(moved(policy, 1.1), requests, SETTINGS)


def check_adapter(folder, sampler):
    """The samples are the adapted policy's, and not the base's."""
    policy = HuggingFacePolicy.load(folder, ModelOptions(lora=LoraOptions(rank=2))).trainable_copy()
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    requests = requests_of(policy)
    drawn = sampler(policy, requests, SETTINGS)
    assert gap(policy, requests, drawn, 0.9) < 1e-4
    assert gap(HuggingFacePolicy.load(folder), requests, drawn, 0.9) > 0.01


def test_an_adapter_is_merged_into_what_the_server_gets(model, server):
    check_adapter(model, VllmSampler(options_of(server)))


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])  # tied heads, and transposed layers
@pytest.mark.parametrize("lora", [None, LoraOptions(rank=2)])
def test_merged_weights_are_a_plain_model(tmp_path, kind, lora):
    folder = make_folder(tmp_path, kind)
    policy = HuggingFacePolicy.load(folder, ModelOptions(lora=lora)).trainable_copy()
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    lost = plain.load_state_dict(merged_weights(policy.module), strict=False)
    assert not lost.unexpected_keys
    assert set(lost.missing_keys) <= {"lm_head.weight"}
    ids = torch.tensor([[5, 9, 30, 7]])
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, policy.module(ids).logits, atol=2e-4, rtol=1e-4)


def test_an_answer_without_ids_is_refused():
    choice = {"text": "a", "finish_reason": "stop", "logprobs": {"token_logprobs": [-1.0]}}
    with pytest.raises(ContractBroken, match="return_token_ids"):
        read_choice({"choices": [choice]}, frozenset({1}))


def test_no_server_and_no_weights_are_said_in_one_line(model, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(BadInput, match="start the server"):
        VllmSampler(VllmOptions(url=url, folder=str(model)))
    with pytest.raises(BadInput, match="folder"):
        VllmSampler(VllmOptions(url=url, folder=str(tmp_path)))


def test_an_error_of_the_server_stops_the_run_with_its_words(model, server):
    sampler = VllmSampler(options_of(server))
    server.broken = True
    with pytest.raises(RunStopped, match="out of memory"):
        sampler(HuggingFacePolicy.load(model), requests_of(HuggingFacePolicy.load(model)), SETTINGS)


def test_importance_weights_are_on_with_a_server_and_off_without():
    served = {"model": "folder", "vllm": {"folder": "x"}}
    correction = algorithm_of(build_config({**served, "algorithm": "grpo"})).correction
    assert correction is not None
    assert (correction.level, correction.high, correction.outside) == ("token", 2.0, "truncate")
    chosen = algorithm_of(
        build_config({**served, "importance": {"level": "sequence", "high": 5.0}})
    ).correction
    assert (chosen.level, chosen.high) == ("sequence", 5.0)
    assert algorithm_of(build_config({"model": "folder", "algorithm": "grpo"})).correction is None


def test_the_embedded_model_has_no_server():
    with pytest.raises(BadInput, match="vllm needs a Hugging Face model"):
        build_config({"vllm": {"folder": "x"}})


@pytest.fixture
def real(tmp_path):
    """A real vLLM server on a small random model; its URL and folder."""
    python = os.environ.get("ASSAY_VLLM_PYTHON")
    if not python:
        pytest.skip("ASSAY_VLLM_PYTHON names no interpreter with vLLM")
    folder = tmp_path / "served"
    sizes = {"hidden_size": 128, "intermediate_size": 128, "max_position_embeddings": 128}
    make_folder(folder, "llama", scale=2.0, **sizes)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = (
        f"--model {folder} --dtype float32 --max-model-len 128 --enforce-eager --host 127.0.0.1 --port {port}"
    )
    more = "--logprobs-mode processed_logprobs --generation-config vllm"
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(
            [python, "-m", "vllm.entrypoints.openai.api_server", *asked.split(), *more.split()],
            env={**environment, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"},
            stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, job, tmp_path / "log")
            yield VllmOptions(url=url, folder=str(folder))
        finally:
            job.terminate()
            job.wait(60)


def wait_for(url, job, log):
    end = time.monotonic() + 600
    while time.monotonic() < end:
        assert job.poll() is None, log.read_text()[-2000:]
        try:
            urllib.request.urlopen(url + "/health", timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise AssertionError("vLLM did not start within 600 s")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_server_samples_from_the_policy_and_takes_new_weights(real):
    policy = HuggingFacePolicy.load(real.folder)
    sampler, requests = VllmSampler(real), requests_of(policy, samples=8)
    drawn = sampler(policy, requests, SETTINGS)
    assert gap(policy, requests, drawn, 0.9) < 1e-4
    again = sampler(policy, requests, SETTINGS)
    assert [one.token_ids for one in drawn] == [one.token_ids for one in again], "a seed gives one completion"
    assert len({tuple(one.token_ids) for one in drawn}) > len(drawn) // 2
    other = moved(policy, 1.1)
    drawn = sampler(other, requests, SETTINGS)
    assert gap(other, requests, drawn, 0.9) < 1e-4 < gap(policy, requests, drawn, 0.9)
