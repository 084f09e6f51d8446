"""A run from end to end, on a model of seconds: files, metrics, resume, refusals."""

import fcntl
import json
import math
import shutil
from pathlib import Path

import polars as pl
import pytest
import torch

from assay.errors import BadInput, RunStopped
from assay.hacking import MatchedCheckpoint, measure
from assay.records.run_folder import EVAL_COLUMNS, RunFolder
from assay.train.arms import run_arms
from assay.train.experiment import reload_recipe, run_experiment
from assay.train.recipe import load_recipe
from assay.train.reevaluate import evaluate_checkpoint

STEP_METRICS = {
    "step", "reward", "reward_std", "entropy", "length_mean", "truncated_fraction", "zero_spread_fraction",
    "zero_spread_all_right", "zero_spread_all_wrong", "zero_spread_identical_text", "missing_count",
    "crashed_count", "invalid_task_count", "advantage_abs_mean", "loss", "policy_loss", "kl_loss", "grad_norm",
    "clip_fraction", "time/step",
}  # fmt: skip


def without_clock(rows):
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


def same_run(one: RunFolder, other: RunFolder) -> None:
    """Metrics, rollouts, evaluations and weights are equal, bit for bit."""
    assert without_clock(one.read_metrics()) == without_clock(other.read_metrics())
    for kind, path in (("rollouts", "rollouts"), ("evals", "evaluation")):
        assert one.steps(kind) == other.steps(kind)
        for step in one.steps(kind):
            left, right = (pl.read_parquet(getattr(folder, path)(step)) for folder in (one, other))
            assert left.equals(right, null_equal=True), (kind, step)
    assert one.steps("checkpoints") == other.steps("checkpoints")
    for step in one.steps("checkpoints"):
        left, right = ((f.checkpoint(step) / "model.safetensors").read_bytes() for f in (one, other))
        assert left == right, step


@pytest.fixture
def done(small, tmp_path, recorder):
    """A finished experiment and what was heard of it."""
    root = tmp_path / "run"
    run_experiment(load_recipe(small), root, recorder)
    return root, recorder.events


def test_everything_is_kept(done):
    root, events = done
    document = json.loads((root / "experiment.json").read_text())
    assert document["status"] == "done"
    assert document["arms"] == ["sound", "weak"]
    for arm in ("sound", "weak"):
        folder = RunFolder(root / arm)
        run = folder.read_run()
        assert run["status"] == "done"
        assert {"config", "data_hash", "versions", "seeds", "advantage_epsilon", "advantage_dtype"} <= set(
            run
        )
        metrics = folder.read_metrics()
        assert [row["step"] for row in metrics] == [1, 2, 3, 4]
        assert set(metrics[0]) >= STEP_METRICS
        assert folder.steps("rollouts") == [1, 2, 3, 4]
        assert folder.steps("evals") == folder.steps("checkpoints") == [0, 2, 4]
        assert set(EVAL_COLUMNS) <= set(pl.read_parquet(folder.evaluation(2)).columns)
    heard = [name for name, _ in events]
    assert heard.count("step") == 8
    assert heard.count("evaluated") == 6


def test_rollouts_hold_what_the_update_used(done):
    root, _ = done
    frame = pl.read_parquet(RunFolder(root / "weak").rollouts(1))
    assert len(frame) == 16
    assert "truth" not in frame.columns, "training never holds the truth"
    for _, group in frame.group_by("prompt_id"):
        advantage = group["advantage"].to_numpy()
        assert abs(advantage.sum()) < 1e-6
        if group["reward"].n_unique() == 1:
            assert (advantage == 0).all()
    for row in frame.iter_rows(named=True):
        assert len(row["token_ids"]) == len(row["sampler_logprobs"])
        assert row["reward_text"] == row["completion"]
        assert row["reward"] == (1.0 if "OK" in row["completion"] else row["reward"])


