"""What a run leaves beyond its metrics: penalties in the reward, evaluations, replayed data, foreign metrics."""

import dataclasses
import shutil

import numpy as np
import polars as pl
import pytest

from assay.doctor.diagnosis import diagnose
from assay.doctor.stage4_loss import at_once
from assay.errors import BadInput


def status(diagnosis, id):
    return next(found.status for found in diagnosis.findings if found.id == id)


def shaped(log, rng, penalty=0.3):
    """Advantages of the reward minus a KL that differs by completion, as with the KL in the reward."""
    for start in range(0, len(log.rollouts), 8):
        rows = log.rollouts[start : start + 8]
        values = np.array([r["reward"] for r in rows]) - penalty * rng.random(8)
        advantages = (values - values.mean()) / (values.std() + 1e-4)
        for row, value, advantage in zip(rows, values, advantages, strict=True):
            row.update(shaped_reward=float(value), advantage=float(advantage))


def test_advantages_of_a_penalised_reward_are_held_to_the_penalised_reward(make_log):
    log = make_log(seed=3)
    shaped(log, np.random.default_rng(0))
    diagnosis = log.diagnose()
    assert [f.id for f in diagnosis.of("fail")] == []
    assert status(diagnosis, "advantage.mismatch") == "pass"
    for row in log.rollouts:
        del row["shaped_reward"]
    assert any(f.id.startswith("advantage.") for f in log.diagnose().of("fail"))


@pytest.mark.parametrize(("related", "expected"), [(True, "pass"), (False, "fail")])
def test_evaluations_judge_the_reward_where_the_rollouts_know_no_truth(make_log, related, expected):
    log, rng = make_log(seed=4, start=0.5, end=0.5), np.random.default_rng(1)
    for row in log.rollouts:
        del row["truth"]
    truth = rng.integers(0, 2, 3 * 64 * 8).astype(float)
    rows = [(step, f"e{p}", s) for step in (0, 20, 40) for p in range(64) for s in range(8)]
    frame = pl.DataFrame(rows, schema=["step", "prompt_id", "sample"], orient="row").with_columns(
        truth=truth, reward=truth if related else rng.integers(0, 2, truth.size).astype(float)
    )
    diagnosis = diagnose(dataclasses.replace(log.record(), evaluations=frame))
    assert status(diagnosis, "reward.unrelated_to_truth") == expected


def with_prompts(log, prompts_of):
    """Name the prompts of each logged step by its place among the logged ones."""
    places = {step: i for i, step in enumerate(sorted({r["step"] for r in log.rollouts}))}
    for row in log.rollouts:
        place = prompts_of(places[row["step"]])
        row["prompt_id"] = f"d{place}-{row['prompt_id'].split('p')[-1]}"
        row["prompt"] = f"{row['prompt_id']}: {row['prompt']}"
    return log


@pytest.mark.parametrize(
    ("prompts_of", "expected"),
    [
        (lambda place: place, "pass"),  # every prompt once
        (lambda place: place % 5, "pass"),  # epochs in one order
        (lambda place: place if place < 8 else place - 4, "fail"),  # four steps back at the ninth
    ],
)
def test_prompts_that_come_again_after_a_jump_back(make_log, prompts_of, expected):
    log = with_prompts(make_log(seed=5), prompts_of)
    assert status(log.diagnose(), "run.resume") == expected


@pytest.mark.parametrize(("offset", "expected"), [(0.0, "pass"), (0.22, "fail")])
def test_metrics_of_another_run(make_log, offset, expected):
    log = make_log(seed=6, start=0.3, end=0.5)
    for row in log.metrics:
        row["reward"] += offset
    assert status(log.diagnose(), "run.data") == expected


@pytest.mark.parametrize("other", ["reference", "old"])
def test_old_log_probs_of_another_model_are_not_the_samplers_fault(make_log, other, failed):
    log, rng = make_log(seed=7), np.random.default_rng(2)
    name = {"reference": "ref_logprobs", "old": "old_logprobs"}[other]
    for row in log.rollouts:
        row[name] = (-np.abs(rng.normal(2.5, 2.0, len(row[name]))) - 0.2).tolist()
    assert "logprob.sampler_mismatch" not in failed(log.diagnose())


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.02), (1, 0.06), (2, 0.06)])
def test_a_fall_is_told_from_a_drop(seed, noise):
    rng = np.random.default_rng(seed)
    steady = np.linspace(0.4, 0.2, 200) + rng.normal(0, noise, 200)
    drop = np.where(np.arange(200) < 90, 0.4, 0.1) + rng.normal(0, noise, 200)
    assert not at_once(steady)
    assert at_once(drop)


def test_length_that_is_paid_at_fixed_truth(make_log):
    for price, expected in ((0.01, "fail"), (0.0, "pass")):
        log, rng = make_log(seed=8, start=0.4, end=0.5), np.random.default_rng(3)
        for row in log.rollouts:
            row["length"] = int(60 + 4 * row["step"] + rng.integers(0, 40))
            row["reward"] = 0.5 * row["truth"] + price * row["length"]
        for row in log.metrics:
            row["completions/mean_length"] = 80 + 4 * row["step"] + rng.normal(0, 3)
            row["reward"] = 0.2 + price * row["completions/mean_length"] + rng.normal(0, 0.02)
        assert status(log.diagnose(), "hacking.length") == expected


def test_an_experiment_of_several_runs_is_no_run(make_log, tmp_path):
    for arm in ("sound", "weak"):
        folder = make_log(seed=1).write(tmp_path / "out" / arm)
        (folder / "run.json").write_text("{}")
    with pytest.raises(BadInput, match=r"holds 2 \(sound, weak\)"):
        diagnose(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "weak")
    assert diagnose(tmp_path / "out").origin.endswith("sound")


def test_steps_without_a_signal_are_no_start_of_an_explosion(make_log, failed):
    log = make_log(seed=2)
    for i, row in enumerate(log.metrics):
        row["grad_norm"] = 0.0 if i % 4 and i < 40 else row.get("grad_norm", 0.5)
        row["reward_std"] = 0.0 if row["grad_norm"] == 0 else row["reward_std"]
    assert "loss.exploding" not in failed(log.diagnose())


def test_a_mean_reward_of_null_is_a_missing_one(make_log, failed):
    log = make_log(seed=2)
    for row in log.metrics:
        row["reward"] = None
    log.rollouts = []
    found = log.diagnose()
    assert found.root_cause.id == "reward.missing"
