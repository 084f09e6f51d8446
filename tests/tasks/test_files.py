import csv
import json

import polars as pl
import pytest

from assay.errors import BadInput
from assay.tasks.arithmetic import arithmetic_reward, arithmetic_truth
from assay.tasks.files import dataset_task_set, file_task_set, read_tasks
from assay.tasks.rows import refuse_overlap, split_tasks, tasks_from_rows

ROWS = [{"prompt": f"{k}+1=", "answer": str(k + 1)} for k in range(40)]
FUNCTIONS = (arithmetic_reward, arithmetic_truth)


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), "utf-8")
    elif path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "csv"])
def test_every_format_gives_the_same_tasks(tmp_path, suffix):
    tasks = read_tasks(write(tmp_path / f"t.{suffix}", ROWS))
    assert [{"prompt": t["prompt"], "answer": t["answer"]} for t in tasks] == ROWS
    assert len({t["prompt_id"] for t in tasks}) == 40
    assert tasks == read_tasks(write(tmp_path / f"u.{suffix}", ROWS))


def test_columns_are_mapped_and_the_others_kept(tmp_path):
    rows = [{"question": "q?", "gold": 3, "level": "easy", "answer": "the old one"}]
    (task,) = read_tasks(write(tmp_path / "t.jsonl", rows), columns={"prompt": "question", "answer": "gold"})
    assert (task["prompt"], task["answer"], task["level"]) == ("q?", 3, "easy")
    assert "question" not in task


def test_quoted_unicode_and_long_csv_fields_survive(tmp_path):
    rows = [{"prompt": 'a "quoted", é\nline', "answer": "007"}, {"prompt": "x" * 200_000, "answer": ""}]
    tasks = read_tasks(write(tmp_path / "t.csv", rows))
    assert [t["prompt"] for t in tasks] == [row["prompt"] for row in rows]
    assert tasks[0]["answer"] == "007"
    assert csv.field_size_limit() < 200_000, "the limit of other readers is left alone"


