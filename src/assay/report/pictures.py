"""The pictures as specifications for the page, and as PNG files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from assay.records.run_folder import replacing
from assay.report import charts
from assay.report.load import Experiment

PIXELS = 330  # width of one panel of a PNG
_CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "gridColor": "#e9e7e2",
        "domainColor": "#b8b4aa",
        "tickColor": "#b8b4aa",
        "labelColor": "#4a4740",
    },
    "title": {"anchor": "start", "fontSize": 13, "color": "#26241f"},
}


def page_specs(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by the id of their place in the page."""
    found = experiment.evaluated
    with _unchecked():
        specs: dict[str, Any] = {}
        for at, (arm, hacking) in enumerate(found):
            specs[f"scores-{at}"] = charts.scores(arm, hacking)
            specs[f"goodhart-{at}"] = charts.goodhart(arm, hacking)
        specs["gap"] = charts.gap(found)
        for key, title, unit in charts.STATE:
            specs[f"state-{key}"] = charts.state(found, key, title, unit)
        specs["training"] = charts.training(experiment.arms)
        if experiment.sweep:
            specs["sweep"] = charts.sweep(found, *experiment.sweep)
        return {name: chart.to_dict(validate=False) for name, chart in specs.items() if chart is not None}


def picture_specs(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by the name of their PNG file, the arms side by side."""
    import altair as alt

    found = experiment.evaluated
    with _unchecked():
        rows: dict[str, list[Any]] = {
            "reward-and-truth": [charts.scores(arm, hacking, PIXELS) for arm, hacking in found],
            "goodhart": [charts.goodhart(arm, hacking, PIXELS) for arm, hacking in found],
            "gap": [charts.gap(found, 2 * PIXELS)],
            "policy": [charts.state(found, *entry, width=PIXELS) for entry in charts.STATE],
        }
        if experiment.sweep:
            rows["sweep"] = [charts.sweep(found, *experiment.sweep, width=2 * PIXELS)]
        known = {name: [panel for panel in panels if panel is not None] for name, panels in rows.items()}
        return {
            name: alt.concat(*panels, columns=3).to_dict(validate=False) | {"config": _CONFIG}
            for name, panels in known.items()
            if panels
        }


def _unchecked() -> AbstractContextManager[None]:
    """Skip Altair's schema checks, which cost seconds; tests compile every specification instead."""
    from altair.utils import schemapi

    return schemapi.debug_mode(False)


def write_pictures(specs: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write one PNG a specification, each whole; returns their paths."""
    import vl_convert

    paths: list[Path] = []
    for name, spec in specs.items():
        path = folder / f"{name}.png"
        with replacing(path) as temporary:
            temporary.write_bytes(vl_convert.vegalite_to_png(dict(spec), scale=2.0))
        paths.append(path)
    return paths
