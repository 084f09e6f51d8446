import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.columns import needs
from assay.tasks.drawing import Drawn, Sizes, draw_task_set, is_held_out
from assay.tasks.files import read_tasks
from assay.tasks.rows import as_json_value, refuse_overlap, split_tasks, tasks_from_rows


def draw(rng):
    number = rng.randrange(10_000)
    return Drawn(f"{number}?", f"{number}!", str(number % 1_000), {"number": number})


@needs("number")
def right(completion, task):
    """1.0 for the number."""
    return float(completion == f"{task['number']}!")


def build(**options):
    sizes = Sizes(**{"train": 100, "evaluation": 30, "traces": 200, "exploit_rate": 0.0, **options})
    return draw_task_set(
        "numbers-v1", draw, right, right, seed=1, sizes=sizes, exploit=lambda rng, task: "hack"
    )


def test_columns_and_ids():
    tasks = build()
    task = tasks.train[0]
    assert set(task) == {"prompt_id", "prompt", "answer", "structural_key", "number"}
    assert task["prompt_id"].startswith("numbers-v1/")
    assert tasks.reward(task["answer"], task) == 1.0
    assert right.__doc__ == "1.0 for the number."


def test_sides_are_decided_by_the_key_alone():
    tasks = build()
    assert all(is_held_out(task["structural_key"]) for task in tasks.evaluation)
    assert not any(is_held_out(task["structural_key"]) for task in tasks.train)
    assert not any(is_held_out(str(int(prompt[:-1]) % 1_000)) for prompt, _ in tasks.traces)


def test_the_exploit_rate_changes_traces_and_nothing_else():
    rates = {rate: build(exploit_rate=rate) for rate in (0.0, 0.3, 1.0)}
    assert len({tasks.data_hash() for tasks in rates.values()}) == 1
    shares = {
        rate: sum(completion == "hack" for _, completion in tasks.traces) for rate, tasks in rates.items()
    }
    assert shares[0.0] == 0
    assert 30 <= shares[0.3] <= 90
    assert shares[1.0] == 200


def test_more_tasks_begin_with_the_same_tasks():
    assert build(train=50).train == build(train=100).train[:50]


@pytest.mark.parametrize("side", ["train", "evaluation", "traces"])
def test_sizes_of_zero_are_allowed_and_negative_ones_are_not(side):
    assert len(getattr(build(**{side: 0}), side)) == 0
    with pytest.raises(BadInput, match=f"{side} of at least 0"):
        build(**{side: -1})


@pytest.mark.parametrize("missing", [{}, {"number": None}])
def test_a_task_without_a_needed_column_is_invalid_and_says_which(missing):
    score = right("x", missing)
    assert score.state == "invalid_task"
    assert "'number'" in score.reason


def tried(function, *arguments):
    """What the function returns, or the message of its refusal."""
    try:
        return function(*arguments)
    except BadInput as error:
        return str(error)


rows = st.lists(
    st.dictionaries(
        st.sampled_from(["prompt", "answer", "prompt_id", "other"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2)),
    ),
    max_size=5,
)


@given(rows)
def test_any_rows_are_tasks_or_one_line_of_bad_input(rows):
    tasks = tried(tasks_from_rows, enumerate(rows, 1), "rows")
    if isinstance(tasks, str):
        assert tasks.startswith("rows: ")
        assert "\n" not in tasks
    else:
        assert len(tasks) == len(rows)
        assert all(isinstance(task["prompt"], str) and isinstance(task["prompt_id"], str) for task in tasks)
        assert len({task["prompt_id"] for task in tasks}) == len(tasks)


@given(st.binary(max_size=60), st.sampled_from(["jsonl", "json", "csv", "parquet"]))
def test_any_bytes_are_tasks_or_bad_input(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("bytes") / f"t.{suffix}"
    path.write_bytes(content)
    tasks = tried(read_tasks, path)
    assert tasks
    if isinstance(tasks, str):
        assert tasks.startswith(f"t.{suffix}: ")


@given(st.integers(2, 200), st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_split_is_a_partition(count, share, seed):
    tasks = tasks_from_rows(enumerate({"prompt": f"p{k}"} for k in range(count)), "rows")
    sides = tried(split_tasks, tasks, share, seed)
    if isinstance(sides, str):
        assert "leave" in sides
        return
    train, evaluation = sides
    assert sorted(task["prompt"] for task in [*train, *evaluation]) == sorted(t["prompt"] for t in tasks)
    refuse_overlap(train, evaluation)


def test_overlap_ignores_case_and_white_space():
    one, two = {"prompt": "What is  it?", "prompt_id": "1"}, {"prompt": "what is it?\n", "prompt_id": "2"}
    with pytest.raises(BadInput, match="1 of 1 evaluation prompts are also in training"):
        refuse_overlap([one], [two])


def test_values_that_json_cannot_hold_become_text():
    assert as_json_value([1, "a", None]) == [1, "a", None]
    assert as_json_value({1, 2}) in ("{1, 2}", "{2, 1}")
    assert as_json_value("½".encode()) == "½"
    assert as_json_value(b"a\xff") == r"a\xff"
    assert as_json_value(random.Random).startswith("<class")
