"""Advantages: exact vectors, and laws that hold for any rewards."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.advantages import (
    batch_standardised,
    constant_baseline,
    group_mean,
    group_mean_batch_scaled,
    group_normalized_advantages,
    group_standardised,
    group_statistics,
    leave_one_out,
    leave_one_out_standardised,
    moving_average,
    no_baseline,
    zero_spread,
)

NAN = math.nan
GROUP_METHODS = {
    "mean": group_mean,
    "loo": leave_one_out,
    "std0": lambda r, g: group_standardised(r, g, ddof=0, epsilon=1e-8),
    "std1": lambda r, g: group_standardised(r, g, ddof=1, epsilon=1e-4),
    "batch scaled": lambda r, g: group_mean_batch_scaled(r, g, ddof=1),
}


def vector(*rewards: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(rewards, dtype=dtype)


def one_group(rewards: Tensor) -> Tensor:
    return torch.zeros(len(rewards), dtype=torch.long)


# rewards: TRL (ddof 1, 1e-4), verl (ddof 1, 1e-6), biased 1e-8, mean only, leave one out
VECTORS = {
    (1.0, 0.0, 0.0, 0.0): (
        [1.4997000599880024, -0.4999000199960008, -0.4999000199960008, -0.4999000199960008],
        [1.499997000006, -0.499999000002, -0.499999000002, -0.499999000002],
        [1.7320507675688783, -0.5773502558562927, -0.5773502558562927, -0.5773502558562927],
        [0.75, -0.25, -0.25, -0.25],
        [1.0, -1 / 3, -1 / 3, -1 / 3],
    ),
    (1.0, 1.0, 0.0, 0.0): (
        [0.8658754297607016, 0.8658754297607016, -0.8658754297607016, -0.8658754297607016],
        [0.8660239037870368, 0.8660239037870368, -0.8660239037870368, -0.8660239037870368],
        [0.9999999800000003, 0.9999999800000003, -0.9999999800000003, -0.9999999800000003],
        [0.5, 0.5, -0.5, -0.5],
        [2 / 3, 2 / 3, -2 / 3, -2 / 3],
    ),
    (1.0, 0.0): (
        [0.7070067953266834, -0.7070067953266834],
        [0.7071057811879616, -0.7071057811879616],
        [0.9999999800000003, -0.9999999800000003],
        [0.5, -0.5],
        [1.0, -1.0],
    ),
    (0.2, 1.0, 0.0, 0.2): (
        [-0.33816445860963523, 1.465379320641753, -0.7890504034224823, -0.33816445860963523],
        [-0.3382399498911284, 1.4657064495282235, -0.7892265497459664, -0.3382399498911284],
        [-0.39056672277298027, 1.6924557986829147, -0.9113223531369541, -0.39056672277298027],
        [-0.15, 0.65, -0.35, -0.15],
        [-0.2, 0.8666666666666667, -0.4666666666666666, -0.2],
    ),
}


@pytest.mark.parametrize("rewards", VECTORS)
def test_published_conventions(rewards: tuple[float, ...]):
    r = vector(*rewards)
    found = (
        group_standardised(r, one_group(r), ddof=1, epsilon=1e-4),
        group_standardised(r, one_group(r), ddof=1, epsilon=1e-6),
        group_standardised(r, one_group(r), ddof=0, epsilon=1e-8),
        group_mean(r, one_group(r)),
        leave_one_out(r, one_group(r)),
    )
    for got, expected in zip(found, VECTORS[rewards], strict=True):
        assert got.tolist() == pytest.approx(expected, abs=1e-12)


def test_one_function_for_k_numbers():
    assert group_normalized_advantages([0.0, 1.0, 1.0, 0.0]).round(decimals=4).tolist() == [-1, 1, 1, -1]
    eight = group_normalized_advantages([1.0, 0, 0, 1, 0, 0, 1, 0]).round(decimals=3).tolist()
    assert eight == [1.291, -0.775, -0.775, 1.291, -0.775, -0.775, 1.291, -0.775]
    rows = group_normalized_advantages(torch.tensor([[1.0, 0.0], [0.3, 0.3]]))
    assert rows.shape == (2, 2)
    assert rows[1].tolist() == [0.0, 0.0]
    assert group_normalized_advantages([1, 0]).dtype == torch.float64
    with pytest.raises(BadInput, match="rows of k rewards"):
        group_normalized_advantages(torch.zeros(2, 2, 2))


def test_groups_without_spread_are_exactly_zero_and_counted_by_kind():
    r = vector(1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0.2, 0.2, 0.2, 0.2)
    groups = torch.arange(4).repeat_interleave(4)
    found = group_standardised(r, groups, ddof=1, epsilon=1e-4)
    assert found[[0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]].tolist() == [0.0] * 12
    assert found[8:12].tolist() == pytest.approx(
        [1.49970006, -0.49990002, -0.49990002, -0.49990002], abs=1e-8
    )
    counts = zero_spread(r, groups)
    assert (counts.groups, counts.all_right, counts.all_wrong, counts.other) == (4, 1, 1, 1)
    assert counts.fraction == 0.75


@pytest.mark.parametrize("method", GROUP_METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rewards", [[0.7] * 7, [0.7] * 6 + [0.7000001], [0.1] * 9, [123.4] * 8, [-0.3] * 3])
def test_float_residue_is_never_normalised_into_signal(method: str, dtype: torch.dtype, rewards: list[float]):
    r = torch.tensor(rewards, dtype=dtype)
    assert GROUP_METHODS[method](r, one_group(r)).tolist() == [0.0] * len(rewards)


def test_leave_one_out_deviation_of_equal_others_is_not_a_divisor():
    r = vector(0.1, *[0.7] * 7, dtype=torch.float32)
    found = leave_one_out_standardised(r, one_group(r), ddof=1, epsilon=0.0)
    assert float(found[0]) == pytest.approx(-0.6, abs=1e-6)
    expected = (0.7 - 0.6142857142857141) / 0.22677868380553634
    assert found[1:].tolist() == pytest.approx([expected] * 7, abs=1e-5)


def test_groups_are_found_by_id_in_any_order():
    r = vector(1, 0, 1, 0, 0, 1, 1, 0)
    interleaved = torch.tensor([0, 1] * 4)
    expected = [0.25, -0.25, 0.25, -0.25, -0.75, 0.75, 0.25, -0.25]
    assert group_mean(r, interleaved).tolist() == expected
    assert group_mean(r, interleaved * 1_000_003 - 17).tolist() == expected


def test_groups_of_one_teach_nothing():
    r = vector(1, 0, 1, 0)
    for method in GROUP_METHODS.values():
        assert method(r, torch.arange(4)).tolist() == [0.0] * 4


def test_missing_rewards_leave_the_statistics():
    r = vector(1, 0, NAN, 1)
    standardised = group_standardised(r, one_group(r), ddof=1, epsilon=1e-4)
    assert standardised.tolist() == pytest.approx([0.5772502, -1.1545003, 0.0, 0.5772502], abs=1e-6)
    assert group_mean(r, one_group(r)).tolist() == pytest.approx([1 / 3, -2 / 3, 0, 1 / 3])
    stats = group_statistics(r, one_group(r), ddof=1)
    assert float(stats.mean_B[0]) == pytest.approx(2 / 3)
    assert float(stats.std_B[0]) == pytest.approx(0.5773502691896258)
    nothing = vector(NAN, NAN)
    assert group_standardised(nothing, one_group(nothing)).tolist() == [0.0, 0.0]
    assert zero_spread(nothing, one_group(nothing)).groups == 0
    assert math.isnan(zero_spread(nothing, one_group(nothing)).fraction)


def test_two_groups_of_two_measured_against_theory():
    r = vector(1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0)
    assert zero_spread(r, torch.arange(6).repeat_interleave(2)).fraction == 0.5


@pytest.mark.parametrize(("G", "p", "gap"), [(2, 0.1, 0.70711), (4, 0.3, 1.41559), (8, 0.5, 1.73580)])
def test_gap_between_good_and_bad_under_standardisation(G: int, p: float, gap: float):
    """E[A | good] - E[A | bad] for Bernoulli rewards, enumerated over every group."""
    sums = {1.0: 0.0, 0.0: 0.0}
    for outcome in itertools.product([1.0, 0.0], repeat=G):
        r = vector(*outcome)
        weight = math.prod(p if x else 1 - p for x in outcome)
        advantages = group_standardised(r, one_group(r), ddof=1, epsilon=1e-6)
        sums[outcome[0]] += weight * float(advantages[0])
    assert sums[1.0] / p - sums[0.0] / (1 - p) == pytest.approx(gap, abs=1e-5)


def test_constant_and_no_baseline():
    r = vector(1, NAN, 0.25)
    assert no_baseline(r).tolist() == [1.0, 0.0, 0.25]
    assert constant_baseline(r, 0.25).tolist() == [0.75, 0.0, 0.0]


def test_moving_average_uses_only_earlier_batches():
    first, mean = moving_average(vector(1, 0, 0), None, decay=0.5)
    assert first.tolist() == pytest.approx([1.0, -0.5, -0.5])  # the others of the batch
    assert mean == pytest.approx(1 / 3)
    second, mean = moving_average(vector(1, 1, NAN), mean, decay=0.5)
    assert second.tolist() == pytest.approx([2 / 3, 2 / 3, 0])
    assert mean == pytest.approx(2 / 3)
    third, same = moving_average(vector(NAN), mean)
    assert (third.tolist(), same) == ([0.0], mean)


def test_batch_standardised_ignores_groups():
    r = vector(1, 1, 0, 0)
    assert batch_standardised(r, ddof=1, epsilon=0.0).tolist() == pytest.approx(
        [0.8660254] * 2 + [-0.8660254] * 2
    )
    scaled = group_mean_batch_scaled(vector(1, 0, 5, 5), torch.tensor([0, 0, 1, 1]), ddof=0, epsilon=0.0)
    assert scaled.tolist() == pytest.approx([0.5 / 2.277608, -0.5 / 2.277608, 0, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        (torch.zeros(2, 2), torch.zeros(2, 2), "shape"),
        (torch.tensor([1, 0]), torch.tensor([0, 0]), "float tensor"),
        (vector(1, math.inf), torch.tensor([0, 0]), "finite"),
        (vector(1, 0), torch.tensor([0]), "one group id per reward"),
    ],
)
def test_bad_rewards_say_what_to_do(rewards: Tensor, groups: Tensor, message: str):
    with pytest.raises(BadInput, match=message):
        group_mean(rewards, groups)


finite = st.floats(-10, 10, allow_nan=False, width=32)
groups_of_rewards = st.lists(st.lists(finite, min_size=2, max_size=6), min_size=1, max_size=4)


def batch(groups: list[list[float]]) -> tuple[Tensor, Tensor]:
    ids = [i for i, group in enumerate(groups) for _ in group]
    return vector(*itertools.chain(*groups)), torch.tensor(ids)


@pytest.mark.parametrize("method", GROUP_METHODS)
@given(groups=groups_of_rewards, shift=finite, seed=st.integers(0, 99))
def test_laws_of_group_baselines(method: str, groups: list[list[float]], shift: float, seed: int):
    r, ids = batch(groups)
    found = GROUP_METHODS[method](r, ids)
    for i in range(len(groups)):  # a group sums to 0
        assert float(found[ids == i].sum()) == pytest.approx(0, abs=1e-7)
        if max(groups[i]) == min(groups[i]):
            assert found[ids == i].tolist() == [0.0] * len(groups[i])
    order = torch.randperm(len(r), generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(GROUP_METHODS[method](r[order], ids[order]), found[order], atol=1e-9)
    spreads = [max(g) - min(g) for g in groups]
    if all(s == 0 or s > 1e-3 for s in spreads):  # away from the edge where flatness is decided
        assert torch.allclose(GROUP_METHODS[method](r + shift, ids), found, atol=1e-6)


@given(group=st.lists(finite, min_size=2, max_size=8), ddof=st.sampled_from([0, 1]))
def test_a_z_score_is_bounded(group: list[float], ddof: int):
    r, ids = batch([group])
    n = len(group)
    bound = math.sqrt(n - 1) if ddof == 0 else (n - 1) / math.sqrt(n)
    assert float(group_standardised(r, ids, ddof=ddof, epsilon=0.0).abs().max()) <= bound + 1e-9


@given(group=st.lists(finite, min_size=2, max_size=8), scale=st.floats(0.5, 10))
def test_scale_of_the_rewards_does_not_matter_when_standardised(group: list[float], scale: float):
    r, ids = batch([group])
    if max(group) - min(group) > 1e-2:
        once = group_standardised(r, ids, epsilon=0.0)
        assert torch.allclose(group_standardised(scale * r, ids, epsilon=0.0), once, atol=1e-7)


@given(groups=groups_of_rewards)
def test_a_missing_completion_changes_nothing_for_the_others(groups: list[list[float]]):
    r, ids = batch(groups)
    with_missing = torch.cat([r, vector(NAN)]), torch.cat([ids, ids[:1]])
    for method in GROUP_METHODS.values():
        found = method(*with_missing)
        assert found[:-1].tolist() == pytest.approx(method(r, ids).tolist())
        assert float(found[-1]) == 0.0
