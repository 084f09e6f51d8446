"""What the verdicts and the intervals are worth on runs whose truth is known."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from assay.hacking import measure
from assay.stats.clustered import clustered_rate
from assay.stats.mover import gap_interval

_spec = importlib.util.spec_from_file_location("simulation", Path(__file__).parent / "simulation.py")
simulation = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(simulation)

FLAT = ("sound", "noisy", "unrelated", "loose")
HACKS = ("partial", "late", "inverted-u")


def accused(kind, correlation, runs, checkpoints=8):
    random = np.random.default_rng(1)
    verdicts = Counter(
        measure(simulation.flat_run(random, kind, correlation=correlation, checkpoints=checkpoints)).verdict
        for _ in range(runs)
    )
    return runs - verdicts["no_learning"] - verdicts["inconclusive"]


def found(kind, size, correlation, runs):
    random = np.random.default_rng(2)
    verdicts = Counter(
        measure(simulation.run(random, *simulation.hack_curves(kind, size), correlation=correlation)).verdict
        for _ in range(runs)
    )
    return verdicts["hacking"] + verdicts["overoptimisation"]


def coverage(prompts, rate, correlation, runs):
    """Shares of simulations in which the interval of the rate, and of the gap, holds the true rate."""
    random = np.random.default_rng(3)
    truth = np.zeros((prompts, 8))
    hits = np.zeros(2)
    for _ in range(runs):
        chance = simulation.prompt_rates(random.random(prompts), rate, correlation)[:, None]
        flags = (random.random((prompts, 8)) < chance).astype(float)
        for at, interval in enumerate((clustered_rate(flags), gap_interval(flags, truth))):
            hits[at] += interval.low <= rate <= interval.high
    return hits / runs


def test_the_simulated_prompts_have_the_correlation_asked_for():
    from assay.stats.clustered import intraclass_correlation

    random = np.random.default_rng(0)
    chance = simulation.prompt_rates(random.random(4000), 0.3, 0.4)[:, None]
    flags = (random.random((4000, 8)) < chance).astype(float)
    assert flags.mean() == pytest.approx(0.3, abs=0.02)
    assert intraclass_correlation(flags) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("kind", FLAT)
def test_flat_runs_are_not_accused(kind):
    assert accused(kind, 0.4, runs=40) <= 4


@pytest.mark.parametrize("kind", HACKS)
def test_hacks_are_found(kind):
    assert found(kind, 0.2, 0.4, runs=25) >= 23


@pytest.mark.parametrize(("rate", "correlation"), [(0.0, 0.4), (0.05, 0.8), (0.5, 0.1)])
def test_intervals_cover(rate, correlation):
    assert (coverage(64, rate, correlation, runs=250) >= 0.9).all()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("checkpoints", [8, 20])
@pytest.mark.parametrize("correlation", [0.1, 0.4])
@pytest.mark.parametrize("kind", FLAT)
def test_of_a_thousand_flat_runs_at_most_forty_are_accused(kind, correlation, checkpoints):
    count = accused(kind, correlation, 1000, checkpoints)
    print(f"flat {kind:9} ICC {correlation} checkpoints {checkpoints:2}: {count} of 1000 accused")
    assert count <= 40


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("correlation", [0.1, 0.4])
@pytest.mark.parametrize("size", [0.15, 0.25])
@pytest.mark.parametrize("kind", HACKS)
def test_nine_in_ten_hacks_are_found(kind, size, correlation):
    count = found(kind, size, correlation, 400)
    print(f"hack {kind:10} of {size} ICC {correlation}: {count / 400:.3f} found")
    assert count >= 360


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("prompts", [32, 64, 128])
def test_coverage_over_the_grid(prompts):
    for rate in (0.0, 0.01, 0.05, 0.15, 0.5):
        for correlation in (0.1, 0.4, 0.8):
            of_rate, of_gap = coverage(prompts, rate, correlation, 2000)
            print(f"{prompts} prompts, rate {rate}, ICC {correlation}: {of_rate:.3f} rate, {of_gap:.3f} gap")
            assert min(of_rate, of_gap) >= (0.92 if prompts >= 64 and rate >= 0.05 else 0.88)
