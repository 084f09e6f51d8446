"""The bench: an accepted completion per task, and the scale on which everything else is measured.

A score means nothing by itself: 0.3 may be full pay or next to none. So each task gets a scale: *high* is
what its gold is paid in the accepted form, *low* the least that junk, the empty text and a far wrong answer
are paid. ``paid`` is the share of the way from low to high, so that multiplying or shifting a reward changes
nothing.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.audit.forms import THOUGHT, Form, candidate_forms
from assay.audit.golds import far_value, read_gold
from assay.audit.patterns import SLOT
from assay.audit.prober import Call, Outcome, Prober
from assay.audit.source import RewardSource
from assay.audit.task_file import AuditTask, misfits

JUNK = (
    "zzz", "I do not know.", "The quick brown fox jumps over the lazy dog.", "qwv xk jjp, tlo rrm uuv.",
    "We went to the harbour and watched the boats until it was dark.",
)  # fmt: skip
TINY = 1e-6
SLOW = 0.015
"""Seconds a call from which a reward is slow: a started program takes that long at least."""
FORK = 0.006
"""Seconds that a fork takes."""
HALF = 0.5 + TINY
"""Paid is more than half of the gold's pay; see :meth:`Bench.pays_nothing` for exactly half."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Raw scores of one task: what the gold gets, and the least that junk and wrong answers get."""

    low: float
    high: float
    junk: float
    wrong: float

    @property
    def span(self) -> float:
        """high - low; 0 or below when the gold is not paid more than the rest."""
        return self.high - self.low


@dataclass(slots=True)
class Bench:
    """What is known about a reward once a completion was found that it accepts.

    Attributes:
        tasks: the tasks probed, with distinct golds first. templates: per task, an accepted completion with a
            slot for the answer (or without one). forms: all accepted forms. uses_gold: whether another gold
            changes the score. contested, limits: lines for the report.
    """

    prober: Prober
    source: RewardSource
    tasks: list[AuditTask]
    all_tasks: list[AuditTask]
    templates: dict[str, str] = field(default_factory=dict[str, str])
    forms: list[Form] = field(default_factory=list[Form])
    scales: dict[str, Scale] = field(default_factory=dict[str, Scale])
    uses_gold: bool = False
    has_gold: bool = False
    inverted: bool = False
    cost: float = 0.0
    contested: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])

    @property
    def good_tasks(self) -> list[AuditTask]:
        """Tasks whose scale has a span worth measuring on."""
        return [t for t in self.tasks if t.key in self.scales and self.scales[t.key].span > self.resolution]

    @property
    def resolution(self) -> float:
        """The smallest raw difference that counts: a millionth of the largest span or score."""
        known = [s for s in self.scales.values() if not math.isnan(s.span)]
        spans, sizes = [abs(s.span) for s in known], [abs(s.high) + abs(s.low) for s in known]
        return max(max(spans, default=0.0) * TINY, max(sizes, default=0.0) * 1e-12)

    @property
    def slow(self) -> bool:
        """Whether a call takes so long that texts are tried on one task before they are tried on the others."""
        return self.cost > SLOW

    @property
    def is_code(self) -> bool:
        """Whether the tasks ask for programs."""
        rows = self.tasks or self.all_tasks
        return any(t.gold.kind == "code" or "tests" in t.row or "test_list" in t.row for t in rows)

    def write(self, task: AuditTask, value: str) -> str:
        """The accepted completion of a task with another answer in it."""
        return self.templates.get(task.key, SLOT).replace(SLOT, value)

    def accepted(self, task: AuditTask) -> str:
        """The accepted completion of a task."""
        return self.write(task, task.gold.text)

    def share(self, task: AuditTask, outcome: Outcome) -> float:
        """How much of the gold's pay an outcome is: 0 at the low end, 1 at the gold; NaN without a score."""
        scale = self.scales.get(task.key)
        if scale is None or scale.span <= self.resolution or outcome.state != "scored":
            return math.nan
        return (outcome.value - scale.low) / scale.span

    def paid(self, task: AuditTask, completion: str) -> float:
        """Score a completion and return its share."""
        return self.share(task, self.prober.score(task.key, completion))

    def pays_nothing(self, task: AuditTask, share: float) -> bool:
        """Whether a text that says nothing is paid: at least half of the gold's pay.

        At exactly half the zero of the reward decides: half of a pay that starts at 0 is paid, and the 0
        between -1 and 1 is what an abstention gets. On a shifted scale nobody can tell: it is contested.
        """
        if share > HALF:
            return True
        scale = self.scales[task.key]
        if not share >= 0.5 - TINY or scale.low < -self.resolution:
            return False
        if scale.low <= self.resolution:
            return True
        line = "text without an answer is paid exactly half way between the lowest pay and the gold's"
        self.contested.append(f"{line}: right if that is an abstention, a flaw if not")
        return False

    def prefetch(self, pairs: Iterable[tuple[AuditTask, str]]) -> None:
        """Score many completions at once (their outcomes are remembered)."""
        self.prober.scores([Call(task.key, text) for task, text in pairs])


