"""The code task: references are right by every instrument, a table of the shown tests is found out."""

import json
import random

import pytest

from assay.records.score import Score
from assay.tasks.code import (
    SHOWN_TESTS,
    by_heart,
    code_reward,
    code_task_set,
    code_truth,
    expected_value,
    reference_completion,
    shown_tests_reward,
)
from assay.tasks.code_problems import PROBLEMS


def values(completion, task):
    scores = [score(completion, task) for score in (shown_tests_reward, code_reward, code_truth)]
    assert all(isinstance(score, Score) and score.is_scored for score in scores), scores
    return [score.value for score in scores]


def one_task_of_each_problem():
    tasks = {}
    made = code_task_set(train=300, evaluation=10, traces=0)
    for task in [*made.train, *made.evaluation]:
        tasks.setdefault(task["problem"], task)
    return tasks


TASKS = one_task_of_each_problem()


def test_nearly_every_problem_is_drawn_for_training():
    assert len(TASKS) >= 16 <= len(PROBLEMS)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_reference_is_right_by_every_instrument(name):
    task = TASKS[name]
    assert values(task["answer"], task) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["rotate", "run_lengths", "digits_in_base"])
def test_a_table_of_the_shown_tests_is_paid_by_the_weak_reward_only(name):
    task = TASKS[name]
    assert values(by_heart(random.Random(0), task), task) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "completion", ["", "no idea", "```python\ndef solve(x):\n    return None\n```", "```python\n1/0"]
)
def test_junk_is_not_paid(completion):
    assert values(completion, TASKS["rotate"]) == [0.0, 0.0, 0.0]


def test_a_seed_gives_one_task_set_and_sides_share_no_problem():
    first, again, other = (code_task_set(seed=seed, traces=20) for seed in (3, 3, 4))
    assert first.data_hash() == again.data_hash() != other.data_hash()
    assert first.traces == again.traces
    keys = [{task["structural_key"] for task in side} for side in (first.train, first.evaluation)]
    assert not keys[0] & keys[1]
    assert len(first.evaluation) == 12


def test_tasks_survive_json():
    for task in TASKS.values():
        assert json.loads(json.dumps(task)) == task


def test_hidden_tests_are_not_shown():
    for task in TASKS.values():
        assert len(task["tests"]) == SHOWN_TESTS
        assert len(task["hidden_tests"]) >= 3
        for test in task["hidden_tests"]:
            assert f"solve({test['args'][0]!r})" not in task["prompt"]


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_reference_text_gives_what_the_reference_gives(name):
    problem = PROBLEMS[name]
    k = problem.values[0] if problem.values else None
    space: dict = {}
    exec(reference_completion(name, k).removeprefix("```python\n").removesuffix("```\n"), space)
    rng = random.Random(name)
    for _ in range(30):
        arguments = problem.draw(rng)
        assert space["solve"](*arguments) == expected_value(name, k, arguments)


EXAMPLES = {
    "count_multiples": (3, [[3, -6, 4, 0]], 3),
    "clamp": (2, [[-9, 1, 5]], [-2, 1, 2]),
    "rotate": (1, [[1, 2, 3]], [2, 3, 1]),
    "chunks": (2, [[1, 2, 3]], [[1, 2], [3]]),
    "every_kth": (2, [[1, 2, 3, 4]], [1, 3]),
    "window_sums": (2, [[1, 2, 3]], [3, 5]),
    "largest": (2, [[1, 5, 3]], [5, 3]),
    "long_words": (2, ["a abc ab abcd"], ["abc", "abcd"]),
    "shift_letters": (1, ["az b"], "ba c"),
    "repeat_letters": (2, ["ab"], "aabb"),
    "digits_in_base": (2, [6], [1, 1, 0]),
    "without_repeats": (None, [[2, 1, 2]], [2, 1]),
    "run_lengths": (None, ["aab"], [["a", 2], ["b", 1]]),
    "count_vowels": (None, ["abe"], 2),
    "is_palindrome": (None, ["ab a"], True),
    "gaps": (None, [[1, 4, 2]], [3, -2]),
    "running_maximum": (None, [[1, 3, 2]], [1, 3, 3]),
    "longest_word": (None, ["a bc de"], "bc"),
}


def test_worked_examples():
    assert set(EXAMPLES) == set(PROBLEMS)
    for name, (k, arguments, expected) in EXAMPLES.items():
        assert expected_value(name, k, arguments) == expected
    assert expected_value("is_palindrome", None, ["ab"]) is False
