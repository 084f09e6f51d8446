"""Over-optimisation of a learned reward, read from the matched checkpoints of an experiment.

Gold and proxy against the distance ``sqrt(KL)`` with both fitted laws; best-of-n from the start policy's own
samples as the baseline at matched KL; which checkpoint the reward picks and which the truth; the alarms; and
the four things to have done before a learned reward is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadInput
from assay.hacking import MatchedCheckpoint, measure
from assay.hacking.measure import Hacking
from assay.records.finding import jsonable
from assay.records.run_folder import RunFolder, write_text
from assay.stats.best_of_n import best_of_n_curve, kl_bound
from assay.stats.overoptimisation import Overoptimisation, fit
from assay.train.reward_report import gain_within_lengths

LONGER = 1.25  # mean length over the start's, from which length growth is an alarm
WIDER = 1.5  # the heads' disagreement over the start's, likewise


@dataclass(frozen=True)
class CurvePoint:
    """One policy at its distance from the start: reward and truth are means, in their own units."""

    label: str
    kl: float
    reward: float
    truth: float

    @property
    def distance(self) -> float:
        """``sqrt(KL)``, nats to the power one half."""
        return math.sqrt(max(self.kl, 0.0))


@dataclass(frozen=True)
class SecondPath:
    """What one arm shows.

    Attributes:
        checkpoints, best_of_n: points of training, and of best-of-n from the start (its KL is an upper bound).
        fits: both laws fitted to the truth of the checkpoints; empty with fewer than two away from the start.
        hacking: the measures and the verdict. gain_at_equal_length: reward gained that length does not explain.
        alarms: one sentence each. checklist: what was done, and the evidence.
    """

    checkpoints: tuple[CurvePoint, ...]
    best_of_n: tuple[CurvePoint, ...]
    fits: tuple[Overoptimisation, ...]
    hacking: Hacking
    gain_at_equal_length: float
    alarms: tuple[str, ...]
    checklist: Mapping[str, tuple[bool, str]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; unknown numbers are null."""
        laws = [
            {"form": f.form, "a": f.a, "b": f.b, "rmse": f.rmse, "peak_distance": f.peak[0]}
            for f in self.fits
        ]
        ticks = {name: {"done": done, "evidence": why} for name, (done, why) in self.checklist.items()}
        document = {
            "verdict": self.hacking.verdict,
            "reason": self.hacking.reason,
            "selection": self.hacking.selection.to_json() if self.hacking.selection else None,
            "checkpoints": [asdict(point) for point in self.checkpoints],
            "best_of_n": [asdict(point) for point in self.best_of_n],
            "fits": laws,
            "gain_at_equal_length": self.gain_at_equal_length,
            "alarms": list(self.alarms),
            "checklist": ticks,
        }
        return jsonable(document)


def best_of_n_points(start: MatchedCheckpoint, sizes: Sequence[int] = (1, 2, 4, 8)) -> tuple[CurvePoint, ...]:
    """Best-of-n by the reward among the start's own samples: unbiased means over prompts.

    The KL is the bound ``ln n - (n - 1)/n``, exact only without ties.
    """
    points: list[CurvePoint] = []
    for n in sizes:
        rows = [
            (reward[known], truth[known])
            for reward, truth in zip(start.reward, start.truth, strict=True)
            if (known := np.isfinite(reward) & np.isfinite(truth)).sum() >= n
        ]
        if not rows:
            break
        reward = float(np.mean([best_of_n_curve(r, r, n) for r, _ in rows]))
        truth = float(np.mean([best_of_n_curve(r, t, n) for r, t in rows]))
        points.append(CurvePoint(f"best of {n}", kl_bound(n), reward, truth))
    return tuple(points)


