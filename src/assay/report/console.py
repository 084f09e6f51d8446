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
LEFT_OUT = ("distinct", "length", "pass@1")  # pass@1 is truth; the others are in the report
WIDE_ONLY = ("entropy", "template")  # and pass@n: they say less than the rest
WIDE = 104  # characters
HEADER = {
    "P(rewarded, not true)": "rewarded,\nnot true",
    "P(not true | rewarded)": "not true |\nrewarded",
}
LEGEND = (
    "reward: what training is paid. truth: a held-out score it never sees. hacking rate: reward minus truth, "
    "with its 95% interval. J: how well the reward still tells right from wrong (1 perfectly, 0 not at all)."
)


def print_experiment(experiment: Experiment, console: Console | None = None) -> None:
    """Print one table an arm, by checkpoint, then the verdicts in plain words."""
    from rich import box
    from rich.console import Console as RichConsole
    from rich.table import Table
    from rich.text import Text

    out = console or RichConsole(highlight=False)
    for arm, hacking in experiment.evaluated:
        rows = hacking.table(digits=2)
        names = [name for name in rows[0] if _fits(name, out.width)]
        title = Text.assemble((arm.name, "bold"), "  ", _verdict(hacking.verdict))
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
        for name in names:
            table.add_column(HEADER.get(name, name), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(row[name] for name in names))
        out.print(table)
    out.print(LEGEND, style="dim")
    out.print()
    for arm, hacking in experiment.evaluated:
        said = f": {words.MEANING[hacking.verdict]} {hacking.reason} {words.choice(hacking)}"
        out.print(Text.assemble((arm.name, "bold"), " ", _verdict(hacking.verdict), said))


def _fits(name: str, width: int) -> bool:
    if name in LEFT_OUT:
        return False
    return width >= WIDE or not (name in WIDE_ONLY or name.startswith("pass@"))


def _verdict(verdict: str) -> tuple[str, str]:
    return words.LABEL[verdict], COLOUR[verdict]
