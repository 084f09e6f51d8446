"""The ``assay_audit`` fixture: audit a reward in the project's own test suite.

    def test_my_reward(assay_audit):
        report = assay_audit("rewards.py:reward", "tasks.jsonl", allow=["rejects_equivalent"])

It fails with the exploits when the reward is flawed; ids in ``allow`` are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.audit.reward_audit import AuditReport


@pytest.fixture
def assay_audit() -> Callable[..., AuditReport]:
    """A function that audits a reward, or a folder with a grader, and fails the test on a flaw."""

    def check(reward: str, tasks: Any = None, *, allow: Sequence[str] = (), **options: Any) -> AuditReport:
        from assay.audit.reward_audit import audit_reward
        from assay.audit.tree import audit_tree

        report = audit_tree(reward) if Path(reward).is_dir() else audit_reward(reward, tasks, **options)
        lines = [
            f"{f.id}: {f.summary}" + (f" Exploit: {f.exploit.completion[:200]!r}" if f.exploit else "")
            for f in report.findings
            if f.status == "fail" and f.id not in allow
        ]
        if lines:
            pytest.fail(f"{reward} is flawed:\n" + "\n".join(lines), pytrace=False)
        return report

    return check
