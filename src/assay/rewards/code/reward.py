"""Code rewards: ``(completion, task) -> Score``, picklable, for any worker.

| what happened | score |
|---|---|
| every test passed | 1 (or the share of passed tests, with ``partial``) |
| a test failed | 0 (or the share), with the reason |
| no program in the completion | 0 |
| a broken limit, or a forged record | 0, whatever passed before it |
| the sandbox did not work | missing |
| the task has no usable tests | invalid_task |

Parts: ``tests`` (share of all), and ``visible_tests`` and ``hidden_tests`` where the task has hidden ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import BadInput
from assay.records.score import Score, invalid_task, missing, scored
from assay.rewards.code.compare import EXACT, Comparison
from assay.rewards.code.extract import extract_code
from assay.rewards.code.isolation import require_isolation
from assay.rewards.code.limits import Limits
from assay.rewards.code.results import CodeResult
from assay.rewards.code.stdio import Match, StdioTest, check_stdio_tests, run_stdio_tests
from assay.rewards.code.unit_tests import FunctionTest, check_function_tests, run_function_tests

NO_CODE = "no code block in the completion"


@dataclass(frozen=True)
class FunctionTestsReward:
    """Pays a completion whose function passes the task's tests.

    The task has ``entry_point``, ``tests`` and perhaps ``hidden_tests``: rows with ``args``, ``expected`` and
    perhaps ``kwargs`` and ``id``, or :class:`FunctionTest` values.

    Attributes:
        limits: for one completion.
        comparison: how values are compared.
        partial: pay the share of passed tests instead of all or nothing.
        bare: a completion without any fence is taken as the program.
        allow_unisolated: see :func:`assay.rewards.code.isolation.require_isolation`.

    Raises:
        BadInput: this machine cannot isolate programs and ``allow_unisolated`` is false.
    """

    limits: Limits = field(default_factory=Limits)
    comparison: Comparison = EXACT
    partial: bool = False
    bare: bool = True
    allow_unisolated: bool = False

    def __post_init__(self) -> None:
        require_isolation(self.allow_unisolated)

    def __call__(self, completion: str, task: Mapping[str, Any]) -> Score:
        """Score one completion."""
        try:
            tests = [*_function_tests(task, "tests", False), *_function_tests(task, "hidden_tests", True)]
            entry_point = str(task["entry_point"])
            check_function_tests(entry_point, tests)
        except (KeyError, TypeError, ValueError) as error:
            return invalid_task(_reason(error))
        code = extract_code(completion, bare=self.bare)
        if code is None:
            return scored(0.0, NO_CODE)
        isolation = require_isolation(self.allow_unisolated)
        result = run_function_tests(
            code, entry_point, tests, self.limits, comparison=self.comparison, isolation=isolation
        )
        return score_of(result, self.partial)


@dataclass(frozen=True)
class StdioReward:
    """Pays a completion whose program prints what the task's tests expect.

    The task has ``tests`` and perhaps ``hidden_tests``: rows with ``stdin`` and ``stdout`` (or ``input`` and
    ``output``) and perhaps ``id``, or :class:`StdioTest` values.

    Attributes:
        limits: ``wall_s`` and the others for each test, ``verdict_s`` for all.
        match: how outputs are compared, see :func:`assay.rewards.code.stdio.same_output`.
        comparison: tolerance of numbers with ``match="tokens"``.
        partial, bare, allow_unisolated: as in :class:`FunctionTestsReward`.

    Raises:
        BadInput: this machine cannot isolate programs and ``allow_unisolated`` is false.
    """

    limits: Limits = field(default_factory=Limits)
    match: Match = "lines"
    comparison: Comparison = EXACT
    partial: bool = False
    bare: bool = True
    allow_unisolated: bool = False

    def __post_init__(self) -> None:
        require_isolation(self.allow_unisolated)

    def __call__(self, completion: str, task: Mapping[str, Any]) -> Score:
        """Score one completion."""
        try:
            tests = [*_stdio_tests(task, "tests", False), *_stdio_tests(task, "hidden_tests", True)]
            check_stdio_tests(tests)
        except (KeyError, TypeError, ValueError) as error:
            return invalid_task(_reason(error))
        code = extract_code(completion, bare=self.bare)
        if code is None:
            return scored(0.0, NO_CODE)
        isolation = require_isolation(self.allow_unisolated)
        result = run_stdio_tests(
            code, tests, self.limits, match=self.match, comparison=self.comparison, isolation=isolation
        )
        return score_of(result, self.partial)


def score_of(result: CodeResult, partial: bool = False) -> Score:
    """The score of a result; see the table of the module."""
    if result.failure is not None:
        return missing(f"sandbox: {result.failure}")
    shares = {
        "tests": result.share(),
        "visible_tests": result.share(False),
        "hidden_tests": result.share(True),
    }
    has_both = not any(math.isnan(share) for share in shares.values())
    parts = shares if has_both else {"tests": shares["tests"]}
    if result.breach is not None:
        return scored(0.0, result.breach, parts)
    if result.all_passed:
        return scored(1.0, None, parts)
    reason = result.first_reason()
    if has_both and shares["visible_tests"] == 1:
        reason = f"passes the visible tests only; hidden: {reason}"
    return scored(result.share() if partial else 0.0, reason, parts)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, BadInput) else f"unusable tests: {type(error).__name__}: {error}"


def _rows(task: Mapping[str, Any], column: str, hidden: bool, kind: type) -> Iterable[Any]:
    rows = task.get(column) if hidden else task[column]
    if rows is None:
        return ()
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise TypeError(f"{column} must be a list of tests, got {type(rows).__name__}")
    listed = list(rows)
    for row in listed:
        if not isinstance(row, (Mapping, kind)):
            raise TypeError(f"{column} must hold mappings or {kind.__name__}, got {type(row).__name__}")
    return listed


def _function_tests(task: Mapping[str, Any], column: str, hidden: bool) -> list[FunctionTest]:
    tests: list[FunctionTest] = []
    for row in _rows(task, column, hidden, FunctionTest):
        if isinstance(row, FunctionTest):
            tests.append(replace(row, hidden=hidden or row.hidden))
            continue
        if isinstance(row["args"], (str, bytes)):
            raise TypeError("args must be a list, got a text")
        name = None if row.get("id") is None else str(row["id"])
        tests.append(
            FunctionTest(list(row["args"]), row["expected"], dict(row.get("kwargs") or {}), name, hidden)
        )
    return tests


def _stdio_tests(task: Mapping[str, Any], column: str, hidden: bool) -> list[StdioTest]:
    tests: list[StdioTest] = []
    for row in _rows(task, column, hidden, StdioTest):
        if isinstance(row, StdioTest):
            tests.append(replace(row, hidden=hidden or row.hidden))
            continue
        stdin, stdout = row.get("stdin", row.get("input")), row.get("stdout", row.get("output"))
        if not isinstance(stdin, str) or not isinstance(stdout, str):
            raise TypeError("a test needs the texts stdin and stdout")
        name = None if row.get("id") is None else str(row["id"])
        tests.append(StdioTest(stdin, stdout, name, hidden))
    return tests
