"""The pictures of a report as Vega-Lite specifications, drawn from the measures and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.hacking import Hacking
from assay.records.finding import jsonable
from assay.report.load import Arm
from assay.stats.interval import Interval

if TYPE_CHECKING:
    import altair as alt

REWARD, TRUTH = "#d98a00", "#0d9488"
ARMS = ("#4263eb", "#e03131", "#9c36b5", "#2b8a3e", "#e8590c", "#0c8599", "#5c7cfa", "#a61e4d")
HEIGHT = 210
LOG_POINTS = 120

Rows = list[dict[str, Any]]
Width = int | str  # "container" in the page, pixels in a picture


def score_rows(hacking: Hacking) -> Rows:
    """Reward and truth with their bands, one row a score and checkpoint."""
    rows: Rows = []
    for row in hacking.checkpoints:
        distance = math.sqrt(max(row.kl_sequence, 0.0)) if math.isfinite(row.kl_sequence) else math.nan
        for name, value in (("reward", row.reward), ("truth", row.truth)):
            if math.isfinite(value.estimate):
                rows.append({"step": row.step, "score": name, "d": jsonable(distance), **_ends(value)})
    return rows


def scores(arm: Arm, hacking: Hacking, width: Width = "container") -> alt.LayerChart:
    """Reward against truth by step, with 95% bands and the onset of hacking."""
    import altair as alt

    base = _chart(score_rows(hacking)).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        color=alt.Color(
            "score:N",
            scale=alt.Scale(domain=["reward", "truth"], range=[REWARD, TRUTH]),
            legend=_score_legend(),
        ),
    )
    y = alt.Y("value:Q", title=_scale_title(arm), scale=_score_scale(arm))
    tips = ["step:Q", "score:N", *_numbers("value", "low", "high")]
    layers: list[alt.Chart] = [
        base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=_scale_title(arm)), y2="high:Q"),
        *_score_lines(base, y),
        base.mark_point(filled=True, size=34).encode(y=y, tooltip=tips),
    ]
    if hacking.onset_step is not None:
        mark = _chart([{"step": hacking.onset_step, "text": "onset"}])
        layers.append(mark.mark_rule(strokeDash=[4, 4], color="#e03131").encode(x="step:Q"))
        text = mark.mark_text(align="left", dx=4, dy=-HEIGHT // 2 + 8, color="#e03131", fontSize=11)
        layers.append(text.encode(x="step:Q", text="text:N"))
    return _sized(alt.layer(*layers), width, f"{arm.name}: reward and truth")


def goodhart(arm: Arm, hacking: Hacking, width: Width = "container") -> alt.LayerChart:
    """Reward and truth against the square root of the KL from the start, in the order of the run."""
    import altair as alt

    rows = [row for row in score_rows(hacking) if row["d"] is not None]
    base = _chart(rows).encode(
        x=alt.X("d:Q", title="√KL from the start", axis=alt.Axis(tickCount=6)),
        color=alt.Color(
            "score:N",
            scale=alt.Scale(domain=["reward", "truth"], range=[REWARD, TRUTH]),
            legend=_score_legend(),
        ),
        order="step:Q",
    )
    tips = ["step:Q", "score:N", *_numbers("d", "value")]
    y = alt.Y("value:Q", title=_scale_title(arm), scale=_score_scale(arm))
    points = base.mark_point(filled=True, size=45).encode(y=y, tooltip=tips)
    return _sized(alt.layer(*_score_lines(base, y), points), width, f"{arm.name}: the Goodhart picture")


def gap(found: Sequence[tuple[Arm, Hacking]], width: Width = "container") -> alt.LayerChart:
    """The hacking rate of every arm by step, with bands."""
    import altair as alt

    rows: Rows = [
        {"arm": arm.name, "step": row.step, **_ends(row.hacking_rate)}
        for arm, hacking in found
        for row in hacking.checkpoints
        if math.isfinite(row.hacking_rate.estimate)
    ]
    name = found[0][1].gap_name
    base = _chart(rows).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        color=_arm_colour([arm.name for arm, _ in found]),
    )
    tips = ["arm:N", "step:Q", *_numbers("value", "low", "high")]
    zero = _chart([{"zero": 0}]).mark_rule(opacity=0.5).encode(y="zero:Q")
    layers = (
        zero,
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=name), y2="high:Q"),
        base.mark_line(strokeWidth=2.5).encode(y=alt.Y("value:Q", title=name)),
        base.mark_point(filled=True, size=38).encode(y="value:Q", tooltip=tips),
    )
    return _sized(alt.layer(*layers), width, f"{name}: reward minus truth")


STATE = (
    ("kl_sequence", "KL from the start", "nats a completion"),
    ("entropy", "token entropy", "nats a token"),
    ("length", "length", "tokens"),
    ("template_share", "commonest template", "share"),
    ("distinct", "distinct completions", "share"),
)


def state(
    found: Sequence[tuple[Arm, Hacking]], key: str, title: str, unit: str, width: Width = "container"
) -> alt.LayerChart | None:
    """One quantity of the policy's state for every arm by step; None where it is unknown throughout."""
    import altair as alt

    rows: Rows = [
        {"arm": arm.name, "step": row.step, "value": float(getattr(row, key))}
        for arm, hacking in found
        for row in hacking.checkpoints
        if math.isfinite(getattr(row, key))
    ]
    if not rows:
        return None
    scale = alt.Scale(domain=[0, 1]) if unit == "share" else alt.Scale(zero=True)
    base = _chart(rows).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("value:Q", title=unit, scale=scale),
        color=_arm_colour([arm.name for arm, _ in found]),
        tooltip=["arm:N", "step:Q", *_numbers("value")],
    )
    lines = base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=28)
    return _sized(alt.layer(*lines), width, title)


