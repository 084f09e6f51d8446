import json
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.arithmetic import arithmetic_reward, arithmetic_task_set, arithmetic_truth, read_integer
from assay.tasks.brackets import brackets_reward, brackets_task_set, brackets_truth
from assay.tasks.catalogue import CATALOGUE, build_task_set
from assay.tasks.countdown import countdown_reward, countdown_task_set, countdown_truth
from assay.tasks.drawing import Drawn, Sizes, draw_task_set, is_held_out
from assay.tasks.expressions import numbers_in, value_by_stack, value_by_syntax
from assay.tasks.sorting import sorting_reward, sorting_task_set, sorting_truth

BUILDERS = [sorting_task_set, arithmetic_task_set, countdown_task_set, brackets_task_set]
EMBEDDED = [name for name in CATALOGUE if not name.startswith(("loophole-", "code-"))]
SMALL = {"train": 60, "evaluation": 20, "traces": 50}
SORT = {"prompt": "sort 5 3 3\n", "answer": "3 3 5\n", "numbers": [5, 3, 3]}
SUM = {"prompt": "7+5-3=\n", "answer": "9\n", "value": 9}
GAME = {"prompt": "5 3 7 -> 22\n", "answer": "3*5+7\n", "numbers": [5, 3, 7], "target": 22}
TEXT = {"prompt": "8 ([(\n", "answer": ")])()\n", "start": "([(", "length": 8, "kinds": 2}


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_embedded_task_is_sound_on_its_own_answers(name):
    task_set = build_task_set(name, seed=1, **SMALL)
    assert task_set.name == name
    assert [len(task_set.train), len(task_set.evaluation), len(task_set.traces)] == [60, 20, 50]
    for task in [*task_set.train, *task_set.evaluation]:
        assert task_set.reward(task["answer"], task) == task_set.truth(task["answer"], task) == 1.0
        assert task_set.reward("", task) == task_set.truth("", task) == 0.0
        assert json.loads(json.dumps(task)) == task


@pytest.mark.parametrize("name", EMBEDDED)
def test_sides_never_share_a_key_or_prompt_whatever_the_seed(name):
    one, two = build_task_set(name, seed=1, **SMALL), build_task_set(name, seed=2, **SMALL)
    for column in ("structural_key", "prompt", "prompt_id"):
        held_out = {task[column] for task in [*one.evaluation, *two.evaluation]}
        assert not held_out & {task[column] for task in [*one.train, *two.train]}
    assert not {prompt for prompt, _ in one.traces} & {task["prompt"] for task in one.evaluation}
    assert len({task["prompt_id"] for task in one.train}) == len(one.train)


@pytest.mark.parametrize("name", EMBEDDED)
def test_one_seed_is_one_task_set_and_it_crosses_to_a_worker(name):
    first, again = build_task_set(name, seed=7, **SMALL), build_task_set(name, seed=7, **SMALL)
    assert first.data_hash() == again.data_hash()
    assert first.traces == again.traces
    assert first.data_hash() != build_task_set(name, seed=8, **SMALL).data_hash()
    assert pickle.loads(pickle.dumps(first)).data_hash() == first.data_hash()


@pytest.mark.parametrize("name", EMBEDDED)
def test_reward_and_truth_agree_on_corrupted_answers(name):
    task_set, rng = build_task_set(name, seed=3, **SMALL), random.Random(name)
    alphabet = " \n0123456789+-*/()[]{}PQRS.>&|!#E"
    verdicts = set()
    for task in list(task_set.train) * 4:
        text = list(task["answer"])
        for _ in range(rng.randint(0, 2)):
            k = rng.randrange(len(text) + 1)
            text[k : k + rng.randint(0, 2)] = rng.choice(alphabet) * rng.randint(0, 2)
        completion = "".join(text)
        assert task_set.reward(completion, task) == task_set.truth(completion, task), (completion, task)
        verdicts.add(task_set.reward(completion, task))
    assert verdicts == {0.0, 1.0}


