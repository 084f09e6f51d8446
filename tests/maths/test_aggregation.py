"""One denominator a step: exact values, and invariance to everything that must not matter."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.aggregation import AGGREGATIONS, aggregate, denominator


def rows(lengths: list[int], values: list[float]) -> tuple[Tensor, Tensor]:
    """Losses that are constant in each row, and the mask of its length."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.tensor(values, dtype=torch.float64)[:, None].expand(mask.shape), mask


@pytest.mark.parametrize(
    ("aggregation", "value", "weights"),
    [
        ("sequence_mean_token_mean", 0.0, (1 / 4, 1 / 12)),
        ("token_mean", 0.5, (1 / 8, 1 / 8)),
        ("sequence_mean_token_sum", 2.0, (1 / 2, 1 / 2)),
        ("constant", 0.25, (1 / 16, 1 / 16)),
    ],
)
def test_lengths_two_and_six_with_opposite_advantages(
    aggregation, value: float, weights: tuple[float, float]
):
    losses, mask = rows([2, 6], [-1.0, 1.0])
    losses = losses.clone().requires_grad_()
    loss = aggregate(losses, mask, denominator(mask, aggregation, max_length=8), aggregation)
    assert float(loss.detach()) == pytest.approx(value)
    (gradient,) = torch.autograd.grad(loss, losses)
    assert gradient[0].tolist() == pytest.approx([weights[0]] * 2 + [0.0] * 4)
    assert gradient[1].tolist() == pytest.approx([weights[1]] * 6)


def test_what_leaves_the_numerator_leaves_the_denominator():
    losses, mask = rows([8, 12, 20], [0.5] * 3)
    mask = mask & torch.tensor([[True], [True], [False]])  # the last is truncated and not trained
    for aggregation in ("token_mean", "sequence_mean_token_mean"):
        assert (
            float(aggregate(losses, mask, denominator(mask, aggregation, max_length=20), aggregation)) == 0.5
        )


def test_parts_of_two_and_six_tokens():
    losses, mask = rows([2, 6], [1.0, 0.2])
    total = denominator(mask, "token_mean", max_length=6)
    parts = [aggregate(losses[i : i + 1], mask[i : i + 1], total, "token_mean") for i in (0, 1)]
    assert float(sum(parts)) == pytest.approx(0.4)


def test_bad_arguments():
    losses, mask = rows([2], [1.0])
    with pytest.raises(BadInput, match="did you mean 'token_mean'"):
        denominator(mask, "tokenmean", max_length=2)  # pyright: ignore
    with pytest.raises(BadInput, match="denominator of a step with trained tokens"):
        aggregate(losses, mask, 0.0, "token_mean")
    with pytest.raises(BadInput, match="boolean mask"):
        aggregate(losses, mask.long(), 1.0, "token_mean")


def test_nothing_trained_is_a_loss_of_zero_with_a_gradient_of_zero():
    losses, mask = rows([2], [1.0])
    losses = losses.clone().requires_grad_()
    loss = aggregate(
        losses, mask & False, denominator(mask & False, "token_mean", max_length=2), "token_mean"
    )
    assert float(loss.detach()) == 0.0
    assert torch.autograd.grad(loss, losses)[0].tolist() == [[0.0, 0.0]]


batches = st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(batch=batches, seed=st.integers(0, 9), pad=st.integers(0, 3))
def test_micro_batches_order_and_padding_do_not_matter(
    aggregation, batch: list[list[float]], seed: int, pad: int
):
    width = max(len(row) for row in batch)
    losses = torch.full((len(batch), width + pad), float("nan"), dtype=torch.float64)  # padding holds NaN
    mask = torch.zeros_like(losses, dtype=torch.bool)
    for i, row in enumerate(batch):
        losses[i, : len(row)] = torch.tensor(row, dtype=torch.float64)
        mask[i, : len(row)] = True
    total = denominator(mask, aggregation, max_length=9)
    whole = float(aggregate(losses[:, :width], mask[:, :width], total, aggregation))
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
    cut = seed % (len(batch) + 1)
    parts = [aggregate(losses[i], mask[i], total, aggregation) for i in (order[:cut], order[cut:])]
    assert float(sum(parts)) == pytest.approx(whole, abs=1e-9)
    ranks = [denominator(mask[i], aggregation, max_length=9) for i in (order[:cut], order[cut:])]
    assert sum(ranks) == total
