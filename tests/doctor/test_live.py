"""Watching a run as it goes: it warns at the step, writes everything down, and never breaks what it watches."""

import json
import logging
import math

import pytest

from assay.doctor import RunWatch
from assay.doctor.live_step import PATIENCE, StepLook
from assay.records.rollout import Rollout


def row(sample, reward, prompt_id="a", **more):
    return {"prompt_id": prompt_id, "sample": sample, "prompt": "How much is 17 plus 25?", "completion": "It is 42.",
            "reward_text": "It is 42.", "reward": reward, "finish_reason": "eos", **more}  # fmt: skip


def healthy():
    return [row(i, float(i % 2), prompt_id=p) for p in "ab" for i in range(4)]


def steps(watch, rows, metrics=None, count=PATIENCE):
    found = []
    for step in range(1, count + 1):
        found += watch.on_step({"step": step, "loss": 0.1, "grad_norm": 0.4, **(metrics or {})}, rows)
    return found


@pytest.mark.parametrize(
    ("rows", "metrics", "identifier"),
    [
        (healthy(), {"loss": math.nan}, "loss.non_finite"),
        (healthy(), {"reward": math.inf}, "reward.non_finite"),
        (
            [r | {"reward_text": f"{r['prompt']} {r['completion']}"} for r in healthy()],
            {},
            "decode.prompt_in_text",
        ),
        ([r | {"completion": " "} for r in healthy()], {}, "decode.empty"),
    ],
)
def test_what_is_certain_is_reported_at_its_first_step(rows, metrics, identifier):
    watch = RunWatch()
    found = watch.on_step({"step": 7, "grad_norm": 0.3, **metrics}, rows)
    assert [f.id for f in found] == [identifier]
    assert "step 7" in found[0].summary
    assert found[0].samples[0].step == 7
    assert watch.on_step({"step": 8, **metrics}, rows) == []  # once is enough


@pytest.mark.parametrize(
    ("rows", "metrics", "identifier"),
    [
        ([r | {"reward": 0.0} for r in healthy()], {}, "reward.constant"),
        ([r | {"reward": None} for r in healthy()], {}, "reward.missing"),
        ([r | {"reward": float(r["prompt_id"] == "a")} for r in healthy()], {}, "advantage.zero_spread_groups"),
        ([row(0, float(i % 2), prompt_id=str(i)) for i in range(6)], {}, "advantage.group_size"),
        (healthy(), {"grad_norm": 0.0}, "loss.no_gradient"),
        ([r | {"finish_reason": "length"} for r in healthy()], {}, "decode.truncated"),
        ([r | {"old_logprobs": [-1.0, -2.0], "sampler_logprobs": [-2.0, -1.0]} for r in healthy()], {},
         "logprob.sampler_mismatch"),
    ],
)  # fmt: skip
def test_what_chance_can_show_is_reported_when_it_lasts(rows, metrics, identifier):
    assert steps(RunWatch(), rows, metrics, PATIENCE - 1) == []
    found = steps(RunWatch(), rows, metrics)
    assert [f.id for f in found] == [identifier]
    assert found[0].fix


def test_a_healthy_step_between_starts_the_count_again():
    look, flat = StepLook(), [r | {"reward": 1.0} for r in healthy()]
    for _ in range(3):
        for rows in [flat] * (PATIENCE - 1) + [healthy()]:
            assert look.look({"loss": 0.0}, rows, 1) == []


def test_a_healthy_run_is_left_alone():
    watch = RunWatch()
    assert steps(watch, healthy(), count=20) == []
    assert watch.findings == []


def test_loss_zero_is_no_fault():
    assert steps(RunWatch(), healthy(), {"loss": 0.0}) == []


def test_rollouts_of_our_own_trainer_are_taken(tmp_path):
    rollouts = [
        Rollout(step=1, prompt_id="a", sample=i, prompt="1 + 1 =", completion=str(i), token_ids=[i, 9],
                sampler_logprobs=[-0.1, -0.2], finish_reason="eos", reward_text=str(i), reward=float(i == 2),
                reward_state="scored", reward_parts={"exact": float(i == 2)})
        for i in range(4)
    ]  # fmt: skip
    watch = RunWatch(tmp_path / "w", truth=lambda completion, row: float(completion == "3"))
    watch.on_step({"step": 1, "loss": 0.0}, rollouts)
    rows = [json.loads(line) for line in (tmp_path / "w" / "rollouts.jsonl").read_text().splitlines()]
    assert [r["truth"] for r in rows] == [0.0, 0.0, 0.0, 1.0]
    assert [r["reward"] for r in rows] == [0.0, 0.0, 1.0, 0.0]
    assert rows[0]["reward_parts"] == {"exact": 0.0}
    assert rows[0]["length"] == 2


def test_everything_is_written_down(tmp_path):
    watch = RunWatch(tmp_path / "w", config={"num_generations": 4}, every=0)
    steps(watch, healthy(), count=5)
    assert json.loads((tmp_path / "w" / "config.json").read_text()) == {"num_generations": 4}
    assert len((tmp_path / "w" / "metrics.jsonl").read_text().splitlines()) == 5
    rows = [json.loads(line) for line in (tmp_path / "w" / "rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 5 * len(healthy())
    assert {r["step"] for r in rows} == {1, 2, 3, 4, 5}


def test_a_broken_truth_or_folder_or_rollout_never_reaches_the_training(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    watch = RunWatch(blocked / "w", truth=lambda completion, row: 1 / 0)
    with caplog.at_level(logging.WARNING, "assay.doctor"):
        assert watch.on_step({"step": 1}, healthy()) == []
        assert watch.on_step({"step": "not a number"}, [object()]) == []
    assert any("left out" in record.message for record in caplog.records)


def test_a_warning_is_a_line_of_the_log_or_a_call(caplog):
    heard = []
    with caplog.at_level(logging.WARNING, "assay.doctor"):
        RunWatch().on_step({"step": 1, "loss": math.nan}, [])
    RunWatch(on_warning=heard.append).on_step({"step": 1, "loss": math.nan}, [])
    assert "loss.non_finite" in caplog.text
    assert [f.id for f in heard] == ["loss.non_finite"]


def test_the_whole_record_is_diagnosed_now_and_then(tmp_path):
    simulate = pytest.importorskip("assay.doctor.simulate").simulate
    run = simulate("advantages_inverted", seed=1, steps=30, shape="group_16")
    watch, by_step = RunWatch(tmp_path / "w", config=run.config, every=30), {}
    for r in run.rollouts:
        by_step.setdefault(r["step"], []).append(r)
    for metrics in run.metrics:
        watch.on_step(metrics, by_step.get(metrics["step"], []))
    assert "advantage.inverted" in [f.id for f in watch.findings]
