"""What the reward refuses that it should pay: the gold in the asked form, and forms equal to it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence

from assay.audit.bench import HALF, Bench
from assay.audit.forms import asked_templates
from assay.audit.golds import Variant, equal_forms
from assay.audit.ledger import Ledger, distinct_golds, make_finding
from assay.audit.patterns import SLOT
from assay.audit.probes import is_plain_number
from assay.audit.task_file import AuditTask, misfits
from assay.records.finding import Finding

STRICT = re.compile(
    r"\b(only|exactly|digits|no commas|without|verbatim|single|simplest|lowest terms|as a fraction)\b", re.I
)
"""A prompt with one of these words asks for one spelling: other spellings are contested."""
CONTESTED = frozenset(
    {"case", "full stop", "leading zero", "plus sign", "dollar signs", "decimal point", "unicode minus"}
)
SPELLINGS = frozenset(
    {"thousands separator", "latex fraction", "as a decimal", "as a fraction", "trailing zero"}
)
"""Spellings of a number that models write all the time."""


def refused_findings(bench: Bench, ledger: Ledger) -> list[Finding]:
    """Findings about golds and equal forms that are not paid."""
    if not bench.has_gold or bench.is_code:
        return []
    found = [*_asked_form(bench), *_gold_by_gold(bench, ledger)]
    return [*found, *_equivalents(bench, ledger)]


def _asked_form(bench: Bench) -> list[Finding]:
    """The prompt asks for one form, and the reward pays another one only."""
    marks = ("\\boxed", "####", "<")
    for task in bench.good_tasks[:1]:
        asked = [t for t in asked_templates([task.prompt]) if any(mark in t for mark in marks)]
        main = bench.templates[task.key]
        wanted = [
            m for m in ("\\boxed{", "####", *re.findall(r"<\w+>", "".join(asked))) if m in "".join(asked)
        ]
        if not asked or any(mark in main for mark in wanted):
            return []
        shares = {t: bench.paid(task, t.replace(SLOT, task.gold.text)) for t in asked}
        if any(share > HALF for share in shares.values()):
            return []
        text = asked[0].replace(SLOT, task.gold.text)
        summary = "The gold in the form that the prompt asks for is not paid; another form is."
        evidence = {"asked": text, "paid_instead": bench.accepted(task)}
        exploit = (task, text, "the full score: the gold, in the form that the prompt asks for")
        return [make_finding(bench, "rejects_gold", "fail", summary, evidence=evidence, exploit=exploit,
                             refused=True)]  # fmt: skip
    return []


def _gold_by_gold(bench: Bench, ledger: Ledger) -> list[Finding]:
    """Golds that stay unpaid in every form that is accepted for the other tasks."""
    spans = [bench.scales[t.key].span for t in bench.good_tasks]
    if not spans:
        return []
    span = statistics.median(spans)
    common = statistics.median(bench.scales[t.key].low for t in bench.good_tasks)
    own = [task for task in bench.all_tasks if task.has_gold][: 200 if bench.cost < 0.005 else 12]
    odd = misfits(own)
    templates = list(dict.fromkeys([*bench.templates.values(), *(f.template for f in bench.forms[:4])]))[:6]
    bench.prefetch((task, t.replace(SLOT, task.gold.text)) for task in own for t in templates[:1])
    refused: list[AuditTask] = []
    for task in own:
        low = bench.scales[task.key].low if task in bench.good_tasks else common
        paid = _is_paid(bench, task, templates, low, span)
        if paid is None:
            continue
        if task not in odd:
            ledger.right_refused.append((task.key, not paid))
        if not paid:
            refused.append(task)
    _blame_tasks(bench, refused)
    refused = [task for task in refused if task not in odd]
    if not refused or len(refused) == len(own):
        return []
    plain = [t for t in refused if is_plain_number(t.gold) or len(t.gold.text) <= 40]
    grave = len(plain) >= 2 or len(plain) > 0.1 * len(own)
    task = min(plain or refused, key=lambda t: len(t.gold.text))
    text = templates[0].replace(SLOT, task.gold.text)
    summary = (
        f"The gold is not paid on {len(refused)} of {len(own)} tasks, in a form that is paid on the others."
    )
    evidence = {"golds": [t.gold.text[:60] for t in refused[:8]], "share_of_tasks": len(refused) / len(own)}
    return [make_finding(bench, "rejects_gold", "fail" if grave else "warn", summary, evidence=evidence,
                         exploit=(task, text, "the full score: the gold itself"), refused=True)]  # fmt: skip


def _blame_tasks(bench: Bench, refused: Sequence[AuditTask]) -> None:
    """Golds in words among numbers that are not paid: a line about the tasks, no finding about the reward."""
    odd = [task for task in misfits(bench.all_tasks) if task in refused]
    if odd:
        rows, golds = [int(t.key[1:]) + 1 for t in odd], [t.gold.text[:40] for t in odd]
        bench.limits.append(
            f"tasks {rows[:8]}: the gold is no number as the others are ({golds[0]!r}) and is not paid; mend these "
            "tasks, or the reward if words can be right"
        )


def _is_paid(bench: Bench, task: AuditTask, templates: Sequence[str], low: float, span: float) -> bool | None:
    """Whether the gold is paid in any form; None where the reward never answered."""
    raw = task.row.get(task.column or "")
    values: list[str] = [task.gold.text, *([raw] if isinstance(raw, str) else [])]
    texts = [template.replace(SLOT, value) for template in templates for value in values]
    answered = False
    for text in (*texts, *task.completions):
        outcome = bench.prober.score(task.key, text)
        answered |= outcome.state not in ("hang", "missing", "invalid_task")
        if not math.isnan(outcome.value) and (math.isnan(low) or outcome.value - low > 0.5 * span):
            return True
    return False if answered else None


def _equivalents(bench: Bench, ledger: Ledger) -> list[Finding]:
    """Equal forms that are refused; one spelling may be a choice, a comparison of strings is a fault."""
    refused: dict[str, list[tuple[AuditTask, str]]] = {}
    tried: dict[str, int] = {}
    for task in bench.good_tasks:
        for variant in _applicable(bench, task):
            text = bench.write(task, variant.text)
            if bench.prober.score(task.key, text).state == "hang":
                continue
            tried[variant.name] = tried.get(variant.name, 0) + 1
            share = bench.paid(task, text)
            contested = variant.name in CONTESTED or STRICT.search(task.prompt)
            if not contested and not math.isnan(share):
                ledger.right_refused.append((task.key, not share > HALF))
            if not share > HALF:
                refused.setdefault(variant.name, []).append((task, text))
    names = [n for n, rows in refused.items() if len(rows) >= min(2, tried[n]) and len(rows) > 0.5 * tried[n]]
    return _judged(bench, names, refused, tried)


def _judged(
    bench: Bench, names: Sequence[str], refused: dict[str, list[tuple[AuditTask, str]]], tried: dict[str, int]
) -> list[Finding]:
    strict = any(STRICT.search(task.prompt) for task in bench.good_tasks)
    by_string = all(n in names for n in ("plus sign", "leading zero") if n in tried)
    hard = [n for n in names if n in SPELLINGS]
    soft = [n for n in names if n not in CONTESTED]
    bench.contested += [f"{n}: refused (a choice of format)" for n in names if n in CONTESTED or strict]
    if not soft or strict:
        return []
    fault = len(hard) >= 2 and by_string
    task, text = refused[(hard or soft)[0]][0]
    golds = distinct_golds([t for n in soft for t, _ in refused[n]])
    summary = f"Answers equal to the gold are refused: {', '.join(soft)}."
    exploit = (task, text, f"the full score: the same answer as {task.gold.text!r}")
    return [make_finding(bench, "rejects_equivalent", "fail" if fault else "warn", summary,
                         evidence={"forms": soft, "golds": golds, "compares_strings": by_string},
                         exploit=exploit, refused=True)]  # fmt: skip


def _applicable(bench: Bench, task: AuditTask) -> list[Variant]:
    """Spaces only where something encloses the answer, line breaks only inside tags; JSON has to stay JSON."""
    after = bench.templates[task.key].partition(SLOT)[2]
    closes = {"spaces": after[:1] in ("}", "<", "]"), "lines": after.startswith("</")}
    as_json = _is_json(bench.accepted(task))
    return [
        v
        for v in equal_forms(task.gold)
        if closes.get(v.name, True) and (not as_json or _is_json(bench.write(task, v.text)))
    ]


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
