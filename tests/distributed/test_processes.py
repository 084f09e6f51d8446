"""Two processes train as one does: losses, completions, evaluations and weights; a killed one ends the job."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests.hub_models import make_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECIPE = {
    "tasks": "sorting-v1",
    "task_options": {"train": 32, "evaluation": 8, "traces": 0},
    "reward": "random",
    "algorithm": "grpo",
    "steps": 5,
    "batch_size": 20,
    "group_size": 4,
    "max_new_tokens": 6,
    "micro_batch_size": 3,  # 20 rows on two processes: the last micro-batches are not full
    "learning_rate": 1.0e-3,
    "eval_every": 5,
    "eval_prompts": 5,
    "eval_samples": 2,
}
NAMES = ("loss", "policy_loss", "kl_loss", "grad_norm", "reward", "entropy", "advantage_abs_mean")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"), "llama")


def start(
    root: Path, model: Path, processes: int, *, resume: bool = False, launch: tuple[str, ...] = (), **changes
) -> subprocess.Popen:
    recipe = root.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump({**RECIPE, "model": str(model), **changes}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m"]
    if launch:
        launcher += ["accelerate.commands.launch", *launch, f"--main_process_port={port}"]
        launcher += [
            "--num_machines=1",
            "--mixed_precision=no",
            "--dynamo_backend=no",
            f"--num_processes={processes}",
            "-m",
        ]
    elif processes > 1:
        launcher += ["torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}", "-m"]
    what = ["--resume", str(root)] if resume else [str(recipe), "--out", str(root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [*launcher, "assay.cli.main", "run", *what, "--json"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(job: subprocess.Popen) -> str:
    out, errors = job.communicate(timeout=800)
    assert job.returncode == 0, errors
    return out


def metrics(root: Path) -> list[dict]:
    return [json.loads(line) for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]


def same(one: Path, other: Path) -> None:
    """The runs agree: completions exactly, numbers to 1e-5."""
    for left, right in zip(metrics(one), metrics(other), strict=True):
        for name in NAMES:
            assert left[name] == pytest.approx(right[name], abs=1e-5, rel=1e-5), (left["step"], name)
    for step in range(1, 6):
        left, right = (
            pl.read_parquet(root / "run" / "rollouts" / f"step-{step:06d}.parquet") for root in (one, other)
        )
        assert left["completion"].to_list() == right["completion"].to_list()
        assert left["reward"].to_list() == right["reward"].to_list()
    left, right = (pl.read_parquet(root / "run" / "evals" / "step-000005.parquet") for root in (one, other))
    assert left["prompt_id"].to_list() == right["prompt_id"].to_list()
    assert left["completion"].to_list() == right["completion"].to_list()
    weights = [
        load_file(next((root / "run" / "checkpoints" / "step-000005").glob("*model.safetensors")))
        for root in (one, other)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("alone") / "run"
    finish(start(root, model, 1))
    return root


@pytest.mark.parametrize(
    ("shard", "launch"),
    [(False, ()), (True, ()), (False, ("--multi_gpu",)), (False, ("--use_fsdp", "--fsdp_version=2"))],
    ids=["ddp", "fsdp2", "accelerate-ddp", "accelerate-fsdp2"],
)
def test_two_processes_train_as_one(model, alone, tmp_path, shard, launch):
    root = tmp_path / "two"
    out = finish(start(root, model, 2, shard=shard, launch=launch))
    assert json.loads(out)["run"] == str(root), "one document, from the main process"
    assert json.loads((root / "run" / "run.json").read_text())["processes"] == 2
    same(alone, root)


@pytest.mark.parametrize(("shard", "processes"), [(False, 1), (True, 3)], ids=["ddp", "fsdp2"])
def test_a_killed_process_ends_the_job_and_another_number_goes_on(model, alone, tmp_path, shard, processes):
    root = tmp_path / "killed"
    job = start(root, model, 2, shard=shard, eval_every=1)
    wait_for(root / "run" / "checkpoints" / "step-000002")
    os.kill(child_with_rank(job.pid, 1), signal.SIGKILL)
    _, errors = job.communicate(timeout=300)
    assert job.returncode != 0
    lines = [line for line in errors.splitlines() if line.startswith("assay:")]
    assert len(lines) == 1, errors
    assert "--resume" in lines[0]
    document = json.loads((root / "run" / "run.json").read_text())
    assert document["status"] == "stopped"
    finish(start(root, model, processes, resume=True))
    same(alone, root)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 600
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def child_with_rank(parent: int, rank: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == parent and f"RANK={rank}".encode() in environment:
            return int(folder.name)
    raise AssertionError(f"no child with rank {rank}")