CASES = [
    (sorting_reward, sorting_truth, SORT, ["3 3 5", " 3  3\t5\n"]
     , ["3 5", "3 5 5", "5 3 3", "3 3 5 5", "3,3,5", "335", "3 3 5 OK", "٣ 3 5", "3 " * 5_000]),
    (arithmetic_reward, arithmetic_truth, SUM, ["9", "+9", " 9\n", "09"]
     , ["7+5-3", "9 9", "8", "-9", "9.0", "=9", "nine", "٩", "9" * 5_000, "9\n8"]),
    (countdown_reward, countdown_truth, GAME, ["3*5+7", "7+5*3", "(7) + (3*5)"]
     , ["22", "3*5+7+0", "7"
        , "3*5+7-7+7", "7*3+1", "35-7", "3*5+7=22", "3**5", "5//3", "(3*5+7", "3*5+7)", "3*(5+7"
        , "--" * 9_000, "(" * 150, "3(5)+7", "0" * 50, "1/0", "__import__('os')", "3*5\n+7"]),
    (brackets_reward, brackets_truth, TEXT, [")])()", ")]())", " )])[]\n"]
     , [")])", ")])()()", "(])()", "))]()", ")]){}", ")])ab", "x" * 5, "(" * 5]),
]  # fmt: skip


@pytest.mark.parametrize(("reward", "truth", "task", "right", "wrong"), CASES)
def test_right_and_wrong_completions(reward, truth, task, right, wrong):
    assert [reward(text, task) for text in right] == [1.0] * len(right)
    assert [truth(text, task) for text in right] == [1.0] * len(right)
    assert [reward(text, task) for text in wrong] == [0.0] * len(wrong)
    assert [truth(text, task) for text in wrong] == [0.0] * len(wrong)


@pytest.mark.parametrize(("reward", "truth", "task", "right", "wrong"), CASES)
def test_a_task_without_its_columns_is_invalid(reward, truth, task, right, wrong):
    for score in (reward("1", {"prompt_id": "x"}), truth("1", {"prompt_id": "x"})):
        assert score.state == "invalid_task"


expressions = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=8,
)


@given(st.one_of(expressions, st.text("0123456789+-*/() ", max_size=12)))
def test_both_evaluators_give_one_value(text):
    assert value_by_syntax(text) == value_by_stack(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2+3*4", 14), ("(2+3)*4", 20), ("7-2-1", 4), ("8/2/2", 2), ("-2*3", -6), ("2*-3", -6), ("--3", 3)],
)
def test_known_values(text, value):
    assert value_by_syntax(text) == value_by_stack(text) == value


@pytest.mark.parametrize(
    "text", ["", "1/0", "1+", "()", "2 3", "a", "1.5", "007", "2**3", "1" * 10, "1+" * 100 + "1"]
)
def test_unreadable_expressions_have_no_value(text):
    assert value_by_syntax(text) is None
    assert value_by_stack(text) is None


def test_numbers_in_order():
    assert numbers_in("3*(5+7)") == [3, 5, 7]
    assert numbers_in("three") is None
    assert read_integer(" -12 ") == -12
    assert read_integer("12 3") is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("prooofs-v1", {}, "did you mean 'proofs-v1'"),
        ("sorting", {}, "did you mean 'sorting-v1'"),
        ("sorting-v1", {"shortst": 2}, "did you mean 'shortest'"),
        ("sorting-v1", {"shortest": 5, "longest": 2}, "shortest <= longest"),
        ("sorting-v1", {"shortest": 1, "longest": 1}, "different problems"),
        ("sorting-v1", {"train": -1}, "train of at least 0"),
        ("arithmetic-v1", {"terms": (1, 2)}, "2 to 8 terms"),
        ("arithmetic-v1", {"largest": 0}, "largest"),
        ("countdown-v1", {"count": 9}, "count of 2 to 6"),
        ("countdown-v1", {"operators": "%"}, "operators among"),
        ("brackets-v1", {"kinds": 5}, "kinds"),
        ("brackets-v1", {"longest": 7}, "even longest"),
        ("brackets-v1", {"exploit_rate": 0.5}, "no exploit"),
        ("brackets-v1", {"exploit_rate": 2}, "rate within 0 to 1"),
    ],
)
def test_bad_names_and_options_are_refused(name, options, message):
    with pytest.raises(BadInput, match=message):
        build_task_set(name, **options)


def test_a_share_of_the_traces_is_written_by_the_exploit():
    traces = sorting_task_set(
        **{**SMALL, "traces": 400}, exploit=lambda rng, task: "junk", exploit_rate=0.25
    ).traces
    assert 70 <= sum(completion == "junk" for _, completion in traces) <= 130


def test_about_a_quarter_of_the_keys_is_held_out():
    assert 150 <= sum(is_held_out(f"key {k}") for k in range(800)) <= 250


def test_too_few_problems_is_said():
    def draw(rng):
        return Drawn("only prompt", "a", "only key")

    with pytest.raises(BadInput, match="only about"):
        draw_task_set("tiny-v1", draw, sorting_reward, sorting_truth, seed=0, sizes=Sizes(5, 5, 0))