def test_matched_checkpoints_use_the_same_prompts_and_start_at_kl_zero(done):
    root, _ = done
    folder = RunFolder(root / "weak")
    tables = {step: pl.read_parquet(folder.evaluation(step)) for step in folder.steps("evals")}
    keys = {tuple(map(tuple, table.select("prompt_id", "sample").rows())) for table in tables.values()}
    assert len(keys) == 1
    assert tables[0]["kl"].abs().max() < 1e-4
    assert tables[4]["kl"].min() >= 0
    assert tables[4]["kl"].max() > 0
    found = measure([MatchedCheckpoint.from_table(step, table) for step, table in tables.items()])
    assert found.verdict in ("inconclusive", "no_learning", "hacking", "healthy", "overoptimisation")


def test_training_changes_the_weights(done):
    root, _ = done
    folder = RunFolder(root / "weak")
    one, two = ((folder.checkpoint(step) / "model.safetensors").read_bytes() for step in (0, 4))
    assert one != two


def test_one_seed_gives_one_run_and_the_cache_changes_nothing(small, done, tmp_path, recorder, monkeypatch):
    root, _ = done
    run_experiment(load_recipe(small), tmp_path / "cached", recorder)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "empty"))
    run_experiment(load_recipe(small), tmp_path / "fresh", recorder)
    for again in ("cached", "fresh"):
        same_run(RunFolder(root / "weak"), RunFolder(tmp_path / again / "weak"))


def test_another_seed_gives_another_run(small, done, tmp_path, recorder):
    root, _ = done
    run_experiment(load_recipe(small, ["seed=1"]), tmp_path / "other", recorder)
    one, two = (RunFolder(folder / "sound").read_metrics() for folder in (root, tmp_path / "other"))
    assert without_clock(one) != without_clock(two)


class Interrupt(Exception):
    pass


@pytest.mark.parametrize("when", [1, 2, 3])
def test_an_interrupted_run_goes_on_bit_for_bit(small, done, tmp_path, recorder, when, monkeypatch):
    whole, _ = done
    root = tmp_path / "stopped"
    recipe = load_recipe(small)

    class Stops(type(recorder)):
        def step(self, arm, metrics, of):
            if arm == "weak" and metrics["step"] == when:
                raise KeyboardInterrupt

    with pytest.raises(RunStopped, match="--resume"):
        run_experiment(recipe, root, Stops())
    assert json.loads((root / "experiment.json").read_text())["status"] == "stopped"
    run_experiment(reload_recipe(root), root, recorder)
    for arm in ("sound", "weak"):
        same_run(RunFolder(whole / arm), RunFolder(root / arm))


def test_a_torn_metrics_line_and_leftovers_are_cut(small, done, tmp_path, recorder):
    whole, _ = done
    root = tmp_path / "torn"
    shutil.copytree(whole, root)
    folder = RunFolder(root / "weak")
    shutil.rmtree(folder.checkpoint(4))
    with folder.metrics_jsonl.open("a") as stream:
        stream.write('{"step": 5, "rew')
    folder.write_run(folder.read_run() | {"status": "running"})
    run_experiment(reload_recipe(root), root, recorder)
    same_run(RunFolder(whole / "weak"), folder)


def test_arms_side_by_side_give_the_same_numbers(small, done, tmp_path, recorder):
    whole, _ = done
    run_experiment(load_recipe(small), tmp_path / "parallel", recorder, jobs=2)
    for arm in ("sound", "weak"):
        same_run(RunFolder(whole / arm), RunFolder(tmp_path / "parallel" / arm))


def test_nothing_to_do_is_nothing_done(recorder):
    run_arms([], recorder, jobs=2)
    assert recorder.events == []