def mentions(text: str, gold: str) -> bool:
    """Whether a text contains a gold as a word of its own."""
    if not gold.strip():
        return False
    return re.search(rf"(?<!\w){re.escape(gold.strip())}(?!\w)", text, re.IGNORECASE) is not None


def build_bench(prober: Prober, source: RewardSource, tasks: Sequence[AuditTask]) -> Bench:
    """Find the accepted form and set the scales (about one to two thousand calls for a fast reward)."""
    bench = Bench(prober, source, [], list(tasks))
    bench.has_gold = any(task.has_gold for task in tasks)
    bench.cost = prober.usual = _cost(prober, tasks)
    bench.tasks = _chosen(bench, tasks)
    candidates = candidate_forms(source, [task.prompt for task in tasks], slotted=bench.has_gold)
    if bench.is_code:
        candidates = [*_code_forms(), *candidates[:40]]
    candidates = candidates[: max(12, int(1.5 / max(bench.cost, 1e-4)))]
    ranked = _rank(bench, _extremes(bench, candidates) if bench.slow else candidates)
    _settle(bench, ranked)
    bench.uses_gold = _uses_gold(bench)
    return bench


def _cost(prober: Prober, tasks: Sequence[AuditTask]) -> float:
    """Seconds a call, from a few junk texts; a process of its own for every call adds to each."""
    outcomes = prober.scores([Call(tasks[0].key, text) for text in JUNK])
    scored = [o.seconds for o in outcomes if o.state != "hang"] or [o.seconds for o in outcomes]
    return statistics.median(scored) + FORK * prober.isolate


def _chosen(bench: Bench, tasks: Sequence[AuditTask]) -> list[AuditTask]:
    """A dozen tasks at most, kinds of gold in turn, golds distinct; variants fill up where golds are few."""
    room = 12 if bench.cost < 0.005 else 6 if bench.cost < 0.05 else 3
    odd = misfits(tasks)
    usable = [task for task in tasks if task.has_gold and task not in odd] or list(tasks)
    by_kind: dict[str, list[AuditTask]] = {}
    for task in {task.gold.text: task for task in reversed(usable)}.values() if bench.has_gold else usable:
        by_kind.setdefault(task.gold.kind, []).append(task)
    queues = [list(reversed(group)) if bench.has_gold else group for group in by_kind.values()]
    chosen: list[AuditTask] = []
    while len(chosen) < room and any(queues):
        for queue in queues:
            if queue and len(chosen) < room:
                chosen.append(queue.pop(0))
    if bench.has_gold and len(chosen) < 3 and chosen[0].gold.kind != "code" and "tests" not in chosen[0].row:
        chosen += _variants(bench.prober, chosen)
    return chosen


