"""What the reward pays that it should not: the families of probes, judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.ledger import Hit, Ledger, enough, hit_finding, make_finding, paid_hits
from assay.audit.minimise import minimised
from assay.audit.probes import (
    Probe,
    echo_probes,
    empty_probes,
    format_probes,
    guess_probes,
    injection_probes,
    junk_probes,
    marker_probes,
    same_exploit,
    value_probes,
)
from assay.records.finding import Finding

FULL, EXACT = 0.95, 0.9999
PLAINLY_WRONG = frozenset(
    {"sign", "near", "far", "ten times", "another gold", "another letter", "upside down"}
)
"""Wrong values that share nothing with the gold for which part of the pay could be due."""
GRADED_LEVELS = 4
"""So many different pays of wrong values are a graded score (partial credit), not a loophole."""


def paid_findings(bench: Bench, ledger: Ledger) -> list[Finding]:
    """All findings about texts that are paid and must not be."""
    found: list[Finding] = []
    empty = _family(bench, empty_probes(bench), ledger, "The empty text is paid like a right answer.")
    junk = _family(bench, junk_probes(bench), ledger, "Text without any answer is paid.")
    blank = empty is not None and empty.exploit is not None and empty.exploit.completion != ""
    found += [f for f in (junk if blank and junk else empty or junk,) if f]
    found += _by_id(bench, [*marker_probes(bench), *injection_probes(bench)], {
        "accepts_marker": "One word added to junk makes it pay.",
        "accepts_judge_injection": "Words meant for a judge make junk pay.",
    })  # fmt: skip
    structure = _format(bench)
    echo = _family(bench, echo_probes(bench), ledger, "Giving the prompt back is paid.")
    found += [f for f in (structure, echo, _guesses(bench, ledger)) if f]
    wrong = _wrong_values(bench, ledger)
    if wrong and structure:
        wrong = replace(wrong, follows_from="pays_format_only")
    return [*found, *([wrong] if wrong else []), *_noop(bench)]


def _family(bench: Bench, probes: list[Probe], ledger: Ledger | None, summary: str) -> Finding | None:
    hits = paid_hits(bench, probes, ledger)
    return (
        hit_finding(bench, _shortened(bench, hits), probes, summary) if enough(bench, hits, probes) else None
    )


def _by_id(bench: Bench, probes: list[Probe], summaries: dict[str, str]) -> list[Finding]:
    """Judge marker and injection probes together; one text counts as found when it pays for two golds."""
    hits = paid_hits(bench, probes)
    found: list[Finding] = []
    for id, summary in summaries.items():
        groups: dict[str, list[Hit]] = {}
        for hit in hits:
            if hit.probe.id == id:
                groups.setdefault(hit.probe.completion, []).append(hit)
        good = [h for group in groups.values() if enough(bench, group, _same(probes, group)) for h in group]
        if id == "accepts_judge_injection" and not bench.source.judge and found:
            good = []  # the marker explains it
        if good:
            found.append(hit_finding(bench, _shortened(bench, good), _same(probes, good), summary))
    return found


def _same(probes: Sequence[Probe], hits: Sequence[Hit]) -> list[Probe]:
    texts = {hit.probe.completion for hit in hits}
    return [probe for probe in probes if probe.completion in texts]


def _shortened(bench: Bench, hits: Sequence[Hit]) -> list[Hit]:
    """The hits, and the shortest of them made as short as it can be while it pays on the same tasks and stays what
    it is: of its kind, and wrong by construction.
    """
    if not hits:
        return []
    best = min(hits, key=lambda hit: len(hit.probe.completion))
    alike = [hit.probe for hit in hits if hit.probe.completion == best.probe.completion][:3]

    def still_paid(text: str) -> bool:
        return bool(text) and all(same_exploit(p, text) and bench.paid(p.task, text) > HALF for p in alike)

    text = minimised(best.probe.completion, still_paid)
    share = bench.paid(best.probe.task, text)
    return [Hit(replace(best.probe, completion=text), share), *hits]


def _format(bench: Bench) -> Finding | None:
    """Structure without content; a reward that never reads the gold pays structure whatever is in it."""
    probes = format_probes(bench)
    summary = "The structure is paid without the right content."
    found = _family(bench, probes, None, summary)
    if found or not bench.has_gold or bench.uses_gold or not bench.good_tasks:
        return found
    values = [p for p in value_probes(bench) if bench.paid(p.task, p.completion) > HALF]
    hits = [Hit(replace(p, id="pays_format_only"), bench.paid(p.task, p.completion)) for p in values]
    return hit_finding(bench, hits, values, summary) if enough(bench, hits, values) else None


def _guesses(bench: Bench, ledger: Ledger) -> Finding | None:
    pairs = list(guess_probes(bench))
    bench.prefetch((probe.task, control) for probe, control in pairs)
    fair = [p for p, control in pairs if not bench.paid(p.task, control) > HALF]
    hits = paid_hits(bench, fair, ledger)
    by_name = {hit.probe.name for hit in hits}
    kept = [
        hit
        for name in by_name
        if enough(
            bench, group := [h for h in hits if h.probe.name == name], [p for p in fair if p.name == name]
        )
        for hit in group
    ]
    return hit_finding(bench, kept, fair, "A list of guesses is paid when one is right.") if kept else None


def _wrong_values(bench: Bench, ledger: Ledger) -> Finding | None:
    probes = value_probes(bench)
    hits = paid_hits(bench, probes, ledger)
    if not enough(bench, hits, probes):
        return None
    graded = _graded(bench, probes)
    full = [hit for hit in hits if hit.share > (EXACT if graded else FULL)]
    full += [hit for hit in hits if hit.probe.name in PLAINLY_WRONG and not graded and hit not in full]
    if not enough(bench, full, probes):
        text = "Some wrong answers are paid in part: a graded score. Check that this is what you want."
        return hit_finding(bench, hits, probes, text, "warn")
    return hit_finding(bench, full, probes, "A wrong answer is paid like the right one.")


def _graded(bench: Bench, probes: Sequence[Probe]) -> bool:
    """Whether wrong values get many different pays: partial credit, not a loophole."""
    shares = [bench.paid(p.task, p.completion) for p in probes]
    levels = {round(share, 2) for share in shares if not math.isnan(share) and 0.02 < share < FULL}
    return len(levels) >= GRADED_LEVELS


def _noop(bench: Bench) -> list[Finding]:
    """A score of things not done: words of the source lower it far below what doing nothing gets.

    Penalties below 0 for a text that earns 0 are no such score, so the zero counts unless the source speaks of
    what must not be there.
    """
    negated = bench.source.text.count("not ") >= 2
    hits: list[tuple[float, int]] = []
    for index, task in enumerate(bench.good_tasks):
        empty = bench.prober.score(task.key, "").value
        floor = _floor(bench, task.key)
        high = bench.scales[task.key].high
        from_zero = floor >= -bench.resolution and empty > HALF * high
        if not negated and not from_zero:
            continue
        if high - floor > bench.resolution and (empty - floor) / (high - floor) > HALF:
            hits.append(((empty - floor) / (high - floor), index))
    if len(hits) < min(2, len(bench.good_tasks)) or not hits:
        return []
    share, index = max(hits)
    task = bench.good_tasks[index]
    summary = "Doing nothing is paid more than half: most of the score is for things not done."
    evidence = {"share_of_gold_pay": round(share, 6), "tasks_paid": len(hits)}
    exploit = (task, "", "the lowest score: nothing was done")
    return [make_finding(bench, "accepts_noop", "fail", summary, evidence=evidence, exploit=exploit)]


def _floor(bench: Bench, key: str) -> float:
    """The least that junk with words of the source gets: every word that lowers the score, together."""
    base = JUNK[0]
    start = bench.prober.score(key, base).value
    lowering = [m for m in bench.source.markers[:40] if bench.prober.score(key, f"{base} {m}").value < start]
    return bench.prober.score(key, " ".join([base, *lowering])).value if len(lowering) > 1 else math.inf