def read_second_path(checkpoints: Sequence[MatchedCheckpoint], report: Mapping[str, Any]) -> SecondPath:
    """Measure one arm; ``report`` is the reward model's ``report.json``."""
    if not checkpoints:
        raise BadInput("expected matched checkpoints, got none; let the run reach its first evaluation")
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.step)
    points = tuple(
        CurvePoint(f"step {c.step}", _mean(c.kl), _mean(c.reward), _mean(c.truth)) for c in ordered
    )
    hacking = measure(ordered, learned=True)
    away = [point for point in points if point.kl > 0]
    distance = np.array([point.distance for point in away])
    gold = np.array([point.truth - points[0].truth for point in away])
    fits = tuple(fit(distance, gold, form) for form in ("quadratic", "logarithmic")) if len(away) > 1 else ()
    first, last = ordered[0], ordered[-1]
    gained = gain_within_lengths(
        (last.reward.ravel(), last.length.ravel()), (first.reward.ravel(), first.length.ravel())
    )
    return SecondPath(
        checkpoints=points,
        best_of_n=best_of_n_points(first),
        fits=fits,
        hacking=hacking,
        gain_at_equal_length=gained.estimate,
        alarms=alarms(ordered, hacking),
        checklist=checklist(ordered, report),
    )


def _mean(values: np.ndarray[Any, Any]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def alarms(ordered: Sequence[MatchedCheckpoint], hacking: Hacking) -> tuple[str, ...]:
    """What to be told before the truth is looked at, and what truth says of a rising KL."""
    first, last = ordered[0], ordered[-1]
    found: list[str] = []
    before, after = _mean(first.length), _mean(last.length)
    if after > LONGER * before:
        found.append(
            f"length grew from {before:.1f} to {after:.1f} tokens: the cheapest sign of the commonest hack"
        )
    if hacking.changes is not None and len(ordered) > 1:
        truth = hacking.changes.truth[len(ordered) - 2]
        if truth.low <= 0 and _mean(last.kl) > 0.1:
            found.append(f"KL rose to {_mean(last.kl):.2f} nats while truth did not rise ({truth})")
    return tuple(found)


def disagreement_alarm(start: Sequence[float], now: Sequence[float]) -> str | None:
    """The heads' disagreement on the policy's samples against the start's; None while it is like at the start."""
    before, after = float(np.mean(start)), float(np.mean(now))
    if after <= WIDER * before:
        return None
    return f"the heads' disagreement grew from {before:.3f} to {after:.3f}: the reward is asked about text nobody rated"


def checklist(ordered: Sequence[MatchedCheckpoint], report: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """KL tracked, evaluation untouched by the reward model, length before and after, samples read."""
    first, last = ordered[0], ordered[-1]
    shared = dict(report.get("evaluation") or {}).get("shared_prompts")
    return {
        "KL tracked": (math.isfinite(_mean(last.kl)), f"{_mean(last.kl):.3f} nats at step {last.step}"),
        "evaluation untouched by reward-model training": (
            shared == 0,
            "unknown" if shared is None else f"{shared} shared prompts, by hash",
        ),
        "length before and after": (
            math.isfinite(_mean(first.length)),
            f"{_mean(first.length):.1f} and {_mean(last.length):.1f} tokens",
        ),
        "samples read": (False, "nobody can tick this but you: read a few dozen of each checkpoint"),
    }


def write_second_path(arms: Sequence[Path]) -> None:
    """Write ``overoptimisation.json`` into the folder of every arm whose reward was learned."""
    for folder in arms:
        if RunFolder(folder).read_run().get("learned"):
            text = json.dumps(read_arm(folder).to_json(), indent=2, ensure_ascii=False)
            write_text(folder / "overoptimisation.json", text + "\n")


def read_arm(folder: Path) -> SecondPath:
    """One arm's folder with the reward model it was trained against."""
    run = RunFolder(folder)
    found = [
        MatchedCheckpoint.from_table(step, run.read_table(run.evaluation(step)))
        for step in run.steps("evals")
    ]
    options = dict(run.read_run().get("config") or {}).get("learned_reward") or {}
    place = options.get("folder")
    path = Path(str(place)) / "report.json"
    report = json.loads(path.read_text("utf-8")) if place and path.is_file() else {}
    second = read_second_path(found, report)
    more = _disagreement(run)
    return second if more is None else _with_alarm(second, more)


def _with_alarm(second: SecondPath, alarm: str) -> SecondPath:
    from dataclasses import replace

    return replace(second, alarms=(*second.alarms, alarm))


def _disagreement(run: RunFolder) -> str | None:
    steps = run.steps("rollouts")
    name = "reward_parts/disagreement"
    tables = [run.read_table(run.rollouts(step)) for step in (steps[:1] + steps[-1:])]
    if len(tables) < 2 or any(name not in table.columns for table in tables):
        return None
    return disagreement_alarm(*[table[name].drop_nulls().to_list() for table in tables])