def _variants(prober: Prober, chosen: Sequence[AuditTask]) -> list[AuditTask]:
    """The first task with other golds of the same kind: 'wrong for two golds' needs two golds."""
    first = chosen[0]
    pools = {
        "integer": ["37", "-418", "2605"], "decimal": ["2.75", "-0.6", "41.5"], "choice": list("CBDA"),
        "fraction": ["2/3", "-7/4", "5/8"],
    }  # fmt: skip
    pool = pools.get(first.gold.kind, ["heron", "Lisbon", "copper"])
    found: list[AuditTask] = []
    for value in [v for v in pool if v not in {t.gold.text for t in chosen}][:2]:
        key = f"{first.key}:{value}"
        row = first.with_gold(int(value) if isinstance(first.row.get(first.column or ""), int) else value)
        prober.add_task(key, row)
        known = tuple(_slotted(text, first).replace(SLOT, value) for text in first.completions)
        found.append(AuditTask(key, row, first.column, read_gold(value), known))
    return found


def _code_forms() -> list[Form]:
    fences = (f"```python\n{SLOT}\n```", SLOT, f"Here is the solution:\n```python\n{SLOT}\n```")
    tagged = (f"<think>\n{THOUGHT}\n</think>\n<answer>\n```python\n{SLOT}\n```\n</answer>",
              f"<answer>\n{SLOT}\n</answer>")  # fmt: skip
    return [Form(template, "common") for template in (*fences, *tagged)]


def _value(outcome: Outcome) -> float:
    return outcome.value if outcome.state == "scored" else math.nan


def _extremes(bench: Bench, candidates: Sequence[Form]) -> list[Form]:
    """For a slow reward: the forms in which the first gold is paid most, and (were it inverted) least."""
    task = bench.tasks[0]
    value = _right(bench, task)
    bench.prefetch((task, form.write(value)) for form in candidates)
    scores = {form: _value(bench.prober.score(task.key, form.write(value))) for form in candidates}
    known = sorted((f for f in candidates if not math.isnan(scores[f])), key=lambda form: -scores[form])
    return list(dict.fromkeys([*known[:5], *known[-3:]])) or list(candidates[:8])


def _right(bench: Bench, task: AuditTask) -> str:
    return task.gold.text if bench.has_gold else "The result follows from the above."


@dataclass(frozen=True, slots=True)
class _Ranked:
    form: Form
    gold: list[float]
    wrong: list[float]

    @property
    def mean(self) -> float:
        known = [v for v in self.gold if not math.isnan(v)]
        return statistics.fmean(known) if known else -math.inf

    @property
    def lead(self) -> float:
        """Mean of gold minus far wrong."""
        both = [g - w for g, w in zip(self.gold, self.wrong, strict=True) if not math.isnan(g - w)]
        return statistics.fmean(both) if both else 0.0


def _rank(bench: Bench, candidates: Sequence[Form]) -> list[_Ranked]:
    """Score every form with the gold and with a far wrong answer on a few tasks."""
    tasks = bench.tasks[: 4 if bench.cost < 0.02 else 2]
    golds = [task.gold.text for task in bench.tasks]
    rows: list[_Ranked] = []
    texts: dict[tuple[str, str, bool], str] = {}
    for form in candidates:
        for task in tasks:
            texts[form.template, task.key, True] = form.write(_right(bench, task))
            wrong = far_value(task.gold, [g for g in golds if g != task.gold.text])
            texts[form.template, task.key, False] = form.write(wrong)
    calls = {k: Call(k[1], text) for k, text in texts.items()}
    outcomes = dict(zip(calls, bench.prober.scores(list(calls.values())), strict=True))
    for form in candidates:
        gold = [_value(outcomes[form.template, task.key, True]) for task in tasks]
        wrong = [_value(outcomes[form.template, task.key, False]) for task in tasks]
        rows.append(_Ranked(form, gold, wrong))
    return rows


