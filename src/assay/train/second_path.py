"""Over-optimisation of a learned reward, read from the matched checkpoints of an experiment.

Gold and proxy against the distance ``sqrt(KL)`` with both fitted laws; best-of-n from the start policy's own
samples as the baseline at matched KL; which checkpoint the reward picks and which the truth; the alarms; and
the four things to have done before a learned reward is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.errors import BadInput
from assay.hacking import MatchedCheckpoint, measure
from assay.hacking.measure import Hacking
from assay.records.finding import jsonable
from assay.records.run_folder import RunFolder, write_text
from assay.stats.best_of_n import best_of_n_curve, kl_bound
from assay.stats.clustered import prompt_means
from assay.stats.interval import Interval, unknown
from assay.stats.overoptimisation import Overoptimisation, fit
from assay.stats.rejection import rejection_at_kl
from assay.train.dpo import explain_displacement
from assay.train.reward_report import gain_within_lengths, length_controlled_win_rate

LONGER = 1.25  # mean length over the start's, from which length growth is an alarm
MODEL_FACTS = (
    "pairs", "accuracy", "on_shorter_chosen", "on_longer_chosen", "calibration", "length_slope", "marker_slope",
    "agreement_slope", "disagreement",
)  # fmt: skip
SIZES = (1, 2, 4, 8)  # n of the best-of-n baselines
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
class Wins:
    """How often one policy beats another on a prompt, a tie one half: as it is, and with equal lengths."""

    raw: float
    at_equal_length: Interval


@dataclass(frozen=True)
class SecondPath:
    """What one arm shows.

    Attributes:
        checkpoints, best_of_n, rejection: points of training, of best-of-n from the start (its KL is an upper
            bound), and of rejection sampling at those KLs.
        fits: both laws fitted to the truth of the checkpoints; empty with fewer than two away from the start.
        hacking: the measures and the verdict. gain_at_equal_length: reward gained that length does not explain.
        wins: chance of the end to beat the start on a prompt, by reward and by truth, as it is and at equal length.
        pairs: of a preference method, what its last step says of chosen and rejected; None for others.
        reward_model: accuracy, calibration and slopes from the reward model's own report.
        alarms: one sentence each. checklist: what was done, and the evidence.
    """

    checkpoints: tuple[CurvePoint, ...]
    best_of_n: tuple[CurvePoint, ...]
    rejection: tuple[CurvePoint, ...]
    fits: tuple[Overoptimisation, ...]
    hacking: Hacking
    gain_at_equal_length: float
    wins: Mapping[str, Wins]
    pairs: Mapping[str, float] | None
    reward_model: Mapping[str, Any]
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
            "rejection": [asdict(point) for point in self.rejection],
            "fits": laws,
            "gain_at_equal_length": self.gain_at_equal_length,
            "wins": {
                by: {"raw": w.raw, "at_equal_length": w.at_equal_length.to_json()}
                for by, w in self.wins.items()
            },
            "pairs": self.pairs,
            "reward_model": dict(self.reward_model),
            "alarms": list(self.alarms),
            "checklist": ticks,
        }
        return jsonable(document)


def best_of_n_points(start: MatchedCheckpoint, sizes: Sequence[int] = SIZES) -> tuple[CurvePoint, ...]:
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


def rejection_points(start: MatchedCheckpoint, sizes: Sequence[int] = SIZES) -> tuple[CurvePoint, ...]:
    """Rejection sampling from the start's own samples, at the KL of each best-of-n or as near as it gets."""
    if not (np.isfinite(start.reward) & np.isfinite(start.truth)).any():
        return ()
    tries = start.reward.shape[1]
    found = [rejection_at_kl(start.reward, start.truth, kl_bound(n), tries=tries) for n in sizes if n > 1]
    return tuple(
        CurvePoint(f"drawn again below reward {one.threshold:.2f}", one.kl, one.reward, one.gold)
        for one in found
    )


def win_rates(last: MatchedCheckpoint, first: MatchedCheckpoint, by: Literal["reward", "truth"]) -> Wins:
    """Wins of ``last`` over ``first`` by one judge; a prompt's samples are one cluster, so they are averaged first."""
    difference_PN = getattr(last, by) - getattr(first, by)
    wins_PN = np.where(np.isfinite(difference_PN), (np.sign(difference_PN) + 1) / 2, math.nan)
    longer_P = prompt_means(last.length) - prompt_means(first.length)
    wins_P = prompt_means(wins_PN)
    known_P = np.isfinite(wins_P) & np.isfinite(longer_P)
    if not known_P.any():
        return Wins(math.nan, unknown())
    return Wins(float(wins_P[known_P].mean()), length_controlled_win_rate(wins_P[known_P], longer_P[known_P]))


PAIR_METRICS = (
    "reward_chosen", "reward_rejected", "margin", "accuracy", "chosen_displacement", "chosen_displacement_per_token",
)  # fmt: skip


def pairs_of_metrics(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """What the last step with pairs says of chosen and rejected; None for a method without pairs."""
    rows = [row for row in metrics if "reward_chosen" in row]
    return {name: float(rows[-1][name]) for name in PAIR_METRICS} if rows else None


def read_second_path(
    checkpoints: Sequence[MatchedCheckpoint],
    report: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]] = (),
) -> SecondPath:
    """Measure one arm; ``report`` is the reward model's ``report.json``, ``metrics`` the run's own."""
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
    pairs = pairs_of_metrics(metrics)
    return SecondPath(
        checkpoints=points,
        best_of_n=best_of_n_points(first),
        rejection=rejection_points(first),
        fits=fits,
        hacking=hacking,
        gain_at_equal_length=gained.estimate,
        wins={"reward": win_rates(last, first, "reward"), "truth": win_rates(last, first, "truth")},
        pairs=pairs,
        reward_model={name: report[name] for name in MODEL_FACTS if name in report},
        alarms=(*alarms(ordered, hacking), *_displaced(pairs)),
        checklist=checklist(ordered, report),
    )


def _displaced(pairs: Mapping[str, float] | None) -> tuple[str, ...]:
    said = None if pairs is None else explain_displacement(
        pairs["chosen_displacement"], pairs["chosen_displacement_per_token"], pairs["margin"]
    )  # fmt: skip
    return () if said is None else (said,)


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
    second = read_second_path(found, report, run.read_metrics())
    more = _disagreement(run)
    return second if more is None else replace(second, alarms=(*second.alarms, more))


def _disagreement(run: RunFolder) -> str | None:
    steps = run.steps("rollouts")
    name = "reward_parts/disagreement"
    tables = [run.read_table(run.rollouts(step)) for step in (steps[:1] + steps[-1:])]
    if len(tables) < 2 or any(name not in table.columns for table in tables):
        return None
    return disagreement_alarm(*[table[name].drop_nulls().to_list() for table in tables])
