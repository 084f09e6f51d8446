"""Pay for what is not correctness: length, agreement, and the place of the answer, at fixed correctness."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from assay.audit.bench import JUNK, Bench
from assay.audit.forms import THOUGHT
from assay.audit.golds import far_value
from assay.audit.ledger import distinct_golds, make_finding
from assay.audit.patterns import SLOT
from assay.audit.probes import AGREEMENT, AGREES, PLAIN, answers, plain_words, unit_of
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding

LENGTHS = (0, 150, 600, 3000)
GRAVE, NOTABLE = 0.2, 0.05
"""Pay for length or flattery, as shares of the gold's pay, from which it is a fault, or worth a line."""


def slope_findings(bench: Bench) -> tuple[list[Finding], dict[str, Any]]:
    """Findings about slopes, and the numbers for the report."""
    tasks = [t for t in bench.good_tasks if not answers(PLAIN, t)][: 4 if bench.cost < 0.02 else 2]
    if not tasks or bench.is_code:
        return [], {}
    length, numbers = _length(bench, tasks)
    return [*length, *_agreement(bench, tasks), *_position(bench, tasks)], {"length": numbers}


def _series(bench: Bench, task: AuditTask) -> dict[str, list[str]]:
    """Texts of growing length and equal correctness: right, wrong, and junk."""
    others = [t.gold.text for t in bench.tasks if t.gold.text != task.gold.text]
    template = bench.templates[task.key]
    wrong = template.replace(SLOT, far_value(task.gold, others))
    found = {
        "right": [f"{plain_words(n)}\n{bench.accepted(task)}" for n in LENGTHS],
        "wrong": [f"{plain_words(n)}\n{wrong}" for n in LENGTHS],
        "junk": [f"{JUNK[0]} {plain_words(n)}" for n in LENGTHS],
    }
    if THOUGHT in template:
        grown = [template.replace(THOUGHT, f"{THOUGHT} {plain_words(n)}") for n in LENGTHS]
        found["right, thinking"] = [text.replace(SLOT, task.gold.text) for text in grown]
        found["wrong, thinking"] = [text.replace(SLOT, far_value(task.gold, others)) for text in grown]
    return found


def _length(bench: Bench, tasks: Sequence[AuditTask]) -> tuple[list[Finding], dict[str, float | None]]:
    gains: dict[str, list[float]] = {}
    slopes: list[float] = []
    texts: dict[str, tuple[AuditTask, str, str]] = {}
    for task in tasks:
        grown = _series(bench, task)
        bench.prefetch((task, text) for series in grown.values() for text in series)
        for kind, series in grown.items():
            shares = [bench.paid(task, text) for text in series]
            known = [s for s in shares[1:] if not math.isnan(s)]
            if math.isnan(shares[0]) or not known:
                continue
            gains.setdefault(kind, []).append(max(known) - shares[0])
            texts.setdefault(kind, (task, series[shares.index(max(known))], series[0]))
            if kind == "right":
                slopes.append((shares[-1] - shares[0]) / (LENGTHS[-1] / 1000))
    slope = (
        statistics.median(s for s in slopes if not math.isnan(s)) if any(map(math.isfinite, slopes)) else None
    )
    numbers: dict[str, float | None] = {"slope_per_1000_characters": slope}
    steepest = max(gains, key=lambda kind: statistics.median(gains[kind]), default=None)
    if steepest is None or (gain := statistics.median(gains[steepest])) < NOTABLE:
        return [], numbers
    task, text, control = texts[steepest]
    summary = f"Padding a text ({steepest}) raises its pay by {gain:.0%} of what the gold is paid."
    evidence = {"gain": round(gain, 6), "kind": steepest, **numbers}
    exploit = (task, text, "the pay of the same text without the padding")
    status = "fail" if gain > GRAVE else "warn"
    return [make_finding(bench, "pays_length", status, summary, evidence=evidence, exploit=exploit,
                         control=control)], numbers  # fmt: skip


def _agreement(bench: Bench, tasks: Sequence[AuditTask]) -> list[Finding]:
    """Flattery added before or after a right, a wrong and an empty answer."""
    own = [m for m in bench.source.markers if AGREES.search(m) and len(m) <= 60]
    phrases = list(dict.fromkeys([*AGREEMENT, *own, " ".join([*AGREEMENT[:6], *own[:10]])]))
    best: tuple[float, AuditTask, str, str] | None = None
    paying: dict[str, list[AuditTask]] = {}
    for task in tasks:
        others = [t.gold.text for t in bench.tasks if t.gold.text != task.gold.text]
        bases = [bench.accepted(task), bench.write(task, far_value(task.gold, others)), JUNK[4]]
        trials = [
            trial for phrase in phrases if not answers(phrase, task) for trial in _flattered(phrase, bases)
        ]
        bench.prefetch((task, text) for _, *both in trials for text in both)
        for phrase, text, control in trials:
            gain = bench.paid(task, text) - bench.paid(task, control)
            if gain > GRAVE:
                paying.setdefault(phrase, []).append(task)
                if best is None or gain > best[0]:
                    best = (gain, task, text, control)
    wide = [p for p, hit in paying.items() if distinct_golds(hit) >= min(2, distinct_golds(tasks))]
    if best is None or not wide:
        return []
    gain, task, text, control = best
    summary = f"Words of agreement raise the pay by {gain:.0%} of what the gold is paid."
    exploit = (task, text, "the pay of the same text without the flattery")
    return [make_finding(bench, "pays_agreement", "fail", summary,
                         evidence={"gain": round(gain, 6), "phrases": wide[:6]}, exploit=exploit,
                         control=control)]  # fmt: skip


def _flattered(phrase: str, bases: Sequence[str]) -> list[tuple[str, str, str]]:
    """(phrase, text with it, text with as many plain words) before and after each base: length is paid alike."""
    plain = plain_words(len(phrase))
    return [
        row
        for base in bases
        for row in (
            (phrase, f"{phrase} {base}", f"{plain} {base}"),
            (phrase, f"{base} {phrase}", f"{base} {plain}"),
        )
    ]


def _position(bench: Bench, tasks: Sequence[AuditTask]) -> list[Finding]:
    """The same answer early, in the middle and late; only a graded difference counts, strictness does not."""
    moved: list[tuple[float, AuditTask, str, str]] = []
    pad = plain_words(600)
    for task in tasks:
        unit = unit_of(bench.templates[task.key]).replace(SLOT, task.gold.text)
        texts = [f"{unit}\n{pad}{pad}", f"{pad}\n{unit}\n{pad}", f"{pad}{pad}\n{unit}"]
        shares = [bench.paid(task, text) for text in texts]
        if any(math.isnan(s) or s <= 0.25 for s in shares) or max(shares) - min(shares) <= 0.25:
            continue
        best, worst = texts[shares.index(max(shares))], texts[shares.index(min(shares))]
        moved.append((max(shares) - min(shares), task, best, worst))
    if len(moved) < min(2, len(tasks)):
        return []
    gain, task, text, control = max(moved, key=lambda row: row[0])
    summary = f"The same answer is paid differently by where it stands (a difference of {gain:.0%})."
    exploit = (task, text, "the same pay wherever the answer stands")
    return [make_finding(bench, "pays_position", "fail", summary, evidence={"gain": round(gain, 6)},
                         exploit=exploit, control=control)]  # fmt: skip
