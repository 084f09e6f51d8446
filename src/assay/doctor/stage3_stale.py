"""Stage 3: does the sampler get the trainer's new weights?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.stage3_logprobs import GAP_WARN
from assay.doctor.stage3_sampler import gap_by_step
from assay.doctor.trend import Floats, change, rising_share
from assay.doctor.view import View
from assay.records.finding import Finding, Status

ID = "logprob.stale_weights"
CERTAIN = 8
"""Points over which a gap must grow before it fails without version numbers."""


@dataclass(frozen=True)
class Versions:
    """Version numbers (N,) of trainer and sampler at each step; they may count different things."""

    step: Floats
    trainer: Floats
    sampler: Floats

    @property
    def lag(self) -> Floats:
        """Versions that the sampler is behind."""
        return self.trainer - self.sampler

    def stuck(self) -> tuple[int, int]:
        """Where the sampler changed last (0: never), and the longest wait between two changes until then."""
        changes = np.concatenate([[0], np.flatnonzero(np.diff(self.sampler)) + 1])
        return int(changes[-1]), int(np.diff(changes).max(initial=0))

    def steady(self) -> bool:
        """Whether both advance all along, in one proportion: counters of two things, such as updates and syncs."""
        part = self.step.size // 2
        if part < 2 or self.stuck()[0] == 0:
            return False
        moved = [(np.ptp(v[: part + 1]), np.ptp(v[-part - 1 :])) for v in (self.trainer, self.sampler)]
        if min(min(pair) for pair in moved) <= 0:
            return False
        first, last = (moved[1][half] / moved[0][half] for half in (0, 1))
        return 0.7 < last / first < 1.4


def stale_weights(view: View) -> Finding:
    """The sampler's version stops or falls behind, or its gap to the trainer grows over the run."""
    versions, gaps = _versions(view), gap_by_step(view)
    if versions is None and gaps.size < 4:
        return skip(ID)
    evidence: dict[str, Any] = {
        "largest_lag": None if versions is None else float(versions.lag.max()),
        "gap_by_third": _thirds(gaps),
    }
    if versions is None or versions.step.size < 3:
        return _by_gap(view, gaps, evidence)
    allowed = view.number("lag_allowed")
    limit = max(2.0, allowed if math.isfinite(allowed) else 0.0)
    return _by_version(view, versions, limit, gaps, evidence)


def _by_version(
    view: View, versions: Versions, limit: float, gaps: Floats, evidence: dict[str, Any]
) -> Finding:
    last, usual = versions.stuck()
    since = versions.step.size - 1 - last
    if versions.trainer[-1] - versions.trainer[last] > limit and since >= 3 and since > 2 * usual:
        at = int(versions.step[last])
        words = (
            f"the sampler's weights stay at version {versions.sampler[-1]:g} from step {at} on, "
            f"{versions.lag[-1]:.0f} versions behind at the end"
        )
        return fail(view, ID, words, evidence | {"last_new_weights": at})
    if versions.lag.max() <= limit or not _falls_behind(versions.lag, limit, usual):
        return fine(view, ID, evidence)
    if not versions.steady():
        words = f"the sampler's weights fall behind: {versions.lag.max():.0f} versions at the end"
        return fail(view, ID, words, evidence)
    if gaps.size >= 4:  # the counters count different things: the gap tells whether weights arrive
        return _by_gap(view, gaps, evidence)
    if (np.diff(versions.sampler) != 0).mean() > 0.9:
        return fine(view, ID, evidence)
    words = f"the sampler's version is {versions.lag[-1]:.0f} behind at the end: stale, unless it counts other things"
    return warn(view, ID, words, evidence)


def _falls_behind(lag: Floats, limit: float, usual: int) -> bool:
    """Whether the lag rises over the whole run, or since it was last within the limit, for longer than usual waits."""
    since = lag[int(np.flatnonzero(lag <= limit).max(initial=0)) :]
    return rising_share(lag) > 0.8 or (since.size > max(5, 2 * usual) and rising_share(since) > 0.8)


def _by_gap(view: View, gaps: Floats, evidence: dict[str, Any]) -> Finding:
    first, _, last = _thirds(gaps)
    words = f"the gap between trainer and sampler grows from {first:.3f} to {last:.3f} nats a token"
    onset = 0 if _grows(gaps) else _onset(gaps)
    if onset is None:
        return fine(view, ID, evidence)
    end = float(np.mean(gaps[-max(2, gaps.size // 5) :]))
    certain = gaps.size - onset >= CERTAIN and end > 0.05
    if onset:
        words = f"the gap between trainer and sampler grows from {first:.3f} to {gaps[-1]:.3f} nats a token"
        evidence = evidence | {"grows_over_the_last": int(gaps.size - onset)}
    status: Status = "fail" if certain else "warn"
    return finding(view, ID, status, words, evidence)


def _thirds(values: Floats) -> list[float]:
    return [float(part.mean()) for part in np.array_split(values, 3) if part.size]


def _grows(gaps: Floats) -> bool:
    """A clear, steady growth to several times the start."""
    if gaps.size < 4:
        return False
    first, _, last = _thirds(gaps)
    return rising_share(gaps) > 0.7 and last > 3 * first and last > GAP_WARN and change(gaps).z > 4


def _onset(gaps: Floats) -> int | None:
    """Where a gap that was level until then starts to grow, step by step until the end; None where it does not."""
    if gaps.size < CERTAIN:
        return None
    level = float(np.median(gaps[: gaps.size // 3]))
    start = int(np.flatnonzero(gaps <= 2 * level)[-1])
    head, tail = gaps[: start + 1], gaps[start:]
    if tail.size < 5 or head.size < 3 or rising_share(tail) < 0.8:
        return None
    end = float(tail[-max(2, tail.size // 3) :].mean())
    return start if end > max(3 * level, 2 * float(head.max()), GAP_WARN) else None


def _versions(view: View) -> Versions | None:
    """Version numbers by step (the steps for a trainer that logs none); None where the sampler's are missing."""
    trainer, sampler = view.metric("trainer_version"), view.metric("sampler_version")
    steps = view.metric_steps.astype(np.float64)
    if sampler is not None:
        own = steps if trainer is None else trainer
        known = np.isfinite(own) & np.isfinite(sampler)
        if trainer is not None or known.sum() >= 4:
            return Versions(steps[known], own[known], sampler[known])
    if not view.has("policy_version"):
        return None
    versions = view.column("policy_version")
    steps = np.unique(view.step[np.isfinite(versions)]).astype(np.float64)
    oldest = np.array([np.nanmin(versions[view.step == step]) for step in steps], dtype=np.float64)
    start = float((steps - oldest).min(initial=math.inf))
    return Versions(steps, steps - start, oldest) if steps.size >= 3 else None
