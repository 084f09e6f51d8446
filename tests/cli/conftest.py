"""A user's own folder: tasks, reward, truth and a recipe for the tiny model."""

import json
import subprocess
import sys

import pytest
import yaml

REWARDS = """
import time


def truth(completion, task):
    return float(completion.strip() == str(task["answer"]))


def reward(completion, task):
    return float(completion.strip().startswith(str(task["answer"])[0]))


def raises(completion, task):
    raise ZeroDivisionError("never divides")


def nan(completion, task):
    return float("nan")


def none(completion, task):
    return None


def text(completion, task):
    return "good"


def pays_anything(completion, task):
    return 1.0


def pays_nothing(completion, task):
    return 0.0


def prints(completion, task):
    print("noise on stdout")
    return reward(completion, task)


def hangs(completion, task):
    time.sleep(3600)


def wrong_length(prompts, completions, **columns):
    return [1.0]


def needs_more(completion, rubric):
    return 1.0
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all tests: equal warm starts and the bundled drawing code are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def mine(tmp_path, monkeypatch, capfd, cache):
    """The user's folder; ``write(**keys)`` changes the recipe."""
    monkeypatch.setenv("ASSAY_CACHE", str(cache))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "rewards.py").write_text(REWARDS)
    rows = [{"prompt": f"echo {n}:\n", "answer": f"{n}"} for n in range(10, 60)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Mine(tmp_path, monkeypatch, capfd)


class Done:
    """What a call in this process gave: the fields of ``subprocess.CompletedProcess``."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


class Mine:
    def __init__(self, folder, monkeypatch, capfd):
        self.folder, self.monkeypatch, self.capfd = folder, monkeypatch, capfd

    def here(self, *arguments):
        """Call the command line in this process: no second start of Python and torch."""
        from assay.cli.main import main

        self.monkeypatch.chdir(self.folder)
        self.monkeypatch.setattr(sys, "argv", ["assay", *map(str, arguments)])
        self.capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as error:
            code = error.code or 0
        return Done(code, *self.capfd.readouterr())

    def write(self, **changes):
        keys = {
            "tasks": "tasks.jsonl",
            "reward": "rewards.py:reward",
            "truth": "rewards.py:truth",
            "sizes": {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 48, "vocab_size": 300,
                      "max_positions": 64},
            "warm_start": {"max_steps": 20, "batch_size": 16, "check_every": 20, "target": 0.0,
                           "pass_at_1": [0.0, 1.0], "pass_at_group": [0.0, 1.0]},
            "steps": 2, "batch_size": 8, "group_size": 4, "max_new_tokens": 6, "eval_every": 1,
            "eval_prompts": 6, "eval_samples": 2, "reward_time_limit": 1.0, "controls": False,
        }  # fmt: skip
        keys.update(changes)
        path = self.folder / "mine.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))
        return str(path)

    def assay(self, *arguments, env=None, **kwargs):
        import os

        return subprocess.run(
            [sys.executable, "-m", "assay.cli.main", *map(str, arguments)],
            capture_output=True, text=True, cwd=self.folder, timeout=110, check=False,
            env={**os.environ, **(env or {})}, **kwargs,
        )  # fmt: skip


def one_line_refusal(done, *words):
    """Exit 2, one line on stderr, nothing on stdout, no traceback."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("assay: ")
    for word in words:
        assert word in lines[0], lines[0]
