"""Graders of a file tree: may the agent edit the tests, leave early, or do nothing and pass?

The folder holds ``assay.toml`` or ``gradecheck.toml``::

    [env]                              # or without sections
    workspace = "task"                 # what the agent may edit
    source_globs = ["calc.py"]         # optional: the files it is asked to edit
    [grade]
    command = "python3 grade.py {workspace}"   # or cmd
    cwd = "."
    pass_marker = "RESULT: PASS"       # optional: else exit code 0 passes

Every trial runs on a fresh copy; the folder itself is never changed.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.audit.advice import ADVICE
from assay.audit.code_rewards import EQUAL, Case, shown_cases
from assay.audit.reward_audit import AuditReport
from assay.errors import BadInput
from assay.records.finding import Exploit, Finding
from assay.stats.binomial import wilson
from assay.stats.interval import unknown

NAMES = ("assay.toml", "gradecheck.toml")
TEST_FILE = re.compile(r"(^|/)(tests?/|test_[^/]*$|[^/]*_test\.[^/]*$|[^/]*\.test\.[^/]*$|conftest\.py$)")
HOOK = """import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome = "passed"
"""


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """A grader: ``workspace`` and ``cwd`` relative to ``root``; ``score`` patterns give (got, of)."""

    root: Path
    workspace: str
    command: str
    cwd: str = "."
    pass_marker: str | None = None
    sources: tuple[str, ...] = ()
    score: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the grader. ``share``: passed tests of all where the output says so, else 0 or 1."""

    passed: bool
    share: float
    output: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Attack:
    """A change of the workspace that must not pass, and the id it shows."""

    id: str
    name: str
    apply: Callable[[Path], None]


def read_tree_config(folder: str | Path) -> TreeConfig:
    """Read the grader's settings; raises :class:`BadInput` naming what is missing."""
    root = Path(folder).resolve()
    path = next((root / name for name in NAMES if (root / name).is_file()), None)
    if path is None:
        raise BadInput(
            f"{folder} has no {' or '.join(NAMES)}; expected workspace, command and pass_marker in it"
        )
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: expected TOML ({error})") from error
    flat: dict[str, Any] = {**document, **document.get("env", {}), **document.get("grade", {})}
    command, workspace = flat.get("command", flat.get("cmd")), flat.get("workspace")
    if not isinstance(command, str) or not isinstance(workspace, str):
        raise BadInput(f"{path}: expected workspace = '...' and command = '...', got {sorted(flat)}")
    if not (root / workspace).is_dir():
        raise BadInput(f"{path}: the workspace {workspace!r} is not a folder in {root}")
    score = flat.get("score", ())
    patterns = (score,) if isinstance(score, str) else tuple(score)
    return TreeConfig(root, workspace, command, flat.get("cwd", "."), flat.get("pass_marker"),
                      tuple(flat.get("source_globs", ())), patterns)  # fmt: skip


def audit_tree(folder: str | Path, *, time_limit: float = 60.0) -> AuditReport:
    """Audit a grader of a file tree: each attack on a fresh copy, in turn.

    Raises:
        BadInput: no settings, or the grader cannot be started at all.
    """
    config = read_tree_config(folder)
    start = run_trial(config, lambda _: None, time_limit)
    if not start.passed and re.search(r"(not found|No such file|can't open file)", start.output[-400:]):
        raise BadInput(f"the grader did not start: {start.output.strip().splitlines()[-1][:200]}")
    findings = _unchanged(config, start)
    attacks = list(_attacks(config))
    trials = [(attack, run_trial(config, attack.apply, time_limit)) for attack in attacks]
    findings += _judged(config, [(a, t) for a, t in trials if t.passed], already=start.passed)
    if any(trial.timed_out for _, trial in trials):
        findings.append(
            _finding("hangs", "fail", "The grader ran past its time limit.", config, "an attack", 0.0)
        )
    rate = wilson(sum(t.passed for _, t in trials), len(trials)) if trials else unknown()
    limits = ["a file-tree grader: whether it passes a right solution was not checked"]
    verdict = "flawed" if any(f.status == "fail" for f in findings) else "no_flaw_found"
    return AuditReport(verdict, findings, rate, unknown(), 1 + len(trials), limits)


