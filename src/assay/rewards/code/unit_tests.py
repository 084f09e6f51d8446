"""Function tests: call an entry point with arguments, compare what it returns.

A test passes only by proof: the program, asked about this test alone, returns plain data over a private
channel, with the run's random token and the number of the call, and the value equals the expected one here,
in the parent. Expected values never enter the sandbox: nothing done in there (leaving early, printing,
patching, overriding ``==``, walking frames, editing files) can make one, except computing it.

What this cannot see: a program that knows the tests' inputs can answer them from a table. Hidden tests, whose
inputs the prompt does not show, are what decides; see ``FunctionTest.hidden``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import BadInput
from assay.rewards.code import plain
from assay.rewards.code.calls import Calls, Reply
from assay.rewards.code.compare import EXACT, Comparison, same
from assay.rewards.code.isolation import Isolation, require_isolation
from assay.rewards.code.limits import Limits
from assay.rewards.code.results import CodeResult, TestOutcome
from assay.rewards.code.sandbox import SandboxFailed, Session

SHOWN = 80
NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class FunctionTest:
    """One call and its expected value, plain data: None, bool, numbers, text, bytes and containers of them.

    Attributes:
        args, kwargs: the arguments.
        expected: what the function must return.
        id: for the report; its position by default.
        hidden: the prompt does not show it.
    """

    args: Sequence[Any]
    expected: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None
    hidden: bool = False


def run_function_tests(
    code: str,
    entry_point: str,
    tests: Sequence[FunctionTest],
    limits: Limits | None = None,
    *,
    comparison: Comparison = EXACT,
    isolation: Isolation | None = None,
) -> CodeResult:
    """Run the tests of one program in one sandboxed process, in order, asking one at a time.

    Args:
        code: Python source that defines the entry point.
        entry_point: ``name`` or ``Class.method`` (called on ``Class()``).
        tests: at least one.
        limits: for all tests together.
        comparison: how values are compared; exact by default.
        isolation: what confines the program; the strongest that works here by default.

    Returns:
        One outcome for each test; a sandbox that did not work is in ``failure``, never an exception.

    Raises:
        BadInput: no tests, tests that are not plain data, or a machine without isolation (see
            :func:`assay.rewards.code.isolation.require_isolation`).
    """
    check_function_tests(entry_point, tests)
    limits, isolation = limits or Limits(), isolation or require_isolation()
    outcomes: list[TestOutcome] = []
    try:
        with Session(limits, isolation) as session:
            session.shorten(limits.verdict_s)
            breach = _ask_all(Calls(session), code, entry_point, tests, comparison, outcomes)
            ending = session.end()
    except SandboxFailed as error:
        return CodeResult(_rest(tests, [], str(error)), failure=str(error))
    breach = breach or ending.breach
    left = _rest(tests, outcomes, breach or NOT_REACHED)
    return CodeResult(left, breach, None, ending.cpu_s, ending.stderr_tail)


def check_function_tests(entry_point: str, tests: Sequence[FunctionTest]) -> None:
    """Refuse tests that could not prove anything.

    Raises:
        BadInput: no tests, an entry point that is not a name, or values that are not plain data.
    """
    if not tests:
        raise BadInput("expected at least one test, got none; a program without tests cannot pass")
    if not all(part.isidentifier() for part in entry_point.split(".")):
        raise BadInput(f"expected an entry point such as 'solve' or 'Solution.solve', got {entry_point!r}")
    for position, test in enumerate(tests):
        try:
            plain.encode([list(test.args), dict(test.kwargs), test.expected])
        except plain.NotPlain as error:
            raise BadInput(f"test {test.id or position}: {error}; use plain data") from error


def _ask_all(
    calls: Calls,
    code: str,
    entry_point: str,
    tests: Sequence[FunctionTest],
    comparison: Comparison,
    outcomes: list[TestOutcome],
) -> str | None:
    """Fill ``outcomes`` as far as the program answers; returns the breach that its records show."""
    calls.load(code, entry_point)
    for position, test in enumerate(tests):
        reply = calls.call(test.args, test.kwargs, last=position == len(tests) - 1)
        if reply is calls.loaded or reply.status == "none" or _breach_of(reply):
            outcomes += _rest(tests, outcomes, reply.reason or NOT_REACHED)[len(outcomes) :]
            return _breach_of(reply)
        reason = reply.reason
        passed = reply.status == "value" and same(test.expected, reply.value, comparison)
        if reply.status == "value" and not passed:
            reason = f"expected {_shown(test.expected)}, got {_shown(reply.value)}"
        outcomes.append(TestOutcome(test.id or str(position), passed, reason, test.hidden))
    return None


def _breach_of(reply: Reply) -> str | None:
    if reply.status == "forged":
        return "forged record"
    return "memory" if reply.status == "raised" and (reply.reason or "").startswith("MemoryError") else None


def _rest(
    tests: Sequence[FunctionTest], outcomes: Sequence[TestOutcome], reason: str
) -> tuple[TestOutcome, ...]:
    """The outcomes, and a failed one for each test after them."""
    names = [(test.id or str(position), test.hidden) for position, test in enumerate(tests)]
    return (*outcomes, *(TestOutcome(name, False, reason, hidden) for name, hidden in names[len(outcomes) :]))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer beyond the interpreter's limit for decimal digits
        text = "a very long integer"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
