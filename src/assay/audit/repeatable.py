"""Whether a score depends on anything besides the completion and its task: chance, history, neighbours, errors
that are hidden, or the thread.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from assay.audit.bench import JUNK, Bench
from assay.audit.forms import LONG_THOUGHT
from assay.audit.golds import far_value
from assay.audit.ledger import make_finding
from assay.audit.prober import Call, Outcome
from assay.audit.source import SERVICES, BroadExcept
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding

FAULTS = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "OSError", "FileNotFoundError",
          "PermissionError", "ConnectionError", "URLError", "TimeoutError", "MemoryError", "NotImplementedError",
          "signal only works")  # fmt: skip
"""Exceptions that no text of a model explains: they are faults of the reward or of its place."""


def sample_calls(bench: Bench) -> list[Call]:
    """Right, wrong and junk texts that share prefixes, lengths, prompts or completions with one another."""
    tasks = bench.tasks[:4] if bench.cost < 0.02 else bench.tasks[:2]
    golds = [task.gold.text for task in tasks]
    found: list[Call] = []
    for task, other in zip(tasks, [*tasks[1:], *tasks[:1]], strict=True):
        wrong = bench.write(task, far_value(task.gold, [g for g in golds if g != task.gold.text]))
        right = bench.accepted(task)
        long = [f"{LONG_THOUGHT} {LONG_THOUGHT}\n{text}" for text in (wrong, right)]
        texts = (JUNK[0], wrong, right, bench.accepted(other), *([] if bench.slow else [*long, ""]))
        found += [Call(task.key, text) for text in texts]
    return list(dict.fromkeys(found))


def history_calls(bench: Bench, count: int) -> list[Call]:
    """Calls already made, the best paid among them."""
    known = [call for call, outcome in bench.prober.known.items() if outcome.state == "scored"]
    if not known:
        return []
    best = sorted(known, key=lambda call: -bench.prober.known[call].value)[: count // 3]
    return list(dict.fromkeys([*best, *known[:: max(1, len(known) // count)]]))[: 2 * count]


def leaks_state(bench: Bench) -> bool:
    """Whether scores depend on the calls before them.

    An untouched process scores a part of the calls in another order. Where it disagrees, each call is scored
    three times in a process of its own: scores that agree with themselves there leaked, others are noise.
    """
    calls = history_calls(bench, 100 if bench.cost < 0.005 else 12)
    random.Random(0).shuffle(calls)
    before = [bench.prober.known[call] for call in calls]
    bench.prober.restart()
    shuffled = bench.prober.run(calls, "plain")
    moved = [c for c, a, b in zip(calls, before, shuffled, strict=True) if not same(a, b, bench)][:40]
    if not moved:
        return False
    bench.prober.restart()
    first, *others = [bench.prober.run(moved, "isolated") for _ in range(3)]
    return all(same(a, b, bench) for other in others for a, b in zip(first, other, strict=True))


def same(first: Outcome, second: Outcome, bench: Bench) -> bool:
    """Equal states and values, up to rounding."""
    if first.state != second.state or first.state != "scored":
        return first.state == second.state or "hang" in (first.state, second.state)
    return abs(first.value - second.value) <= max(bench.resolution, 1e-9 * abs(first.value))


def repeatable_findings(bench: Bench, leaked: bool) -> list[Finding]:
    """not_deterministic, state_leak and pays_position."""
    calls = sample_calls(bench)
    prober = bench.prober
    prober.restart()
    first = prober.run(calls, "isolated")
    prober.restart()  # another process has another hash seed
    second = prober.run(calls, "isolated")
    third = prober.run(calls, "isolated")
    noisy = _unlike(bench, calls, first, second) or _unlike(bench, calls, first, third)
    if noisy:
        summary = "The same text gets different scores, each time in an untouched process."
        return [_finding(bench, "not_deterministic", summary, calls, noisy)]
    backwards = prober.run(calls[::-1], "plain")[::-1]
    again = prober.run(calls, "plain")
    moved = _unlike(bench, calls, first, backwards) or _unlike(bench, calls, first, again)
    if moved or leaked:
        summary = "A score depends on what was scored before."
        return [_finding(bench, "state_leak", summary, calls, moved or (0, math.nan, math.nan))]
    return _batch(bench, calls, first)


def _unlike(
    bench: Bench, calls: Sequence[Call], first: Sequence[Outcome], second: Sequence[Outcome]
) -> tuple[int, float, float] | None:
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if not same(a, b, bench):
            return index, a.value, b.value
    return None


def _finding(
    bench: Bench, id: str, summary: str, calls: Sequence[Call], where: tuple[int, float, float]
) -> Finding:
    index, first, second = where
    task = _task(bench, calls[index].task)
    exploit = (task, calls[index].completion, "the same score every time")
    return make_finding(bench, id, "fail", summary, evidence={"scores": [first, second]}, exploit=exploit)


def _task(bench: Bench, key: str) -> AuditTask:
    return next(task for task in bench.tasks if task.key == key)


def _batch(bench: Bench, calls: Sequence[Call], alone: Sequence[Outcome]) -> list[Finding]:
    """Scores in a batch against scores alone; equal texts that differ by their place are a matter of place."""
    if not bench.prober.start()["batch"]:
        return []
    together = bench.prober.run(calls, "batch")
    if any(o.state == "crashed" for o in together):
        return []  # the shape check says what is wrong
    moved = _unlike(bench, calls, alone, together)
    if moved is None:
        return []
    task = bench.tasks[0]
    equal = bench.prober.run([Call(task.key, bench.accepted(task))] * 6, "batch")
    if not all(same(equal[0], other, bench) for other in equal):
        summary = "Equal completions of one batch are paid differently by their place."
        return [_finding(bench, "pays_position", summary, calls, moved)]
    return [_finding(bench, "state_leak", "A score depends on the rest of the batch.", calls, moved)]


def hidden_error_findings(bench: Bench) -> list[Finding]:
    """Errors that the reward hides: seen on valid texts, in a thread, or certain from its source."""
    if not bench.source.broad_excepts:
        return _thread_only(bench)
    where, seen = _hidden(bench)
    grave = [b for b in bench.source.broad_excepts if _guards_a_service(b) or _pays_for_errors(bench, b)]
    handlers = [f"line {b.line}" for b in bench.source.broad_excepts]
    status = "fail" if seen or grave else "warn"
    summary = (
        f"An error of the reward itself is scored as if the answer were wrong: {seen[0][:120]}."
        if seen
        else "Every exception becomes a score; a fault of the reward or of a service is not told from a wrong answer."
    )
    exploit = (where, bench.accepted(where), "an error that is seen, or the full score") if seen else None
    evidence = {"handlers": handlers, "hidden": seen[:5]}
    return [make_finding(bench, "swallows_errors", status, summary, evidence=evidence, exploit=exploit,
                         refused=True)]  # fmt: skip


def _guards_a_service(handler: BroadExcept) -> bool:
    return any(
        SERVICES.search(call) or call.endswith((".post", ".urlopen", ".create")) for call in handler.calls
    )


def _pays_for_errors(bench: Bench, handler: BroadExcept) -> bool:
    """The handler returns nearer to the gold's pay than to the lowest."""
    scales = [bench.scales[t.key] for t in bench.good_tasks]
    return handler.pays is not None and any(handler.pays - s.low > 0.5 * s.span for s in scales)


