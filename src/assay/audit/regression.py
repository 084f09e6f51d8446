"""Turning a finding into a pytest function that fails until the reward is mended."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding, jsonable

HEADER = '''"""Regression tests of a reward function, written by `assay audit`. They fail until the reward is mended."""

import json

from assay.rewards.call import resolve
from assay.rewards.load import load_function

'''
NUMBER_ONLY = frozenset({"crashes", "non_finite", "wrong_shape", "hangs", "unsafe_eval", "side_effects"})
"""Ids whose test only asks for a finite score."""


def regression_test(bench: Bench, id: str, task: AuditTask, completion: str, *, refused: bool = False) -> str:
    """Source of a test function: the exploit is paid at most half of what the gold is (or, refused, more).

    An exploit that was found at exactly half has to be paid less than half.
    """
    lines = [
        f"def test_{re.sub(r'[^a-z0-9]+', '_', id.lower())}():",
        f"    reward = resolve(load_function({bench.prober.spec!r}))",
        f"    task = json.loads({json.dumps(jsonable(task.row))!r})",
        f"    found = reward.score([{completion!r}], [task])[0]",
    ]
    if id in NUMBER_ONLY or math.isnan(bench.prober.score(task.key, bench.accepted(task)).value):
        return "\n".join([*lines, "    assert found.is_scored, found.reason", ""])
    half = bench.paid(task, completion) <= HALF and task.key in bench.scales
    sign = ">" if refused else "<" if half else "<="
    lines += [
        f"    gold = reward.score([{bench.accepted(task)!r}], [task])[0]",
        f"    low = reward.score([{_lowest(bench, task)!r}], [task])[0]",
        "    assert found.is_scored, found.reason",
        f"    assert found.value - low.value {sign} 0.5 * (gold.value - low.value)",
        "",
    ]
    return "\n".join(lines)


def _lowest(bench: Bench, task: AuditTask) -> str:
    """The text with the lowest known score of a task."""
    texts = ["", *JUNK]
    texts += [call.completion for call in bench.prober.known if call.task == task.key][:200]
    scores = {text: bench.prober.score(task.key, text).value for text in texts}
    known = {text: value for text, value in scores.items() if not math.isnan(value)}
    return min(known, key=lambda text: (round(known[text], 9), len(text)), default="")


def test_file(findings: Sequence[Finding]) -> str:
    """The text of a test module with the regression tests of all findings that have one."""
    seen: dict[str, int] = {}
    blocks: list[str] = []
    for finding in findings:
        if finding.regression_test is None or finding.status != "fail":
            continue
        seen[finding.id] = seen.get(finding.id, 0) + 1
        block = finding.regression_test
        if seen[finding.id] > 1:
            block = block.replace("():", f"_{seen[finding.id]}():", 1)
        blocks.append(block)
    return HEADER + "\n" + "\n\n".join(blocks)


test_file.__test__ = False  # type: ignore[attr-defined] - pytest collects by name
