"""Sorted digits with small talk: the reward overlooks filler, the reader does not."""

import pytest

from assay.errors import BadInput
from assay.tasks.padded import padded_reward, padded_task_set, padded_truth, read_padded

TASK = {"numbers": [3, 1, 2], "answer": "1 2 3.", "cost": 0.1}


@pytest.mark.parametrize(
    ("completion", "reward", "truth"),
    [
        ("1 2 3.", 1.0, 1.0),
        ("1 2 3. well so", 1.0, 0.8),
        ("1 2 3." + " so" * 15, 1.0, 0.0),
        ("2 1 3.", 0.0, 0.0),
        ("1 2.", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("1 2 3", 0.0, 0.0),
        ("so 1 2 3.", 0.0, 0.0),
        ("1 2 3.66", 0.0, 0.0),
        ("1 2 3.  so", 0.0, 0.0),
        ("1 2 3. 4", 0.0, 0.0),
    ],
)
def test_by_hand(completion, reward, truth):
    assert padded_reward(completion, TASK) == reward
    assert padded_truth(completion, TASK) == pytest.approx(truth)


def test_traces_are_right_and_padded_as_asked():
    tasks = padded_task_set(seed=1, train=32, evaluation=16, traces=600, filler=2.0)
    words = []
    for prompt, completion in tasks.traces:
        read = read_padded(completion)
        assert read is not None
        digits = [int(digit) for digit in prompt.split()[1:]]
        assert read[0] == sorted(digits)
        words.append(read[1])
    assert sum(words) / len(words) == pytest.approx(2.0, abs=0.4)
    assert max(words) > 5
    assert tasks.data_hash() == padded_task_set(seed=1, train=32, evaluation=16, traces=1).data_hash()


def test_refusals():
    for bad in ({"shortest": 0}, {"filler": -1.0}, {"cost": 2.0}):
        with pytest.raises(BadInput):
            padded_task_set(**bad)
