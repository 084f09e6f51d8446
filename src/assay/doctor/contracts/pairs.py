"""What a function does on one input, whether that breaks its contract, and how pairs become findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.doctor.contracts.calling import Function, name_of, source_line
from assay.doctor.contracts.fixes import FIXES
from assay.records.finding import Finding, Stage, Status


@dataclass(frozen=True, slots=True)
class Pair:
    """One input and what came out.

    Attributes:
        shape: the input's name, such as ``only a prefix`` or ``G = 2``.
        given, came: the input and the output, as text.
        broken: the id this pair proves, or None when it keeps the contract.
        why: one sentence: expected and came.
        line: line of the branch that answered, where known.
        warn: the pair is doubtful rather than wrong.
        root: the id that explains this one.
        numbers: measured values with their thresholds.
    """

    shape: str
    given: str
    came: str
    broken: str | None = None
    why: str = ""
    line: int | None = None
    warn: bool = False
    root: str | None = None
    numbers: Mapping[str, Any] | None = None


def stage_of(identifier: str) -> Stage:
    """Return the stage of an id from its first word."""
    stages: dict[str, Stage] = {"reward": 1, "advantage": 2, "logprob": 3, "loss": 4, "decode": 5}
    return stages.get(identifier.split(".")[0], 1)


def findings(pairs: Sequence[Pair], fn: Function, check: str, also: Sequence[Pair] = ()) -> list[Finding]:
    """One finding for each id that some pair proves, in the order of their first pair; roots first.

    Args:
        pairs: every input tried. fn: the function. check: the check's name, for the regression test.
        also: the same pairs seen as another id.
    """
    proofs = [*pairs, *also]
    ids = list(dict.fromkeys(pair.broken for pair in proofs if pair.broken))
    found = [_finding(i, [p for p in proofs if p.broken == i], pairs, fn, check) for i in ids]
    return sorted(found, key=lambda f: f.follows_from is not None)


def _finding(
    identifier: str, bad: Sequence[Pair], pairs: Sequence[Pair], fn: Function, check: str
) -> Finding:
    first = bad[0]
    status: Status = "warn" if all(p.warn for p in bad) else "fail"
    evidence: dict[str, Any] = {
        "function": name_of(fn),
        "violations": [{"shape": p.shape, "given": p.given, "came": p.came, "why": p.why} for p in bad[:12]],
        "shapes_tried": len(pairs),
        **(first.numbers or {}),
    }
    fix = FIXES[identifier]
    branches = _branches(pairs, fn)
    if branches:
        evidence["branches"] = branches
        fix = f"{fix}{_which(branches)}"
    roots = {p.root for p in bad}
    return Finding(
        id=identifier,
        stage=stage_of(identifier),
        status=status,
        summary=f"{name_of(fn)}: {first.shape}: {first.why}",
        evidence=evidence,
        fix=fix,
        follows_from=roots.pop() if len(roots) == 1 else None,
        regression_test=_regression_test(fn, check),
    )


def _branches(pairs: Sequence[Pair], fn: Function) -> list[dict[str, Any]]:
    lines = sorted({p.line for p in pairs if p.line is not None})
    return [
        {
            "line": line,
            "code": source_line(fn, line),
            "keeps": [p.shape for p in pairs if p.line == line and not p.broken],
            "violates": [p.shape for p in pairs if p.line == line and p.broken],
        }
        for line in lines
    ]


def _which(branches: Sequence[Mapping[str, Any]]) -> str:
    change = [b for b in branches if b["violates"]]
    keep = [b for b in branches if not b["violates"]]
    if not change:
        return ""
    text = "; change " + ", ".join(f"line {b['line']} ({b['code']})" for b in change)
    return text + (f"; leave line {', '.join(str(b['line']) for b in keep)}" if keep else "")


def _regression_test(fn: Function, check: str) -> str:
    name, module = name_of(fn), getattr(fn, "__module__", "my_trainer") or "my_trainer"
    if not name.isidentifier() or module.startswith("assay_user_"):
        name, module = (name if name.isidentifier() else "fn"), "my_trainer"
    return (
        f"from assay.doctor import {check}\nfrom {module} import {name}\n\n\n"
        f"def test_{name}_keeps_its_contract():\n    assert not {check}({name})\n"
    )


Observe = Callable[..., list[Pair]]
