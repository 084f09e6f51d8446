"""Reading a judge's verdict strictly: a number on a line of its own, or no score at all."""

from __future__ import annotations

import math
import re

from assay.errors import BadInput
from assay.records.score import Score, missing, scored

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?")
_MARKUP = "*_`# \t>"


def parse_judge_score(text: str, label: str = "Reward") -> float | None:
    """The number after ``label:`` on the last line that starts with it, or None.

    The whole rest of that line must be one finite number (markup and a full stop apart): ``12`` is 12 and
    not 1, ``1.0.3`` and ``high`` are nothing. Text that quotes the label inside a sentence is not a verdict,
    and an earlier verdict does not stand in for an unreadable last one.
    """
    if not label.strip():
        raise BadInput("expected a label such as 'Reward', got an empty one")
    verdict: str | None = None
    for line in text.splitlines():
        name, colon, rest = line.replace("：", ":").partition(":")
        if colon and name.strip(_MARKUP).casefold() == label.casefold():
            verdict = rest
    if verdict is None:
        return None
    number = verdict.strip(_MARKUP).removesuffix(".").rstrip(_MARKUP)
    if _NUMBER.fullmatch(number) is None:
        return None
    value = float(number)
    return value if math.isfinite(value) else None


def judge_score(text: str, label: str = "Reward", *, low: float = -math.inf, high: float = math.inf) -> Score:
    """A judge's output as a score: ``missing`` when it gives no readable number within [low, high]."""
    value = parse_judge_score(text, label)
    if value is None:
        return missing(f"the judge gave no line '{label}: NUMBER'")
    if not low <= value <= high:
        return missing(f"the judge gave {value:g}, outside [{low:g}, {high:g}]")
    return scored(value)
