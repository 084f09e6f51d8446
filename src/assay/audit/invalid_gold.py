"""What happens where the gold itself is unusable: anything may be paid."""

from __future__ import annotations

import math
import statistics

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.ledger import make_finding
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding

UNUSABLE = ("", "n/a", "see the proof above", "???")


def invalid_gold_findings(bench: Bench) -> list[Finding]:
    """``invalid_gold_pays``, on the user's own rows first, then on rows whose gold was made unusable."""
    if not bench.has_gold or not bench.good_tasks:
        return []
    return _own_rows(bench) or _spoilt_rows(bench)


def _own_rows(bench: Bench) -> list[Finding]:
    """Rows on which junk is paid, while on others it is not."""
    low = statistics.median(bench.scales[t.key].low for t in bench.good_tasks)
    span = statistics.median(bench.scales[t.key].span for t in bench.good_tasks)
    rows = bench.all_tasks[: 500 if bench.cost < 0.005 else 20]
    bench.prefetch((task, text) for task in rows for text in JUNK[:2])
    paid: list[AuditTask] = []
    for task in rows:
        values = [bench.prober.score(task.key, text).value for text in JUNK[:2]]
        if all(not math.isnan(v) and v - low > HALF * span for v in values):
            paid.append(task)
    if not paid or len(paid) == len(rows):
        return []
    task = paid[0]
    summary = f"On {len(paid)} of {len(rows)} tasks any text is paid: their gold cannot be read."
    evidence = {"rows": [t.key[1:] for t in paid[:20]], "share_of_tasks": len(paid) / len(rows)}
    exploit = (task, JUNK[0], "no score: the gold of this task is unusable")
    return [make_finding(bench, "invalid_gold_pays", "fail", summary, evidence=evidence, exploit=exploit)]


def _spoilt_rows(bench: Bench) -> list[Finding]:
    task = bench.good_tasks[0]
    if task.gold.kind == "code" or any(bench.paid(task, text) > HALF for text in JUNK[:3]):
        return []
    for number, gold in enumerate(UNUSABLE):
        key = f"{task.key}:spoilt{number}"
        row = task.with_gold(gold)
        bench.prober.add_task(key, row)
        shares = [bench.share(task, bench.prober.score(key, text)) for text in (JUNK[0], JUNK[2])]
        if all(share > HALF for share in shares):
            spoilt = AuditTask(key, row, task.column, task.gold)
            bench.templates[key] = bench.templates[task.key]
            summary = f"A task with an unusable gold ({gold!r}) pays for any text."
            exploit = (spoilt, JUNK[0], "no score: the gold of this task is unusable")
            return [make_finding(bench, "invalid_gold_pays", "fail", summary, evidence={"gold": gold},
                                 exploit=exploit)]  # fmt: skip
    return []
