"""From comparisons to a verdict on a model of seconds: reward model, PPO, DPO, online DPO, resume, the reading."""

import json
import math
import shutil

import numpy as np
import polars as pl
import pytest
import yaml

from assay.errors import BadInput
from assay.hacking import MatchedCheckpoint
from assay.records.run_folder import RunFolder
from assay.report.load import load
from assay.stats.best_of_n import kl_bound
from assay.train.experiment import reload_recipe, run_experiment
from assay.train.preference_data import read_pairs
from assay.train.recipe import load_recipe
from assay.train.second_path import (
    best_of_n_points,
    disagreement_alarm,
    read_arm,
    read_second_path,
    rejection_points,
    win_rates,
)

SMALL = {
    "tasks": "padded-v1",
    "task_options": {"train": 48, "evaluation": 12, "traces": 200, "filler": 2.0},
    "sizes": {
        "hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 24, "vocab_size": 300, "max_positions": 64,
    },
    "warm_start": {
        "max_steps": 10, "batch_size": 16, "check_every": 10, "target": 0.0,
        "pass_at_1": [0.0, 1.0], "pass_at_group": [0.0, 1.0],
    },
    "reward": "learned",
    "learned_reward": {"pairs": 40, "raters": {"longer_wins": 0.75}, "heads": 2, "held_out": 0.3},
    "algorithm": "ppo",
    "steps": 2,
    "batch_size": 8,
    "group_size": 4,
    "max_new_tokens": 10,
    "eval_every": 1,
    "eval_prompts": 4,
    "eval_samples": 2,
    "arms": {
        "ppo": {"algorithm_options": {"kl_target": 0.5, "epochs": 1}},
        "dpo": {"algorithm": "dpo"},
        "online": {"algorithm": "online_dpo"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished experiment of three arms."""
    home = tmp_path_factory.mktemp("second-path")
    path = home / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CACHE", str(home / "cache"))
        run_experiment(load_recipe(str(path)), home / "run", Silent())
        yield home / "run", str(path)


class Silent:
    def __getattr__(self, name):
        return lambda *values: None


def test_everything_is_kept_and_the_evaluation_was_never_rated(done):
    root, _ = done
    (folder,) = (root / "reward-model").iterdir()  # one for all arms: they share start policy and raters
    report = json.loads((folder / "report.json").read_text())
    assert report["evaluation"]["shared_prompts"] == 0
    assert report["data"]["pairs"] + report["pairs"] == len(read_pairs(folder / "pairs.jsonl"))
    for arm in ("ppo", "dpo", "online"):
        run = RunFolder(root / arm)
        document = run.read_run()
        assert document["status"] == "done"
        assert document["learned"] is True
        assert [row["step"] for row in run.read_metrics()] == [1, 2]
        assert run.steps("evals") == [0, 1, 2]
    assert "value_loss" in RunFolder(root / "ppo").read_metrics()[0]
    assert RunFolder(root / "dpo").read_metrics()[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert RunFolder(root / "dpo").steps("rollouts") == []
    rollouts = pl.read_parquet(RunFolder(root / "ppo").rollouts(1))
    assert "reward_parts/disagreement" in rollouts.columns


@pytest.mark.parametrize("arm", ["ppo", "dpo", "online"])
def test_a_resumed_run_is_the_same_bit_for_bit(done, tmp_path, arm):
    """Cut after the first step: weights, optimiser, critic and KL controller come from the checkpoint."""
    root, _ = done
    copy = tmp_path / "run"
    shutil.copytree(root, copy)
    run = RunFolder(copy / arm)
    shutil.rmtree(run.checkpoint(2))
    run.write_run(run.read_run() | {"status": "stopped"})
    run_experiment(reload_recipe(copy), copy, Silent())
    whole = RunFolder(root / arm)

    def rows(folder):
        return [{k: v for k, v in row.items() if "time/" not in k} for row in folder.read_metrics()]

    assert rows(run) == rows(whole)
    weights = [f.checkpoint(2) / "model.safetensors" for f in (run, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    tables = [pl.read_parquet(f.evaluation(2)) for f in (run, whole)]
    assert tables[0].equals(tables[1], null_equal=True)


def test_the_report_reads_it_as_a_learned_reward(done):
    root, _ = done
    for arm, hacking in load(root).evaluated:
        assert arm.learned
        assert hacking.gap_name == "overoptimisation gap"
    second = read_arm(root / "ppo")
    assert [point.label for point in second.checkpoints] == ["step 0", "step 1", "step 2"]
    assert second.best_of_n[0].kl == 0.0
    assert second.checklist["evaluation untouched by reward-model training"][0]
    assert not second.checklist["samples read"][0]
    document = json.loads((root / "ppo" / "overoptimisation.json").read_text())
    assert document["verdict"] == second.hacking.verdict
    pairs = json.loads((root / "dpo" / "overoptimisation.json").read_text())["pairs"]
    assert pairs["margin"] == RunFolder(root / "dpo").read_metrics()[-1]["margin"]
    assert second.reward_model["accuracy"]["n"] > 0


def test_what_is_missing_is_said(done, tmp_path):
    _, path = done
    recipe = load_recipe(path, ["learned_reward=null"])
    with pytest.raises(BadInput, match="needs learned_reward"):
        run_experiment(recipe, tmp_path / "other", Silent())
    with pytest.raises(BadInput, match="raters"):
        run_experiment(load_recipe(path, ["learned_reward.raters={mood: 1}"]), tmp_path / "third", Silent())


@pytest.mark.parametrize("name", ["rlhf", "dpo"])
def test_the_recipes_of_the_package_are_possible(name):
    recipe = load_recipe(name)
    assert all(config.reward == "learned" for config in recipe.arms.values())


def checkpoint(step, quality, words, kl, seed=0):
    """A world where the reward pays 2 for quality and 0.2 a word, and a reader loses 0.05 a word."""
    rng = np.random.default_rng(seed)
    right = (rng.random((64, 8)) < quality).astype(float)
    length = rng.poisson(words, (64, 8)).astype(float)
    reward = 2 * right + 0.2 * length
    truth = np.clip(right * (1 - 0.05 * length), 0, 1)
    blank = np.full((64, 8), 0.5)
    ids = [str(i) for i in range(64)]
    return MatchedCheckpoint(step, ids, reward, truth, length, blank, blank * 0 + kl, [["x"] * 8] * 64)


RISE_AND_FALL = [
    (0, 0.3, 3, 0.0),
    (10, 0.6, 4, 0.5),
    (20, 0.7, 8, 1.2),
    (30, 0.75, 16, 3.0),
    (40, 0.75, 20, 4.5),
]


def test_goodhart_is_seen_and_the_checkpoint_that_truth_picks():
    second = read_second_path([checkpoint(*row) for row in RISE_AND_FALL], {})
    assert second.hacking.verdict == "overoptimisation"
    assert second.hacking.selection.by_truth == 10
    assert second.hacking.selection.by_reward == 40
    assert len(second.fits) == 2
    assert any("length grew" in alarm for alarm in second.alarms)
    assert second.checklist["evaluation untouched by reward-model training"] == (False, "unknown")


def test_a_healthy_run_raises_no_alarm():
    healthy = [(0, 0.3, 3, 0.0), (10, 0.5, 3, 0.5), (20, 0.8, 3, 1.0)]
    second = read_second_path([checkpoint(*row) for row in healthy], {"evaluation": {"shared_prompts": 0}})
    assert second.hacking.verdict == "healthy"
    assert second.alarms == ()
    assert second.checklist["evaluation untouched by reward-model training"][0]


def test_best_of_n_rises_in_reward_at_a_known_price():
    points = best_of_n_points(checkpoint(0, 0.3, 3, 0.0))
    assert [point.label for point in points] == ["best of 1", "best of 2", "best of 4", "best of 8"]
    assert points[2].kl == pytest.approx(math.log(4) - 3 / 4)
    rewards = [point.reward for point in points]
    assert rewards == sorted(rewards)
    assert points[1].truth > points[0].truth


def test_rejection_sampling_stands_at_the_kl_of_best_of_n():
    start = checkpoint(0, 0.3, 3, 0.0)
    points = rejection_points(start)
    assert [point.kl for point in points[:2]] == pytest.approx([kl_bound(2), kl_bound(4)], abs=0.1)
    assert points[1].kl < points[2].kl < kl_bound(8), "eight samples a prompt do not reach as far"
    rewards = [start.reward.mean(), *(point.reward for point in points)]
    assert rewards == sorted(rewards)
    best = best_of_n_points(start)[2]
    assert points[1].reward < best.reward + 0.05, "at equal KL the best of n is about as good as it gets"


def test_longer_answers_of_equal_quality_win_only_while_length_counts():
    """The reward pays words; quality is the same: wins by reward are many, and about half at equal length."""
    long, short = checkpoint(9, 0.5, 6, 1.0, seed=1), checkpoint(0, 0.5, 3, 0.0)
    by_reward, by_truth = win_rates(long, short, "reward"), win_rates(long, short, "truth")
    assert by_reward.raw > 0.55
    assert by_reward.at_equal_length.low < 0.5 < by_reward.at_equal_length.high
    assert by_truth.raw < 0.5


def test_a_preference_method_says_what_falling_rewards_mean():
    rows = [(0, 0.3, 3, 0.0), (10, 0.5, 3, 0.5)]
    metrics = [
        {"step": 10, "reward_chosen": -2.0, "reward_rejected": -5.0, "margin": 3.0, "accuracy": 1.0,
         "chosen_displacement": -20.0, "chosen_displacement_per_token": -0.5},
        {"step": 11, "pairs": 0.0},
    ]  # fmt: skip
    second = read_second_path([checkpoint(*row) for row in rows], {"accuracy": {"estimate": 0.7}}, metrics)
    assert second.pairs["margin"] == 3.0
    assert any("not a bug" in alarm for alarm in second.alarms)
    assert second.to_json()["reward_model"] == {"accuracy": {"estimate": 0.7}}
    assert read_second_path([checkpoint(*row) for row in rows], {}).pairs is None


def test_disagreement():
    assert disagreement_alarm([0.1, 0.1], [0.12, 0.1]) is None
    assert "nobody rated" in disagreement_alarm([0.1, 0.1], [0.3, 0.2])
