"""Code rewards: what is paid, what is not, and which of the four states says so; stdin/stdout policies."""

import os
import time
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.rewards.code import (
    CodeResult,
    Comparison,
    FunctionTest,
    FunctionTestsReward,
    Limits,
    StdioReward,
    StdioTest,
    TestOutcome,
    require_isolation,
    run_function_tests,
    run_stdio_tests,
)
from assay.rewards.code.reward import score_of
from assay.rewards.code.stdio import same_output
from assay.rewards.running import RewardRunner

try:
    require_isolation()
except BadInput as error:
    pytest.skip(str(error), allow_module_level=True)

ADD = "```python\ndef add(a, b):\n    return a + b\n```"
TASK = {
    "entry_point": "add",
    "tests": [{"args": [2, 3], "expected": 5}, {"args": [-1, 1], "expected": 0}],
}


def test_the_states():
    reward = FunctionTestsReward()
    assert reward(ADD, TASK).value == 1.0
    wrong = reward("```python\ndef add(a, b):\n    return 5\n```", TASK)
    assert (wrong.value, wrong.parts["tests"]) == (0.0, 0.5)
    assert "expected 0, got 5" in (wrong.reason or "")
    assert reward("no code here? none.", TASK).value == 0.0
    assert (
        reward("```python\ndef add(a, b):\n    return a +", TASK).reason == "no code block in the completion"
    )
    assert FunctionTestsReward(bare=False)("def add(a, b): return a + b", TASK).value == 0.0


def test_partial_pay_is_the_share_unless_a_limit_is_broken():
    reward = FunctionTestsReward(Limits(wall_s=1), partial=True)
    assert reward("```python\ndef add(a, b):\n    return 5\n```", TASK).value == 0.5
    slow = reward("```python\ndef add(a, b):\n    while a < 0: pass\n    return a + b\n```", TASK)
    assert (slow.value, slow.reason, slow.parts["tests"]) == (0.0, "timeout", 0.5)


