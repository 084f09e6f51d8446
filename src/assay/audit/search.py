"""Looking for exploits that no single probe shows: a climb over combinations, and a hook for a trained policy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.ledger import Hit, hit_finding, make_finding
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
    short = minimised(
        text, lambda t: all(bench.paid(task, t) > HALF and not answers(t, task) for task in tasks)
    )
    return [_finding(bench, tasks, short)]


def _pieces(bench: Bench, tasks: Sequence[AuditTask]) -> list[str]:
    written = [text for p in bench.source.patterns for text in matches(p, "blah")]
    stock = () if knows_nothing_good(bench) else (*STOCK_MARKERS, *INJECTIONS, *AGREEMENT)
    pieces = [*bench.source.markers[:60], *written, *stock, plain_words(400)]
    return [p for p in dict.fromkeys(pieces) if not any(answers(p, task) for task in tasks)]


def _mean(bench: Bench, tasks: Sequence[AuditTask], text: str) -> float:
    shares = [bench.paid(task, text) for task in tasks]
    known = [share for share in shares if share == share]
    return statistics.fmean(known) if known else 0.0


def _finding(bench: Bench, tasks: Sequence[AuditTask], text: str) -> Finding:
    if INJECTED.search(text) and bench.source.judge:
        id = "accepts_judge_injection"
    else:
        id = "pays_format_only" if SHAPED.search(text) else "accepts_marker"
    if len(text) > 350:
        id = "pays_length"
    expected = "the lowest score: it answers nothing"
    probes = [Probe(id, "found by search", task, text, expected) for task in tasks]
    hits = [Hit(probe, bench.paid(probe.task, text)) for probe in probes]
    return hit_finding(bench, hits, probes, "A combination that answers nothing is paid (found by search).")


def search_by_training(bench: Bench, train: TrainFunction) -> list[Finding]:
    """Let ``train`` optimise the reward, and report what it is paid for without naming the gold.

    Samples are grouped by their shortest paid form, so that a thousand variations are one exploit.
    """
    tasks = bench.good_tasks
    if not tasks:
        return []
    by_row = {id(task.row): task for task in tasks}

    def score(completions: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[float]:
        return [bench.paid(by_row[id(row)], text) for text, row in zip(completions, rows, strict=True)]

    clusters: dict[str, list[AuditTask]] = {}
    for index, text in train(score, [task.row for task in tasks]):
        task = tasks[index]
        if bench.paid(task, text) > HALF and not answers(text, task):
            short = minimised(text, lambda t, task=task: bench.paid(task, t) > HALF, calls=60)
            clusters.setdefault(short, []).append(task)
    if not clusters:
        return []
    text, paid = max(clusters.items(), key=lambda item: len(item[1]))
    evidence = {"clusters": {t[:80]: len(rows) for t, rows in clusters.items()}}
    return [make_finding(bench, "accepts_marker", "fail", "A trained policy is paid without the gold.",
                         evidence=evidence, exploit=(paid[0], text, "the lowest score"))]  # fmt: skip
