"""Rewards that misuse their process, labels and logs that cannot be trusted, and answers that are no plain numbers."""

import json
import signal
import subprocess
import time

import pytest
from tests.audit.in_process import bench_of

from assay.audit.golds import read_gold, wrong_values
from assay.audit.labelled import check_labelled
from assay.audit.ledger import Ledger, clustered_rate
from assay.audit.paid import paid_findings
from assay.audit.prober import Prober
from assay.audit.probes import clearly_wrong, guess_probes
from assay.audit.regression import regression_test
from assay.audit.run_link import rollouts_of
from assay.audit.task_file import make_tasks, read_rows
from assay.cli.audit import _ended_tidily
from assay.errors import BadInput

HOSTILE = """
import os
import time


def asks(completion, answer):
    return float(input("score? "))


def comes_back_twice(completion, answer):
    os.fork()
    return 1.0 if completion == answer else 0.0


def leaves_a_daemon(completion, answer):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return 1.0
"""


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE)
    return lambda name: Prober(f"{path}:{name}", {"t": {"prompt": "q", "answer": "7"}}, time_limit=20.0)


def test_a_reward_that_reads_its_input_gets_an_end_of_file(hostile):
    with hostile("asks") as prober:
        outcome = prober.score("t", "x")
    assert outcome.state == "crashed"
    assert "EOF" in outcome.reason


def test_a_fork_that_comes_back_answers_once(hostile):
    with hostile("comes_back_twice") as prober:
        assert [prober.score("t", text).value for text in ("7", "8", "9", "7")] == [1.0, 0.0, 0.0, 1.0]


def test_nothing_that_a_reward_started_outlives_the_audit(hostile):
    with hostile("leaves_a_daemon") as prober:
        assert prober.score("t", "x").value == 1.0
    deadline = time.monotonic() + 10
    while (found := _running("leaves_a_daemon")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not found


def _running(word):
    lines = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if word in line and "audit.worker" in line and line.split()[1][0] != "Z"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds_and_the_handler_comes_back(number):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught, _ended_tidily():
        signal.raise_signal(number)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is before


def test_labels_are_read_as_written():
    rows = [{"completion": "x", "correct": label} for label in (True, "false", "0", 1, "Yes", 0.0)]
    assert check_labelled(rows) == ([True, False, False, True, True, False], ["x"] * 6)
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    assert check_labelled([{"completion": messages, "correct": 1}])[1] == ["a"]


@pytest.mark.parametrize("row", [
    {"completion": "x", "correct": "maybe"}, {"completion": "x", "correct": None}, {"completion": "x", "correct": 0.5},
    {"completion": None, "correct": True}, {"completion": 5, "correct": True},
])  # fmt: skip
def test_a_label_or_completion_that_cannot_be_read_names_its_row(row):
    with pytest.raises(BadInput, match="row 2"):
        check_labelled([{"completion": "x", "correct": True}, row])


def test_rows_of_one_prompt_are_one_cluster():
    alone = clustered_rate((str(i), i % 4 == 0) for i in range(80))
    together = clustered_rate((str(i % 4), i % 4 == 0) for i in range(80))
    assert alone.estimate == together.estimate == 0.25
    assert together.high - together.low > 2 * (alone.high - alone.low)


def variants(gold):
    return {(v.name, v.text) for v in wrong_values(read_gold(gold), [])}


def test_wrong_by_construction_for_answers_that_are_no_plain_numbers():
    assert {("another digit", "351 m"), ("ten times", "3500 m"), ("another unit", "350 km")} <= variants(
        "350 m"
    )
    assert ("another digit", "9:36") in variants("9:35")
    assert ("another digit", "1945-05-09") in variants("1945-05-08")
    assert ("an item less", "blue, white") in variants("blue, white, red")
    assert not [name for name, _ in variants("Oslo, Norway") if name == "an item less"]
    assert ("letters turned round", "siraP") in variants("Paris")
    assert ("its first words", "the") in variants("the cat")
    found = variants('{"a": "x", "b": {"c": 3}}')
    assert {("an entry less", '{"a": "x"}'), ("an entry changed", '{"a": "x", "b": {"c": 4}}')} <= found


def test_no_variant_of_a_palindrome_or_a_unit_is_the_gold_itself():
    for gold in ("Anna", "level", "0 m", "0%", "9 h", "99"):
        assert all(text.casefold() != gold.casefold() for _, text in variants(gold)), gold


def test_an_estimate_allows_a_near_quantity():
    task, strict = make_tasks([
        {"prompt": "Estimate the distance.", "answer": "350 m"}, {"prompt": "The distance?", "answer": "350 m"},
    ], ["answer"], [])  # fmt: skip
    assert not clearly_wrong(task, "351 m")
    assert clearly_wrong(task, "1234577 m")
    assert clearly_wrong(strict, "351 m")


LISTS = [{"prompt": f"List {i}.", "answer": f"{a}, {b}"}
         for i, (a, b) in enumerate([("ab", "cd"), ("ef", "gh"), ("ij", "kl"), ("mn", "op")])]  # fmt: skip


def test_recall_of_a_list_is_a_list_of_guesses_and_its_f1_is_not():
    def items(text):
        return {item.strip() for item in text.split(",")}

    def recall(completion, row):
        return len(items(completion) & items(row["answer"])) / 2

    def f1(completion, row):
        return 2 * len(items(completion) & items(row["answer"])) / (2 + len(items(completion)))

    assert "accepts_guess_list" in {f.id for f in paid_findings(bench_of(recall, LISTS), Ledger())}
    assert "accepts_guess_list" not in {f.id for f in paid_findings(bench_of(f1, LISTS), Ledger())}
    probes = [p for p, _ in guess_probes(bench_of(recall, LISTS)) if p.name == "a longer list"]
    assert all(len(items(p.completion)) == 6 for p in probes)


def test_a_regression_test_calls_the_reward_as_the_user_said():
    bench = bench_of(lambda completion, row: float(completion == row["answer"]), LISTS)
    bench.prober.signature, bench.prober.chat = "trl", True
    for id in ("accepts_empty", "hangs", "state_leak", "side_effects"):
        text = regression_test(bench, id, bench.tasks[0], "x")
        assert text.count(", signature='trl', chat=True") == text.count("load_function(") + text.count(
            "with Prober("
        )


def test_rollouts_of_another_trainers_log(tmp_path):
    rows = [
        {"step": s, "prompt": "q", "completion": c, "reward": r} for s, c, r in ((2, "b", 0.5), (1, "a", 1.0))
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(rollouts_of(str(tmp_path))) == [(1, ["a"], ["q"], [1.0]), (2, ["b"], ["q"], [0.5])]
    (tmp_path / "rollouts.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n')
    with pytest.raises(BadInput):
        rollouts_of(str(tmp_path))


@pytest.mark.parametrize(("name", "content"), [
    ("deep.jsonl", '{"answer": ' + "[" * 100_000), ("empty.csv", ""), ("torn.csv", 'a,b\n"x\n'),
    ("fake.parquet", "no"), ("latin.jsonl", b'{"answer": "caf\xe9"}'),
])  # fmt: skip
def test_task_files_that_cannot_be_read_are_bad_input(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=name):
        read_rows(path)


def test_rows_under_one_key_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"data": [{"prompt": "a", "answer": "1"}]}')
    assert read_rows(path) == [{"prompt": "a", "answer": "1"}]
    marked = tmp_path / "t.jsonl"
    marked.write_bytes(b'\xef\xbb\xbf{"prompt": "a \xe2\x80\xa8 b"}\r\n')
    assert read_rows(marked) == [{"prompt": "a \u2028 b"}]
