"""Live progress of an experiment in a terminal: one bar an arm, with time left and the last numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from assay.train.recipe import Recipe
    from assay.train.warm_start import PassRates


# metrics beside the bar, the first three that a method has: name, word, form
SHOWN = (
    ("reward", "reward", ".2f"), ("entropy", "entropy", ".2f"), ("zero_spread_fraction", "zero-spread", ".0%"),
    ("accuracy", "accuracy", ".2f"), ("margin", "margin", ".2f"), ("loss", "loss", ".3f"),
)  # fmt: skip


class Silent:
    """Shows nothing."""

    def warming(self, updates: int, rates: PassRates, of: int) -> None:
        """Do nothing."""

    def warmed(self, rates: PassRates, cached: bool) -> None:
        """Do nothing."""

    def noted(self, text: str) -> None:
        """Do nothing."""

    def arm_started(self, arm: str, steps: int) -> None:
        """Do nothing."""

    def arm_ended(self, arm: str) -> None:
        """Do nothing."""

    def step(self, arm: str, metrics: Mapping[str, Any], of: int) -> None:
        """Do nothing."""

    def evaluated(self, arm: str, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Do nothing."""


class Progress(Silent):
    """Draws with rich; where there is no terminal, prints a line at each matched checkpoint instead."""

    def __init__(self, recipe: Recipe, root: Path) -> None:
        self.console = Console(highlight=False)
        self.bars = Bars(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.console.print(f"[bold]{recipe.title}[/bold]: {', '.join(recipe.arms)}  ->  {root}")
        if recipe.about:
            self.console.print(recipe.about)
        self.tasks: dict[str, TaskID] = {}
        self.recipe = recipe

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def _note(self, name: str, done: int, of: int, note: str) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=of, note="")
        self.bars.update(self.tasks[name], completed=done, note=note)

    def warming(self, updates: int, rates: PassRates, of: int) -> None:
        """Show the rates that decide when the warm start ends."""
        self._note("warm start", updates, of, f"pass@1 {rates.at_1:.2f}  pass@G {rates.at_group:.2f}")

    def warmed(self, rates: PassRates, cached: bool) -> None:
        """Say where the start policy came from."""
        if "warm start" in self.tasks:
            self.bars.update(self.tasks["warm start"], completed=self.recipe.base.warm_start.max_steps)
        if not cached:
            self.console.print(
                f"start policy on training prompts: pass@1 {rates.at_1:.2f}, pass@G {rates.at_group:.2f}"
            )

    def noted(self, text: str) -> None:
        """Print it."""
        self.console.print(text)

    def arm_started(self, arm: str, steps: int) -> None:
        """Open the arm's bar."""
        self._note(arm, 0, steps, "")

    def step(self, arm: str, metrics: Mapping[str, Any], of: int) -> None:
        """Move the bar."""
        shown = [f"{title} {metrics[name]:{form}}" for name, title, form in SHOWN if name in metrics]
        self._note(arm, int(metrics["step"]), of, "  ".join(shown[:3]))

    def evaluated(self, arm: str, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Print the two means of a matched checkpoint."""
        reward, truth = (_mean(columns[name]) for name in ("reward", "truth"))
        gap = f"gap {reward - truth:+.2f}"
        self.console.print(f"{arm:>12}  step {step:4d}  reward {reward:.2f}  truth {truth:.2f}  {gap}")


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
