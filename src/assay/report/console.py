"""The same verdicts and tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.report import second_path, words
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


DETAILED = 4  # arms; more than these get the summary only


def print_experiment(experiment: Experiment, console: Console | None = None) -> None:
    """Print a table by checkpoint for a few arms, one row an arm for all, and the verdicts in plain words."""
    from rich.console import Console as RichConsole
    from rich.text import Text

    out = console or RichConsole(highlight=False)
    if len(experiment.evaluated) <= DETAILED:
        _print_checkpoints(experiment, out)
    if len(experiment.evaluated) > 1:
        _print_summary(experiment, out)
    if experiment.scripted:
        _print_scripted(experiment, out)
    out.print(LEGEND, style="dim")
    out.print()
    for arm, hacking in experiment.evaluated:
        said = f": {words.MEANING[hacking.verdict]} {hacking.reason} {words.choice(hacking)}"
        out.print(Text.assemble((arm.name, "bold"), " ", _verdict(hacking.verdict), said))
        for line in second_path.console_lines(arm.second_path) if arm.second_path else ():
            out.print(f"  {line}", style="yellow", markup=False)


def _print_summary(experiment: Experiment, out: Console) -> None:
    """First and last checkpoint of every arm: what training was paid, and what of it was gold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title="start -> end", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("arm", "reward", "truth", "hacking rate", "verdict"):
        side = "left" if name in ("arm", "verdict") else "right"
        table.add_column(name, justify=side, no_wrap=name != "arm", overflow="fold")
    for arm, hacking in experiment.evaluated:
        first, last = hacking.checkpoints[0], hacking.checkpoints[-1]
        rate = last.hacking_rate
        table.add_row(
            arm.name,
            f"{first.reward.estimate:.2f} -> {last.reward.estimate:.2f}",
            f"{first.truth.estimate:.2f} -> {last.truth.estimate:.2f}",
            f"{rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}]",
            Text.assemble(_verdict(hacking.verdict)),
        )
    out.print(table)


def _print_scripted(experiment: Experiment, out: Console) -> None:
    """The holes that no policy was trained on: what their exploits earn."""
    from rich import box
    from rich.table import Table

    title = "attacked by scripts, not by training: mean score of the exploit"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("hole", overflow="fold")
    for name in ("weak reward", "sound reward", "truth"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in experiment.scripted:
        table.add_row(str(row["name"]), *(f"{row[key]:.2f}" for key in ("weak", "sound", "truth")))
    out.print(table)


def _print_checkpoints(experiment: Experiment, out: Console) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

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


def _fits(name: str, width: int) -> bool:
    if name in LEFT_OUT:
        return False
    return width >= WIDE or not (name in WIDE_ONLY or name.startswith("pass@"))


def _verdict(verdict: str) -> tuple[str, str]:
    return words.LABEL[verdict], COLOUR[verdict]
