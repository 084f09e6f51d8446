"""What logs of preference runs, of micro-batches, of special tokens and of cut completions show, and do not show."""

import math

import numpy as np
import pytest


def status(diagnosis, id):
    return next(found.status for found in diagnosis.findings if found.id == id)


def preferences(log, sign=1.0, grad=0.4, slope=0.02):
    """A preference run in the place of the log: losses follow the margins."""
    log.rollouts, log.config = [], {"trainer": "trl", "beta": 0.1}
    log.metrics = [
        {"step": step, "rewards/margins": slope * (step - 1), "rewards/accuracies": 0.8, "grad_norm": grad,
         "loss": sign * math.log1p(math.exp(-slope * (step - 1))), "learning_rate": 1e-5}
        for step in range(1, 41)
    ]  # fmt: skip
    return log


@pytest.mark.parametrize(
    ("change", "root"),
    [({}, None), ({"sign": -1.0}, "loss.inverted"), ({"slope": -0.02}, "loss.inverted"),
     ({"grad": 0.0}, "loss.no_gradient")],
    ids=str,
)  # fmt: skip
def test_a_preference_run_is_judged_by_its_margin(make_log, change, root):
    found = preferences(make_log(seed=1), **change).diagnose()
    assert (found.root_cause.id if found.root_cause else None) == root
    assert found.verdict == ("broken" if root else "healthy")


def test_the_scores_of_a_reward_model_are_no_reward(make_log, failed):
    log = preferences(make_log(seed=1))
    for i, row in enumerate(log.metrics):
        row |= {"margin": row.pop("rewards/margins"), "mean_reward": 0.5 - 0.05 * i, "accuracy": 0.8}
    assert failed(log.diagnose()) == []


@pytest.mark.parametrize(("micro", "expected"), [(0.51, "fail"), (0.4, "pass")])
def test_two_splits_of_one_batch_must_agree(make_log, micro, expected):
    log = make_log(seed=1)
    for row in log.metrics:
        row |= {"loss_whole": 0.4, "loss_micro": micro}
    assert status(log.diagnose(), "loss.normalisation") == expected


def whole_batches(log, alone):
    """All rows of a step were logged, and the policy loss is that of four micro-batches or of the batch."""
    log.config |= {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 32}
    rng = np.random.default_rng(0)
    by_step = {}
    for row in log.rollouts:
        row["length"] = int(rng.integers(5, 80))
        by_step.setdefault(row["step"], []).append(row)
    for row in log.metrics:
        rows = by_step.get(row["step"])
        if rows is None:
            continue
        size, push = (np.array([r[n] for r in rows], dtype=float) for n in ("length", "advantage"))
        pieces = zip(np.array_split(size * push, 4), np.array_split(size, 4), strict=True)
        whole = -(size * push).sum() / size.sum()
        row["policy_loss"] = -float(np.mean([a.sum() / n.sum() for a, n in pieces])) if alone else whole
        assert len(rows) == 32
    return log


@pytest.mark.parametrize(("alone", "expected"), [(True, "fail"), (False, "pass")])
def test_a_loss_of_micro_batches_divided_alone_is_recognised(make_log, alone, expected):
    assert status(whole_batches(make_log(seed=3), alone).diagnose(), "loss.normalisation") == expected


@pytest.mark.parametrize("mark", ["<|pad|>", "<eos>", "<|im_start|>", "<|endoftext|>"])
def test_frame_marks_in_the_middle_are_no_content(make_log, mark):
    log = make_log(seed=4)
    for row in log.rollouts:
        row["completion"] = row["completion"].replace(" ", f" {mark}", 1)
    assert status(log.diagnose(), "decode.special_tokens") in ("pass", "skip")


@pytest.mark.parametrize(("paid", "expected"), [(True, "warn"), (False, "fail")])
def test_tags_that_vanish_fail_only_where_right_answers_go_unpaid(make_log, paid, expected):
    log = make_log(seed=5)
    for row in log.rollouts:
        row["reward_text"] = row["completion"]
        row["completion"] = f"<ans>{row['completion']}</ans>"
        row["truth"] = row["reward"]
        row["reward"] = row["reward"] if paid else 0.0
        row["advantage"] = row["advantage"] if paid else 0.0
    assert status(log.diagnose(), "decode.special_tokens") == expected


@pytest.mark.parametrize(("unpaid", "expected"), [(True, "fail"), (False, "warn")])
def test_half_of_the_completions_cut_is_a_fault_where_it_costs(make_log, unpaid, expected):
    log = make_log(seed=6, start=0.4, end=0.4)
    for i, row in enumerate(log.rollouts):
        row["finished"] = bool(row["reward"] > 0) if unpaid else i % 2 == 0
        row.pop("finish_reason", None)
    for row in log.metrics:
        for name in [n for n in row if "trunc" in n or "clipped" in n]:
            row.pop(name)
    assert status(log.diagnose(), "decode.truncated") == expected


def test_a_missing_score_may_have_a_missing_advantage(make_log):
    log = make_log(seed=7)
    for row in log.rollouts[::40]:
        row["reward"], row["advantage"] = None, math.nan
    assert status(log.diagnose(), "advantage.non_finite") == "pass"
    log.rollouts[1]["advantage"] = math.nan
    assert status(log.diagnose(), "advantage.non_finite") == "fail"


def test_a_policy_wrecked_by_its_first_update_is_named(make_log):
    log = make_log(seed=8, start=0.3, end=0.3)
    rng = np.random.default_rng(1)
    for i, row in enumerate(log.metrics):
        row["entropy"] = 2.6 if i == 0 else 0.02 + 0.01 * rng.random()
        row["kl"] = 0.0 if i == 0 else 1.7 + 0.1 * rng.random()
    assert status(log.diagnose(), "loss.step_too_large") == "fail"
