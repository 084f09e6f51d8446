"""Two runs side by side: the step at which they part, or whether one is the resumed continuation of the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assay.doctor.catalogue import finding
from assay.doctor.diagnosis import Diagnosis, diagnose
from assay.doctor.trend import finite, noise
from assay.doctor.view import View
from assay.records.finding import Finding, jsonable
from assay.records.readers import read_run
from assay.records.run_record import RunRecord

SUSTAINED = 3
"""Points in a row that must be apart."""


@dataclass(frozen=True)
class Parting:
    """Where two runs part.

    Attributes:
        step: the first step at which any metric is apart for good; None when they stay together.
        metric: the metric that parts first. steps: each metric's own step (None when it stays together).
        first_difference: the first step at which any number differs at all.
        resumed: a finding, when the second run continues the first.
        first, second: the diagnoses.
    """

    step: int | None
    metric: str | None
    steps: dict[str, int | None]
    first_difference: int | None
    resumed: Finding | None
    first: Diagnosis
    second: Diagnosis

    @property
    def fails(self) -> bool:
        """Whether either run is broken, or the continuation is."""
        continued = self.resumed is not None and self.resumed.status == "fail"
        return continued or "broken" in (self.first.verdict, self.second.verdict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return jsonable({
            "parting": {"step": self.step, "metric": self.metric, "first_difference": self.first_difference,
            "steps": self.steps},
            "resumed": self.resumed.to_json() if self.resumed else None,
            "first": self.first.to_json(),
            "second": self.second.to_json(),
        })  # fmt: skip


def compare_runs(first: str | Path | RunRecord, second: str | Path | RunRecord) -> Parting:
    """Compare two runs.

    Raises:
        BadInput: one of the paths holds no log of a run.
    """
    one, two = (run if isinstance(run, RunRecord) else read_run(run) for run in (first, second))
    steps = _partings(one, two)
    known = {name: step for name, step in steps.items() if step is not None}
    metric = min(known, key=lambda name: known[name]) if known else None
    resumed = continued(one, two)
    return Parting(
        known[metric] if metric else None,
        metric,
        steps,
        _first_difference(one, two),
        resumed,
        diagnose(one),
        diagnose(two),
    )


def _joined(one: RunRecord, two: RunRecord) -> pl.DataFrame:
    frames = [_table(run) for run in (one, two)]
    if not frames[0].height or not frames[1].height:
        return pl.DataFrame()
    return frames[0].join(frames[1], on="step", how="inner", suffix="\x00b").sort("step")


def _table(run: RunRecord) -> pl.DataFrame:
    """Metrics by step; mean reward, truth and length of the rollouts where there are none."""
    if run.metrics.height:
        return run.metrics
    names = [name for name in ("reward", "truth", "length", "advantage") if name in run.rollouts.columns]
    if not names:
        return pl.DataFrame()
    return run.rollouts.group_by("step").agg(pl.col(name).mean() for name in names).sort("step")


_CLOCKS = ("epoch", "num_tokens")


def _partings(one: RunRecord, two: RunRecord) -> dict[str, int | None]:
    table = _joined(one, two)
    names = [n for n in table.columns if f"{n}\x00b" in table.columns and n not in _CLOCKS]
    return {
        name: _parting(table["step"].to_numpy(), table[name].to_numpy(), table[f"{name}\x00b"].to_numpy())
        for name in names
    }


def _parting(steps: Any, first: Any, second: Any) -> int | None:
    """The first step from which the difference stays beyond the noise of both (smoothed over five points)."""
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < 2 * SUSTAINED:
        return None
    gap, at = (first - second)[known], steps[known]
    width = min(5, max(1, gap.size // 4))
    smooth = np.convolve(gap, np.ones(width) / width, "valid")
    spread = math.hypot(noise(finite(first)) or 0.0, noise(finite(second)) or 0.0) / math.sqrt(width)
    if not math.isfinite(spread):
        return None
    apart = np.abs(smooth) > 5 * spread + 1e-12
    together = np.flatnonzero(~apart)
    start = int(together[-1]) + 1 if together.size else 0
    if apart.size - start < SUSTAINED:
        return None
    return int(at[min(_onset(gap[start : start + width], spread * math.sqrt(width)) + start, at.size - 1)])


def _onset(window: Any, spread: float) -> int:
    """Where in the first window that is apart the difference begins: at a jump, else (a slow drift) in its middle."""
    jumped = np.flatnonzero(np.abs(window) > 5 * spread + 1e-12)
    return int(jumped[0]) if jumped.size else window.size // 2


def _first_difference(one: RunRecord, two: RunRecord) -> int | None:
    table = _joined(one, two)
    first: list[int] = []
    for name in table.columns:
        if f"{name}\x00b" in table.columns:
            differs = table.filter((pl.col(name) != pl.col(f"{name}\x00b")).fill_null(False))["step"]
            first += [int(differs[0])] if differs.len() else []
    return min(first) if first else None


def continued(one: RunRecord, two: RunRecord) -> Finding | None:
    """A finding when the second log starts where the first one ends: does it repeat prompts or reset the schedule?"""
    before, after = (run.metrics["step"].to_list() if run.metrics.height else [] for run in (one, two))
    if len(before) < 2 or not after or after[0] != before[-1] + 1:
        return None
    used = {ids for step, ids in one.prompts_by_step.items() if step <= before[-1]}
    again = [step for step, ids in sorted(two.prompts_by_step.items()) if ids in used]
    rate = _rate_jump(one, two)
    view = View(dataclasses.replace(two, source=two.source))
    evidence = {"first_step": after[0], "repeated_steps": again[:5], **(rate or {})}
    if again and again[0] == after[0] and two.prompts_by_step[after[0]] != _next_of_epochs(one, after[0]):
        words = f"step {after[0]} repeats prompts of step {_step_of(one, two.prompts_by_step[after[0]])}"
        return finding(
            view,
            "run.resume",
            "fail",
            words + (f" and the learning rate is back at {rate['got']:g}" if rate else ""),
            evidence,
        )
    if rate is not None:
        return finding(
            view,
            "run.resume",
            "fail",
            f"the learning rate jumps to {rate['got']:g} after the resume, {rate['expected']:g} was next",
            evidence,
        )
    return finding(view, "run.resume", "pass", "the second log continues the first", evidence)


def _next_of_epochs(run: RunRecord, step: int) -> tuple[str, ...] | None:
    """The prompts due at a step where the log before it goes round its data in one order; None where it does not.

    The order is known once prompts of at least one step have come again at one distance, whatever the batches' cut.
    """
    by_step = {at: ids for at, ids in sorted(run.prompts_by_step.items()) if at < step}
    if not by_step or list(by_step) != list(range(min(by_step), step)):
        return None
    stream, size = [name for ids in by_step.values() for name in ids], len(by_step[step - 1])
    repeated = _border(stream)
    if not 0 < size <= repeated:
        return None
    period = len(stream) - repeated
    return tuple(stream[len(stream) - period + place % period] for place in range(size))


def _border(stream: Sequence[str]) -> int:
    """Length of the longest proper beginning of a sequence that is also its end (Knuth, Morris and Pratt)."""
    borders = [0] * len(stream)
    for place in range(1, len(stream)):
        length = borders[place - 1]
        while length and stream[place] != stream[length]:
            length = borders[length - 1]
        borders[place] = length + (stream[place] == stream[length])
    return borders[-1] if borders else 0


def _step_of(run: RunRecord, ids: tuple[str, ...]) -> int | None:
    return next((step for step, own in sorted(run.prompts_by_step.items()) if own == ids), None)


def _rate_jump(one: RunRecord, two: RunRecord) -> dict[str, float] | None:
    """Where the schedule does not go on: the expected next rate (straight on from the last two) and the logged one."""
    if "learning_rate" not in one.metrics.columns or "learning_rate" not in two.metrics.columns:
        return None
    past, now = (
        finite(one.metrics["learning_rate"].to_numpy()),
        finite(two.metrics["learning_rate"].to_numpy()),
    )
    if past.size < 3 or now.size < 1:
        return None
    expected, step = float(2 * past[-1] - past[-2]), float(np.abs(np.diff(past)).max())
    got = float(now[0])
    return (
        {"expected": expected, "got": got}
        if abs(got - expected) > 2 * step + 1e-12 and got > past[-1]
        else None
    )
