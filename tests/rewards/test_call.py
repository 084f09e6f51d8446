"""Signatures are found by parameter names, and whatever a function does ends as one of four states."""

import asyncio
import functools
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from assay.errors import BadInput
from assay.records.score import invalid_task, scored
from assay.rewards.call import resolve
from assay.rewards.load import load_function

FOREIGN = Path(__file__).with_name("foreign_rewards.py")


def foreign(name):
    return load_function(f"{FOREIGN}:{name}")


def task(index=0, **columns):
    return {"prompt_id": f"p{index}", "prompt": "Why? ", "answer": "42", **columns}


def values(scores):
    return [score.value if score.is_scored else score.state for score in scores]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("trl_accuracy", "trl"), ("trl_async", "trl"), ("group_rank", "trl"), ("compute_score", "verl"),
        ("compute_scores", "verl_batch"), ("reward_func", "openrlhf"), ("ours", "task"),
        ("yes_judge", "task"), ("correct_answer", "named"), ("by_name", "named"),
    ],
)  # fmt: skip
def test_the_kind_is_read_from_the_names(name, kind):
    assert resolve(foreign(name)).kind == kind


def test_the_order_of_the_kinds():
    def everything(completions, solution_str, queries, completion, task): ...
    def later(solution_str, queries, completion, task): ...
    def last(queries, completion, task): ...
    def swapped(task, completion): ...

    kinds = [resolve(f).kind for f in (everything, later, last, swapped)]
    assert kinds == ["trl", "verl", "openrlhf", "named"]


def test_trl_is_called_as_it_is():
    bound = resolve(foreign("trl_accuracy"))
    tasks = [task(solution="4"), task(1, solution="9")]
    assert values(bound.score(["it is 4", "it is 4"], tasks)) == [1.0, 0.0]


def test_trl_async_and_none():
    assert values(resolve(foreign("trl_async")).score(["ab", "c"], [task(), task()])) == [2.0, 1.0]
    assert values(resolve(foreign("trl_sometimes_none")).score(["a", ""], [task()] * 2)) == [0.5, "missing"]


def test_trl_with_message_lists_only_on_request():
    bound = resolve(foreign("trl_chat"), chat=True)
    chat_task = task(prompt=[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}])
    assert values(bound.score([" 42", "41"], [chat_task, task()])) == [1.0, 0.0]
    plain = resolve(foreign("trl_chat")).score(["42"], [task()])[0]
    assert plain.state == "crashed"


def test_verl_is_called_as_it_is():
    bound = resolve(foreign("compute_score"))
    columns = {"data_source": "gsm8k", "reward_model": {"style": "rule", "ground_truth": 7}, "extra_info": {}}
    one = task(**columns)
    result = bound.score(["so 7", "so 8"], [one, one])
    assert values(result) == [1.0, 0.0]
    assert result[0].parts == {"acc": 1.0}
    assert one["extra_info"] == {}  # its mutation stays inside
    bare = resolve(foreign("compute_score_float"))
    assert values(bare.score(["42"], [task(data_source="openai/gsm8k")])) == [1.0]
    assert values(resolve(foreign("compute_scores")).score(["42", "1"], [task()] * 2)) == [1.0, 0.0]


def test_openrlhf_is_called_as_it_is():
    result = resolve(foreign("reward_func")).score(["42", "4"], [task(), task(label="4")])
    assert values(result) == [1.0, 1.0]
    assert result[0].parts == {"scores": 1.0, "length": 7.0}


def test_verifiers_are_called_as_they_are():
    bound = resolve(foreign("correct_answer"))
    assert values(bound.score(["42", "x"], [task(info={"level": 3})] * 2)) == [1.0, 0.0]
    assert values(resolve(foreign("group_rank")).score(["42", "x"], [task()] * 2)) == [1.0, 0.0]


def test_by_name_fills_columns_and_defaults():
    bound = resolve(foreign("by_name"))
    assert values(bound.score(["ab"], [task(difficulty=3)])) == [5.0]
    assert values(bound.score(["ab"], [task(difficulty=3, bonus=1)])) == [6.0]


def test_a_parameter_that_nothing_fills_is_named():
    with pytest.raises(BadInput, match=r"'difficulty'.*prompt_id 'p0'.*did you mean 'dificulty'"):
        resolve(foreign("by_name")).score(["ab"], [task(dificulty=3)])
    with pytest.raises(BadInput, match="'solution'"):
        resolve(foreign("trl_accuracy")).score(["ab"], [task()])


def test_kwargs_get_every_column():
    seen = {}

    def greedy(completion, **rest):
        seen.update(rest)
        return 0.0

    resolve(greedy).score(["x"], [task(level=2)])
    assert seen["level"] == 2
    assert seen["answer"] == "42"


def test_the_signature_can_be_given():
    def one(completion, task):
        return 1.0

    assert resolve(one, signature="named").kind == "named"
    assert resolve(one, signature="verifiers").kind == "named"
    with pytest.raises(BadInput, match="did you mean 'verl'"):
        resolve(one, signature="verll")


def test_functions_without_readable_parameters_are_refused():
    with pytest.raises(BadInput, match="takes no parameters"):
        resolve(lambda: 1.0)
    with pytest.raises(BadInput, match="cannot be read"):
        resolve(max)


