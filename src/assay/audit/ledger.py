"""What the probes of an audit add up to: hits, rates, and findings with their exploits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.audit.advice import ADVICE
from assay.audit.bench import HALF, TINY, Bench
from assay.audit.probes import Probe
from assay.audit.regression import regression_test
from assay.audit.task_file import AuditTask
from assay.records.finding import Exploit, Finding, Status, jsonable
from assay.stats.clustered import clustered_ratio
from assay.stats.interval import Interval, unknown

SCOUTS, SCOUT_SECONDS = 12, 5.0
"""Texts of one family that a slow reward is asked for at least, and the seconds that they may take together."""
SAYS_NOTHING = frozenset({"accepts_empty", "accepts_unreadable"})


@dataclass(frozen=True, slots=True)
class Hit:
    """A probe that was paid, and which share of the gold's pay it got."""

    probe: Probe
    share: float


@dataclass(slots=True)
class Ledger:
    """Outcomes of probes with a known label: (task key, family, whether the reward got it wrong)."""

    wrong_paid: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    right_refused: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    def false_positive_rate(self) -> Interval:
        """Share of must-be-wrong completions that were paid, clustered by task."""
        return clustered_rate(self.wrong_paid)

    def false_negative_rate(self) -> Interval:
        """Share of golds and equal forms that were not paid, clustered by task."""
        return clustered_rate(self.right_refused)


def clustered_rate(rows: Iterable[tuple[str, bool]]) -> Interval:
    """The share of true flags with its interval, rows of one key being a cluster; unknown without rows."""
    groups: dict[str, list[bool]] = {}
    for key, flag in rows:
        groups.setdefault(key, []).append(flag)
    if not groups:
        return unknown()
    columns = max(map(len, groups.values()))
    hits = np.array([[*map(float, flags), *[0.0] * (columns - len(flags))] for flags in groups.values()])
    base = np.array([[1.0] * len(flags) + [0.0] * (columns - len(flags)) for flags in groups.values()])
    return clustered_ratio(hits, base)


def paid_hits(bench: Bench, probes: Sequence[Probe], ledger: Ledger | None = None) -> list[Hit]:
    """Score probes; those paid more than half of the gold, and more than their base, are hits.

    Texts that say nothing are hits from half on (:meth:`Bench.pays_nothing`).
    """
    if bench.slow:
        probes = _worth_trying(bench, probes)
    bench.prefetch((probe.task, probe.completion) for probe in probes)
    paid: list[Hit] = []
    for probe in probes:
        share = bench.paid(probe.task, probe.completion)
        if ledger is not None and not math.isnan(share):
            ledger.wrong_paid.append((probe.task.key, share > HALF))
        if bench.pays_nothing(probe.task, share) if probe.id in SAYS_NOTHING else share > HALF:
            paid.append(Hit(probe, share))
    bench.prefetch((hit.probe.task, hit.probe.base) for hit in paid if hit.probe.base is not None)
    return [h for h in paid if h.probe.base is None or not bench.paid(h.probe.task, h.probe.base) > HALF]


def _worth_trying(bench: Bench, probes: Sequence[Probe]) -> list[Probe]:
    """For a slow reward: a text that is not paid on the first of its tasks is not tried on the others."""
    texts: dict[str, list[Probe]] = {}
    for probe in probes:
        texts.setdefault(probe.completion, []).append(probe)
    room = max(SCOUTS, int(SCOUT_SECONDS / bench.cost))
    tried = list(texts.values())[:: max(1, -(-len(texts) // room))]
    bench.prefetch((group[0].task, group[0].completion) for group in tried)
    shares = [bench.paid(group[0].task, group[0].completion) for group in tried]
    return [
        p
        for group, share in zip(tried, shares, strict=True)
        for p in (group if share > 0.5 - TINY else group[:1])
    ]


def distinct_golds(tasks: Sequence[AuditTask]) -> int:
    """How many different golds these tasks have (tasks without a gold count by their prompt)."""
    return len({task.gold.text or task.prompt or task.key for task in tasks})


def enough(bench: Bench, hits: Sequence[Hit], probes: Sequence[Probe]) -> bool:
    """Whether the hits cover two different golds, or all there are."""
    need = min(2, distinct_golds([probe.task for probe in probes]))
    return bool(hits) and distinct_golds([hit.probe.task for hit in hits]) >= need


def make_finding(
    bench: Bench,
    id: str,
    status: Status,
    summary: str,
    *,
    evidence: Mapping[str, Any] | None = None,
    exploit: tuple[AuditTask, str, str] | None = None,
    follows_from: str | None = None,
    refused: bool = False,
    control: str | None = None,
) -> Finding:
    """Put a finding together: advice, the exploit as scored, and a regression test.

    Args:
        exploit: task, completion, what was expected. refused: the completion must be paid and was not.
        control: the same completion without what it is paid for.
    """
    advice = ADVICE[id]
    shown: Exploit | None = None
    test: str | None = None
    if exploit is not None:
        task, completion, expected = exploit
        outcome = bench.prober.score(task.key, completion)
        value = None if math.isnan(outcome.value) else outcome.value
        shown = Exploit(jsonable(task.row), completion, value, expected)
        test = regression_test(bench, id, task, completion, refused=refused, control=control)
    return Finding(
        id, "audit", status, summary, {"why": advice.why, **(evidence or {})}, (), advice.fix,
        follows_from, None, test, shown,
    )  # fmt: skip


def hit_finding(
    bench: Bench, hits: Sequence[Hit], probes: Sequence[Probe], summary: str, status: Status = "fail"
) -> Finding:
    """The finding of a family of probes, with its shortest exploit."""
    shortest = min(hits, key=lambda hit: (len(hit.probe.completion), -hit.share))
    probe = shortest.probe
    keys, tried = {hit.probe.task.key for hit in hits}, {p.task.key for p in probes}
    evidence = {
        "share_of_gold_pay": round(shortest.share, 6),
        "tasks_paid": len(keys),
        "tasks_tried": len(tried),
        "kinds": list(dict.fromkeys(hit.probe.name for hit in hits))[:8],
    }
    return make_finding(bench, probe.id, status, summary, evidence=evidence,
                        exploit=(probe.task, probe.completion, probe.expected))  # fmt: skip
