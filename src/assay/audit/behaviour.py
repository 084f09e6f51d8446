"""How the reward behaves apart from what it pays: failures, repeatability, state, side effects, evaluation."""

from __future__ import annotations

import time
from collections.abc import Sequence

from assay.audit.bench import JUNK, Bench
from assay.audit.golds import far_value
from assay.audit.ledger import make_finding
from assay.audit.odd_texts import LONGEST, ODD, slow_texts
from assay.audit.prober import Call, Outcome
from assay.audit.task_file import AuditTask, misfits
from assay.audit.worker import CANARY
from assay.records.finding import Finding

PAYLOAD = f"setattr(__import__('sys'), '{CANARY}', 1)"
"""Harmless: it marks the very process that evaluates it, and no other."""
HANG_LIMIT, CODE_HANG_LIMIT = 3.0, 15.0
CONFIRM_LIMIT = 8.0
HANGS_SECONDS = 15.0
"""Time for the search for texts that hang, a confirmation in progress apart."""
SHORT = 400
"""Characters up to which a text that hangs is a fault."""
SHAPE_WORDS = ("numbers, got", "a number, got", "list of", "the key", "of shape", "of type")


def behaviour_findings(bench: Bench) -> list[Finding]:
    """Failures on odd texts, hangs, shapes, side effects and evaluation of the model's text."""
    probe_odd(bench)
    found = [*_evaluation(bench), *_batch_shape(bench), *_side_effects(bench)]
    return [*_failures(bench), *found, *_hangs(bench)]


def probe_odd(bench: Bench) -> None:
    """Score odd texts bare and in the accepted form (all for a fast reward, some for a slow one)."""
    tasks = bench.tasks[:2] if bench.cost < 0.005 else bench.tasks[:1]
    texts = ODD if bench.cost < 0.02 else ODD[:: max(1, int(bench.cost / 0.005))]
    pairs = [(task, text[:LONGEST]) for task in tasks for text in texts]
    bench.prefetch([*pairs, *((task, bench.write(task, text)[:LONGEST]) for task, text in pairs)])


def _failures(bench: Bench) -> list[Finding]:
    """Crashes, non-finite and ill-typed results among everything scored so far."""
    tasks = {task.key: task for task in (*bench.all_tasks, *bench.tasks)}
    groups: dict[str, list[tuple[Call, Outcome]]] = {}
    odd = {task.key for task in misfits(bench.all_tasks)}
    for call, outcome in bench.prober.known.items():
        usable = call.task in tasks and call.task not in odd
        if usable and len(call.completion) <= LONGEST and (id := failure_id(outcome)) is not None:
            groups.setdefault(id, []).append((call, outcome))
    summaries = {
        "crashes": "A text that a model can write makes the reward raise.",
        "non_finite": "The reward returns NaN or infinity.",
        "wrong_shape": "The reward returns something that is not one number per completion.",
    }
    found: list[Finding] = []
    for id, rows in groups.items():
        call, outcome = min(rows, key=lambda row: len(row[0].completion))
        evidence = {"reason": outcome.reason[:300], "texts": len(rows),
                    "reasons": list(dict.fromkeys(o.reason.split(": ", 1)[-1][:100] for _, o in rows))[:5]}  # fmt: skip
        exploit = (tasks[call.task], call.completion, "a finite number")
        found.append(make_finding(bench, id, "fail", summaries[id], evidence=evidence, exploit=exploit))
    return found


