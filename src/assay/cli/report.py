"""``assay report``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("report")(report)


def report(
    run: Annotated[Path, typer.Argument(help="A run's or an experiment's folder.")],
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")
    ] = False,
) -> None:
    """Measure a run or an experiment again from its folder, and write report.html and its pictures."""
    from assay.report.load import load
    from assay.report.write import write_loaded

    experiment = load(run)
    page = write_loaded(experiment)
    if json:
        document = {
            "report": str(page),
            "title": experiment.title,
            "status": experiment.status,
            "sweep": experiment.sweep,
            "arms": {arm.name: hacking.to_json() for arm, hacking in experiment.evaluated},
        }
        from assay.records.finding import jsonable

        typer.echo(json_module.dumps(jsonable(document), ensure_ascii=False))
        return
    from assay.report.console import print_experiment

    print_experiment(experiment)
    typer.echo(f"report: {page}")
