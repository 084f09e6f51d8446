"""The exact bandit: what the example prints equals values enumerated elsewhere, to every digit."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor

PATH = Path(__file__).parents[2] / "examples" / "bandit.py"
spec = importlib.util.spec_from_file_location("bandit_example", PATH)
assert spec is not None
assert spec.loader is not None
bandit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bandit)

GRADIENT = [0.19281982976097617, -0.05045395872784074, -0.005217791849423276, -0.13714807918371213]
DDOF_1 = "standardised, ddof 1"
DDOF_0 = "standardised, ddof 0"
# (group size, estimator): trace of the covariance, cosine to the true gradient, length relative to it
EXACT = {
    (2, "reinforce"): (0.08047155941814324, 1.0, 1.0),
    (2, "true value"): (0.038709240164098574, 1.0, 1.0),
    (2, "group mean"): (0.03323836803067305, 1.0, 0.5),
    (2, "leave one out"): (0.1329534721226922, 1.0, 1.0),
    (2, DDOF_1): (0.09417451416769754, 0.9843797157680284, 0.7984969689581626),
    (2, DDOF_0): (0.18835001000438875, 0.9843795412179398, 1.1292475604740666),
    (3, "group mean"): (0.02543151293137641, 1.0, 0.6666666666666666),
    (3, "leave one out"): (0.05722090409559686, 1.0, 1.0),
    (3, DDOF_1): (0.10349099934681222, 0.9904770734671176, 1.2687558279364317),
    (3, DDOF_0): (0.15523746936240929, 0.9904769436308308, 1.5539057491364145),
    (4, "reinforce"): (0.04023577970907157, 1.0, 1.0),
    (4, "true value"): (0.019354620082049134, 1.0, 1.0),
    (4, "group mean"): (0.019722370542270877, 1.0, 0.75),
    (4, "leave one out"): (0.03506199207514835, 1.0, 1.0),
    (4, DDOF_1): (0.08865138303586423, 0.994101335551858, 1.5310529678163072),
    (4, DDOF_0): (0.11820264063304026, 0.9941012458251063, 1.767911855512749),
}


def gradient() -> Tensor:
    return bandit.exact_gradient(bandit.LOGITS, bandit.REWARDS)


def test_enumerated_gradient_and_value():
    assert float(bandit.value(bandit.LOGITS, bandit.REWARDS)) == pytest.approx(0.30138842572948155, abs=1e-12)
    assert gradient().tolist() == pytest.approx(GRADIENT, abs=1e-12)
    logits = bandit.LOGITS.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(bandit.value(logits, bandit.REWARDS), logits)
    assert gradient().tolist() == pytest.approx(by_autograd.tolist(), abs=1e-12)


@pytest.mark.parametrize(("group_size", "name"), EXACT)
def test_moments_of_every_estimator(group_size: int, name: str):
    variance, cosine, length = EXACT[group_size, name]
    found = bandit.moments(bandit.LOGITS, bandit.REWARDS, bandit.ESTIMATORS[name], group_size)
    assert found.variance == pytest.approx(variance, abs=1e-8)
    assert bandit.cosine(found.mean_K, gradient()) == pytest.approx(cosine, abs=1e-8)
    assert float(found.mean_K.norm() / gradient().norm()) == pytest.approx(length, abs=1e-8)


@pytest.mark.parametrize(("group_size", "flat"), [(2, 0.4739436424072007), (4, 0.15603129343186745)])
def test_share_of_groups_without_spread(group_size: int, flat: float):
    found = bandit.moments(bandit.LOGITS, bandit.REWARDS, bandit.ESTIMATORS["reinforce"], group_size)
    assert found.flat == pytest.approx(flat, abs=1e-12)


def test_sampled_estimator_agrees_within_its_standard_error():
    groups = 20_000
    exact = bandit.moments(bandit.LOGITS, bandit.REWARDS, bandit.ESTIMATORS["leave one out"], 2)
    sampled = bandit.sample_mean_gradient(bandit.ESTIMATORS["leave one out"], 2, groups, seed=1)
    error = float((sampled - gradient()).norm())
    assert error < 3 * (exact.variance / groups) ** 0.5


def test_one_step_along_the_gradient():
    logits = bandit.LOGITS + 0.5 * gradient()
    old, new = torch.softmax(bandit.LOGITS, 0), torch.softmax(logits, 0)
    assert float(bandit.value(logits, bandit.REWARDS)) == pytest.approx(0.3314641354563069, abs=1e-12)
    assert float((new * (new / old).log()).sum()) == pytest.approx(0.002437194223028998, abs=1e-12)
    assert float(-(new * new.log()).sum()) == pytest.approx(1.2551448827887302, abs=1e-12)


def test_main_prints_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bandit, "sample_mean_gradient", lambda *_, **__: gradient())
    bandit.main()
    assert "leave one out" in capsys.readouterr().out