def unscored_findings(bench: Bench) -> list[Finding]:
    """``None`` instead of a score: for every text, for every wrong answer, or (a warning) for what says nothing."""
    scored = [t for t in bench.tasks if bench.prober.score(t.key, bench.accepted(t)).state == "scored"]
    task = (scored or bench.tasks)[0]
    far = far_value(task.gold, [t.gold.text for t in bench.tasks if t.gold.text != task.gold.text])
    texts = {"right": bench.accepted(task), "wrong": bench.write(task, far), "junk": JUNK[0]}
    missing = {name: bench.prober.score(task.key, text).state == "missing" for name, text in texts.items()}
    if not missing["junk"]:
        return []
    answered = [o for o in bench.prober.known.values() if o.state != "hang"]
    none = sum(o.state == "missing" for o in answered)
    if not scored and none < len(answered):
        return []  # what it raises or returns instead is a finding of its own
    kind = "wrong" if missing["wrong"] and bench.has_gold else "junk"
    summaries = {
        "wrong": "A wrong answer gets no score (None) instead of the lowest: it leaves the group, and nobody learns.",
        "junk": "Text without an answer gets no score (None) instead of the lowest: nothing keeps a policy from it.",
    }
    grave, summary = kind == "wrong", summaries[kind]
    if none == len(answered):
        grave, summary = (
            True,
            f"No score at all: the reward returned None for all {none} texts, the golds included.",
        )
    evidence = {"texts": len(answered), "without_score": none}
    return [make_finding(bench, "wrong_shape", "fail" if grave else "warn", summary, evidence=evidence,
                         exploit=(task, texts[kind], "a finite number"))]  # fmt: skip


def failure_id(outcome: Outcome) -> str | None:
    """The id of an outcome that is no score, or None (None returned by the reward is a score left out)."""
    if outcome.state == "died":
        return "crashes"
    if outcome.state != "crashed":
        return None
    if "finite number" in outcome.reason:
        return "non_finite"
    if "expected" in outcome.reason and any(word in outcome.reason for word in SHAPE_WORDS):
        return "wrong_shape"
    return "crashes"


def _hangs(bench: Bench) -> list[Finding]:
    """Texts on which the reward is still busy after its limit, tried twice.

    A short text is a fault. A long one is a warning: many a common pattern is slow on thousands of blanks.
    """
    task = bench.tasks[0]
    limit = max(CODE_HANG_LIMIT if bench.is_code else HANG_LIMIT, 20 * bench.cost)
    long: list[Finding] = []
    stop = time.monotonic() + HANGS_SECONDS
    for text in _slow(bench, task):
        if time.monotonic() > stop:
            break
        outcome = bench.prober.run([Call(task.key, text)], "plain", limit)[0]
        if outcome.state == "hang" and not bench.is_code:
            outcome = bench.prober.run([Call(task.key, text)], "plain", max(CONFIRM_LIMIT, limit))[0]
        bench.prober.known[Call(task.key, text)] = outcome
        if outcome.state != "hang":
            continue
        short = len(text) <= SHORT or bench.is_code
        evidence = {"seconds": outcome.seconds, "characters": len(text)}
        exploit = (task, text, "a score within the time limit")
        summary = f"A text of {len(text)} characters keeps the reward busy for over {outcome.seconds:g} s."
        status = "fail" if short else "warn"
        finding = make_finding(bench, "hangs", status, summary, evidence=evidence, exploit=exploit)
        if short:
            return [finding]
        long.append(finding)
        if len(long) > 1:
            break
    return long[:1]


def _slow(bench: Bench, task: AuditTask) -> list[str]:
    """Slow texts, bare and in the accepted form, the short ones first."""
    if bench.is_code:
        return [bench.write(task, "while True:\n    pass\n")]
    texts = slow_texts(bench.source.patterns)
    texts = texts[:12] if bench.cost > 0.02 else texts
    both = [*texts, *(bench.write(task, text)[:LONGEST] for text in texts)]
    hung = [
        c.completion
        for c, o in bench.prober.known.items()
        if o.state == "hang" and o.seconds > 0 and c.task == task.key
    ]
    return [*sorted(hung, key=len)[:2], *sorted(dict.fromkeys(both), key=len)]


def _batch_shape(bench: Bench) -> list[Finding]:
    """One call with five different completions must give five numbers."""
    if not bench.prober.start()["batch"]:
        return []
    task = bench.tasks[0]
    texts = ["", bench.accepted(task), JUNK[0], "", bench.accepted(task)]
    outcomes = bench.prober.run([Call(task.key, text) for text in texts], "batch")
    bad = [o for o in outcomes if failure_id(o) == "wrong_shape"]
    if not bad:
        return []
    summary = "A batch of five completions does not give five numbers."
    exploit = (task, "", "five numbers for five completions, the first of them empty")
    return [make_finding(bench, "wrong_shape", "fail", summary, evidence={"reason": bad[0].reason[:300]},
                         exploit=exploit)]  # fmt: skip


