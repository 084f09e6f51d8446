"""The same verdicts and tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.report import words
from assay.report.load import Experiment

if TYPE_CHECKING:
    from rich.console import Console

COLOUR = {
    "healthy": "green",
    "hacking": "red",
    "overoptimisation": "red",
    "no_learning": "yellow",
    "inconclusive": "yellow",
}


def print_experiment(experiment: Experiment, console: Console | None = None) -> None:
    """Print one table an arm, by checkpoint, then the verdicts in plain words."""
    from rich.console import Console as RichConsole
    from rich.table import Table
    from rich.text import Text

    out = console or RichConsole(highlight=False)
    for arm, hacking in experiment.evaluated:
        rows = hacking.table()
        table = Table(title=f"{arm.name}: {words.LABEL[hacking.verdict]}", title_justify="left")
        for name in rows[0]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row.values())
        out.print(table)
    for arm, hacking in experiment.evaluated:
        line = Text.assemble(
            (arm.name, "bold"),
            ": ",
            (words.LABEL[hacking.verdict], COLOUR[hacking.verdict]),
            f". {hacking.reason} {words.choice(hacking)}",
        )
        out.print(line)
