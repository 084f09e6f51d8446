"""No program is paid without computing the answer."""

import pytest
from cheats import CHEATS, FORGE, HIDDEN, HONEST, STDIO_CHEATS, VISIBLE

from assay.rewards.code import FunctionTestsReward, Limits, StdioReward

LIMITS = Limits(wall_s=6.0, verdict_s=12.0)
TASK = {
    "entry_point": "add",
    "tests": [{"args": args, "expected": expected} for args, expected in VISIBLE],
    "hidden_tests": [{"args": args, "expected": expected} for args, expected in HIDDEN],
}
STDIO_TASK = {
    "tests": [{"stdin": f"{a} {b}\n", "stdout": f"{total}\n"} for (a, b), total in VISIBLE],
    "hidden_tests": [{"stdin": f"{a} {b}\n", "stdout": f"{total}\n"} for (a, b), total in HIDDEN],
}


BY_HEART = ("visible_tests_by_heart", "visible_tests_in_order", "wrong_from_the_fourth_call")


def fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code}\n```\n"


def test_the_suite_is_large_enough():
    assert len(CHEATS) + len(STDIO_CHEATS) >= 60


def test_the_honest_program_is_paid():
    score = FunctionTestsReward(LIMITS)(fenced(HONEST), TASK)
    assert (score.value, score.reason) == (1.0, None)
    assert score.parts == {"tests": 1.0, "visible_tests": 1.0, "hidden_tests": 1.0}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_not_paid(name):
    score = FunctionTestsReward(LIMITS)(fenced(CHEATS[name]), TASK)
    assert (score.state, score.value) == ("scored", 0.0), score
    assert score.reason
    # a constant may hit one of the six by chance; those that know the visible tests pass just these
    assert score.parts["tests"] <= (0.5 if name in BY_HEART else 1 / 6)


def test_the_forging_tools_work():
    """A record forged with the right value is an answer like any other: the cheats lack just that."""
    forged = FORGE + (
        "token = held('load')['token']\n"
        "def add(a, b):\n    spray(record(token, held('call')['id'], b'i%x;' % (a + b)))\n    os._exit(0)"
    )
    score = FunctionTestsReward(LIMITS)(
        fenced(forged), {**TASK, "tests": TASK["tests"][:1], "hidden_tests": []}
    )
    assert score.value == 1.0


@pytest.mark.parametrize("name", BY_HEART)
def test_only_hidden_tests_find_a_program_that_knows_the_visible_ones(name):
    weak = FunctionTestsReward(LIMITS)(fenced(CHEATS[name]), {**TASK, "hidden_tests": []})
    assert weak.value == 1.0
    strong = FunctionTestsReward(LIMITS)(fenced(CHEATS[name]), TASK)
    assert strong.reason is not None
    assert "visible tests only" in strong.reason


def test_the_honest_script_is_paid():
    honest = "print(sum(map(int, input().split())))"
    assert StdioReward(LIMITS)(fenced(honest), STDIO_TASK).value == 1.0


@pytest.mark.parametrize("name", STDIO_CHEATS)
def test_a_cheating_script_is_not_paid(name):
    limits = Limits(wall_s=2.0, verdict_s=12.0)
    score = StdioReward(limits)(fenced(STDIO_CHEATS[name]), STDIO_TASK)
    assert (score.state, score.value) == ("scored", 0.0)
