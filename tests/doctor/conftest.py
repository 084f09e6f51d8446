"""A small maker of logs: a run whose rewards, advantages and log-probs are consistent unless a test changes them."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from assay.doctor.diagnosis import diagnose
from assay.records.readers.formats import GENERIC
from assay.records.readers.metrics import known_config, table_of_rows
from assay.records.readers.table import frame_of_rows
from assay.records.run_record import RunRecord

WORDS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "add",
    "carry",
    "line",
    "next",
    "check",
    "move",
    "total",
    "left",
    "right",
    "sum",
]


@dataclass
class Log:
    """Rows of a run as a trainer would write them; tests change them in place."""

    config: dict = field(default_factory=dict)
    metrics: list = field(default_factory=list)
    rollouts: list = field(default_factory=list)

    def record(self, **more):
        table = table_of_rows([dict(row) for row in self.metrics])
        frame = frame_of_rows([dict(row) for row in self.rollouts], GENERIC)
        return RunRecord(
            config=known_config(self.config), raw_config=self.config, metrics=table.frame, rollouts=frame,
            prompts_by_step=table.prompts, step_order=table.order, **more,
        )  # fmt: skip

    def diagnose(self, **more):
        return diagnose(self.record(), **more)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.metrics))
        (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rollouts))
        return folder


def text_of(rng, length=24):
    return " ".join(rng.choice(WORDS, length))


def make(
    seed=0,
    steps=60,
    groups=4,
    size=8,
    start=0.35,
    end=0.7,
    logged_every=5,
    batch=16,
    truth_end=None,
    spread=0.25,
) -> Log:
    """A run whose pass rate moves from ``start`` to ``end``; truth follows unless ``truth_end`` says otherwise."""
    rng = np.random.default_rng(seed)
    log = Log(config={
        "algorithm": "grpo", "num_generations": size, "per_device_train_batch_size": batch * size, "beta": 0.04,
        "epsilon": 0.2, "advantage_epsilon": 1e-4, "advantage_dtype": "float32", "temperature": 1.0,
        "max_completion_length": 512, "learning_rate": 1e-6,
    })  # fmt: skip
    truth_end = end if truth_end is None else truth_end
    for step in range(1, steps + 1):
        along = (step - 1) / max(1, steps - 1)
        rate, gold = start + (end - start) * along, start + (truth_end - start) * along
        ease = np.clip(rng.normal(rate, spread, batch), 0.02, 0.98)
        rewards = (rng.random((batch, size)) < ease[:, None]).astype(float)
        std = rewards.std(axis=1)
        log.metrics.append({
            "step": step, "reward": float(rewards.mean()), "reward_std": float(std.mean()),
            "frac_reward_zero_std": float((std == 0).mean()), "loss": float(rng.normal(0, 0.01)),
            "grad_norm": float(0.3 * np.exp(rng.normal(0, 0.2))), "kl": float(0.03 * along + abs(rng.normal(0, 1e-3))),
            "entropy": float(1.1 - 0.3 * along + rng.normal(0, 0.02)),
            "clip_ratio/region_mean": float(rng.uniform(0, 0.03)),
            "completions/mean_length": float(200 + rng.normal(0, 6)),
            "completions/clipped_ratio": float(rng.uniform(0, 0.02)),
            "sampling/sampling_logp_difference/mean": float(0.006 + rng.normal(0, 5e-4)), "learning_rate": 1e-6,
            "eval_accuracy": float(rng.binomial(400, gold) / 400),
        })  # fmt: skip
        if step % logged_every == 1 or logged_every == 1:
            flip = rng.random((batch, size)) < abs(rate - gold)
            truths = np.where(flip & (rewards > 0), 0.0, rewards) if gold < rate else rewards
            log.rollouts += _rows(rng, step, rewards[:groups], truths[:groups], size)
    return log


def _rows(rng, step, rewards, truths, size):
    rows = []
    for number, group in enumerate(rewards):
        a, b = (int(v) for v in rng.integers(10, 90, 2))
        advantages = np.where(np.ptp(group) > 0, (group - group.mean()) / (group.std() + 1e-4), 0.0)
        for sample in range(size):
            count = int(rng.integers(10, 20))
            logps = -np.abs(rng.normal(1.8, 1.2, count)) - 0.2
            answer = a + b if truths[number, sample] else a + b + int(rng.integers(1, 9))
            body = f"Adding {a} and {b}. {text_of(rng)}. The answer is \\boxed{{{answer}}}"
            rows.append({
                "step": step, "prompt_id": f"s{step}p{number}", "sample": sample,
                "prompt": f"What is {a} plus {b}? Box it.",
                "answer": str(a + b), "completion": body + "<|im_end|>", "reward_text": body,
                "reward": float(group[sample]),
                "truth": float(truths[number, sample]), "advantage": float(advantages[sample]), "finished": True,
                "length": 200 + int(rng.integers(0, 50)), "token_ids": rng.integers(0, 48, count).tolist(),
                "logprobs": (logps + rng.normal(0, 0.02, count)).tolist(), "old_logprobs": logps.tolist(),
                "sampler_logprobs": (logps + rng.normal(0, 0.004, count)).tolist(),
                "ref_logprobs": (logps + rng.normal(0, 0.1, count)).tolist(),
            })  # fmt: skip
    return rows


@pytest.fixture
def make_log():
    return make


@pytest.fixture
def failed():
    """Ids that fail, the root cause first."""

    def ids(diagnosis):
        root = diagnosis.root_cause.id if diagnosis.root_cause else None
        others = [f.id for f in diagnosis.of("fail") if f.id != root]
        return [root, *others] if root else []

    return ids