def _side_effects(bench: Bench) -> list[Finding]:
    """Prints, files, network, and changed arguments."""
    calls = list(bench.prober.known)
    outcomes = [bench.prober.known[call] for call in calls]
    watched_calls = [Call(t.key, text) for t in bench.tasks[:3] for text in (bench.accepted(t), JUNK[0])]
    watched = bench.prober.run(watched_calls, "watched")
    kinds: dict[str, list[tuple[Call, str]]] = {}
    for call, outcome in [*zip(calls, outcomes, strict=True), *zip(watched_calls, watched, strict=True)]:
        for kind in ("wrote", "network", "printed", "mutated"):
            if kind in outcome.seen:
                kinds.setdefault(kind, []).append((call, str(outcome.seen[kind])))
    if not kinds:
        return []
    often = len(kinds.get("printed", [])) > 0.5 * len(calls)
    grave = "wrote" in kinds or "mutated" in kinds or often or ("network" in kinds and not bench.source.judge)
    kind = next(k for k in ("wrote", "mutated", "network", "printed") if k in kinds)
    words = {"wrote": "writes files", "mutated": "changes its arguments", "network": "opens connections",
             "printed": "prints"}  # fmt: skip
    tasks = {task.key: task for task in (*bench.all_tasks, *bench.tasks)}
    call = next((c for c, _ in kinds[kind] if c.task in tasks), watched_calls[0])
    evidence = {k: {"calls": len(rows), "example": rows[0][1]} for k, rows in kinds.items()}
    summary = f"The reward {' and '.join(words[k] for k in kinds)} while it scores."
    exploit = (tasks[call.task], call.completion, "a score and nothing else")
    status = "fail" if grave else "warn"
    return [make_finding(bench, "side_effects", status, summary, evidence=evidence, exploit=exploit)]


def evaluation_texts(bench: Bench, task: AuditTask) -> list[str]:
    """The harmless payload in the places where a reward could evaluate it."""
    gold = task.gold.text if task.has_gold else "5"
    code = f"import sys\nsys.{CANARY} = 1\n"
    inner = [PAYLOAD, f"{PAYLOAD} or {gold}", f"{gold}, {PAYLOAD}", f"[{PAYLOAD}, 2]", f"{gold} + {PAYLOAD}"]
    return [*inner, *(bench.write(task, text) for text in inner), code, bench.write(task, code),
            f"```python\n{code}```"]  # fmt: skip


def _evaluation(bench: Bench) -> list[Finding]:
    """Whether the model's text is evaluated in the reward's own process: seen, or read from the source."""
    for task in bench.tasks[:2]:
        texts = evaluation_texts(bench, task)
        outcomes = bench.prober.run([Call(task.key, text) for text in texts], "plain")
        for text, outcome in sorted(zip(texts, outcomes, strict=True), key=lambda pair: len(pair[0])):
            if "executed" in outcome.seen or "evaluated" in outcome.seen:
                summary = "Text written by the model is evaluated as Python in the reward's own process."
                evidence = {"seen": "executed" if "executed" in outcome.seen else "compiled and run",
                            "calls": _lines(bench)}  # fmt: skip
                exploit = (task, text, "not evaluated")
                return [
                    make_finding(bench, "unsafe_eval", "fail", summary, evidence=evidence, exploit=exploit)
                ]
    if not bench.source.evaluators:
        return []
    harmless = bench.source.guarded or bench.is_code
    summary = "The source evaluates text that derives from the model's" + (
        "; its characters are checked first." if harmless else "."
    )
    return [make_finding(bench, "unsafe_eval", "warn" if harmless else "fail", summary,
                         evidence={"calls": _lines(bench)})]  # fmt: skip


def _lines(bench: Bench) -> Sequence[str]:
    return [f"{name} in line {line}" for line, name in bench.source.evaluators]
