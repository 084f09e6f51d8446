"""A reward without scores is flawed; tasks without golds are a fault of the tasks."""

import pytest

from assay.audit.reward_audit import audit_reward

REWARDS = """
import re


def box(text):
    found = re.findall(r"\\\\boxed\\{([^{}]*)\\}", text)
    return found[-1].strip() if found else None


def never(completion, answer):
    float(box(completion) == answer)


def only_right(completion, answer):
    if box(completion) == answer:
        return 1.0


def none_for_junk(completion, answer):
    return None if box(completion) is None else float(box(completion) == answer)


def other_kinds_apart(completion, answer, kind):
    return None if kind == "other" else float(box(completion) == answer)


def reads_the_gold(completion, answer):
    gold = float(answer)
    try:
        return float(float(box(completion) or "nan") == gold)
    except ValueError:
        return 0.0
"""
ROWS = [
    {"prompt": f"What is {a} + {b}? Put it in \\boxed{{}}.", "answer": str(a + b), "kind": ("sum", "other")[a % 2]}
    for a, b in ((4, 9), (20, -31), (16, 27), (6, 1), (3, 2))
]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("unscored") / "rewards.py"
    path.write_text(REWARDS)
    return path


@pytest.mark.parametrize(
    ("name", "ids", "says"),
    [("never", {"wrong_shape": "fail"}, "for all"), ("only_right", {"wrong_shape": "fail"}, "wrong answer"),
     ("none_for_junk", {"wrong_shape": "warn"}, "without an answer"), ("other_kinds_apart", {}, "")],
)  # fmt: skip
def test_none_instead_of_a_score(file, name, ids, says):
    report = audit_reward(f"{file}:{name}", ROWS)
    assert {finding.id: finding.status for finding in report.findings} == ids
    assert report.exit_code == int("fail" in ids.values())
    assert all(says in finding.summary for finding in report.findings)


@pytest.mark.parametrize(("gold", "line"), [(None, "tasks [3]"), ("see the figure", "'see the figure'")])
def test_bad_rows_accuse_the_tasks(file, gold, line):
    rows = [{**row, "answer": gold} if index == 2 else row for index, row in enumerate(ROWS)]
    report = audit_reward(f"{file}:reads_the_gold", rows)
    assert report.findings == []
    assert report.verdict == "no_flaw_found"
    assert any(line in limit and "mend the" in limit for limit in report.limits), report.limits