UNUSABLE = {
    "no tests": {"entry_point": "add", "tests": []},
    "no column": {"entry_point": "add"},
    "no entry point": {"tests": TASK["tests"]},
    "entry point": {**TASK, "entry_point": "add(1)"},
    "no expected": {**TASK, "tests": [{"args": [1]}]},
    "text for args": {**TASK, "tests": [{"args": "12", "expected": 1}]},
    "not plain": {**TASK, "tests": [{"args": [object()], "expected": 1}]},
    "a text of tests": {**TASK, "tests": "[]"},
    "none": {**TASK, "tests": None},
    "number": {**TASK, "tests": 3},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_tests_are_an_invalid_task(name):
    score = FunctionTestsReward()(ADD, UNUSABLE[name])
    assert score.state == "invalid_task"
    assert score.reason


@pytest.mark.parametrize(
    "tests",
    [[], [{"stdin": "1"}], [{"stdin": 1, "stdout": "1"}], [{"stdin": "1", "stdout": " \n"}], "x", [3]],
)
def test_unusable_stdio_tests_are_an_invalid_task(tests):
    assert StdioReward()("print(1)", {"tests": tests}).state == "invalid_task"


def test_a_broken_sandbox_is_missing_not_zero():
    score = score_of(CodeResult((TestOutcome("0", False),), failure="no room"))
    assert score.state == "missing"
    assert "no room" in (score.reason or "")


def test_a_result_without_tests_has_not_passed():
    assert not CodeResult(()).all_passed
    assert CodeResult(()).share() != CodeResult(()).share()


def test_outcomes_keep_names_order_and_reasons():
    tests = [
        FunctionTest([1], 1, id="one"),
        FunctionTest([0], 1, hidden=True),
        FunctionTest([2], 3),
        FunctionTest([], 7, {"x": 7}),
    ]
    result = run_function_tests("def f(x):\n    return x if 1 / x else None", "f", tests)
    assert [outcome.id for outcome in result.outcomes] == ["one", "1", "2", "3"]
    assert [outcome.passed for outcome in result.outcomes] == [True, False, False, True]
    assert result.outcomes[1].reason == "ZeroDivisionError: division by zero"
    assert result.outcomes[2].reason == "expected 3, got 2"
    assert result.share(hidden=True) == 0.0
    assert result.share(hidden=False) == 2 / 3


def test_methods_and_data_classes_work():
    code = (
        "from dataclasses import dataclass\n@dataclass\nclass Pair:\n    a: int\n    b: int\n"
        "class Solution:\n    def add(self, a, b):\n        pair = Pair(a, b)\n        return pair.a + pair.b\n"
        "if __name__ == '__main__':\n    raise SystemExit('not run as a script')\n"
    )
    assert run_function_tests(code, "Solution.add", [FunctionTest([1, 2], 3)]).all_passed


@pytest.mark.parametrize("code", ["def f(:", "1/0", "x = 1", "\0", "f = 3", "import nothing_such", "\ud800"])
def test_broken_programs_fail_every_test(code):
    result = run_function_tests(code, "f", [FunctionTest([], 1), FunctionTest([], 2)])
    assert (result.passed, result.total, result.failure) == (0, 2, None)
    assert result.first_reason()


def test_rich_values_go_both_ways():
    value = [
        None,
        True,
        2**200,
        -0.5,
        "é\n\ud800",
        b"\0\xff",
        (1, (2,)),
        {3, "x"},
        {"k": [1.5], (1, 2): {}},
        1j,
    ]
    test = [FunctionTest([value], value)]
    assert run_function_tests("def f(x): return x", "f", test).all_passed


def test_the_comparison_is_the_one_asked_for():
    test = [FunctionTest([], [0.3, 1])]
    code = "def f(): return (0.1 + 0.2, 1)"
    assert not run_function_tests(code, "f", test).all_passed
    relaxed = Comparison(rel_tol=1e-9, tuple_is_list=True)
    assert run_function_tests(code, "f", test, comparison=relaxed).all_passed
    assert FunctionTestsReward(comparison=relaxed)(code, {"entry_point": "f", "tests": test}).value == 1.0


def test_arguments_are_not_shared_with_the_parent():
    arguments = [[3, 1, 2]]
    assert run_function_tests(
        "def f(x): x.sort(); return x", "f", [FunctionTest(arguments, [1, 2, 3])]
    ).all_passed
    assert arguments == [[3, 1, 2]]


def test_a_program_that_warns_and_prints_still_passes():
    code = (
        "import sys, warnings\ndef f():\n    print('x')\n    warnings.warn('y')\n"
        "    print('z', file=sys.stderr)\n    return 1"
    )
    result = run_function_tests(code, "f", [FunctionTest([], 1)])
    assert result.all_passed
    assert "z" in result.stderr_tail


def test_stdio_programs():
    tests = [StdioTest("1 2\n3\n", "6\n"), StdioTest("", "0", hidden=True), StdioTest("5", "5", id="five")]
    code = (
        "import sys\ndef main():\n    print(sum(map(int, sys.stdin.read().split())))\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    result = run_stdio_tests(code, tests)
    assert result.all_passed
    assert [outcome.id for outcome in result.outcomes] == ["0", "1", "five"]
    assert StdioReward()(code, {"tests": [{"input": "1 1", "output": "2"}]}).value == 1.0


def test_stdio_buffers_are_flushed_and_atexit_runs():
    code = (
        "import atexit, sys\natexit.register(lambda: print('last'))\nsys.stdout.write('first ')\nsys.exit(0)"
    )
    assert run_stdio_tests(code, [StdioTest("", "first last")]).all_passed


def test_stdio_failures_say_why():
    def reason(code, expected="1"):
        return run_stdio_tests(code, [StdioTest("", expected)], Limits(wall_s=2)).outcomes[0].reason

    assert reason("print(2)") == "expected '1', got '2\\n'"
    assert "ZeroDivisionError" in reason("print(1)\n1/0")
    assert reason("print(1)\nraise SystemExit(4)").startswith("exit code 4")
    assert "UTF-8" in reason("import sys\nsys.stdout.buffer.write(b'\\xff')")
    assert "SyntaxError" in reason("print(")
    assert "exit code -11" in reason("import ctypes\nprint(1, flush=True)\nctypes.string_at(0)")


def test_a_timeout_ends_the_remaining_tests():
    tests = [StdioTest("1", "1"), StdioTest("2", "2"), StdioTest("3", "3")]
    code = "n = input()\nwhile n == '2': pass\nprint(n)"
    result = run_stdio_tests(code, tests, Limits(wall_s=0.5))
    assert [outcome.passed for outcome in result.outcomes] == [True, False, False]
    assert result.breach == "timeout"
    assert StdioReward(Limits(wall_s=0.5), partial=True)(code, {"tests": tests}).value == 0.0


def test_the_verdict_has_a_limit_of_its_own():
    tests = [StdioTest("", "1")] * 20
    result = run_stdio_tests("import time\ntime.sleep(0.3)\nprint(1)", tests, Limits(wall_s=5, verdict_s=1.0))
    assert result.breach == "timeout"
    assert 0 < result.passed < 20


SAME = [
    ("1\n2\n", "1\n2", "lines", True),
    ("1 \n2\n\n", "1\n2", "lines", True),
    ("1\n2\n", "1 2", "lines", False),
    (" 1", "1", "lines", False),
    ("1\n2\n", " 1   2 ", "tokens", True),
    ("1\n2\n", "1\n2", "exact", False),
    ("12", "1 2", "tokens", False),
    ("1", "1 1", "tokens", False),
    ("0.3", "0.30000000000000004", "tokens", False),
]


@pytest.mark.parametrize(("expected", "got", "match", "equal"), SAME)
def test_outputs_match_by_the_stated_policy(expected, got, match, equal):
    assert same_output(expected, got, match) is equal


def test_tokens_within_a_tolerance():
    rule = Comparison(rel_tol=1e-6)
    assert same_output("0.3 x", "0.30000000000000004 x", "tokens", rule)
    assert not same_output("0.3 x", "0.31 x", "tokens", rule)
    assert not same_output("0.3", "nothing", "tokens", rule)
    assert not same_output("inf", "1e400x", "tokens", rule)


def test_in_the_workers_of_training_a_slow_program_is_wrong_and_not_missing():
    """The verdict comes from the reward itself, in the worker, before the runner loses patience."""
    completions = [ADD, "```python\ndef add(a, b):\n    while True: pass\n```", ADD]
    with RewardRunner(FunctionTestsReward(Limits(wall_s=1.0)), workers=2, time_limit=60.0) as runner:
        scores = runner.score(completions, [{**TASK, "prompt": "add"}] * 3)
    assert [(score.state, score.value) for score in scores] == [
        ("scored", 1.0),
        ("scored", 0.0),
        ("scored", 1.0),
    ]
    assert scores[1].reason == "timeout"


def test_a_runner_that_kills_its_worker_leaves_no_program():
    endless = "```python\ndef add(a, b):\n    while True: pass\n```"
    with RewardRunner(FunctionTestsReward(Limits(wall_s=100, verdict_s=100)), time_limit=2.0) as runner:
        score = runner.score([endless], [{**TASK, "prompt": "add"}])[0]
    assert score.state == "missing"
    last = time.monotonic() + 10
    while (left := programs()) and time.monotonic() < last:
        time.sleep(0.05)
    assert left == []


def programs():
    """Running supervisors and programs of this sandbox that descend from nobody but us or init."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"code.supervisor import main" in words and parent in ("1", str(os.getpid())):
            found.append(name)
    return found
