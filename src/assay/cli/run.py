"""``assay run``: train the arms of a recipe, measure every matched checkpoint, write the report."""

from __future__ import annotations

import json as json_module
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.train.recipe import Recipe


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("run")(run)


def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or a YAML file.")] = "loophole",
    assignments: Annotated[list[str] | None, typer.Argument(help="key=value, over the recipe.")] = None,
    arms: Annotated[str | None, typer.Option(help="Only these arms, comma-separated.")] = None,
    sweep: Annotated[str | None, typer.Option(help="key=v1,v2,...: one arm a value.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/<recipe>-<n> by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the experiment in this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")] = False,
    list_recipes: Annotated[bool, typer.Option("--list", help="List the recipes and stop.")] = False,
) -> None:
    """Train on a reward, and compare it with held-out truth at matched checkpoints.

    Without arguments: the loophole experiment, minutes on two cores.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch: idle threads must not starve others
    if list_recipes:
        _print_recipes()
        return
    from assay.train.recipe import load_recipe

    given = list(assignments or [])
    if "=" in recipe:
        given, recipe = [recipe, *given], "loophole"
    if resume is not None:
        if given or arms or sweep or out:
            raise BadInput(
                "--resume takes up a run as it was started; leave out keys, --arms, --sweep and --out"
            )
        from assay.train.experiment import reload_recipe

        chosen, root = reload_recipe(resume), resume
    else:
        chosen = load_recipe(recipe, given, arms=[arm for arm in (arms or "").split(",") if arm], sweep=sweep)
        root = out or _next_folder(Path("runs"), chosen.name)
    from assay.train.ranks import ranks

    root, started = ranks().first(root), time.monotonic()
    _train(chosen, root, quiet=json or not ranks().main)
    if not ranks().main:
        return
    from assay.train.scripted import play_scripts

    play_scripts(chosen, root)
    if chosen.sweep and chosen.sweep[0] == "group_size" and not json:
        _print_group_errors(chosen, root)
    _report(root, time.monotonic() - started, as_json=json)


def _print_recipes() -> None:
    from assay.train.recipe import load_recipe, recipe_names

    for name in recipe_names():
        recipe = load_recipe(name)
        typer.echo(f"{name:16} {recipe.title} (arms: {', '.join(recipe.arms)})")


def _next_folder(base: Path, name: str) -> Path:
    number = 1
    while (base / f"{name}-{number}").exists():
        number += 1
    return base / f"{name}-{number}"


def _train(recipe: Recipe, root: Path, *, quiet: bool) -> None:
    from assay.cli.progress import Progress, Silent
    from assay.train.experiment import run_experiment

    jobs = max(1, min(len(recipe.arms), (os.cpu_count() or 1) // recipe.base.threads))
    if quiet:
        run_experiment(recipe, root, Silent(), jobs=jobs)
        return
    with Progress(recipe, root) as progress:
        run_experiment(recipe, root, progress, jobs=jobs)


def _print_group_errors(recipe: Recipe, root: Path) -> None:
    """What the group size buys, measured on the start policy's own samples."""
    from rich.console import Console
    from rich.table import Table

    from assay.stats.group_size import SENTENCE
    from assay.train.experiment import warm_folder
    from assay.train.group_error import start_group_errors

    assert recipe.sweep is not None
    table = Table(title="error of the group baseline, start policy", title_justify="left")
    for name in (
        "group size k",
        "MSE of the advantage",
        "sigma^2/k",
        "variance of r - mean",
        "sigma^2 (1 - 1/k)",
    ):
        table.add_column(name, justify="right")
    for row in start_group_errors(recipe.base, warm_folder(recipe.base, root), recipe.sweep[1]):
        numbers = (row.mean_squared_error, row.predicted, row.variance, row.predicted_variance)
        table.add_row(str(row.group_size), *(f"{value:.4f}" for value in numbers))
    console = Console(highlight=False)
    console.print(table)
    console.print(SENTENCE)


def _report(root: Path, seconds: float, *, as_json: bool) -> None:
    from assay.report.load import load
    from assay.report.write import write_loaded

    experiment = load(root)
    page = write_loaded(experiment)
    if as_json:
        from assay.records.finding import jsonable

        document: dict[str, Any] = {
            "run": str(root),
            "report": str(page),
            "seconds": seconds,
            "arms": {arm.name: hacking.to_json() for arm, hacking in experiment.evaluated},
        }
        typer.echo(json_module.dumps(jsonable(document), ensure_ascii=False))
        return
    from assay.report.console import print_experiment

    print_experiment(experiment)
    typer.echo(f"{seconds:.0f} s of training and evaluation; everything is in {root}")
    typer.echo(f"report: {page}")
