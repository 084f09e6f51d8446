"""Importance weights: on a tree where the true gradient is known, and bounds."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.importance import importance_weights, off_policy_sequences, sampler_gap

# A tree of two binary choices: the sampler's and the policy's probabilities, and the rewards of the four leaves.
MU_1, P_1 = torch.tensor([0.6, 0.4]).double(), torch.tensor([0.598687660112452, 0.401312339887548]).double()
MU_2 = torch.tensor([[0.7, 0.3], [0.3, 0.7]]).double()
P_2 = torch.tensor(
    [[0.37754066879814546, 0.6224593312018546], [0.6456563062257954, 0.3543436937742045]], dtype=torch.float64
)
LEAVES = [(0, 0), (0, 1), (1, 0), (1, 1)]
REWARDS = torch.tensor([0.0, 1.0, 0.2, 0.6], dtype=torch.float64)
TRUE = [0.06744644, -0.06744644, -0.14069382, 0.14069382, -0.03672558, 0.03672558]
EXPECTED = {
    ("token", None): [-0.04324693, 0.04324693, -0.14100233, 0.14100233, -0.03660548, 0.03660548],
    ("sequence", None): TRUE,
    ("token", 1.2): [-0.04324693, 0.04324693, -0.08154878, 0.08154878, -0.04470312, 0.04470312],
    ("sequence", 1.2): [0.01836033, -0.01836033, -0.08154878, 0.08154878, -0.04488326, 0.04488326],
}


def tree_gradient(weights_BT: Tensor | float) -> list[float]:
    """Expected gradient in the six logits of REINFORCE on the sampler's completions, with weights."""
    logits = [P_1.log().requires_grad_(), P_2.log().requires_grad_()]
    first, second = torch.log_softmax(logits[0], 0), torch.log_softmax(logits[1], 1)
    logp = torch.stack([torch.stack([first[a], second[a, b]]) for a, b in LEAVES])
    chance = torch.stack([MU_1[a] * MU_2[a, b] for a, b in LEAVES])
    objective = (chance[:, None] * weights_BT * REWARDS[:, None] * logp).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(objective, logits)]).tolist()


def leaf_logps() -> tuple[Tensor, Tensor]:
    policy = torch.stack([torch.stack([P_1[a], P_2[a, b]]) for a, b in LEAVES]).log()
    sampler = torch.stack([torch.stack([MU_1[a], MU_2[a, b]]) for a, b in LEAVES]).log()
    return policy, sampler


ALL = torch.ones(4, 2, dtype=torch.bool)


@pytest.mark.parametrize(("level", "cap"), EXPECTED)
def test_gradient_on_the_tree(level, cap: float | None):
    weights = importance_weights(*leaf_logps(), ALL, level=level, high=cap)
    assert tree_gradient(weights) == pytest.approx(EXPECTED[level, cap], abs=1e-7)


def test_only_the_sequence_weight_is_unbiased():
    def error(weights: Tensor | float) -> float:
        return math.dist(tree_gradient(weights), TRUE)

    plain = {at: importance_weights(*leaf_logps(), ALL, level=at, high=None) for at in ("token", "sequence")}
    assert error(1.0) == pytest.approx(0.20700, abs=1e-5)
    assert error(plain["token"]) == pytest.approx(0.15654, abs=1e-5)
    assert error(plain["sequence"]) < 1e-7
    assert error(importance_weights(*leaf_logps(), ALL, level="geometric", high=None)) == pytest.approx(
        0.10770, abs=1e-5
    )


def test_truncate_and_mask():
    old, sampler = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[-1.5, 0.0, 1.5]])
    mask = torch.tensor([[True, True, True]])
    cut = importance_weights(old, sampler, mask, high=2.0, low=0.5)
    assert cut[0].tolist() == [2.0, 1.0, 0.5]
    dropped = importance_weights(old, sampler, mask, high=2.0, low=0.5, outside="mask")
    assert dropped[0].tolist() == [0.0, 1.0, 0.0]
    whole = importance_weights(
        torch.tensor([[2.0, 0.0]]), torch.zeros(1, 2), mask[:, :2], level="sequence", high=3.0, outside="mask"
    )
    assert whole[0].tolist() == [0.0, 0.0]
    with pytest.raises(BadInput, match="low <= high"):
        importance_weights(old, sampler, mask, high=0.5, low=2.0)
    with pytest.raises(BadInput, match="did you mean 'sequence'"):
        importance_weights(old, sampler, mask, level="sequnce")  # pyright: ignore


def test_masked_positions_and_overflow():
    old, sampler = torch.tensor([[0.0, math.nan]]), torch.tensor([[-300.0, math.inf]])
    weights = importance_weights(old, sampler, torch.tensor([[True, False]]), high=None)
    assert weights[0].tolist() == pytest.approx([math.exp(20.0), 0.0])


def test_weights_have_no_gradient():
    old = torch.zeros(1, 1, requires_grad=True)
    assert not importance_weights(old, torch.zeros(1, 1), torch.ones(1, 1).bool()).requires_grad


def test_sequences_that_the_policy_has_left():
    old = torch.zeros(3, 2)
    logp = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-0.1, -0.1]])
    gone = off_policy_sequences(
        logp, old, torch.tensor([-1.0, 1.0, -1.0]), torch.ones(3, 2).bool(), limit=0.5
    )
    assert gone.tolist() == [True, False, False]


def test_sampler_gap():
    gap = sampler_gap(
        torch.tensor([[0.0, 9.0, 0.3]]), torch.tensor([[0.1, 0.0, 0.0]]), torch.tensor([[True, False, True]])
    )
    assert gap == pytest.approx({"mean": 0.2, "max": 0.3})
    assert math.isnan(sampler_gap(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1).bool())["mean"])


@given(
    values=st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), min_size=1, max_size=6),
    cap=st.floats(1, 5),
)
def test_laws(values: list[tuple[float, float]], cap: float):
    old, sampler = torch.tensor(values, dtype=torch.float64).T[:, None]
    mask = torch.ones_like(old, dtype=torch.bool)
    for level in ("token", "sequence", "geometric"):
        weights = importance_weights(old, sampler, mask, level=level, high=cap)
        assert bool((weights > 0).all())
        assert bool((weights <= cap).all())
        assert importance_weights(old, old, mask, level=level, high=cap).tolist() == [[1.0] * len(values)]
