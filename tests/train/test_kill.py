"""Kill -9 at any moment, then resume: the same run, bit for bit, and never half a file."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from assay.records.run_folder import RunFolder
from tests.train.test_run import same_run


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "assay.cli.main", "run", *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def every_file_is_whole(root: Path) -> None:
    """What a reader may open can be read; temporary files start with a dot."""
    for path in root.rglob("*"):
        if path.name.startswith(".") or any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        if path.suffix == ".parquet":
            pl.read_parquet(path)
        elif path.name in ("run.json", "experiment.json", "config.json"):
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            from safetensors.torch import load_file

            load_file(path)
    for arm in ("sound", "weak"):
        RunFolder(root / arm).read_metrics()


def steps_done(root: Path) -> int:
    """Lines of metrics over both arms: how far the experiment is."""
    return sum(path.read_bytes().count(b"\n") for path in root.glob("*/metrics.jsonl"))


def wait_for(process, root, steps, timeout=300):
    """Wait until so many steps are done, or the process has ended."""
    deadline = time.monotonic() + timeout
    while process.poll() is None and steps_done(root) < steps:
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.01)


def killed_and_resumed(small, tmp_path, kills, seed):
    """Kill the run ``kills`` times at random moments; every restart resumes. Then compare."""
    whole = tmp_path / "whole"
    assert start(small, "steps=12", "--out", whole).wait(300) == 0
    total = steps_done(whole)
    rng, count, root, begun = random.Random(seed), 0, tmp_path / "killed-0", 0
    while count < kills:
        process = start("--resume", root) if (root / "experiment.json").is_file() else start(
            small, "steps=12", "--out", root
        )  # fmt: skip
        wait_for(process, root, rng.randrange(min(steps_done(root) + 1, total), total + 1))
        time.sleep(rng.uniform(0, 0.4))  # inside a step, an evaluation, a checkpoint, or the report
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            count += 1
        process.wait(300)
        if root.is_dir():
            every_file_is_whole(root)
        if process.returncode == 0:  # it was quicker than the kill: compare, and begin another
            compare(whole, root)
            begun += 1
            root = tmp_path / f"killed-{begun}"
    if (root / "experiment.json").is_file():
        assert start("--resume", root).wait(300) == 0
        compare(whole, root)
    return count


def compare(whole, root):
    for arm in ("sound", "weak"):
        same_run(RunFolder(whole / arm), RunFolder(root / arm))


@pytest.mark.timeout(600)
def test_a_kill(small, tmp_path):
    assert killed_and_resumed(small, tmp_path, 1, seed=3) == 1


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_kills(small, tmp_path):
    assert killed_and_resumed(small, tmp_path, 20, seed=2) == 20
