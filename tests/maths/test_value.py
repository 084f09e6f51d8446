"""Returns, advantages from values, whitening, shaped rewards."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.maths.masking import check_mask, masked_mean, positions, sequence_mean, whiten
from assay.maths.rewards import (
    kl_shaped,
    missing_eos_penalty,
    place_on_last_token,
    returns_to_go,
    soft_overlong_penalty,
)
from assay.maths.value import explained_variance, gae, value_loss

REWARDS = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
VALUES = torch.tensor([[0.5, 0.4, 0.6, 0.2, 0.7]], dtype=torch.float64)
ALL = torch.ones(1, 5, dtype=torch.bool)


def test_gae_known_values():
    advantages, returns = gae(REWARDS, VALUES, ALL, gamma=0.99, lam=0.95)
    expected = [0.3677269374876438, 0.5015703747875, 0.327028575, 0.77515, 0.3]
    assert advantages[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert returns[0].tolist() == pytest.approx([0.8677269374876, 0.9015703747875, 0.927028575, 0.97515, 1.0])
    plain, _ = gae(REWARDS, VALUES, ALL, lam=1.0)
    assert plain[0].tolist() == pytest.approx([0.5, 0.6, 0.4, 0.8, 0.3])


def test_gae_skips_what_is_not_the_policys():
    """Tool output between two tokens, holding NaN, changes nothing: the next own token follows directly."""
    mask = torch.tensor([[True, True, False, False, True, True, True, False]])
    rewards, values = torch.full((1, 8), math.nan).double(), torch.full((1, 8), math.nan).double()
    rewards[mask], values[mask] = REWARDS[0], VALUES[0]
    advantages, returns = gae(rewards, values, mask, gamma=0.99, lam=0.95)
    expected, expected_returns = gae(REWARDS, VALUES, ALL, gamma=0.99, lam=0.95)
    assert torch.equal(advantages[mask], expected[0])
    assert torch.equal(returns[mask], expected_returns[0])
    assert advantages[~mask].tolist() == [0.0] * 3


def test_a_cut_off_completion_bootstraps():
    advantages, _ = gae(REWARDS * 0, VALUES, ALL, lam=1.0, last_value_B=torch.tensor([0.9]).double())
    assert float(advantages[0, -1]) == pytest.approx(0.2)
    with pytest.raises(BadInput, match="values of shape"):
        gae(REWARDS, VALUES[:, :4], ALL)


numbers = st.floats(-3, 3)


@given(rows=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), gamma=st.floats(0.5, 1))
def test_gae_laws(rows: list[tuple[float, float]], gamma: float):
    rewards, values = torch.tensor(rows, dtype=torch.float64).T[:, None]
    mask = torch.ones_like(rewards, dtype=torch.bool)
    advantages, _ = gae(rewards, values, mask, gamma=gamma, lam=1.0)
    assert torch.allclose(advantages, returns_to_go(rewards, mask, gamma=gamma) - values, atol=1e-9)
    one_step, _ = gae(rewards, values, mask, gamma=gamma, lam=0.0)
    following = torch.cat([values[:, 1:], torch.zeros(1, 1).double()], 1)
    assert torch.allclose(one_step, rewards + gamma * following - values, atol=1e-9)


def test_value_loss_takes_the_worse_of_clipped_and_free():
    returns, old = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 0.9])
    values = torch.tensor([0.1, 0.5, 0.5])
    assert value_loss(values, old, returns).tolist() == pytest.approx([0.405, 0.32, 0.125])
    assert value_loss(values, old, returns, clip=None).tolist() == pytest.approx([0.405, 0.125, 0.125])
    x = torch.tensor([0.1, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: value_loss(v, old[:2].double(), returns[:2].double()), (x,))


def test_explained_variance():
    returns = torch.tensor([[0.0, 1.0, 2.0, 9.0]])
    mask = torch.tensor([[True, True, True, False]])
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(torch.ones(1, 4), returns, mask) == 0.0
    assert math.isnan(explained_variance(returns, torch.ones(1, 4), mask))


def test_reward_sits_on_the_last_token_and_the_kl_at_each():
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    kl = torch.tensor([[0.1, 0.2, 0.1, 9, 9], [0.0] * 5], dtype=torch.float64)
    token = place_on_last_token(torch.tensor([1.0, 1.0]).double(), mask) - torch.where(mask, 0.5 * kl, 0.0)
    assert token[0].tolist() == pytest.approx([-0.05, -0.10, 0.95, 0, 0])
    assert token[1].tolist() == [0, 0, 0, 0, 1.0]
    returns = returns_to_go(token, mask)
    assert float(returns[0, 0]) == pytest.approx(0.80)
    assert returns[0, 3:].tolist() == [0.0, 0.0]
    penalised = missing_eos_penalty(torch.tensor([1.0, 1.0]), torch.tensor([True, False]), 1.0)
    assert penalised.tolist() == [1.0, 0.0]
    assert place_on_last_token(torch.tensor([1.0]), torch.tensor([[False, False]])).tolist() == [[0.0, 0.0]]


def test_soft_overlong_penalty():
    lengths = torch.tensor([1000, 16384, 17408, 18432, 20480, 20481])
    found = soft_overlong_penalty(lengths, max_length=20480, cache=4096)
    assert found.tolist() == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    with pytest.raises(BadInput, match="0 < cache <= max_length"):
        soft_overlong_penalty(lengths, max_length=10, cache=11)


def test_kl_shaped_keeps_what_is_missing_missing():
    shaped = kl_shaped(torch.tensor([1.0, math.nan]).double(), torch.tensor([2.0, 1.0]), 0.1)
    assert float(shaped[0]) == pytest.approx(0.8)
    assert math.isnan(float(shaped[1]))


def test_whitening_conventions():
    values = torch.tensor([[1.0, 2.0, 99.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    known = values[mask]
    unbiased = whiten(values, mask)
    assert torch.allclose(unbiased[mask], (known - known.mean()) / (known.var() + 1e-8).sqrt())
    biased = whiten(values, mask, ddof=0, floor=True)
    assert torch.allclose(biased[mask], (known - known.mean()) / known.std(correction=0))
    kept = whiten(values, mask, shift_mean=False)
    assert float(kept[mask].mean()) == pytest.approx(float(known.mean()))
    assert float(unbiased[0, 2]) == 0.0
    assert whiten(torch.full((2, 3), 0.7), mask).tolist() == [[0.0] * 3] * 2


@given(rows=st.lists(numbers, min_size=2, max_size=9))
def test_whitened_values_have_mean_zero(rows: list[float]):
    values = torch.tensor([rows], dtype=torch.float64)
    assert float(whiten(values, torch.ones_like(values).bool()).sum()) == pytest.approx(0.0, abs=1e-6)


def test_positions_do_not_count_padding():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
    found = [positions(mask)[i][mask[i]].tolist() for i in range(3)]
    assert found == [[0, 1, 2], [0, 1, 2, 3, 4], [0]]


def test_masked_means_select():
    values = torch.tensor([[1.0, 3.0, math.inf], [math.nan] * 3])
    mask = torch.tensor([[True, True, False], [False] * 3])
    assert float(masked_mean(values, mask)) == 2.0
    assert sequence_mean(values, mask).tolist() == [2.0, 0.0]
    assert math.isnan(float(masked_mean(values, mask & False)))
    with pytest.raises(BadInput, match="boolean mask"):
        check_mask(mask[:1], values)
