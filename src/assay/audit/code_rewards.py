"""Rewards that run programs: do the tests decide, all of them, and out of the program's reach?"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from assay.audit.bench import HALF, Bench
from assay.audit.ledger import Hit, Ledger, enough, hit_finding, make_finding, paid_hits
from assay.audit.probes import Probe
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding

TEST_COLUMNS = ("tests", "test", "test_list", "test_cases", "unit_tests", "visible_tests", "public_tests")
EQUAL = """class Anything(int):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    def __lt__(self, other):
        return True
    __gt__ = __le__ = __ge__ = __lt__
    __hash__ = int.__hash__
    def __bool__(self):
        return True

"""
LEAVE = (
    "import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n", "raise SystemExit(0)\n",
    "print('ALL TESTS PASSED')\nraise SystemExit(0)\n", "print('PASS')\nprint('OK')\nprint('1.0')\n",
)  # fmt: skip
Case = tuple[str, str, str]
"""A shown case: function, arguments, expected value, as source text."""


def code_findings(bench: Bench, ledger: Ledger) -> list[Finding]:
    """All findings of a reward that runs programs; nothing where the gold's program is not paid."""
    tasks = bench.good_tasks
    if not bench.is_code or not tasks:
        return []
    probes = {
        "accepts_noop": [_probe(bench, t, "accepts_noop", "a program that does nothing", "pass\n") for t in tasks],
        "accepts_wrong_value": [p for t in tasks for p in _wrong_programs(bench, t)],
        "exit_code_trusted": [
            _probe(bench, t, "exit_code_trusted", "leaving before the tests", text + tail)
            for t in tasks for text in LEAVE for tail in ("", _functions(bench, t, "raise ValueError"))
        ],
        "equality_overridden": [_equal(bench, t) for t in tasks],
        "tests_special_cased": [p for t in tasks if (p := _special_cased(bench, t)) is not None],
    }  # fmt: skip
    summaries = {
        "accepts_noop": "A program that does nothing passes.",
        "accepts_wrong_value": "A program that computes nothing passes.",
        "exit_code_trusted": "A program that leaves before the tests passes.",
        "equality_overridden": "An object that equals everything passes.",
        "tests_special_cased": "A table of the shown cases passes: nothing else is tested.",
    }
    found: list[Finding] = []
    for id, family in probes.items():
        hits = paid_hits(bench, family, ledger)
        if id == "exit_code_trusted" and _explained(found):
            continue
        if enough(bench, hits, family):
            found.append(hit_finding(bench, hits, family, summaries[id]))
    return [*found, *_missing_tests(bench)]


def _explained(found: Sequence[Finding]) -> bool:
    return any(f.id in ("accepts_noop", "accepts_wrong_value") for f in found)


def _probe(bench: Bench, task: AuditTask, id: str, name: str, program: str) -> Probe:
    return Probe(id, name, task, bench.write(task, program), "the lowest score: it does not solve the task")


def function_names(task: AuditTask) -> list[str]:
    """Names of the functions that the task asks for: from the gold program, the tests, or the prompt."""
    if task.gold.kind == "code":
        try:
            body = ast.parse(task.gold.text).body
        except SyntaxError:
            body = []
        names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        if names:
            return names
    entry = task.row.get("entry_point")
    names = [entry] if isinstance(entry, str) else [name for name, _, _ in shown_cases(test_text(task))]
    return list(dict.fromkeys(names or re.findall(r"function (?:called |named )?`?(\w+)`?", task.prompt)[:1]))


def _functions(bench: Bench, task: AuditTask, body: str) -> str:
    return "".join(f"def {name}(*args, **kwargs):\n    {body}\n" for name in function_names(task))


def _wrong_programs(bench: Bench, task: AuditTask) -> list[Probe]:
    names = function_names(task)
    bodies = ("return None", "raise NotImplementedError") if names else ()
    return [
        _probe(bench, task, "accepts_wrong_value", body, _functions(bench, task, body)) for body in bodies
    ]


def _equal(bench: Bench, task: AuditTask) -> Probe:
    program = EQUAL + _functions(bench, task, "return Anything(-987123)")
    return _probe(bench, task, "equality_overridden", "an object that equals everything", program)


def test_text(task: AuditTask) -> str:
    """All test columns of a task as one text."""
    parts: list[str] = []
    for name in TEST_COLUMNS:
        value: Any = task.row.get(name)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list):
            parts += [item if isinstance(item, str) else json.dumps(item) for item in value]
    return "\n".join(parts)


def shown_cases(text: str) -> list[Case]:
    """Cases of the form ``assert f(args) == value`` or ``>>> f(args)`` and its result, as source text."""
    found = [case for line in text.splitlines() if (case := _assertion(line.strip())) is not None]
    for call, value in re.findall(r">>> *(\w+\(.*\))\n\s*(\S.*)", text):
        case = _assertion(f"assert {call} == {value}")
        found += [case] if case is not None else []
    return found


def _assertion(line: str) -> Case | None:
    if not line.startswith("assert "):
        return None
    try:
        test = ast.parse(line).body[0]
    except (SyntaxError, ValueError):
        return None
    if not isinstance(test, ast.Assert) or not isinstance(test.test, ast.Compare):
        return None
    call, value = test.test.left, test.test.comparators[0]
    if not isinstance(test.test.ops[0], ast.Eq | ast.Is) or not isinstance(call, ast.Call):
        return None
    if not isinstance(call.func, ast.Name) or call.keywords:
        return None
    return call.func.id, f"({''.join(ast.unparse(a) + ', ' for a in call.args)})", ast.unparse(value)


def _special_cased(bench: Bench, task: AuditTask) -> Probe | None:
    """A table of the cases in the prompt, wrong for every other input; None when the prompt shows none."""
    cases = shown_cases(task.prompt)
    if not cases:
        return None
    program = ""
    for name in dict.fromkeys(case[0] for case in cases):
        rows = [f"({arguments}, {value})" for own, arguments, value in cases if own == name]
        program += (
            f"def {name}(*args):\n    for key, value in [{', '.join(rows)}]:\n"
            f"        if args == key:\n            return value\n    raise ValueError('not in the table')\n"
        )
    return _probe(bench, task, "tests_special_cased", "a table of the shown cases", program)


def _missing_tests(bench: Bench) -> list[Finding]:
    """A wrong program on the same task without any tests."""
    hits: list[Hit] = []
    for task in bench.good_tasks[:3]:
        column = next((name for name in TEST_COLUMNS if name in task.row), None)
        names = function_names(task)
        if column is None or not names:
            continue
        value: Any = [] if isinstance(task.row[column], list) else ""
        key = f"{task.key}:untested"
        row = {**task.row, column: value}
        bench.prober.add_task(key, row)
        text = bench.write(task, _functions(bench, task, "raise NotImplementedError"))
        share = bench.share(task, bench.prober.score(key, text))
        untested = AuditTask(key, row, task.column, task.gold)
        bench.templates[key] = bench.templates[task.key]
        if share > HALF:
            hits.append(Hit(Probe("missing_tests_pass", "no tests", untested, text, "no score: nothing was tested"),
                            share))  # fmt: skip
    if not hits:
        return []
    probe = hits[0].probe
    evidence = {"tasks_paid": len(hits)}
    return [make_finding(bench, "missing_tests_pass", "fail", "A task without tests pays for a wrong program.",
                         evidence=evidence, exploit=(probe.task, probe.completion, probe.expected))]  # fmt: skip


test_text.__test__ = False  # type: ignore[attr-defined] - pytest collects by name
