"""A diagnosis for people: the stages in order, the first broken one, its evidence, the repair and the next command."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from assay.doctor.catalogue import STAGE_NAMES
from assay.doctor.comparison import Parting
from assay.doctor.diagnosis import Diagnosis
from assay.records.finding import Finding, Stage

_STYLES = {"fail": "bold red", "warn": "yellow", "pass": "green", "skip": "dim"}
_ORDER: tuple[Stage, ...] = (1, 2, 3, 4, 5, "hacking", "run")
_NEXT = {
    1: "assay audit FILE.py:FUNCTION --tasks TASKS.jsonl", 2: "assay doctor --code FILE.py:FUNCTION --as advantages",
    3: "assay doctor --code FILE.py:FUNCTION --as logprobs", 4: "assay doctor --code FILE.py:FUNCTION --as loss",
    5: "assay doctor --code FILE.py:FUNCTION --as decode",
    "hacking": "assay audit FILE.py:FUNCTION --tasks TASKS.jsonl",
    "run": "assay doctor FIRST_RUN SECOND_RUN",
}  # fmt: skip


def reading(diagnosis: Diagnosis) -> RenderableType:
    """The terminal page of one run."""
    parts: list[RenderableType] = [_heading(diagnosis), _stages(diagnosis)]
    if diagnosis.root_cause is not None:
        parts.append(_cause(diagnosis.root_cause))
    others = [
        f for f in diagnosis.of("fail", "warn") if f is not diagnosis.root_cause and f != diagnosis.root_cause
    ]
    if others:
        parts.append(_others(others))
    parts += [
        Text(f"{note.kind.replace('_', ' ')}: {note.text}", style="dim") for note in diagnosis.notes[:12]
    ]
    return Group(*parts)


def _heading(diagnosis: Diagnosis) -> Text:
    words = {"healthy": "healthy", "broken": "broken", "cannot_tell": "cannot tell"}[diagnosis.verdict]
    style = {"healthy": "bold green", "broken": "bold red", "cannot_tell": "bold yellow"}[diagnosis.verdict]
    return Text.assemble(
        ("assay doctor ", "bold"), f"{diagnosis.origin} ({diagnosis.source}): ", (words, style)
    )


def _stages(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for stage in _ORDER:
        own = [found for found in diagnosis.findings if found.stage == stage]
        if not own:
            continue
        worst = next((s for s in ("fail", "warn", "pass", "skip") if any(f.status == s for f in own)), "skip")
        name = f"{stage}. {STAGE_NAMES[stage]}" if isinstance(stage, int) else f"   {STAGE_NAMES[stage]}"
        table.add_row(name, Text(worst, style=_STYLES[worst]), _stage_words(own))
    return table


def _stage_words(own: list[Finding]) -> Text:
    loud = [found for found in own if found.status in ("fail", "warn")]
    if loud:
        return Text(", ".join(found.id for found in loud))
    passed, skipped = (sum(f.status == s for f in own) for s in ("pass", "skip"))
    return Text(f"{passed} checks passed" + (f", {skipped} not possible" if skipped else ""), style="dim")


def _cause(found: Finding) -> Panel:
    lines = [Text(found.summary, style="bold"), Text(f"Fix: {found.fix}")]
    lines += [
        Text(f"  {name}: {_short(value)}", style="dim")
        for name, value in found.evidence.items()
        if value is not None
    ]
    refs = ", ".join(f"step {s.step} prompt {s.prompt_id} sample {s.sample}" for s in found.samples[:3])
    lines += [Text(f"Samples: {refs}")] if refs else []
    lines.append(Text(f"Next: {_NEXT.get(found.stage, 'assay doctor PATH')}", style="cyan"))
    return Panel(Group(*lines), title=f"root cause: {found.id}", title_align="left", border_style="red")


def _others(found: Iterable[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for item in found:
        follows = f"follows from {item.follows_from}" if item.follows_from else ""
        table.add_row(
            Text(item.status, style=_STYLES[item.status]),
            item.id,
            Text(item.summary),
            Text(follows, style="dim"),
        )
    return table


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_short(v)}" for k, v in list(value.items())[:6])
    if isinstance(value, list | tuple):
        return ", ".join(_short(v) for v in list(value)[:6])
    return str(value)[:160]


def parting(result: Parting) -> RenderableType:
    """The terminal page of two runs."""
    if result.step is None:
        where = "the two runs stay together in every metric that both log"
    else:
        where = f"the two runs part at step {result.step}, first in {result.metric}"
    parts: list[RenderableType] = [Text(where, style="bold")]
    if result.first_difference is not None:
        parts.append(Text(f"the first number that differs is at step {result.first_difference}", style="dim"))
    if result.resumed is not None:
        parts.append(
            Text(f"{result.resumed.status}: {result.resumed.summary}", style=_STYLES[result.resumed.status])
        )
    return Group(*parts, reading(result.first), reading(result.second))