def _settle(bench: Bench, ranked: list[_Ranked]) -> None:
    """Choose the accepted forms and each task's template, then measure the scales."""
    leads = [row.lead for row in ranked]
    top = max(leads, default=0.0)
    bottom = min(leads, default=0.0)
    size = max((abs(v) for row in ranked for v in row.gold if not math.isnan(v)), default=0.0) * 1e-9
    bench.inverted = bench.has_gold and top <= size < -bottom and _always_below(ranked, size)
    best = max((row.mean for row in ranked), default=-math.inf)
    floor = min((row.mean for row in ranked if row.mean > -math.inf), default=best)
    near = best - 0.05 * (best - floor)
    good = [row for row in ranked if row.mean >= near and row.mean > -math.inf]
    if top > size:  # among the best paid, forms in which right and wrong differ come first
        good.sort(key=lambda row: row.lead < 0.5 * top)
    if bench.inverted:
        good = [row for row in ranked if row.lead <= 0.95 * bottom]
    bench.forms = [row.form for row in good]
    main = bench.forms[0].template if bench.forms else SLOT
    for task in bench.tasks:
        bench.templates[task.key] = _template(bench, task, main)
        bench.scales[task.key] = _scale(bench, task)


def _always_below(ranked: Sequence[_Ranked], size: float) -> bool:
    worst = min(ranked, key=lambda row: row.lead)
    return all(g < w - size for g, w in zip(worst.gold, worst.wrong, strict=True))


def _template(bench: Bench, task: AuditTask, main: str) -> str:
    """The main form, or another accepted one, or the user's own completion, whichever is paid most."""
    value = _right(bench, task)
    options = [main, *[form.template for form in bench.forms[1:6]]]
    options += [_slotted(text, task) for text in task.completions]
    scores = [_value(bench.prober.score(task.key, t.replace(SLOT, value))) for t in options]
    known = [s for s in scores if not math.isnan(s)]
    if not known:
        return main
    best = max(known)
    slack = max(abs(best) * 1e-9, 0.02 * (best - min(known)))
    return next(t for t, s in zip(options, scores, strict=True) if not math.isnan(s) and s >= best - slack)


def _slotted(completion: str, task: AuditTask) -> str:
    """A known completion with its last mention of the gold turned into the slot."""
    gold = task.gold.text
    if not gold or not mentions(completion, gold):
        return completion
    found = list(re.finditer(rf"(?<!\w){re.escape(gold)}(?!\w)", completion))
    if not found:
        return completion
    return completion[: found[-1].start()] + SLOT + completion[found[-1].end() :]


def _scale(bench: Bench, task: AuditTask) -> Scale:
    others = [t.gold.text for t in bench.tasks if t.gold.text != task.gold.text]
    texts = [bench.write(task, _right(bench, task)), "", *JUNK]
    if bench.has_gold:
        texts.append(bench.write(task, far_value(task.gold, others)))
        texts += [bench.write(task, other) for other in others[:3]]
    outcomes = bench.prober.scores([Call(task.key, text) for text in texts])
    high, empty, *rest = [_value(outcome) for outcome in outcomes]
    junk = _median(rest[: len(JUNK)])
    wrong = _median(rest[len(JUNK) :])
    known = [v for v in (empty, junk, wrong) if not math.isnan(v)]
    return Scale(min(known, default=math.nan), high, junk, wrong)


def _median(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else math.nan


def _uses_gold(bench: Bench) -> bool:
    """Whether one completion is scored differently under different golds."""
    if not bench.has_gold or len(bench.tasks) < 2:
        return False
    for task, other in zip(bench.tasks, bench.tasks[1:], strict=False):
        text = bench.accepted(task)
        own, foreign = bench.prober.score(task.key, text), bench.prober.score(other.key, text)
        if own.state == foreign.state == "scored" and abs(own.value - foreign.value) > bench.resolution:
            return True
    return False
