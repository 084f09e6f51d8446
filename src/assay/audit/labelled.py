"""Rates from completions that a user has labelled, by stratum, and the share of right answers behind a reward."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from assay.audit.bench import HALF, Bench
from assay.audit.prober import Call
from assay.audit.task_file import COMPLETION_NAMES
from assay.errors import BadInput
from assay.stats.binomial import wilson
from assay.stats.interval import Interval, unknown

LABELS = ("should_pass", "correct", "is_correct", "label", "truth", "gold_label")
STRATA = ("stratum", "kind", "category", "source")


def labelled_rates(bench: Bench, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """False-positive and false-negative rates on labelled completions, overall and by stratum.

    A row has a completion (or response), a label (should_pass, correct, ...), and the columns that the reward
    reads. Raises :class:`BadInput` where they are missing.
    """
    label, text = check_labelled(rows)
    stratum = next((name for name in STRATA if any(name in row for row in rows)), None)
    outcomes = _paid(bench, rows, text)
    groups: dict[str, list[tuple[bool, bool]]] = {}
    for row, paid in zip(rows, outcomes, strict=True):
        if paid is not None:
            pair = (bool(row[label]), paid)
            groups.setdefault("all", []).append(pair)
            if stratum:
                groups.setdefault(str(row.get(stratum)), []).append(pair)
    strata = {name: _rates(pairs) for name, pairs in groups.items()}
    return {**strata.pop("all", {}), "strata": strata, "unscored": sum(paid is None for paid in outcomes)}


def check_labelled(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The columns with the label and the completion; :class:`BadInput` where a row lacks them."""
    return _column(rows, LABELS, "a label"), _column(rows, (*COMPLETION_NAMES, "output"), "a completion")


def rogan_gladen(observed: float, false_positive: float, false_negative: float) -> float:
    """The share of right answers behind an observed share of paid ones (Rogan and Gladen 1978).

    NaN where the reward does not tell right from wrong (its rates add up to 1 or more).
    """
    informed = 1 - false_positive - false_negative
    if not informed > 0:
        return math.nan
    return min(1.0, max(0.0, (observed - false_positive) / informed))


def _column(rows: Sequence[Mapping[str, Any]], names: Sequence[str], what: str) -> str:
    for name in names:
        if all(name in row for row in rows):
            return name
    raise BadInput(f"the labelled file needs {what} in every row: one of {', '.join(names)}")


def _paid(bench: Bench, rows: Sequence[Mapping[str, Any]], text: str) -> list[bool | None]:
    if not bench.good_tasks:
        raise BadInput("labelled rates need an accepted completion; give a column 'completion' in the tasks")
    low = statistics.median(bench.scales[t.key].low for t in bench.good_tasks)
    span = statistics.median(bench.scales[t.key].span for t in bench.good_tasks)
    calls: list[Call] = []
    for number, row in enumerate(rows):
        columns = (
            {**row, "answer": row["reference"]} if "reference" in row and "answer" not in row else dict(row)
        )
        bench.prober.add_task(f"labelled{number}", {"prompt": "", **columns})
        calls.append(Call(f"labelled{number}", str(row[text])))
    values = [outcome.value for outcome in bench.prober.scores(calls)]
    return [None if math.isnan(value) else value - low > HALF * span for value in values]


def _rates(pairs: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    wrong = [paid for right, paid in pairs if not right]
    right = [paid for is_right, paid in pairs if is_right]
    false_positive = wilson(sum(wrong), len(wrong)) if wrong else unknown()
    false_negative = wilson(len(right) - sum(right), len(right)) if right else unknown()
    observed = sum(paid for _, paid in pairs) / len(pairs)
    return {
        "false_positive_rate": false_positive.to_json(),
        "false_negative_rate": false_negative.to_json(),
        "paid": observed,
        "right": _corrected(observed, false_positive, false_negative),
    }


def _corrected(observed: float, false_positive: Interval, false_negative: Interval) -> float | None:
    value = rogan_gladen(observed, false_positive.estimate, false_negative.estimate)
    return None if math.isnan(value) else value