def training(arms: Sequence[Arm], width: Width = "container") -> alt.LayerChart | None:
    """The training log of every arm, one metric at a time, chosen in the page; None without a log."""
    import altair as alt

    rows = _log_rows(arms)
    names = sorted({str(row["metric"]) for row in rows})
    if not rows:
        return None
    first = next((name for name in ("reward", "reward_mean", "entropy") if name in names), names[0])
    metric = alt.param(name="metric", value=first, bind=alt.binding_select(options=names, name="metric "))
    base = (
        _chart(rows)
        .transform_filter("datum.metric == metric")
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            color=_arm_colour([arm.name for arm in arms]),
            tooltip=["arm:N", "step:Q", "metric:N", alt.Tooltip("value:Q", format=".4g")],
        )
    )
    layers = base.mark_line(strokeWidth=1.6), base.mark_point(filled=True, size=14, opacity=0.7)
    return _sized(alt.layer(*layers).add_params(metric), width, "training log")


def _log_rows(arms: Sequence[Arm]) -> Rows:
    """Numbers of the logs in long form, every n-th step so that an arm has at most ``LOG_POINTS``."""
    rows: Rows = []
    for arm in arms:
        every = max(1, math.ceil(len(arm.metrics) / LOG_POINTS))
        for entry in arm.metrics[::every]:
            step = entry.get("step")
            rows += [
                {"arm": arm.name, "step": step, "metric": name, "value": float(f"{value:.5g}")}
                for name, value in entry.items()
                if name != "step" and isinstance(value, int | float) and math.isfinite(value)
            ]
    return rows


def sweep(
    found: Sequence[tuple[Arm, Hacking]], key: str, values: Sequence[Any], width: Width = "container"
) -> alt.LayerChart:
    """Reward and truth at the end for every value of a sweep; arms stand in the order of the values."""
    import altair as alt

    rows: Rows = []
    for (_, hacking), value in zip(found, values, strict=False):
        end = hacking.checkpoints[-1]
        rows += [
            {"setting": str(value), "score": name, **_ends(interval)}
            for name, interval in (("reward", end.reward), ("truth", end.truth))
            if math.isfinite(interval.estimate)
        ]
    base = _chart(rows).encode(
        x=alt.X("setting:O", title=key, sort=[str(value) for value in values], axis=alt.Axis(labelAngle=0)),
        color=alt.Color("score:N", scale=alt.Scale(domain=["reward", "truth"], range=[REWARD, TRUTH]),
                        legend=_score_legend()),
    )  # fmt: skip
    tips = ["setting:N", "score:N", *_numbers("value", "low", "high")]
    layers = (
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(y=alt.Y("low:Q", title="at the end"), y2="high:Q"),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(y="value:Q"),
        base.mark_point(filled=True, size=70).encode(y=alt.Y("value:Q", title="at the end"), tooltip=tips),
    )
    return _sized(alt.layer(*layers), width, f"reward and truth at the end by {key}")


def _chart(rows: Rows) -> alt.Chart:
    """A chart of rows; they travel as text, since Altair copies its data at every step of a specification."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=json.dumps(rows), format=alt.DataFormat(type="json")))


def _sized(chart: Any, width: Width, title: str) -> Any:
    return chart.properties(width=width, height=HEIGHT, title=title)


def _arm_colour(names: Sequence[str]) -> alt.Color:
    import altair as alt

    colours = [ARMS[at % len(ARMS)] for at in range(len(names))]
    legend = alt.Legend(title=None, orient="top", columns=4, symbolOpacity=1) if len(names) > 1 else None
    return alt.Color("arm:N", scale=alt.Scale(domain=list(names), range=colours), legend=legend)


def _score_legend() -> alt.Legend:
    import altair as alt

    return alt.Legend(title=None, orient="top", symbolOpacity=1)


def _score_lines(base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
    """Reward wide, truth narrow on top of it: both are seen where they are one."""
    return [
        base.transform_filter(f"datum.score == '{name}'").mark_line(strokeWidth=width).encode(y=y)
        for name, width in (("reward", 5), ("truth", 2))
    ]


def _score_scale(arm: Arm) -> alt.Scale:
    import altair as alt

    return alt.Scale(zero=False) if arm.learned else alt.Scale(domain=[0, 1])


def _scale_title(arm: Arm) -> str:
    return "standard deviations of the start" if arm.learned else "mean score"


def _ends(value: Interval) -> dict[str, Any]:
    return {"value": value.estimate, "low": jsonable(value.low), "high": jsonable(value.high)}


def _numbers(*names: str) -> list[alt.Tooltip]:
    import altair as alt

    return [alt.Tooltip(f"{name}:Q", format=".3f") for name in names]