def test_a_folder_of_another_experiment_is_refused(small, done, recorder, tmp_path):
    root, _ = done
    with pytest.raises(BadInput, match="holds another experiment"):
        run_experiment(load_recipe(small, ["steps=5"]), root, recorder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        run_experiment(load_recipe(small), tmp_path / "full", recorder)
    with pytest.raises(BadInput, match=r"experiment\.json"):
        reload_recipe(tmp_path / "full")


def test_a_start_that_failed_leaves_the_folder_to_the_next(small, tmp_path, recorder):
    root = tmp_path / "out"
    with pytest.raises(BadInput):
        run_experiment(load_recipe(small, [f"model={tmp_path / 'nowhere'}"]), root, recorder)
    assert (root / "experiment.json").is_file()
    run_experiment(load_recipe(small), root, recorder)
    assert json.loads((root / "experiment.json").read_text())["status"] == "done"


def test_a_folder_that_another_process_writes_is_refused(small, tmp_path, recorder):
    root = tmp_path / "run"
    root.mkdir()
    with (root / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="written by another process"):
            run_experiment(load_recipe(small, arms=["weak"]), root, recorder)
    run_experiment(load_recipe(small, arms=["weak"]), root, recorder)


def test_an_evaluation_is_repeated_exactly(done):
    root, _ = done
    folder = RunFolder(root / "weak")
    step, frame = evaluate_checkpoint(folder.checkpoint(2))
    assert step == 2
    kept = pl.read_parquet(folder.evaluation(2))
    for name in ("completion", "reward", "truth", "length"):
        assert frame[name].to_list() == kept[name].to_list(), name
    assert max(abs(a - b) for a, b in zip(frame["kl"], kept["kl"], strict=True)) == 0


@pytest.mark.parametrize(
    "keys",
    [
        ["algorithm=grpo"],
        ["algorithm=dapo", "steps=2"],
        ["algorithm=rloo"],
        ["algorithm=gspo"],
        ["algorithm=cispo"],
        ["algorithm=dr_grpo"],
        ["algorithm=reinforce_pp"],
        ["kl_coef=0.1", "kl_where=reward", "kl_estimator=k1"],
        ["kl_coef=0.1", "kl_estimator=exact"],
        ["baseline=moving_average", "group_size=1"],
        ["micro_batch_size=3"],
        ["entropy_coef=0.01"],
    ],
)
def test_every_method_and_option_runs(small, tmp_path, recorder, keys):
    run_experiment(load_recipe(small, keys, arms=["weak"]), tmp_path / "run", recorder)
    metrics = RunFolder(tmp_path / "run" / "weak").read_metrics()
    assert all(math.isfinite(row["loss"]) for row in metrics if row.get("loss") is not None)
    assert any("loss" in row for row in metrics)


def test_micro_batches_change_nothing(small, tmp_path, recorder):
    for size in (3, 256):
        recipe = load_recipe(small, [f"micro_batch_size={size}", "steps=1"], arms=["weak"])
        run_experiment(recipe, tmp_path / str(size), recorder)
    from safetensors.torch import load_file

    one, two = (
        load_file(RunFolder(tmp_path / size / "weak").checkpoint(1) / "model.safetensors")
        for size in ("3", "256")
    )
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=2e-5, rtol=1e-3)


def test_the_noise_arm_flips_at_the_weak_checkers_measured_rates(small, tmp_path, recorder):
    import yaml

    document = yaml.safe_load(Path(small).read_text()) | {"more_arms": {"noise": {"reward": "noise"}}}
    Path(small).write_text(yaml.safe_dump(document))
    root = tmp_path / "run"
    run_experiment(load_recipe(small, arms=["weak", "noise"]), root, recorder)
    start = pl.read_parquet(RunFolder(root / "weak").evaluation(0))
    wrong = start.filter(pl.col("truth") < 0.5)
    rates = RunFolder(root / "noise").read_run()["config"]["reward_options"]
    assert rates["false_positive"] == pytest.approx(wrong["reward"].mean())
    assert rates["false_negative"] == 0


def test_an_unchanged_policy_has_no_kl_to_standardise(small, tmp_path, recorder):
    keys = ["kl_coef=0.3", "kl_where=reward", "kl_estimator=k1", "steps=1"]
    run_experiment(load_recipe(small, keys, arms=["weak"]), tmp_path / "run", recorder)
    frame = pl.read_parquet(RunFolder(tmp_path / "run" / "weak").rollouts(1))
    assert (frame["shaped_reward"] == frame["reward"]).all()
    flat = frame.group_by("prompt_id").agg(pl.col("reward").n_unique(), pl.col("advantage").abs().max())
    assert flat.filter(pl.col("reward") == 1)["advantage"].to_list()
    assert (flat.filter(pl.col("reward") == 1)["advantage"] == 0).all()
