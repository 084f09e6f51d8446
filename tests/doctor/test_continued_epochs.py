"""A second log that goes on where the first ended: the next epoch in its fixed order is no replay."""

import numpy as np
import pytest

from assay.doctor.comparison import _border, compare_runs
from assay.records.readers.metrics import table_of_rows
from assay.records.run_record import RunRecord


def log(first, count, place=None, data=16, batch=2, rate=1e-3, order=None):
    """Steps from ``first`` on whose data go on at the prompt ``place`` (by default where they should)."""
    rng = np.random.default_rng(first)
    place = first * batch if place is None else place
    rows = []
    for n in range(count):
        names = [(place + n * batch + j) % data for j in range(batch)]
        names = [f"p{order[name] if order is not None else name}" for name in names]
        step = first + n
        reward = float(rng.normal(0.2 + 0.005 * step, 0.01))
        rows.append({"step": step, "prompt_ids": names, "lr": rate - 1e-5 * step, "reward": reward})
    return rows


def resumed(before, after):
    runs = []
    for rows in (before, after):
        table = table_of_rows([dict(row) for row in rows])
        runs.append(RunRecord(metrics=table.frame, prompts_by_step=table.prompts, step_order=table.order))
    return compare_runs(*runs).resumed


@pytest.mark.parametrize("data", [8, 16, 15, 7])  # the epoch need not be whole batches
@pytest.mark.parametrize("epochs", [2, 3])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_the_next_epoch_in_one_order_passes(data, epochs, more):
    before = log(0, epochs * (data // 2 + data % 2) + more, data=data)
    assert resumed(before, log(len(before), 5, data=data)).status == "pass"


@pytest.mark.parametrize("steps", [19, 27, 20])
@pytest.mark.parametrize("place", [0, 2])
def test_another_place_of_the_epoch_fails(steps, place):
    found = resumed(log(0, steps), log(steps, 5, place=place))
    assert found.status == "fail"
    assert f"step {steps} repeats prompts of step {place // 2}" in found.summary


def test_one_epoch_does_not_show_that_the_order_stays():
    assert resumed(log(0, 8), log(8, 4)).status == "fail"
    assert resumed(log(0, 9), log(9, 4)).status == "pass"


def test_the_right_prompts_with_a_reset_rate_fail():
    found = resumed(log(0, 16), log(16, 4, rate=2e-3))
    assert found.status == "fail"
    assert "learning rate" in found.summary


def test_every_step_on_the_same_prompts_goes_on():
    assert resumed(log(0, 6, data=2), log(6, 4, data=2)).status == "pass"


def test_steps_that_are_missing_leave_the_order_unknown():
    before = log(0, 17)
    del before[5]
    assert resumed(before, log(17, 4)).status == "fail"


def test_shuffled_epochs_that_start_over_fail():
    orders = [np.random.default_rng(seed).permutation(16) for seed in range(3)]
    before = [row for n in range(2) for row in log(8 * n, 8, order=orders[n])]
    assert resumed(before, log(16, 4, order=orders[2])).status == "pass"
    assert resumed(before, log(16, 4, place=0, order=orders[0])).status == "fail"


def test_borders():
    rng = np.random.default_rng(0)
    for _ in range(300):
        stream = [str(n) for n in rng.integers(0, 3, int(rng.integers(0, 12)))]
        slow = max((k for k in range(len(stream)) if stream[:k] == stream[len(stream) - k :]), default=0)
        assert _border(stream) == slow