def test_blank_lines_and_a_byte_order_mark_are_harmless(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("\ufeff" + '{"prompt": "a"}\n\n{"prompt": "b"}\n\n', "utf-8")
    assert [t["prompt"] for t in read_tasks(path)] == ["a", "b"]


BAD_LINES = [
    ('{"prompt": "a"}\n{"prompt": ', "row 2: expected JSON"),
    ('{"prompt": "a"}\n[1]\n', "row 2: expected an object"),
    ('{"prompt": "a"}\n\n{"question": "b"}\n', "row 3: column 'prompt' is missing"),
    ('{"promt": "a"}\n', "did you mean 'promt'"),
    ('{"prompt": 3}\n', "row 1: column 'prompt': expected text, got int"),
    ('{"prompt": [{"role": "user"}]}\n', "chat template"),
    ('{"prompt": "  "}\n', "got an empty one"),
    ('{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n', "row 2: column 'answer' is missing"),
    ('{"prompt": "a"}\n{"prompt": "b", "extra": 1}\n', "row 2: column 'extra' is not in the rows before"),
    ('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "a"}\n', "row 3 has the prompt of row 1"),
    (
        '{"prompt": "a", "prompt_id": "x"}\n{"prompt": "b", "prompt_id": "x"}\n',
        "row 2 has the prompt_id of row 1",
    ),
    ('{"prompt": "a", "prompt_id": null}\n', "'prompt_id': expected text"),
    ("", "empty file"),
    ("\n\n", "at least one task"),
    ("[" * 100_000 + "\n", "expected JSON"),
]


@pytest.mark.parametrize(("text", "message"), BAD_LINES)
def test_bad_rows_are_named(tmp_path, text, message):
    path = tmp_path / "t.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(BadInput, match=message.replace("[", r"\[")):
        read_tasks(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt,answer\na,1\nb\n", "row 3: expected 2 values, got 1"),
        ("prompt,prompt\na,b\n", "different column names"),
        ("prompt,answer\n", "at least one task"),
        ('prompt\n"a\n', "not readable as CSV"),
    ],
)
def test_bad_csv_is_named(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(BadInput, match=message):
        read_tasks(path)


def test_other_bad_files_are_named(tmp_path):
    with pytest.raises(BadInput, match="not a file"):
        read_tasks(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="not a file"):
        read_tasks(tmp_path)
    (tmp_path / "t.txt").write_text("a")
    with pytest.raises(BadInput, match="expected one of"):
        read_tasks(tmp_path / "t.txt")
    (tmp_path / "t.parquet").write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="not readable as Parquet"):
        read_tasks(tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(BadInput, match="UTF-8"):
        read_tasks(tmp_path / "t.jsonl")
    (tmp_path / "t.json").write_text('{"prompt": "a"}')
    with pytest.raises(BadInput, match="list of objects"):
        read_tasks(tmp_path / "t.json")


def test_a_missing_mapped_column_names_the_nearest(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"question": "a"}])
    with pytest.raises(
        BadInput, match=r"row 1: column 'qestion' .for 'prompt'. is missing; did you mean 'question'"
    ):
        read_tasks(path, columns={"prompt": "qestion"})


def test_duplicates_can_be_dropped(tmp_path):
    path = write(tmp_path / "t.jsonl", [*ROWS, ROWS[0]])
    assert len(read_tasks(path, duplicates="drop")) == 40
    with pytest.raises(BadInput, match="'refuse' or 'drop'"):
        read_tasks(path, duplicates="keep")


def test_one_file_is_split_by_hash_and_rows_stay_on_their_side(tmp_path):
    small = file_task_set(write(tmp_path / "a.jsonl", ROWS), *FUNCTIONS, evaluation_share=0.3)
    more = [*ROWS, *({"prompt": f"new {k}", "answer": "0"} for k in range(20))]
    large = file_task_set(write(tmp_path / "b.jsonl", more), *FUNCTIONS, evaluation_share=0.3)
    assert small.name == "a"
    assert 4 <= len(small.evaluation) <= 20
    assert len(small.train) + len(small.evaluation) == 40
    assert {t["prompt"] for t in small.evaluation} <= {t["prompt"] for t in large.evaluation}
    other = file_task_set(tmp_path / "a.jsonl", *FUNCTIONS, evaluation_share=0.3, seed=1)
    assert other.data_hash() != small.data_hash()


def test_two_files_must_not_overlap(tmp_path):
    train = write(tmp_path / "train.jsonl", ROWS[:30])
    clean = file_task_set(train, *FUNCTIONS, evaluation=write(tmp_path / "e.csv", ROWS[30:]))
    assert (len(clean.train), len(clean.evaluation)) == (30, 10)
    leaky = write(tmp_path / "leak.jsonl", [*ROWS[30:], {"prompt": " 3+1= \n", "answer": "4"}])
    with pytest.raises(
        BadInput, match=r"1 of 11 evaluation prompts are also in training .first: training task 4"
    ):
        file_task_set(train, *FUNCTIONS, evaluation=leaky)


def test_a_shared_prompt_id_is_refused():
    one, two = {"prompt": "a", "prompt_id": "x"}, {"prompt": "b", "prompt_id": "x"}
    with pytest.raises(BadInput, match="prompt_id 'x'"):
        refuse_overlap([one], [two])


@pytest.mark.parametrize("share", [0.0, 1.0, -1, 2])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(BadInput, match="between 0 and 1"):
        split_tasks(tasks_from_rows(enumerate(ROWS), "rows"), share, 0)


def test_a_share_that_empties_a_side_is_refused():
    tasks = tasks_from_rows(enumerate(ROWS[:2]), "rows")
    with pytest.raises(BadInput, match="leave 2 for training and 0 for evaluation"):
        split_tasks(tasks, 0.001, 0)


class Dataset:
    """As much of datasets.Dataset as the reader uses."""

    def __init__(self, rows):
        self.rows = rows
        self.column_names = list(rows[0])

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)


def test_data_sets_in_memory():
    splits = dataset_task_set({"train": Dataset(ROWS[:30]), "test": Dataset(ROWS[30:])}, *FUNCTIONS)
    assert (len(splits.train), len(splits.evaluation)) == (30, 10)
    single = dataset_task_set(Dataset(ROWS), *FUNCTIONS, evaluation_share=0.25)
    assert len(single.train) + len(single.evaluation) == 40
    with pytest.raises(BadInput, match="expected a split 'test', got"):
        dataset_task_set({"train": Dataset(ROWS), "validation": Dataset(ROWS)}, *FUNCTIONS)
    with pytest.raises(BadInput, match="expected rows"):
        dataset_task_set("squad", *FUNCTIONS)
    with pytest.raises(BadInput, match=r"dataset\[test\]: row 1: column 'answer'|row 1"):
        dataset_task_set({"train": Dataset(ROWS), "test": [3]}, *FUNCTIONS)
