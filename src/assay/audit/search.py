"""Looking for exploits that no single probe shows: a climb over combinations, and a hook for a trained policy."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.ledger import Hit, distinct_golds, hit_finding
from assay.audit.minimise import minimised
from assay.audit.patterns import matches
from assay.audit.probes import (
    AGREEMENT,
    INJECTED,
    INJECTIONS,
    STOCK_MARKERS,
    Probe,
    answers,
    knows_nothing_good,
    plain_words,
)
from assay.audit.source import SHAPED
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding

STEPS = 4
MOST_CLUSTERS = 20
TrainFunction = Callable[[Callable[[Sequence[str], Sequence[Mapping[str, Any]]], "list[float]"],
                          Sequence[Mapping[str, Any]]], "Sequence[tuple[int, str]]"]  # fmt: skip
"""Trains a policy on (score, tasks) for a while and returns samples: (index of the task, completion)."""


def climb(bench: Bench) -> list[Finding]:
    """Greedily put pieces together that answer nothing, keeping what raises the pay on two golds.

    Pieces: literals and written-out patterns of the source, stock markers, judge words, padding. What is paid
    in the end answers nothing, so it is a flaw whatever it looks like.
    """
    tasks = bench.good_tasks[:2]
    if not tasks or bench.cost > 0.02 or bench.is_code:
        return []
    pieces = _pieces(bench, tasks)
    text, share = JUNK[1], _mean(bench, tasks, JUNK[1])
    for _ in range(STEPS):
        options = [f"{text} {piece}" for piece in pieces] + [f"{text}\n{piece}" for piece in pieces[:40]]
        bench.prefetch((task, option) for option in options for task in tasks)
        better = max(options, key=lambda option: _mean(bench, tasks, option), default=text)
        if _mean(bench, tasks, better) <= share + 0.01:
            break
        text, share = better, _mean(bench, tasks, better)
        if share > HALF:
            break
    if not all(bench.paid(task, text) > HALF for task in tasks):
        return []
    return [_finding(bench, tasks, minimised(text, lambda t: _all_paid(bench, tasks, t)), "search")]


def _pieces(bench: Bench, tasks: Sequence[AuditTask]) -> list[str]:
    written = [text for p in bench.source.patterns for text in matches(p, "blah")]
    stock = () if knows_nothing_good(bench) else (*STOCK_MARKERS, *INJECTIONS, *AGREEMENT)
    pieces = [*bench.source.markers[:60], *written, *stock, plain_words(400)]
    return [p for p in dict.fromkeys(pieces) if not any(answers(p, task) for task in tasks)]


def _mean(bench: Bench, tasks: Sequence[AuditTask], text: str) -> float:
    shares = [bench.paid(task, text) for task in tasks]
    known = [share for share in shares if share == share]
    return statistics.fmean(known) if known else 0.0


def _finding(bench: Bench, tasks: Sequence[AuditTask], text: str, by: str) -> Finding:
    if all(_all_paid(bench, tasks, junk) for junk in JUNK[:3]):
        id = "accepts_unreadable"
    elif INJECTED.search(text) and bench.source.judge:
        id = "accepts_judge_injection"
    else:
        id = "pays_format_only" if SHAPED.search(text) else "accepts_marker"
    if len(text) > 350:
        id = "pays_length"
    expected = "the lowest score: it answers nothing"
    probes = [Probe(id, f"found by {by}", task, text, expected) for task in tasks]
    hits = [Hit(probe, bench.paid(probe.task, text)) for probe in probes]
    return hit_finding(bench, hits, probes, f"Text that answers nothing is paid (found by {by}).")


@dataclass(frozen=True, slots=True)
class Trained:
    """What training found: findings, and every cluster of paid texts with its size."""

    findings: list[Finding]
    clusters: Mapping[str, int]
    samples: int


def search_by_training(bench: Bench, train: TrainFunction) -> Trained:
    """Let ``train`` optimise the pay of completions that do not name the gold, and report what it found.

    A text counts when it is paid for two golds that it does not name: it cannot be right for both. Samples that
    hold the shortest paid form of an earlier one are the same exploit.
    """
    tasks = bench.good_tasks
    if len(tasks) < 2 or not bench.has_gold:
        bench.limits.append(
            "training needs two tasks with golds: without them nobody can say what must not pay"
        )
        return Trained([], {}, 0)
    rows = _starts(bench, tasks)
    owner = {id(row): task for row, task in zip(rows, tasks, strict=True)}

    def score(completions: Sequence[str], given: Sequence[Mapping[str, Any]]) -> list[float]:
        pairs = [(owner[id(row)], text) for text, row in zip(completions, given, strict=True)]
        bench.prefetch(pairs)
        return [0.0 if answers(text, task) else bench.paid(task, text) for task, text in pairs]

    samples = train(score, rows)
    clusters: dict[str, list[AuditTask]] = {}
    sizes: dict[str, int] = {}
    for index, text in samples:
        known = next((short for short in clusters if short in text), None)
        if known is None and len(clusters) < MOST_CLUSTERS and (paid := _paid_on(bench, tasks, index, text)):
            known = minimised(text, lambda t, paid=paid: _all_paid(bench, paid, t), calls=80)
            clusters.setdefault(known, paid)
        if known is not None:
            sizes[known] = sizes.get(known, 0) + 1
    found = [
        _finding(bench, clusters[text], text, "training")
        for text in sorted(clusters, key=lambda t: -sizes[t])
    ]
    return Trained(found, dict(sorted(sizes.items(), key=lambda item: -item[1])), len(samples))


def _starts(bench: Bench, tasks: Sequence[AuditTask]) -> list[dict[str, Any]]:
    """Rows to train on: the accepted form with other golds, junk, and the pieces of the climb, alone and in pairs."""
    generator = random.Random(0)
    pieces = [piece for piece in _pieces(bench, tasks) if len(piece) <= 80]
    rows: list[dict[str, Any]] = []
    for place, task in enumerate(tasks):
        foreign = [bench.write(task, other.gold.text) for other in tasks if other is not task][:2]
        own = pieces[place :: len(tasks)]
        mixed = [f"{generator.choice(JUNK)} {generator.choice(pieces)} {p}" for p in own] if pieces else []
        texts = [*foreign, JUNK[place % len(JUNK)], *own, *mixed]
        rows.append({"prompt": task.prompt, "completion": bench.accepted(task), "examples": texts})
    return rows


def _paid_on(bench: Bench, tasks: Sequence[AuditTask], index: int, text: str) -> list[AuditTask]:
    """The task of a sample and one of another gold, where the text is paid on both and names neither; else none."""
    for other in tasks:
        both = [tasks[index], other]
        if distinct_golds(both) == 2 and _all_paid(bench, both, text):
            return both
    return []


def _all_paid(bench: Bench, tasks: Sequence[AuditTask], text: str) -> bool:
    return all(not answers(text, task) and bench.paid(task, text) > HALF for task in tasks)
