"""The KL term beside the policy term: judged by what each does to a token, never by values of the loss."""

import numpy as np
import pytest


def finding(diagnosis, id):
    return next(found for found in diagnosis.findings if found.id == id)


def flat(log, beta, kl, **more):
    """A run on its own samples whose reward is flat: the policy loss is 0 up to rounding, the loss is the KL term."""
    rng = np.random.default_rng(0)
    log.config["beta"] = beta
    for i, row in enumerate(log.metrics):
        value = float(kl[i] if np.ndim(kl) else kl)
        surrogate = float(1e-8 * rng.normal())
        row |= {"kl": value, "reward": 0.5 + 0.02 * rng.normal(), "reward_std": 0.4, "grad_norm": 0.8}
        row |= {"policy_loss": surrogate, "loss": surrogate + beta * value} | more
    return log


@pytest.mark.parametrize("rollouts", [True, False], ids=["rollouts", "metrics"])
@pytest.mark.parametrize("style", ["both losses", "one loss"])
@pytest.mark.parametrize(
    ("beta", "kl"), [(0.04, np.linspace(0.03, 0.12, 20)), (0.001, 0.8), (0.1, 0.5), (0.04, 2.0)]
)
def test_a_flat_run_is_no_proof_against_an_ordinary_kl_term(make_log, style, rollouts, beta, kl):
    log = flat(make_log(steps=20, end=0.35), beta, kl)
    if style == "one loss":
        for row in log.metrics:
            row.pop("policy_loss")
    if not rollouts:
        log.rollouts = []
    diagnosis = log.diagnose()
    assert finding(diagnosis, "loss.kl_dominates").status == "pass"
    assert finding(diagnosis, "loss.kl_negligible").status == "pass"


@pytest.mark.parametrize("rollouts", [True, False], ids=["rollouts", "metrics"])
@pytest.mark.parametrize(("beta", "kl"), [(20.0, 0.5), (5.0, 0.2), (2.0, 1.0)])
def test_a_pull_beyond_that_of_the_advantages_is_found(make_log, rollouts, beta, kl):
    log = flat(make_log(end=0.35), beta, kl)
    if not rollouts:
        log.rollouts = []
    found = finding(log.diagnose(), "loss.kl_dominates")
    assert found.status == "fail"
    assert found.evidence["ratio_of_pushes"] > found.evidence["limit"]


def test_a_reward_that_rises_acquits_the_kl_term(make_log):
    log = flat(make_log(), 20.0, 0.5)
    for i, row in enumerate(log.metrics):
        row["reward"] = 0.2 + 0.01 * i
    assert finding(log.diagnose(), "loss.kl_dominates").status == "pass"


@pytest.mark.parametrize(("rising", "status"), [(False, "fail"), (True, "pass")])
def test_a_policy_that_still_leaves_its_start_is_not_held_there(make_log, rising, status):
    kl = np.linspace(1e-4, 5e-3, 60) if rising else 5e-3 + 1e-4 * np.random.default_rng(1).normal(size=60)
    log = flat(make_log(end=0.35), 2.0, kl)
    assert finding(log.diagnose(), "loss.kl_dominates").status == status


def test_without_the_coefficient_nothing_is_judged(make_log):
    log = flat(make_log(end=0.35), 0.04, 0.1, kl_term=2.0)
    log.config.pop("beta")
    found = finding(log.diagnose(), "loss.kl_dominates")
    assert found.status == "skip"
    assert "gradient norms" in found.needs


def test_a_term_logged_by_its_value_is_a_kl_by_its_coefficient(make_log):
    log = flat(make_log(end=0.35), 20.0, 0.5)
    for row in log.metrics:
        row["kl_term"] = 20.0 * row.pop("kl")
    assert finding(log.diagnose(), "loss.kl_dominates").evidence["kl"] == pytest.approx(0.5)


@pytest.mark.parametrize(("beta", "status"), [(1e-7, "warn"), (0.001, "pass")])
def test_a_term_without_weight_far_from_the_reference_is_a_warning(make_log, beta, status):
    log = flat(make_log(end=0.35), beta, 1.5)
    assert finding(log.diagnose(), "loss.kl_negligible").status == status
