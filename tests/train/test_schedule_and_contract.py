"""The order of prompts is a function of (seed, place); the step-0 contract names what is wrong."""

import pytest
import torch

from assay.errors import ContractBroken
from assay.train.contract import check_step_zero
from assay.train.schedule import prompts_of_step


def test_an_epoch_is_a_permutation_and_the_next_one_another():
    places = [prompts_of_step(first, seed=1, tasks=10, prompts=5) for first in range(0, 20, 5)]
    first, second = places[0] + places[1], places[2] + places[3]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert prompts_of_step(5, seed=1, tasks=10, prompts=5) == places[1]
    assert prompts_of_step(0, seed=2, tasks=10, prompts=5) != places[0]


def test_a_batch_larger_than_the_tasks_wraps_around():
    places = prompts_of_step(0, seed=0, tasks=3, prompts=7)
    assert sorted(places[:3]) == sorted(places[3:6]) == [0, 1, 2]


LOGP = torch.tensor([[-0.5, -1.5, -2.0], [-0.1, -3.0, -9.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_agreement_passes_and_masked_positions_do_not_count():
    other = LOGP.clone()
    other[1, 2] = 100.0
    check_step_zero(LOGP, other, LOGP, MASK)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (LOGP * 1.3, "another temperature"),
        (LOGP.roll(1, 1), "shifted by one"),
        (LOGP + 0.2, "truncated support"),
    ],
)
def test_a_gap_to_the_sampler_is_named(sampler, message):
    with pytest.raises(ContractBroken, match=message):
        check_step_zero(LOGP, sampler, None, MASK)


def test_a_reference_that_is_not_the_start_and_a_positive_log_prob_stop_the_run():
    with pytest.raises(ContractBroken, match="reference"):
        check_step_zero(LOGP, LOGP, LOGP - 0.1, MASK)
    with pytest.raises(ContractBroken, match="above 0"):
        check_step_zero(-LOGP, -LOGP, None, MASK)