def _hidden(bench: Bench) -> tuple[AuditTask, list[str]]:
    """Exceptions inside the reward's file that reached nobody, on golds, and on any text if they are faults; and
    the task on whose gold the first was seen (the first task where none was).
    """
    where: AuditTask | None = None
    calls = [Call(t.key, bench.accepted(t)) for t in bench.tasks[:4]]
    junk = [Call(t.key, JUNK[0]) for t in bench.tasks[:2]]
    traced = bench.prober.run([*calls, *junk], "traced")
    threaded = bench.prober.run(calls, "thread")
    found: list[str] = []
    for index, outcome in enumerate([*traced, *threaded]):
        if outcome.state != "scored":
            continue
        raised = [
            str(r) for r in outcome.seen.get("raised", ()) if not r.startswith(("GeneratorExit", "Stop"))
        ]
        found += [r for r in raised if any(fault in r for fault in FAULTS)]
        if len(calls) + len(junk) > index >= len(calls):
            continue
        task = bench.tasks[index if index < len(calls) else index - len(calls) - len(junk)]
        scale = bench.scales[task.key]
        low = not math.isnan(scale.low) and outcome.value - scale.low <= 0.5 * abs(scale.span)
        if raised and low:
            where = where or task
            found += raised
    return where or bench.tasks[0], list(dict.fromkeys(found))


def _thread_only(bench: Bench) -> list[Finding]:
    """The gold is paid in the main thread and fails, visibly, in another one."""
    calls = [Call(t.key, bench.accepted(t)) for t in bench.tasks[:2]]
    plain, threaded = bench.prober.run(calls, "plain"), bench.prober.run(calls, "thread")
    for task, a, b in zip(bench.tasks, plain, threaded, strict=False):
        if a.state == "scored" and b.state == "crashed":
            summary = "The reward works in the main thread only."
            exploit = (task, bench.accepted(task), "the same score in every thread")
            return [make_finding(bench, "crashes", "warn", summary, evidence={"reason": b.reason[:300]},
                                 exploit=exploit)]  # fmt: skip
    return []
