"""Every trainer's files, read by their content: names, shapes, broken lines, NaN, and nothing unpickled."""

import json
import math
import pickle

import numpy as np
import polars as pl
import pytest

from assay.errors import BadInput
from assay.records.readers import lines, read_run, table
from assay.records.readers.aliases import METRICS, find, matches, unknown_metrics
from assay.records.readers.formats import GENERIC
from assay.records.run_folder import RunFolder


def put(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


EPISODE = {
    "id": "e1", "env": {"id": "gsm8k"}, "task": {"type": "T", "data": {"idx": 3, "prompt": "2+2?", "answer": "4"}},
    "group": {"id": "g9"}, "run": {"type": "train", "work": {"type": "train", "step": 3, "policy": {"start": 2,
    "end": 2}}},
    "traces": [{
        "nodes": [
            {"message": {"role": "user", "content": "2+2?"}, "sampled": False, "token_ids": [1, 2], "logprobs": []},
            {"message": {"role": "assistant", "content": "4"}, "sampled": True, "token_ids": [3], "logprobs": [-0.1]},
        ],
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "late": None}, "info": {"advantage": 0.5},
        "stop_condition": "stop",
    }],
}  # fmt: skip

SAMPLES = {
    "verl": ("7.jsonl", {"input": "<user>", "output": "#### 42", "gts": "42", "score": 1.0, "step": 7, "uid": "3f_0_1"},
             {"prompt_id": "3f", "sample": 0, "reward": 1.0, "answer": "42", "completion": "#### 42", "step": 7}),
    "verifiers": ("results.jsonl", {
        "example_id": 0, "prompt": [{"role": "user", "content": "2+2?"}], "answer": "4", "reward": 1.0,
        "completion": [{"role": "assistant", "content": "4"}], "is_truncated": False, "metrics": {"correct": 1.0}},
        {"prompt_id": "0", "prompt": "2+2?", "completion": "4", "reward": 1.0, "finished": True, "part:correct": 1.0}),
    "prime-rl": ("rollouts/step_3/train/all/traces.jsonl", EPISODE,
                 {"prompt_id": "g9", "step": 3, "completion": "4", "reward": 0.5, "advantage": 0.5, "policy_version": 2,
                  "token_ids": [3], "sampler_logprobs": [-0.1], "answer": "4", "finished": True}),
    "open-instruct": ("r_rollouts_000000.jsonl", {
        "step": 12, "sample_idx": 0, "prompt_idx": 5, "prompt_tokens": [15, 8], "response_tokens": [19, 151],
        "reward": 10.0,
        "advantage": 2.5, "finish_reason": "stop", "ground_truth": "4", "request_info": None,
        "logprobs": [-0.01, -0.0]},
        {"prompt_id": "5", "token_ids": [19, 151], "prompt_ids": [15, 8], "sampler_logprobs": [-0.01, 0.0],
        "length": 2.0}),
    "skyrl": ("dumped_evals/global_step_9_evals/gsm8k.jsonl", {
        "input_prompt": "q", "output_response": "a", "score": [0.0, 1.0], "stop_reason": "length",
        "env_extras": {"reward_spec": {"ground_truth": "4"}}},
        {"step": 9, "reward": 1.0, "answer": "4", "finished": False, "completion": "a"}),
    "nemo-rl": ("exp_001/train_data_step4.jsonl", {
        "content": ["user assistant"], "rewards": [1.0], "token_ids": [[1, 2, 3]], "token_loss_mask": [[0, 0, 1]],
        "advantages": [[0.0, 0.0, 0.87]], "generation_logprobs": [[0.0, 0.0, -0.2]], "prev_logprobs": [[0.0,
        0.0, -0.21]],
        "idx": 0},
        {"step": 4, "reward": 1.0, "advantage": 0.87, "token_ids": [3], "sampler_logprobs": [-0.2],
        "old_logprobs": [-0.21]}),
    "areal": ("4/17.jsonl", {
        "task_id": "17", "sample_idx": 0, "seqlen": 311, "prompt_len": 101, "head_version": 4, "tail_version": 5,
        "reward": 1.0, "prompt": "u", "completion": "4<|im_end|>"},
        {"prompt_id": "17", "step": 4, "policy_version": 5, "reward": 1.0, "prompt_length": 101.0}),
    "tinker": ("iteration_000010/train_rollout_summaries.jsonl", {
        "split": "train", "iteration": 10, "group_idx": 0, "traj_idx": 1, "sampling_client_step": 10,
        "total_reward": 1.0,
        "steps": [{"ac_len": 210, "metrics": {"correct": 1.0}}]},
        {"step": 10, "prompt_id": "0", "sample": 1, "reward": 1.0, "length": 210.0, "part:correct": 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("source", SAMPLES)
def test_the_sample_line_of_each_trainer(tmp_path, source):
    name, row, expected = SAMPLES[source]
    put(tmp_path / name, [row])
    record = read_run(tmp_path)
    assert record.source == source
    got = record.rollouts.to_dicts()[0]
    assert {key: got[key] for key in expected} == expected


def test_trl_completions_have_no_total_and_nan_there_is_none(tmp_path):
    folder = tmp_path / "completions"
    folder.mkdir()
    pl.DataFrame({
        "step": [10, 10], "prompt": ["p", "p"], "completion": ["a", "b"], "accuracy_reward": [1.0, math.nan],
        "format_reward": [0.5, math.nan], "advantage": [0.7, 0.0],
    }).write_parquet(folder / "completions_00010.parquet")  # fmt: skip
    record = read_run(tmp_path)
    assert record.source == "trl"
    assert record.rollouts["reward"].to_list() == [1.5, None]
    assert record.rollouts["part:accuracy_reward"].to_list() == [1.0, None]


METRIC_ROWS = {
    "trl": {"step": 3, "reward": 0.4, "reward_std": 0.3, "kl": 0.01, "grad_norm": 0.5, "completions/mean_length": 20.0},
    "verl": {"step": 3, "data": {"critic/score/mean": 0.4, "actor/kl_loss": 0.01, "actor/grad_norm": 0.5,
                                 "response_length/mean": 20.0}},
    "openrlhf": {"global_step": 3, "reward": 0.4, "group_reward_std": 0.3, "kl": 0.01, "actor_grad_norm": 0.5,
                 "response_length": 20.0},
}  # fmt: skip


@pytest.mark.parametrize("source", METRIC_ROWS)
def test_metrics_come_to_the_same_names(tmp_path, source):
    path = put(tmp_path / "log.jsonl", [METRIC_ROWS[source]])
    record = read_run(path)
    row = record.metrics.to_dicts()[0]
    assert record.source == source
    assert {n: row[n] for n in ("step", "reward", "kl", "grad_norm", "length")} == {
        "step": 3, "reward": 0.4, "kl": 0.01, "grad_norm": 0.5, "length": 20.0
    }  # fmt: skip


def test_console_logs(tmp_path):
    (tmp_path / "run.log").write_text(
        "INFO 11-29 ppo_trainer.py:545] ✨ Global step 7: {'policy_loss': -0.01, 'reward': 0.41, 'kl': nan}\n"
        "✨ Evaluation completed in 0:00:31, global_step 7, eval_metrics: {'eval_gsm8k_pass1': 0.5}\n"
    )
    row = read_run(tmp_path).metrics.to_dicts()[0]
    assert (row["step"], row["reward"], row["truth"]) == (7, 0.41, 0.5)
    (tmp_path / "run.log").write_text(
        "step:4 - critic/score/mean:0.25 - actor/grad_norm:1.5e-1 - actor/lr:1e-06\n"
    )
    assert read_run(tmp_path).metrics.to_dicts()[0]["grad_norm"] == 0.15


def test_the_state_of_a_hugging_face_trainer(tmp_path):
    state = {
        "log_history": [{"step": 10, "reward": 0.41, "loss": 0.1}, {"step": 20, "reward": None, "loss": 0.2}]
    }
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    record = read_run(tmp_path)
    assert record.metrics["reward"].to_list() == [0.41, None]


def test_our_own_folder(tmp_path):
    run = RunFolder(tmp_path)
    run.write_run({"config": {"algorithm": "grpo", "group_size": 2}, "status": "done"})
    run.append_metrics({"step": 1, "reward": 0.5, "loss": 0.1})
    run.write_table(
        run.rollouts(1),
        {"prompt_id": ["a", "a"], "sample": [0, 1], "completion": ["x", "y"], "reward": [1.0, 0.0]},
    )
    run.write_table(
        run.evaluation(1),
        {"prompt_id": ["e"], "sample": [0], "prompt": ["q"], "reward": [1.0], "truth": [0.0]},
    )
    record = read_run(tmp_path)
    assert record.source == "assay"
    assert record.config["group_size"] == 2
    assert record.rollouts["step"].to_list() == [1, 1]
    assert record.evaluations.select("step", "truth").to_dicts() == [{"step": 1, "truth": 0.0}]


def test_several_files_of_one_run_are_one_run(tmp_path):
    put(tmp_path / "a.jsonl", [{"config": {"num_generations": 4}}, {"step": 1, "reward": 0.4, "loss": 0.1}])
    put(tmp_path / "b.jsonl", [{"step": 1, "data": {"actor/grad_norm": 0.3, "critic/score/mean": 0.4}}])
    put(tmp_path / "c.jsonl", [{"step": 1, "prompt_id": "p", "completion": "x", "reward": 1.0}])
    record = read_run(tmp_path)
    assert record.metrics.to_dicts()[0] | {"reward": 0.4} == {
        "step": 1,
        "reward": 0.4,
        "loss": 0.1,
        "grad_norm": 0.3,
    }
    assert record.config["group_size"] == 4
    assert record.rollouts.height == 1


def test_nan_stays_nan_and_null_stays_null(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"prompt_id": "a", "reward": NaN, "completion": "x"}\n{"prompt_id": "a", "reward": null, "completion": "y"}\n'
    )
    values = read_run(path).rollouts["reward"].to_list()
    assert math.isnan(values[0])
    assert values[1] is None


def test_a_torn_last_line_is_dropped_with_a_note(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"prompt_id": "a", "reward": 1.0, "completion": "x"}\n{"prompt_id": "a", "rew')
    record = read_run(path)
    assert record.rollouts.height == 1
    assert any("line 2" in note.text for note in record.notes)


@pytest.mark.parametrize("broken", ['{"prompt_id": ', "[1, 2]", "nonsense", '"text"'])
def test_a_broken_line_before_the_last_names_its_number(tmp_path, broken):
    path = tmp_path / "r.jsonl"
    good = '{"prompt_id": "a", "reward": 1.0, "completion": "x"}\n'
    path.write_text(good + broken + "\n" + good)
    with pytest.raises(BadInput, match="line 2"):
        read_run(path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("name", ["data.pkl", "data.pt", "data.jsonl", "data.bin"])
def test_pickles_are_never_loaded(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    put(tmp_path / "m.jsonl", [{"step": 1, "reward": 0.5, "loss": 0.0}])
    record = read_run(tmp_path)
    assert any("never loaded" in note.text for note in record.notes)


def test_object_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "logits.npz", logits=np.array([Bomb()], dtype=object))
    put(tmp_path / "m.jsonl", [{"step": 1, "reward": 0.5, "loss": 0.0}])
    assert read_run(tmp_path).logits is None


def test_unknown_metrics_are_reported_with_the_nearest(tmp_path):
    path = put(tmp_path / "m.jsonl", [{"step": 1, "reward": 0.5, "gradnorm": 0.1, "perf/x": 1.0}])
    texts = [note.text for note in read_run(path).notes]
    assert texts == ["unknown metric 'gradnorm'; did you mean 'grad_norm'?"]


@pytest.mark.parametrize("content", ["", "hello\nworld\n", '{"a": 1}\n{"a": 2}\n'])
def test_what_is_no_log_says_so(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(BadInput):
        read_run(path)


def test_both_parsers_give_the_same_rows(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [
        {"step": int(i // 8), "prompt_id": f"p{i // 8}", "sample": i % 8, "completion": f"text {i}",
        "reward": float(rng.random()),
         "advantage": float(rng.normal()), "finished": bool(i % 3), "length": int(i), "token_ids": [1, i],
         "logprobs": [-0.5, -1.5]}
        for i in range(400)
    ]  # fmt: skip
    path = put(tmp_path / "r.jsonl", rows)
    plain, _ = table.read_rollouts(path, GENERIC)
    monkeypatch.setattr(table, "FAST_FROM", 0)
    calls = []
    monkeypatch.setattr(table, "parse_fast", lambda *a: calls.append(1) or lines.parse_fast(*a))
    fast, _ = table.read_rollouts(path, GENERIC)
    assert calls
    assert fast.select(sorted(fast.columns)).equals(plain.select(sorted(plain.columns)))


def test_a_long_file_keeps_every_number_and_part_of_the_texts(tmp_path, monkeypatch):
    rows = [
        {"step": i, "prompt_id": "p", "completion": "word " * 50, "reward": float(i)} for i in range(2000)
    ]
    path = put(tmp_path / "r.jsonl", rows)
    monkeypatch.setattr(table, "FAST_FROM", 0)
    monkeypatch.setattr(table, "HEAVY_BUDGET", path.stat().st_size // 4)
    monkeypatch.setattr(table, "chunks", lambda stream: lines.chunks(stream, 2**14))
    frame, notes = table.read_rollouts(path, GENERIC)
    assert frame["reward"].to_list() == [float(i) for i in range(2000)]
    assert 300 < frame["completion"].null_count() < 1800
    assert any("one part in" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("eval/math/avg@8", "eval/*/avg@*", True),
        ("eval/a/b/avg@8", "eval/*/avg@*", False),
        ("eval/a/b/avg@8", "eval/**/avg@*", True),
    ],
)
def test_patterns(name, pattern, expected):
    assert matches(name, pattern) is expected


def test_one_name_has_one_meaning():
    names = [name for patterns in METRICS.values() for name in patterns if "*" not in name]
    assert len(names) == len(set(names))
    assert find(["critic/rewards/mean", "critic/score/mean"], METRICS["reward"])[0] == "critic/score/mean"
    assert unknown_metrics(["reward", "timing_s/gen"]) == []
