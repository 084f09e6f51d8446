"""Every method learns: sorting from a warm start, the proofs against a sound verifier, and the three outcomes."""

import pytest

from assay.report.load import load
from assay.train.experiment import run_experiment
from assay.train.recipe import load_recipe

METHODS = ["reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp"]


@pytest.mark.learning
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_to_sort(method, tmp_path, recorder):
    run_experiment(load_recipe("sorting", [f"algorithm={method}"]), tmp_path / "run", recorder)
    ((_, hacking),) = load(tmp_path / "run").evaluated
    change = hacking.changes.truth[-1]
    assert change.low > 0.05, f"{method}: truth changed by {change}"
    assert hacking.verdict == "healthy"


@pytest.mark.learning
@pytest.mark.timeout(1800)
def test_the_three_outcomes_of_a_weak_verifier(tmp_path, recorder):
    run_experiment(
        load_recipe("loophole", arms=["sound", "weak", "weak+kl"]), tmp_path / "loophole", recorder, jobs=2
    )
    found = {arm.name: hacking for arm, hacking in load(tmp_path / "loophole").evaluated}
    assert found["sound"].verdict == "healthy"
    assert found["sound"].changes.truth[-1].estimate >= 0.2
    assert found["weak"].verdict in ("hacking", "overoptimisation")
    assert found["weak"].checkpoints[-1].hacking_rate.low > 0.3
    assert found["weak+kl"].checkpoints[-1].hacking_rate.high < found["weak"].checkpoints[-1].hacking_rate.low
    for name, verdict in (("unreachable", "healthy"), ("overoptimise", "overoptimisation")):
        run_experiment(load_recipe(name), tmp_path / name, recorder)
        ((_, hacking),) = load(tmp_path / name).evaluated
        assert hacking.verdict == verdict
