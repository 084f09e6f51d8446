"""One finding of the doctor or the audit: what was checked, what was seen, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["fail", "warn", "pass", "skip"]
Stage = Literal[1, 2, 3, 4, 5, "hacking", "run", "audit"]


@dataclass(frozen=True, slots=True)
class SampleRef:
    """Where a sample stands in a run; unknown parts are None."""

    step: int | None = None
    prompt_id: str | None = None
    sample: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of DESIGN's ``samples``."""
        return {"step": self.step, "prompt_id": self.prompt_id, "sample": self.sample}


@dataclass(frozen=True, slots=True)
class Exploit:
    """A completion that the reward scores against the truth (the audit's evidence)."""

    task: Mapping[str, Any]
    completion: str
    score: float | None
    expected: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of DESIGN's ``exploit``."""
        return {
            "task": jsonable(self.task),
            "completion": self.completion,
            "score": jsonable(self.score),
            "expected": self.expected,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; the fields are those of the JSON contract.

    Attributes:
        id: an id of DESIGN.md, such as ``advantage.epsilon`` or ``accepts_marker``.
        stage: 1 to 5, ``hacking``, ``run`` or ``audit``.
        status: ``fail``, ``warn``, ``pass``, or ``skip`` when ``needs`` was not logged.
        summary: one sentence for a person.
        evidence: numbers, their thresholds and where those come from.
        samples: the rows that prove it.
        fix: what to change, with the setting's name in the trainer that made the log.
        follows_from: the id of the finding that explains this one.
        needs: what to log so that a skipped check can run.
        regression_test: a ready pytest function (source text), if there is one.
        exploit: the smallest exploit (audit only).
    """

    id: str
    stage: Stage
    status: Status
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    samples: Sequence[SampleRef] = ()
    fix: str = ""
    follows_from: str | None = None
    needs: str | None = None
    regression_test: str | None = None
    exploit: Exploit | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; non-finite numbers become null."""
        document: dict[str, Any] = {
            "id": self.id,
            "stage": self.stage,
            "status": self.status,
            "summary": self.summary,
            "evidence": jsonable(self.evidence),
            "samples": [sample.to_json() for sample in self.samples],
            "fix": self.fix,
            "follows_from": self.follows_from,
            "needs": self.needs,
            "regression_test": self.regression_test,
        }
        if self.exploit is not None:
            document["exploit"] = self.exploit.to_json()
        return document


def jsonable(value: Any) -> Any:
    """Turn numbers, arrays, mappings and sequences into plain JSON values; non-finite numbers become None."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy scalars and arrays, torch tensors
        return jsonable(value.tolist())
    return str(value)
