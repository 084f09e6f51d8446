"""Weights that do not reach the sampler, from the start or from the middle of a run, and counters of two things."""

import numpy as np
import pytest

from assay.doctor.diagnosis import diagnose
from assay.records.readers.metrics import known_config, table_of_rows
from assay.records.run_record import RunRecord

ID = "logprob.stale_weights"


def found(rows, config=None):
    table = table_of_rows(rows)
    run = RunRecord(
        config=known_config(config or {}),
        raw_config=config or {},
        metrics=table.frame,
        step_order=table.order,
    )
    return next(item for item in diagnose(run).findings if item.id == ID)


def steps(count, sampler, trainer=lambda step: step, seed=0, keep=("versions", "gap"), gap=None):
    """Metrics in which the gap grows with the lag, unless it is given by step."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(count):
        lag = trainer(step) - sampler(step)
        level = 0.004 + 0.02 * lag if gap is None else gap(step)
        row = {"step": step, "reward": float(rng.normal(0.3, 0.01))}
        if "gap" in keep:
            row["mean_abs_logp_diff"] = float(level + abs(rng.normal(0, 8e-4)))
        if "versions" in keep:
            row |= {"trainer_version": trainer(step), "sampler_version": sampler(step)}
        rows.append(row)
    return rows


STOPS = [(0, 5), (0, 20), (10, 20), (15, 20), (10, 30), (4, 12), (5, 40), (30, 40), (80, 100)]


@pytest.mark.parametrize(("stop", "count"), STOPS)
@pytest.mark.parametrize("keep", [("versions", "gap"), ("versions",)])
def test_versions_that_stop_fail_wherever_they_stop(stop, count, keep):
    item = found(steps(count, lambda step: min(step, stop), keep=keep))
    assert item.status == "fail"
    assert item.evidence["last_new_weights"] == stop
    assert f"stay at version {stop} from step {stop} on" in item.summary


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("stop", "count"), STOPS)
def test_the_gap_alone_shows_where_they_stop(stop, count, seed):
    item = found(steps(count, lambda step: min(step, stop), seed=seed, keep=("gap",)))
    long = count - stop >= 8
    assert item.status == ("fail" if long else "warn")


def test_versions_of_an_outage_that_is_over_pass():
    assert (
        found(steps(30, lambda step: 10 if 10 < step < 16 else step, gap=lambda step: 0.004)).status == "pass"
    )


HEALTHY = {
    "several updates a step": (lambda step: step, lambda step: 4 * step),
    "one version each second step": (lambda step: step // 2, lambda step: step),
    "every fourth step": (lambda step: step // 4 * 4, lambda step: step),
    "every fourth step, several updates": (lambda step: step // 4 * 16, lambda step: 4 * step),
    "one step behind": (lambda step: max(0, step - 1), lambda step: step),
}


@pytest.mark.parametrize("count", [5, 8, 20, 60])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_level_gap_clears_a_sampler_whose_versions_go_on(name, count):
    sampler, trainer = HEALTHY[name]
    assert found(steps(count, sampler, trainer, gap=lambda step: 0.004)).status == "pass"
    unmeasured = found(steps(count, sampler, trainer, keep=("versions",)))
    assert unmeasured.status in ("pass", "warn")
    assert unmeasured.status == "pass" or name == "one version each second step"


@pytest.mark.parametrize("name", ["several updates a step", "one version each second step"])
def test_a_growing_gap_convicts_it(name):
    sampler, trainer = HEALTHY[name]
    item = found(steps(30, sampler, trainer, gap=lambda step: 0.004 + 0.01 * step))
    assert item.status == "fail"
    assert "grows" in item.summary


def test_a_sampler_that_slows_down_falls_behind():
    item = found(steps(40, lambda step: step if step < 20 else 20 + (step - 20) // 3))
    assert item.status == "fail"


def test_an_allowed_lag_is_allowed():
    rows = steps(20, lambda step: max(0, min(step, 15)), gap=lambda step: 0.004)
    assert found(rows).status == "fail"
    assert found(rows, {"max_async_level": 6}).status == "pass"


def test_noise_spikes_and_drift_of_the_gap_are_no_stale_weights():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count, level = int(rng.integers(5, 80)), float(10 ** rng.uniform(-3, -1.5))
        drift = rng.uniform(0, 0.6) * np.linspace(0, 1, count)
        gaps = level * np.exp(rng.normal(0, rng.uniform(0.05, 0.5), count) + drift)
        gaps = np.where(rng.random(count) < 0.03, gaps * 8, gaps)
        rows = [{"step": n, "reward": 0.3, "mean_abs_logp_diff": float(gap)} for n, gap in enumerate(gaps)]
        assert found(rows).status == "pass"


def test_a_jump_of_the_gap_is_no_growth():
    rows = steps(30, lambda step: step, keep=("gap",), gap=lambda step: 0.004 if step < 20 else 0.08)
    assert found(rows).status == "pass"


@pytest.mark.parametrize("start", [0, 18])
def test_growth_below_rounding_is_no_growth(start):
    def gap(step):
        return 0.002 + 0.0008 * max(0, step - start) if start else 0.002 + 0.0004 * step

    assert found(steps(30, lambda step: step, keep=("gap",), gap=gap)).status == "pass"


def test_versions_of_the_rollouts_that_stop(make_log):
    log = make_log(logged_every=2)
    for row in log.rollouts:
        row["policy_version"] = min(row["step"] - 1, 40)
    item = next(item for item in log.diagnose().findings if item.id == ID)
    assert item.status == "fail"
    assert item.evidence["last_new_weights"] == 41
    for row in log.rollouts:
        row["policy_version"] = row["step"] - 1
    assert next(item for item in log.diagnose().findings if item.id == ID).status == "pass"
