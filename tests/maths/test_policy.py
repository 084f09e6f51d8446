"""Policy losses: value and gradient at nine ratios, levels of the ratio, and the laws of clipping."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.policy import cispo_loss, clipped_loss, clipped_tokens, log_ratios, reinforce_loss

RATIOS = [0.5, 0.9, 1.0, 1.1, 1.28 - 1e-9, 1.3, 2.0, 2.9, 5.0]


def objective_and_slope(loss: Tensor, logp: Tensor) -> tuple[float, float]:
    """What is maximised, and its derivative in the log-prob."""
    (slope,) = torch.autograd.grad(loss, logp)
    return -float(loss.detach()), -float(slope)


def at_ratio(ratio: float) -> Tensor:
    return torch.tensor(math.log(ratio), dtype=torch.float64, requires_grad=True)


# ratio, A: PPO 0.2, clip-higher 0.28 and dual clip 3: (objective, slope) each
TABLE = {
    (0.5, 1): ((0.5, 0.5), (0.5, 0.5), (0.5, 0.5)),
    (0.5, -1): ((-0.8, 0.0), (-0.8, 0.0), (-0.8, 0.0)),
    (0.9, 1): ((0.9, 0.9), (0.9, 0.9), (0.9, 0.9)),
    (0.9, -1): ((-0.9, -0.9), (-0.9, -0.9), (-0.9, -0.9)),
    (1.0, 1): ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    (1.0, -1): ((-1.0, -1.0), (-1.0, -1.0), (-1.0, -1.0)),
    (1.27, 1): ((1.2, 0.0), (1.27, 1.27), (1.27, 1.27)),
    (1.3, 1): ((1.2, 0.0), (1.28, 0.0), (1.28, 0.0)),
    (1.3, -1): ((-1.3, -1.3), (-1.3, -1.3), (-1.3, -1.3)),
    (2.0, 1): ((1.2, 0.0), (1.28, 0.0), (1.28, 0.0)),
    (2.0, -1): ((-2.0, -2.0), (-2.0, -2.0), (-2.0, -2.0)),
    (5.0, 1): ((1.2, 0.0), (1.28, 0.0), (1.28, 0.0)),
    (5.0, -1): ((-5.0, -5.0), (-5.0, -5.0), (-3.0, 0.0)),
}


@pytest.mark.parametrize(("ratio", "sign"), TABLE)
def test_clips_at_each_ratio(ratio: float, sign: int):
    advantage = torch.tensor(float(sign), dtype=torch.float64)
    kinds = ({"clip_high": 0.2}, {"clip_high": 0.28}, {"clip_high": 0.28, "dual_clip": 3.0})
    for expected, options in zip(TABLE[ratio, sign], kinds, strict=True):
        x = at_ratio(ratio)
        found = objective_and_slope(clipped_loss(x, advantage, **options), x)
        assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cispo_keeps_every_gradient_up_to_the_cap(ratio: float, sign: float):
    """The weight is a constant in the gradient: slope = min(ratio, cap) * A, whatever the log-prob."""
    logp = torch.tensor(-1.7, dtype=torch.float64, requires_grad=True)
    log_ratio = logp - (logp.detach() - math.log(ratio))
    loss = cispo_loss(log_ratio, logp, torch.tensor(sign, dtype=torch.float64), clip_high=2.0)
    assert objective_and_slope(loss, logp)[1] == pytest.approx(min(ratio, 3.0) * sign, abs=1e-12)
    both = cispo_loss(log_ratio, logp, torch.tensor(sign).double(), clip_low=0.2, clip_high=0.2)
    assert objective_and_slope(both, logp)[1] == pytest.approx(min(max(ratio, 0.8), 1.2) * sign, abs=1e-12)


def test_random_rewards_and_clipping_make_a_bias():
    """Mean slope over A = +1 and -1: none inside the clip range, towards the range outside it."""
    found = []
    for ratio in (0.5, 0.7, 0.9, 1.1, 1.3, 2.0):
        slopes = []
        for sign in (1.0, -1.0):
            x = at_ratio(ratio)
            slopes.append(objective_and_slope(clipped_loss(x, torch.tensor(sign).double()), x)[1])
        found.append(sum(slopes) / 2)
    assert found == pytest.approx([0.25, 0.35, 0.0, 0.0, -0.65, -1.0], abs=1e-9)


def test_loss_is_zero_and_gradient_is_not():
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    logp = torch.log_softmax(logits, 0)[torch.tensor([0, 1])]
    loss = clipped_loss(logp - logp.detach(), torch.tensor([1.0, -1.0]).double()).mean()
    assert float(loss.detach()) == 0.0
    assert torch.autograd.grad(loss, logits)[0].tolist() == [-0.5, 0.5]


def test_sequence_ratios():
    steps = torch.tensor([[0.1, -0.2, 0.05, 0.3, 99.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True, False]])
    zero = torch.zeros_like(steps)
    token = log_ratios(steps, zero, mask).exp()
    assert token[0, :4].tolist() == pytest.approx([1.10517092, 0.81873075, 1.05127110, 1.34985881])
    assert float(token[0, 4]) == 1.0
    sequence = log_ratios(steps, zero, mask, "sequence").exp()
    assert sequence[0, :4].tolist() == pytest.approx([1.0644944589178593] * 4)
    total = log_ratios(steps, zero, mask, "sequence_sum").exp()
    assert float(total[0, 0]) == pytest.approx(1.2840254166877414)
    with pytest.raises(BadInput, match="did you mean 'sequence'"):
        log_ratios(steps, zero, mask, "sequenc")  # pyright: ignore


def test_token_form_has_the_sequence_value_and_its_own_gradient():
    logp = torch.tensor([[0.1, -0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 3, dtype=torch.bool)
    advantage = torch.tensor([[0.5, 1.0, 2.0]], dtype=torch.float64)
    log_ratio = log_ratios(logp, torch.zeros(1, 3).double(), mask, "sequence_token")
    assert log_ratio.detach()[0].tolist() == pytest.approx([0.2 / 3] * 3)
    loss = clipped_loss(log_ratio, advantage, clip_low=0.5, clip_high=0.5).sum()
    ratio = math.exp(0.2 / 3)  # stop(s) * pi / stop(pi): each token's slope is s * A_t
    expected = [-ratio * a for a in (0.5, 1.0, 2.0)]
    assert torch.autograd.grad(loss, logp)[0][0].tolist() == pytest.approx(expected, abs=1e-12)


def test_masked_tokens_cannot_poison():
    logp = torch.tensor([[-1.0, -2.0, -1.5]], requires_grad=True)
    old = torch.tensor([[-1.0, -95.0, -1.5]])
    mask = torch.tensor([[True, False, True]])
    loss = clipped_loss(log_ratios(logp, old, mask), torch.ones(1, 3))[mask].mean()
    assert float(loss.detach()) == -1.0
    assert torch.autograd.grad(loss, logp)[0].tolist() == [[-0.5, 0.0, -0.5]]


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_masked_infinities_have_no_gradient(bad: float):
    logp = torch.tensor([[-1.0, bad]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    for level in ("token", "sequence", "sequence_token", "sequence_sum"):
        loss = clipped_loss(log_ratios(logp, torch.zeros(1, 2), mask, level), torch.ones(1, 2)).sum()
        gradient = torch.autograd.grad(loss, logp)[0]
        assert math.isfinite(float(loss.detach()))
        assert math.isfinite(float(gradient[0, 0]))
        assert float(gradient[0, 1]) == 0.0


def test_an_overflowing_ratio_is_bounded():
    far = log_ratios(torch.tensor([[-2.0]]), torch.tensor([[-95.0]]), torch.tensor([[True]]))
    assert float(far) == 20.0
    assert math.isfinite(float(clipped_loss(far, torch.tensor([[-1.0]]))))


def test_dual_clip_below_one_is_refused():
    with pytest.raises(BadInput, match="dual_clip above 1"):
        clipped_loss(torch.zeros(1), torch.ones(1), dual_clip=0.9)


def test_clip_counts():
    ratio = torch.tensor([[0.5, 0.5, 1.5, 1.5, 1.0]]).log()
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    counts = clipped_tokens(ratio, advantage, torch.ones(1, 5, dtype=torch.bool), clip_low=0.2, clip_high=0.2)
    assert counts.low_BT.tolist() == [[False, True, False, False, False]]
    assert counts.high_BT.tolist() == [[False, False, True, False, False]]
    open_below = clipped_tokens(ratio, advantage, counts.low_BT | True, clip_low=None, clip_high=0.2)
    assert not bool(open_below.low_BT.any())


numbers = st.floats(-3, 3, allow_nan=False)
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6)


@given(rows=rows)
def test_every_loss_is_reinforce_at_ratio_one(rows: list[tuple[float, float]]):
    values, advantages = torch.tensor(rows, dtype=torch.float64).T
    logp = values[None].clone().requires_grad_()
    advantage, mask = advantages[None], torch.ones(1, len(rows), dtype=torch.bool)
    token = log_ratios(logp, logp.detach(), mask)
    (expected,) = torch.autograd.grad(reinforce_loss(logp, advantage).sum(), logp)
    for loss in (
        clipped_loss(token, advantage),
        clipped_loss(token, advantage, clip_low=0.1, clip_high=0.3, dual_clip=3.0),
        cispo_loss(token, logp, advantage),
        clipped_loss(log_ratios(logp, logp.detach(), mask, "sequence_token"), advantage),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), logp, retain_graph=True)
        assert torch.allclose(gradient, expected, atol=1e-12)
    same = advantage[:, :1].expand_as(advantage)  # one advantage a sequence, as GSPO has it
    for level, factor in (("sequence", 1 / len(rows)), ("sequence_sum", 1.0)):
        loss = clipped_loss(log_ratios(logp, logp.detach(), mask, level), same)
        (gradient,) = torch.autograd.grad(loss.mean(), logp, retain_graph=True)
        assert torch.allclose(gradient, -same * factor, atol=1e-12)


@given(ratio=st.floats(0.05, 10), advantage=numbers)
def test_the_clip_never_pays_for_leaving_the_range(ratio: float, advantage: float):
    x = torch.tensor(math.log(ratio), dtype=torch.float64)
    a = torch.tensor(advantage, dtype=torch.float64)
    clipped, free = -float(clipped_loss(x, a)), ratio * advantage
    assert clipped <= free + 1e-12
    dual = -float(clipped_loss(x, a, dual_clip=3.0))
    assert clipped - 1e-12 <= dual <= max(clipped, 3 * advantage) + 1e-12


def test_gradcheck_away_from_the_edges():
    generator = torch.Generator().manual_seed(0)
    ratio = torch.tensor([0.5, 0.9, 1.05, 1.4, 4.0], dtype=torch.float64).log().requires_grad_()
    advantage = torch.randn(5, generator=generator, dtype=torch.float64)
    for options in ({}, {"clip_high": 0.28}, {"dual_clip": 3.0}):
        assert torch.autograd.gradcheck(lambda x, o=options: clipped_loss(x, advantage, **o), (ratio,))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    logp = torch.randn(2, 3, generator=generator, dtype=torch.float64).requires_grad_()
    for level in ("token", "sequence", "sequence_sum"):
        function = lambda x, at=level: log_ratios(x, torch.zeros(2, 3).double(), mask, at)  # noqa: E731
        assert torch.autograd.gradcheck(function, (logp,))
