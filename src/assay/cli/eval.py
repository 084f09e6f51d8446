"""``assay eval``: measure one checkpoint again, as its run did."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import Annotated

import typer

from assay.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("eval")(evaluate)


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="RUN/checkpoints/step-000100.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")] = False,
) -> None:
    """Evaluate a checkpoint of a run as the run did; the numbers are the run's own."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if not (checkpoint / "config.json").is_file() or checkpoint.parent.name != "checkpoints":
        raise BadInput(f"expected a checkpoint of a run (RUN/checkpoints/step-NNNNNN), got {checkpoint}")
    from assay.hacking import MatchedCheckpoint, measure
    from assay.records.finding import jsonable
    from assay.train.reevaluate import evaluate_checkpoint

    step, frame = evaluate_checkpoint(checkpoint)
    measures = measure([MatchedCheckpoint.from_table(step, frame)]).checkpoints[0]
    if json:
        document = {"checkpoint": str(checkpoint), "step": step, **measures.to_json()}
        typer.echo(json_module.dumps(jsonable(document), ensure_ascii=False))
        return
    for name, value in measures.to_json().items():
        typer.echo(f"{name:28} {json_module.dumps(jsonable(value))}")
