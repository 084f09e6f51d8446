"""Rates from completions that a user has labelled, by stratum, and the share of right answers behind a reward."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from assay.audit.bench import HALF, Bench
from assay.audit.ledger import clustered_rate
from assay.audit.prober import Call
from assay.audit.task_file import COMPLETION_NAMES, prompt_of
from assay.errors import BadInput
from assay.stats.interval import Interval

LABELS = ("should_pass", "correct", "is_correct", "label", "truth", "gold_label")
YES, NO = frozenset({"true", "1", "1.0", "yes"}), frozenset({"false", "0", "0.0", "no"})
Judged = tuple[str, bool, bool]
"""A labelled completion: its prompt, whether it is right, whether it was paid."""
STRATA = ("stratum", "kind", "category", "source")


def labelled_rates(bench: Bench, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """False-positive and false-negative rates on labelled completions, overall and by stratum.

    A row has a completion (or response), a label (should_pass, correct, ...), and the columns that the reward
    reads. Rows of one prompt are a cluster. Raises :class:`BadInput` where something is missing.
    """
    labels, texts = check_labelled(rows)
    stratum = next((name for name in STRATA if any(name in row for row in rows)), None)
    outcomes = _paid(bench, rows, texts)
    everything: list[Judged] = []
    groups: dict[str, list[Judged]] = {}
    for number, (row, right, paid) in enumerate(zip(rows, labels, outcomes, strict=True)):
        if paid is None:
            continue
        judged = (str(row.get("prompt_id") or prompt_of(row) or number), right, paid)
        everything.append(judged)
        if stratum:
            groups.setdefault(str(row.get(stratum)), []).append(judged)
    strata = {name: _rates(found) for name, found in groups.items()}
    return {**_rates(everything), "strata": strata, "unscored": len(rows) - len(everything)}


def check_labelled(rows: Sequence[Mapping[str, Any]]) -> tuple[list[bool], list[str]]:
    """The labels and the completions; :class:`BadInput` where a row lacks one, or it cannot be read."""
    label, text = (
        _column(rows, LABELS, "a label"),
        _column(rows, (*COMPLETION_NAMES, "output"), "a completion"),
    )
    labels = [_label(row[label], f"row {n}, column {label!r}") for n, row in enumerate(rows, 1)]
    return labels, [_text(row[text], f"row {n}, column {text!r}") for n, row in enumerate(rows, 1)]


def _label(value: Any, where: str) -> bool:
    word = str(value).strip().lower()
    if word in YES or word in NO:
        return word in YES
    raise BadInput(f"labelled file, {where}: expected true or false, got {value!r}; mend or drop the row")


def _text(value: Any, where: str) -> str:
    if isinstance(value, list) and value and all(isinstance(message, dict) for message in value):
        value = value[-1].get("content")
    if not isinstance(value, str):
        raise BadInput(f"labelled file, {where}: expected the text of a completion, got {value!r}")
    return value


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


def _paid(bench: Bench, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> list[bool | None]:
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
        calls.append(Call(f"labelled{number}", texts[number]))
    values = [outcome.value for outcome in bench.prober.scores(calls)]
    return [None if math.isnan(value) else value - low > HALF * span for value in values]


def _rates(rows: Sequence[Judged]) -> dict[str, Any]:
    false_positive = clustered_rate((prompt, paid) for prompt, right, paid in rows if not right)
    false_negative = clustered_rate((prompt, not paid) for prompt, right, paid in rows if right)
    observed = sum(paid for _, _, paid in rows) / len(rows) if rows else math.nan
    return {
        "false_positive_rate": false_positive.to_json(),
        "false_negative_rate": false_negative.to_json(),
        "paid": None if math.isnan(observed) else observed,
        "right": _corrected(observed, false_positive, false_negative),
    }


def _corrected(observed: float, false_positive: Interval, false_negative: Interval) -> float | None:
    value = rogan_gladen(observed, false_positive.estimate, false_negative.estimate)
    return None if math.isnan(value) else value
