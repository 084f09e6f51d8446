"""What a run against a learned reward adds to a report: alarms, best-of-n, fitted laws, and the checklist.

Read from ``overoptimisation.json``, which the experiment writes beside the arm's ``run.json``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.report import tables
from assay.report.load import Document
from assay.report.safe import escape

LAWS = {"quadratic": "d (a - b d)", "logarithmic": "d (a - b ln d)"}


def section(found: Sequence[tuple[str, Document]]) -> str:
    """HTML for every arm with a learned reward; nothing when there is none."""
    if not found:
        return ""
    parts = "".join(_arm(name, document) for name, document in found)
    return (
        "<section><h2 id='learned'>The reward is learned</h2><p>Nobody verified this reward; it stands for "
        "what raters liked. So the alarms, a baseline without training, and what should have been done before "
        f"it is believed.</p>{parts}</section>"
    )


def _arm(name: str, document: Document) -> str:
    alarms = "".join(f"<li>{escape(alarm)}</li>" for alarm in document["alarms"])
    ticks = "".join(
        f"<li>{'☑' if entry['done'] else '☐'} {escape(what)}: {escape(entry['evidence'])}</li>"
        for what, entry in document["checklist"].items()
    )
    return (
        f"<h3>{escape(name)}</h3>"
        + (f"<ul class='alarms'>{alarms}</ul>" if alarms else "<p>No alarm.</p>")
        + _points(document)
        + _laws(document)
        + f"<ul class='checklist'>{ticks}</ul>"
    )


def _points(document: Document) -> str:
    """Training and best-of-n by their distance: what a KL of that size buys each way."""
    points = [*document["checkpoints"], *document["best_of_n"]]
    rows = [
        [escape(point["label"]), *(tables.number(_known(point[key])) for key in ("kl", "reward", "truth"))]
        for point in sorted(points, key=lambda point: _known(point["kl"]))
    ]
    caption = "Checkpoints and best-of-n of the start policy, by KL (of best-of-n an upper bound)"
    return tables.table(("policy", "KL, nats", "reward", "truth"), rows, caption)


def _laws(document: Document) -> str:
    rows = [
        [
            escape(f"{fit['form']}: {LAWS.get(fit['form'], fit['form'])}"),
            *(tables.number(_known(fit[key]), 3) for key in ("a", "b", "rmse", "peak_distance")),
        ]
        for fit in document["fits"]
    ]
    caption = "Truth gained at the distance d = √KL, both laws of over-optimisation"
    return tables.table(("law", "a", "b", "residual", "peak at d"), rows, caption) if rows else ""


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def console_lines(document: Document) -> list[str]:
    """The alarms, for a terminal."""
    return [f"alarm: {alarm}" for alarm in document["alarms"]]
