"""A run that learns is left in peace, whatever its shape."""

import numpy as np
import pytest

from assay.doctor.catalogue import CATALOGUE
from assay.doctor.diagnosis import CHECKS


@pytest.mark.parametrize(
    "shape",
    [
        {}, {"size": 2, "batch": 64, "groups": 16}, {"size": 4, "groups": 8}, {"size": 16}, {"size": 64,
        "groups": 1, "batch": 4},
        {"steps": 20, "logged_every": 2}, {"start": 0.6, "end": 0.98}, {"start": 0.02, "end": 0.5}, {"end": 0.36},
        {"spread": 0.0}, {"logged_every": 30},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_no_failure(make_log, failed, shape, seed):
    assert failed(make_log(seed=seed, **shape).diagnose()) == []


@pytest.mark.parametrize("scale", [(2.0, -1.0), (10.0, 0.0), (0.01, 0.0), (1.0, -3.0)])
def test_the_scale_of_the_reward_does_not_matter(make_log, failed, scale):
    log = make_log(seed=3)
    factor, offset = scale
    for row in log.rollouts:
        row["reward"] = row["reward"] * factor + offset
    for row in log.metrics:
        row["reward"] = row["reward"] * factor + offset
        row["reward_std"] *= factor
    by_group = {}
    for row in log.rollouts:
        by_group.setdefault(row["prompt_id"], []).append(row)
    for rows in by_group.values():
        rewards = np.array([row["reward"] for row in rows])
        for row in rows:
            row["advantage"] = (
                (row["reward"] - rewards.mean()) / (rewards.std() + 1e-6) if np.ptp(rewards) > 1e-9 else 0.0
            )
    log.config["advantage_epsilon"] = 1e-6
    assert failed(log.diagnose()) == []


def test_dense_rewards_pass(make_log, failed):
    log = make_log(seed=4)
    rng = np.random.default_rng(0)
    groups = {}
    for row in log.rollouts:
        row["reward"] = float(np.clip(0.6 * row["reward"] + 0.3 * rng.random(), 0, 1))
        groups.setdefault(row["prompt_id"], []).append(row)
    for rows in groups.values():
        rewards = np.array([row["reward"] for row in rows])
        for row in rows:
            row["advantage"] = float((row["reward"] - rewards.mean()) / (rewards.std(ddof=1) + 1e-4))
    for row in log.metrics:
        row["reward"] = 0.6 * row["reward"] + 0.15
    assert failed(log.diagnose()) == []


def test_a_learning_run_is_called_healthy_and_a_flat_one_without_rollouts_cannot_be_told(make_log):
    log = make_log(seed=5)
    assert log.diagnose().verdict == "healthy"
    flat = make_log(seed=5, end=0.35)
    flat.rollouts = []
    assert flat.diagnose().verdict == "cannot_tell"


def test_every_id_comes_back_once(make_log):
    found = [finding.id for finding in make_log().diagnose().findings]
    assert sorted(found) == sorted(CATALOGUE)
    assert len(CHECKS) == len(CATALOGUE) - 1  # reward.unreachable needs the function


def test_a_check_that_cannot_run_says_what_to_log(make_log):
    log = make_log()
    log.rollouts = []
    skipped = log.diagnose().of("skip")
    assert {"decode.prompt_in_text", "logprob.positive", "reward.unrelated_to_truth"} <= {
        f.id for f in skipped
    }
    assert all(finding.needs for finding in skipped)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_at_most_two_in_a_hundred_healthy_runs_fail(make_log, failed):
    rng = np.random.default_rng(0)
    wrong = []
    for seed in range(300):
        shape = {
            "size": int(rng.choice([2, 4, 8, 16, 32])), "steps": int(rng.choice([20, 40, 120])),
            "start": float(rng.uniform(0.05, 0.6)), "spread": float(rng.choice([0.0, 0.1, 0.3])),
            "logged_every": int(rng.choice([1, 3, 10])),
        }  # fmt: skip
        shape["end"] = min(0.97, shape["start"] + float(rng.uniform(0.0, 0.5)))
        shape["batch"] = max(8, 128 // shape["size"])
        found = failed(make_log(seed=seed, **shape).diagnose())
        wrong += [(seed, shape, found)] if found else []
    assert len(wrong) <= 6, wrong
