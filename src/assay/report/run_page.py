"""What a foreign run's log adds to the page of its findings: pictures by step, and the samples that prove them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from assay.records.finding import Finding, SampleRef
from assay.records.run_record import RunRecord
from assay.report.charts import HEIGHT, LOG_POINTS, REWARD, TRUTH
from assay.report.safe import escape

if TYPE_CHECKING:
    import altair as alt

# a panel's title and unit, and the columns drawn in it
PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("reward and truth", "score", ("reward", "truth")),
    ("KL to the reference", "nats", ("kl",)),
    ("gradient norm", "norm", ("grad_norm",)),
    ("loss", "loss", ("loss", "policy_loss", "kl_term")),
    ("token entropy", "nats", ("entropy",)),
    ("completion length", "tokens", ("length",)),
    ("shares", "share", ("zero_spread", "clip_fraction", "truncated", "missing")),
)
COLOURS = (REWARD, TRUTH, "#4263eb", "#9c36b5")
FEW_STEPS = 30  # then every point is marked
SHOWN_SAMPLES = 6
LONGEST_TEXT = 1_500


def run_specs(record: RunRecord) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications of the panels for which the log has numbers, by the id of their place."""
    frame = _by_step(record)
    found: dict[str, dict[str, Any]] = {}
    for at, (title, unit, columns) in enumerate(PANELS):
        rows = _rows(frame, columns)
        if rows:
            found[f"run-{at}"] = _panel(rows, title, unit, columns).to_dict(validate=False)
    return found


def pictures(specs: dict[str, dict[str, Any]]) -> str:
    """The places of the pictures; nothing without any."""
    if not specs:
        return ""
    cards = "".join(f"<div class='card chart'><div id='{name}'></div></div>" for name in specs)
    return f"<section id='pictures'><h2>What the log shows</h2><div class='grid'>{cards}</div></section>"


def sample_texts(record: RunRecord, findings: Sequence[Finding]) -> dict[SampleRef, str]:
    """The first samples of every finding as ready HTML, by their reference."""
    wanted = {ref for finding in findings for ref in finding.samples[:SHOWN_SAMPLES] if ref.step is not None}
    rows = record.rollouts
    if not wanted or "step" not in rows.columns:
        return {}
    rows = rows.filter(
        pl.col("step").is_in(sorted({int(ref.step) for ref in wanted if ref.step is not None}))
    )
    found: dict[SampleRef, str] = {}
    for row in rows.iter_rows(named=True):
        ref = SampleRef(row["step"], row.get("prompt_id"), row.get("sample"))
        if ref in wanted and ref not in found:
            found[ref] = _sample(ref, row)
    return found


def _by_step(record: RunRecord) -> pl.DataFrame:
    """Metrics by step; reward, truth and length from the rollouts where the metrics lack them."""
    metrics, rows = record.metrics, record.rollouts
    names = [name for _, _, columns in PANELS for name in columns]
    kept = (
        metrics.select("step", *(name for name in names if name in metrics.columns)) if len(metrics) else None
    )
    own = [
        n
        for n in ("reward", "truth", "length")
        if n in rows.columns and (kept is None or n not in kept.columns)
    ]
    if not own or not len(rows):
        return kept if kept is not None else pl.DataFrame({"step": []})
    means = rows.group_by("step").agg(pl.col(own).fill_nan(None).mean()).sort("step")
    return means if kept is None else kept.join(means, on="step", how="full", coalesce=True).sort("step")


def _rows(frame: pl.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    every = max(1, math.ceil(len(frame) / LOG_POINTS))
    return [
        {"step": row["step"], "name": name, "value": float(f"{row[name]:.5g}")}
        for row in frame.gather_every(every).iter_rows(named=True)
        for name in columns
        if row.get(name) is not None and row["step"] is not None and math.isfinite(row[name])
    ]


def _panel(rows: list[dict[str, Any]], title: str, unit: str, columns: Sequence[str]) -> alt.Chart:
    import altair as alt

    names = [name for name in columns if any(row["name"] == name for row in rows)]
    legend = alt.Legend(title=None, orient="bottom") if len(names) > 1 else None
    scale = alt.Scale(domain=names, range=list(COLOURS[: len(names)]))
    return (
        alt.Chart(alt.Data(values=rows), width="container", height=HEIGHT, title=title)
        .mark_line(point=len(rows) <= 2 * FEW_STEPS, strokeWidth=2)
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=unit == "share")),
            color=alt.Color("name:N", scale=scale, legend=legend),
            tooltip=["name:N", "step:Q", alt.Tooltip("value:Q", format=".4g")],
        )
    )


def _sample(ref: SampleRef, row: dict[str, Any]) -> str:
    numbers = ", ".join(
        f"{name} {row[name]:.4g}"
        for name in ("reward", "truth", "advantage", "length")
        if isinstance(row.get(name), int | float)
    )
    texts = [("prompt", row.get("prompt")), ("completion", row.get("completion"))]
    if row.get("reward_text") not in (None, row.get("completion")):
        texts.append(("what the reward saw", row["reward_text"]))
    blocks = "".join(
        f"<p><small>{name}</small></p><pre>{escape(str(text)[:LONGEST_TEXT]) or '(the empty text)'}</pre>"
        for name, text in texts
        if text is not None
    )
    place = f"step {ref.step}, prompt {ref.prompt_id}, sample {ref.sample}"
    return f"<p><b>{escape(place)}</b>: {escape(numbers)}</p>{blocks}"