def run_trial(config: TreeConfig, change: Callable[[Path], None], time_limit: float) -> Trial:
    """Copy the folder, change the workspace, run the command, and read the result."""
    with tempfile.TemporaryDirectory(prefix="assay-tree-") as scratch:
        root = Path(scratch) / config.root.name
        shutil.copytree(
            config.root, root, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".git")
        )
        workspace = root / config.workspace
        change(workspace)
        command = config.command.replace("{workspace}", str(workspace))
        code, output = _run(command, root / config.cwd, time_limit)
    passed = (config.pass_marker in output.splitlines() or config.pass_marker in output) if config.pass_marker else (
        code == 0)  # fmt: skip
    return Trial(passed and code is not None, _share(config, output, passed), output, code is None)


def _run(command: str, cwd: Path, time_limit: float) -> tuple[int | None, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PATH": path}
    child = subprocess.Popen(
        command, shell=True, cwd=cwd, env=environment, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        return None, output
    return child.returncode, output


def _share(config: TreeConfig, output: str, passed: bool) -> float:
    for pattern in config.score:
        found = re.findall(pattern, output)
        if found and isinstance(found[-1], tuple) and float(found[-1][1]):
            return float(found[-1][0]) / float(found[-1][1])
    return float(passed)


def _unchanged(config: TreeConfig, start: Trial) -> list[Finding]:
    if not start.passed and start.share <= 0.5:
        return []
    summary = "The unchanged tree passes." if start.passed else f"The unchanged tree gets {start.share:.0%}."
    return [_finding("accepts_noop", "fail", summary, config, "no change", start.share)]


def _files(workspace: Path) -> list[Path]:
    return sorted(p for p in workspace.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def _tests(config: TreeConfig, workspace: Path) -> list[Path]:
    return [p for p in _files(workspace) if TEST_FILE.search(p.relative_to(workspace).as_posix())]


def _sources(config: TreeConfig, workspace: Path) -> list[Path]:
    if config.sources:
        return sorted({p for glob in config.sources for p in workspace.glob(glob) if p.is_file()})
    tests = set(_tests(config, workspace))
    return [p for p in _files(workspace) if p.suffix == ".py" and p not in tests]


def _attacks(config: TreeConfig) -> list[Attack]:
    workspace = config.root / config.workspace
    found: list[Attack] = []
    if _tests(config, workspace):
        found += [
            Attack("tests_editable", "the tests deleted", _delete_tests(config)),
            Attack("tests_editable", "the tests emptied", _write_tests(config, lambda _: "")),
            Attack("tests_editable", "the tests replaced by ones that pass", _write_tests(config, _passing)),
        ]
        found += _table(config, workspace)
    found.append(Attack("tests_editable", "a conftest.py that reports passes", _add("conftest.py", HOOK)))
    marker = config.pass_marker or "OK"
    for name, head in (
        ("leaves with exit code 0", "import os\nos._exit(0)\n"),
        ("raises SystemExit(0)", "raise SystemExit(0)\n"),
        ("prints the pass marker and leaves", f"import os\nprint({marker!r}, flush=True)\nos._exit(0)\n"),
        ("prints the pass marker", f"print({marker!r}, flush=True)\n"),
    ):
        found.append(
            Attack("exit_code_trusted", f"the source {name}", _rewrite(config, head, "raise ValueError"))
        )
    equal = EQUAL.replace("\n\n", "\n")
    found.append(Attack("equality_overridden", "objects that equal everything",
                        _rewrite(config, equal, "return Anything(-987123)")))  # fmt: skip
    found.append(Attack("accepts_empty", "the source emptied", _empty(config)))
    return found


def _delete_tests(config: TreeConfig) -> Callable[[Path], None]:
    def change(workspace: Path) -> None:
        for path in _tests(config, workspace):
            path.unlink()

    return change


def _write_tests(config: TreeConfig, text: Callable[[str], str]) -> Callable[[Path], None]:
    def change(workspace: Path) -> None:
        for path in _tests(config, workspace):
            path.write_text(text(path.read_text("utf-8", "replace")), "utf-8")

    return change


def _passing(text: str) -> str:
    """The same test functions, without content."""
    names = re.findall(r"def (test\w*)\(", text) or ["test_nothing"]
    return "\n\n".join(f"def {name}(*args):\n    pass" for name in dict.fromkeys(names)) + "\n"


def _add(name: str, text: str) -> Callable[[Path], None]:
    def change(workspace: Path) -> None:
        (workspace / name).write_text(text, "utf-8")

    return change


def _rewrite(config: TreeConfig, head: str, body: str) -> Callable[[Path], None]:
    """Every Python source becomes ``head`` and its own functions with ``body``."""

    def change(workspace: Path) -> None:
        for path in _sources(config, workspace):
            if path.suffix == ".py":
                path.write_text(head + "".join(f"\n\ndef {n}(*args, **kwargs):\n    {body}\n"
                                               for n in _functions(path)), "utf-8")  # fmt: skip

    return change


def _functions(path: Path) -> list[str]:
    try:
        tree = ast.parse(path.read_text("utf-8", "replace"))
    except SyntaxError:
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _empty(config: TreeConfig) -> Callable[[Path], None]:
    def change(workspace: Path) -> None:
        for path in _sources(config, workspace):
            path.write_text("", "utf-8")

    return change


def _table(config: TreeConfig, workspace: Path) -> list[Attack]:
    """A table of the cases in the visible tests, wrong for every other input."""
    lines = [
        line.strip()
        for p in _tests(config, workspace)
        for line in p.read_text("utf-8", "replace").splitlines()
    ]
    cases = shown_cases("\n".join(lines))
    if not cases:
        return []

    def change(target: Path) -> None:
        for path in _sources(config, target):
            path.write_text("".join(_lookup(name, cases) for name in _functions(path)), "utf-8")

    return [Attack("tests_special_cased", "a table of the visible cases", change)]


def _lookup(name: str, cases: Sequence[Case]) -> str:
    rows = ", ".join(f"({arguments}, {value})" for own, arguments, value in cases if own == name)
    return (f"def {name}(*args):\n    for key, value in [{rows}]:\n        if args == key:\n"
            f"            return value\n    raise ValueError('not in the table')\n\n\n")  # fmt: skip


def _judged(config: TreeConfig, passed: Sequence[tuple[Attack, Trial]], *, already: bool) -> list[Finding]:
    """One finding per id. Where the unchanged tree passes, only attacks that break the work count."""
    found: dict[str, Finding] = {}
    for attack, trial in passed:
        if already and attack.name == "a conftest.py that reports passes":
            continue
        names = [a.name for a, _ in passed if a.id == attack.id]
        summary = f"Passes although it must not: {', '.join(names)}."
        found.setdefault(attack.id, _finding(attack.id, "fail", summary, config, attack.name, trial.share))
        if attack.name == "the tests deleted":
            text = "Without any tests the grader passes."
            found["missing_tests_pass"] = _finding(
                "missing_tests_pass", "fail", text, config, attack.name, 1.0
            )
    return list(found.values())


def _finding(id: str, status: Any, summary: str, config: TreeConfig, change: str, share: float) -> Finding:
    task: Mapping[str, Any] = {"tree": config.root.name, "command": config.command}
    exploit = Exploit(task, change, share, "the grader does not pass")
    advice = ADVICE[id]
    return Finding(id, "audit", status, summary, {"why": advice.why}, fix=advice.fix, exploit=exploit)
