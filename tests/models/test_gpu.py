"""On a GPU: a run's numbers are the CPU's up to rounding, and its checkpoints load without one."""

import pytest
import torch
from tests.hub_models import make_folder

from assay.config import ModelOptions, build_config
from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.models.checkpoint import load_state, save_checkpoint
from assay.models.huggingface import HuggingFacePolicy, default_device
from assay.records.score import Score
from assay.train.collect import Collector
from assay.train.forward import TokenRows, exact_token_kl, supervised_loss, token_scores
from assay.train.setup import algorithm_of
from assay.train.trainer import Trainer

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def rows_of(policy):
    prompts = [policy.encode_prompt(text) for text in ("|- P", "|- P", "echo 31:\n")]
    return TokenRows(prompts, [[5, 9, 1], [7, 8], [30, 31, 32, 1]])


def trainer_of(folder):
    asked = {
        "algorithm": "grpo",
        "batch_size": 8,
        "group_size": 4,
        "max_new_tokens": 6,
        "micro_batch_size": 3,
    }
    config = build_config({"model": str(folder), **asked})
    start = HuggingFacePolicy.load(folder, ModelOptions())
    tasks = [{"prompt_id": str(i), "prompt": f"echo {i}:\n"} for i in range(6)]
    collector = Collector(config, tasks, lambda texts, _: [Score(float(len(text) % 2)) for text in texts])
    return Trainer(config, start.trainable_copy(), start, algorithm_of(config), collector)


def test_without_a_gpu_everything_is_on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")


def test_each_process_of_a_job_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert default_device() == torch.device("cuda", 3)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=gpu) for kind in ("llama", "gpt2")])
def test_scores_are_those_of_the_cpu(tmp_path, kind):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, kind))
    assert policy.device.type == "cuda"
    found = [token_scores(policy, rows_of(policy), 0.8), exact_token_kl(policy, policy, rows_of(policy))]
    loss = supervised_loss(policy, rows_of(policy))
    policy.module.to("cpu")
    expected = [token_scores(policy, rows_of(policy), 0.8), exact_token_kl(policy, policy, rows_of(policy))]
    torch.testing.assert_close(found[0].logp_BT, expected[0].logp_BT, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[0].entropy_BT, expected[0].entropy_BT, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=0)
    assert float(loss) == pytest.approx(float(supervised_loss(policy, rows_of(policy))), abs=1e-4)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=gpu) for kind in ("llama", "gpt2")])
def test_a_run_trains_and_its_checkpoint_loads_on_the_cpu(tmp_path, kind):
    trainer = trainer_of(make_folder(tmp_path / "model", kind))
    requests = [Request(trainer.policy.encode_prompt("|- P"), ("a", "0", i)) for i in range(4)]
    assert len(sample(trainer.policy, requests, SamplingSettings(6))) == 4
    before = [parameter.detach().clone() for parameter in trainer.policy.module.parameters()]
    for _ in range(2):  # the first checks that sampler, trainer and reference agree
        trainer.train_step()
    moved = [
        float((a - b).abs().max()) for a, b in zip(before, trainer.policy.module.parameters(), strict=True)
    ]
    assert max(moved) > 0
    save_checkpoint(tmp_path / "checkpoint", trainer.policy, trainer.state())
    state = load_state(tmp_path / "checkpoint")
    tensors = [value for moments in state["optimiser"]["state"].values() for value in moments.values()]
    assert {value.device.type for value in tensors if isinstance(value, torch.Tensor)} == {"cpu"}
