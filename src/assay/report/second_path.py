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
        + _equal_length(document)
        + _pairs(document)
        + _reward_model(document)
        + f"<ul class='checklist'>{ticks}</ul>"
    )


def _points(document: Document) -> str:
    """Training, best-of-n and rejection sampling by their distance: what a KL of that size buys each way."""
    points = [*document["checkpoints"], *document["best_of_n"], *document.get("rejection", ())]
    rows = [
        [escape(point["label"]), *(tables.number(_known(point[key])) for key in ("kl", "reward", "truth"))]
        for point in sorted(points, key=lambda point: _known(point["kl"]))
    ]
    caption = (
        "Checkpoints, and without training the best of n draws of the start policy and draws repeated until the "
        "reward is high enough, by KL (of best-of-n an upper bound)"
    )
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


def _equal_length(document: Document) -> str:
    """What is left of the gain when length is held equal."""
    if "wins" not in document:
        return ""
    rows = [
        [by, tables.number(_known(wins["raw"])), _interval(wins["at_equal_length"])]
        for by, wins in document["wins"].items()
    ]
    gained = tables.number(_known(document["gain_at_equal_length"]))
    caption = (
        "How often the end beats the start on a prompt (a tie is one half). Reward gained within completions of like "
        f"length: {gained}"
    )
    return tables.table(("judged by", "wins", "at equal length"), rows, caption)


def _pairs(document: Document) -> str:
    """The implicit rewards of a preference method, with what falling values mean."""
    pairs = document.get("pairs")
    if not pairs:
        return ""
    names = {
        "reward_chosen": "chosen",
        "reward_rejected": "rejected",
        "margin": "margin",
        "accuracy": "accuracy",
    }
    rows = [[label, tables.number(_known(pairs[name]))] for name, label in names.items()]
    caption = (
        "Implicit rewards (beta times the log ratio to the reference) of the last step's pairs. Chosen and rejected "
        "may both be below 0 and fall together: the loss only asks that the margin grows, so that is no wrong sign"
    )
    return tables.table(("of the pairs", "mean"), rows, caption)


def _reward_model(document: Document) -> str:
    """What the reward model's own report says, on comparisons it was not trained on."""
    facts = document.get("reward_model") or {}
    rows = [
        [
            label,
            _interval(facts[name]) if isinstance(facts[name], dict) else tables.number(_known(facts[name])),
        ]
        for name, label in MODEL_FACTS.items()
        if name in facts
    ]
    caption = "The reward model on held-out comparisons; slopes are margins between answers of equal quality"
    return tables.table(("fact", "value"), rows, caption) if rows else ""


MODEL_FACTS = {
    "accuracy": "agrees with the raters",
    "on_shorter_chosen": "where they chose the shorter",
    "on_longer_chosen": "where they chose the longer",
    "calibration": "calibration (1: margins are log-odds)",
    "length_slope": "margin a token",
    "marker_slope": "margin for the marker",
    "agreement_slope": "margin for agreeing with the asker",
    "disagreement": "deviation of its heads",
}


def _interval(value: Document) -> str:
    estimate, low, high = (_known(value.get(name)) for name in ("estimate", "low", "high"))
    return f"{tables.number(estimate, 3)} [{tables.number(low, 3)}, {tables.number(high, 3)}]"


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def console_lines(document: Document) -> list[str]:
    """The alarms, for a terminal."""
    return [f"alarm: {alarm}" for alarm in document["alarms"]]
