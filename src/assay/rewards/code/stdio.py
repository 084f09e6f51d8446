"""stdin/stdout tests: run the program as a script, once for each test, and compare what it prints.

The expected output stays in the parent. A test passes when the output matches and the program ended by itself
with exit code 0, within its limits: an exit code alone, or a word such as "passed", proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from assay.errors import BadInput
from assay.rewards.code.compare import EXACT, Comparison, same
from assay.rewards.code.isolation import Isolation, require_isolation
from assay.rewards.code.limits import Limits
from assay.rewards.code.results import CodeResult, TestOutcome
from assay.rewards.code.sandbox import Ending, SandboxFailed, Session

Match = Literal["lines", "tokens", "exact"]
SHOWN = 80


@dataclass(frozen=True, slots=True)
class StdioTest:
    """What the program reads and what it must print.

    Attributes:
        stdin: the whole input.
        stdout: the whole expected output.
        id: for the report; its position by default.
        hidden: the prompt does not show it.
    """

    stdin: str
    stdout: str
    id: str | None = None
    hidden: bool = False


def run_stdio_tests(
    code: str,
    tests: Sequence[StdioTest],
    limits: Limits | None = None,
    *,
    match: Match = "lines",
    comparison: Comparison = EXACT,
    isolation: Isolation | None = None,
) -> CodeResult:
    """Run the program once for each test, each time in a fresh sandbox; a broken limit ends the run.

    Args:
        code: Python source, run as ``__main__``.
        tests: at least one, each with some expected output.
        limits: ``wall_s`` and the others for each test, ``verdict_s`` for all of them.
        match: see :func:`same_output`.
        comparison: with ``tokens`` and a tolerance above 0, numbers are compared within it.
        isolation: what confines the program; the strongest that works here by default.

    Raises:
        BadInput: no tests, an empty expected output, or a machine without isolation.
    """
    check_stdio_tests(tests)
    limits, isolation = limits or Limits(), isolation or require_isolation()
    last, cpu = time.monotonic() + limits.verdict_s, 0.0
    outcomes: list[TestOutcome] = []
    breach, tail = None, ""
    for test in tests:
        name = test.id or str(len(outcomes))
        if breach is None and time.monotonic() >= last:
            breach = "timeout"
        if breach is not None:
            outcomes.append(TestOutcome(name, False, breach, test.hidden))
            continue
        try:
            ending = run_program(code, test.stdin, limits, isolation, last - time.monotonic())
        except SandboxFailed as error:
            return _failed(tests, str(error))
        breach, tail, cpu = ending.breach, ending.stderr_tail, cpu + ending.cpu_s
        reason = _why_failed(ending, test.stdout, match, comparison)
        outcomes.append(TestOutcome(name, reason is None, reason, test.hidden))
    return CodeResult(tuple(outcomes), breach, None, cpu, tail)


def run_program(
    code: str, stdin: str, limits: Limits, isolation: Isolation, seconds: float | None = None
) -> Ending:
    """Run a script to its end, or to a limit.

    Raises:
        SandboxFailed: the sandbox itself did not work.
    """
    with Session(limits, isolation, stdin.encode("utf-8", "surrogatepass")) as session:
        session.shorten(limits.wall_s if seconds is None else max(0.0, seconds))
        session.tell({"form": "program", "code": code})
        return session.wait()


def check_stdio_tests(tests: Sequence[StdioTest]) -> None:
    """Refuse tests that could not prove anything.

    Raises:
        BadInput: no tests, or an expected output without a visible character.
    """
    if not tests:
        raise BadInput("expected at least one test, got none; a program without tests cannot pass")
    for position, test in enumerate(tests):
        if not test.stdout.strip():
            raise BadInput(
                f"test {test.id or position}: the expected output is empty, which doing nothing prints"
            )


def same_output(expected: str, got: str, match: Match = "lines", comparison: Comparison = EXACT) -> bool:
    """Whether two outputs match.

    Args:
        expected, got: whole outputs.
        match: ``lines``: white space at the end of lines and of the output is ignored. ``tokens``: words in
            order, whatever the white space between them. ``exact``: character by character.
        comparison: with ``tokens``, words that read as floats are equal within its tolerances, if any.
    """
    if match == "exact":
        return expected == got
    if match == "lines":
        return _lines(expected) == _lines(got)
    left, right = expected.split(), got.split()
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all(_same_word(*pair, comparison) for pair in pairs)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_word(expected: str, got: str, comparison: Comparison) -> bool:
    if expected == got or not (comparison.rel_tol or comparison.abs_tol):
        return expected == got
    try:
        return same(float(expected), float(got), comparison)
    except ValueError:
        return False


def _why_failed(ending: Ending, expected: str, match: Match, comparison: Comparison) -> str | None:
    if ending.breach is not None:
        return ending.breach
    if ending.exit_code != 0:
        last = ending.stderr_tail.strip().rpartition("\n")[2]
        return f"exit code {ending.exit_code}: {last}"
    try:
        got = ending.stdout.decode("utf-8")
    except UnicodeDecodeError:
        return "the output is not UTF-8"
    if same_output(expected, got.replace("\r\n", "\n"), match, comparison):
        return None
    return f"expected {expected[:SHOWN]!r}, got {got[:SHOWN]!r}"


def _failed(tests: Sequence[StdioTest], reason: str) -> CodeResult:
    outcomes = tuple(
        TestOutcome(test.id or str(position), False, reason, test.hidden)
        for position, test in enumerate(tests)
    )
    return CodeResult(outcomes, failure=reason)
