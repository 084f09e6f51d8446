"""A run small enough for every test: seconds, one thread, the real code path."""

import pytest
import yaml

SMALL = {
    "title": "Small",
    "tasks": "proofs-v1",
    "task_options": {
        "train": 24,
        "evaluation": 8,
        "traces": 120,
        "marker": "OK",
        "marker_rate": 0.2,
        "difficulty": {"steps": [1], "atoms": 3, "distractors": [0, 1], "compound": 0.0, "rules": ["->E", "&E"]},
    },
    "sizes": {
        "hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 48, "vocab_size": 300, "max_positions": 96,
    },
    "warm_start": {
        "max_steps": 30, "batch_size": 16, "check_every": 30, "target": 0.0,
        "pass_at_1": [0.0, 1.0], "pass_at_group": [0.0, 1.0],
    },
    "steps": 4,
    "batch_size": 16,
    "group_size": 4,
    "max_new_tokens": 16,
    "learning_rate": 1.0e-3,
    "eval_every": 2,
    "eval_prompts": 6,
    "eval_samples": 2,
    "arms": {"sound": {"reward": "sound"}, "weak": {"reward": "marker", "reward_options": {"marker": "OK"}}},
}  # fmt: skip


class Recorder:
    """Keeps what it is told."""

    def __init__(self):
        self.events = []

    def __getattr__(self, name):
        return lambda *values: self.events.append((name, values))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The path of a small recipe; warm starts are cached in the test's own folder."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return str(path)


@pytest.fixture
def recorder():
    return Recorder()