def test_partials_and_objects_keep_a_name():
    bound = resolve(functools.partial(foreign("by_name"), bonus=2.0))
    assert bound.name == "by_name"
    assert values(bound.score([""], [task(difficulty=1)])) == [3.0]
    assert resolve(foreign("yes_judge")).name == "Judge"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.bool_(True), 1.0), (np.array(2.0), 2.0),
        (-3.5, -3.5), (None, "missing"), (math.nan, "crashed"), (math.inf, "crashed"), (10**400, "crashed"),
        (np.float32("nan"), "crashed"), ("1.0", "crashed"), ([1.0], "crashed"), ({"score": 1.0}, "crashed"),
        (1 + 2j, "crashed"), (np.array([1.0]), "crashed"), (object(), "crashed"),
    ],
)  # fmt: skip
def test_what_a_function_returns(returned, expected):
    def reward(completion, task):
        return returned

    assert values(resolve(reward).score(["x"], [task()])) == [expected]


def test_a_score_passes_through():
    given = [scored(0.0, "too long", {"part": 1.0}), invalid_task("no gold")]

    def reward(completion, task):
        return given[int(completion)]

    assert resolve(reward).score(["0", "1"], [task(), task()]) == given


def test_a_crash_keeps_the_sample_id_and_one_line():
    scores = resolve(foreign("misbehaves")).score(["raise", "ok"], [task(), task(1)])
    assert scores[0].state == "crashed"
    reason = str(scores[0].reason)
    assert reason.startswith("misbehaves (prompt_id 'p0'): ValueError: first line (foreign_rewards.py:")
    assert scores[1].value == 1.0


@pytest.mark.parametrize("completion", ["recurse", "system exit", "nan", "inf", "text", "list"])
def test_every_way_to_break_the_contract_is_a_crash(completion):
    assert resolve(foreign("misbehaves")).score([completion], [task()])[0].state == "crashed"


def test_an_exception_whose_text_raises_is_a_crash():
    class Bad(Exception):
        def __str__(self):
            raise ValueError

    def reward(completion, task):
        raise Bad

    assert "Bad" in str(resolve(reward).score(["x"], [task()])[0].reason)


WRONG = {
    "one value": [1.0],
    "too few": [1.0] * 4,
    "too many": [1.0] * 6,
    "nested": [[1.0]] * 5,
    "a number": 1.0,
    "strings": ["1.0"] * 5,
    "a column": np.ones((5, 1)),
    "nothing": None,
    "a dict": {"rewards": [1.0] * 5},
    "a generator": (1.0 for _ in range(5)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_batch_of_the_wrong_shape_is_a_crash_for_all(what):
    def reward(prompts, completions, **columns):
        return WRONG[what]

    scores = resolve(reward).score(list("abcde"), [task()] * 5)
    assert [score.state for score in scores] == ["crashed"] * 5
    reason = str(scores[0].reason)
    assert "reward" in reason
    assert "expected" in reason
    assert "5" in reason


@pytest.mark.parametrize("right", [np.ones(5, np.float32), [1] * 5, (True,) * 5])
def test_a_batch_of_the_right_shape(right):
    def reward(prompts, completions, **columns):
        return right

    assert values(resolve(reward).score(list("abcde"), [task()] * 5)) == [1.0] * 5


def test_one_bad_value_in_a_batch_is_one_crash():
    def reward(completions):
        return [1.0, math.nan, None, "x"]

    assert values(resolve(reward).score(list("abcd"), [task()] * 4)) == [1.0, "crashed", "missing", "crashed"]


def test_a_batch_that_raises_is_a_crash_for_all_and_names_each():
    def reward(completions):
        raise KeyError("gone")

    scores = resolve(reward).score(["a", "b"], [task(0), task(1)])
    assert [score.state for score in scores] == ["crashed"] * 2
    assert "'p1'" in str(scores[1].reason)


def test_lengths_must_agree():
    with pytest.raises(BadInput, match="2 completions, 1 tasks"):
        resolve(foreign("ours")).score(["a", "b"], [task()])


def test_nothing_gives_nothing():
    for name in ("ours", "trl_accuracy", "correct_answer"):
        assert resolve(foreign(name)).score([], []) == []


def test_prints_never_reach_our_stdout(capsys):
    def noisy(completion, task):
        print("noise")
        print("more", file=sys.stderr)
        return 1.0

    resolve(noisy).score(["x"], [task()])
    assert capsys.readouterr() == ("", "")
    print("ours again")
    assert capsys.readouterr().out == "ours again\n"


def test_a_task_cannot_be_changed_by_the_function():
    one = task()
    resolve(foreign("mutates")).score(["x"], [one])
    assert one["answer"] == "42"


def test_async_functions_run_at_the_same_time():
    running, most = 0, 0

    async def judge(completion, task):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1.0

    scores = resolve(judge).score(["x"] * 20, [task()] * 20, concurrency=5)
    assert values(scores) == [1.0] * 20
    assert most == 5


def test_an_async_function_over_its_limit_is_missing():
    scores = resolve(foreign("slow_judge")).score(
        ["x"] * 4, [task(i, place=i) for i in range(4)], time_limit=0.3
    )
    assert values(scores) == [0.0, 1.0, "missing", "crashed"]
    assert "time-out after 0.3 s" in str(scores[2].reason)
    assert "503" in str(scores[3].reason)


def test_a_timeout_error_of_the_function_itself_is_its_crash():
    async def judge(completion, task):
        raise TimeoutError("my own")

    assert resolve(judge).score(["x"], [task()], time_limit=5.0)[0].state == "crashed"


def test_a_coroutine_from_a_plain_function_is_run():
    async def inner():
        return 0.25

    def reward(completion, task):
        return inner()

    assert values(resolve(reward).score(["x"], [task()])) == [0.25]


def test_prompts_can_be_given():
    def reward(prompt, completion):
        return len(prompt)

    assert values(resolve(reward).score(["x"], [task()], ["123456789"])) == [9.0]
    messages = [{"role": "user", "content": "abc"}]
    assert values(resolve(reward).score(["x"], [task(prompt=messages)])) == [3.0]
