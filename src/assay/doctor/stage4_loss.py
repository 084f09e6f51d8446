"""Stage 4: does the update move the policy, and the right way?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, fine, skip, warn
from assay.doctor.trend import Floats, change, finite, noise, thirds
from assay.doctor.view import View
from assay.records.finding import Finding

EXPLODING = 30.0


def non_finite(view: View) -> Finding:
    """NaN or infinity in the loss, the gradient norm, or any other number of the update."""
    id = "loss.non_finite"
    names = ("loss", "policy_loss", "grad_norm", "value_loss", "kl", "entropy")
    present = [name for name in names if view.metric(name) is not None or _all_nan(view, name)]
    if not any(name in present for name in ("loss", "policy_loss", "grad_norm")):
        return skip(id)
    steps = {name: _broken_steps(view, name) for name in present}
    bad = {name: values for name, values in steps.items() if values}
    if bad:
        first = min(values[0] for values in bad.values())
        evidence = {"first_step": first, "steps": {name: len(values) for name, values in bad.items()}}
        return fail(view, id, f"{', '.join(bad)} NaN or infinite from step {first}", evidence)
    return fine(view, id)


def _all_nan(view: View, name: str) -> bool:
    return name in view.run.metrics.columns


def _broken_steps(view: View, name: str) -> list[int]:
    broken = pl.col(name).is_not_null() & ~pl.col(name).is_finite()
    return view.run.metrics.filter(broken)["step"].to_list()


def spread_by_step(view: View) -> np.ndarray | None:
    """(S,) whether the rewards of a step have spread inside groups; None where nothing tells."""
    steps = view.metric_steps
    if (margin := view.metric("margin")) is not None:
        return np.log1p(np.exp(-np.clip(margin, -30, 30))) > 1e-3
    if (missing := view.metric("missing")) is not None and (missing == 1).all():
        return np.zeros(steps.size, dtype=bool)
    spread, share = view.metric("group_std"), view.metric("zero_spread")
    high, low = view.metric("advantage_max"), view.metric("advantage_min")
    if spread is not None:
        return spread > 1e-9
    if share is not None:
        return share < 1 - 1e-9
    if high is not None and low is not None:
        return np.maximum(np.abs(high), np.abs(low)) > 1e-9
    if view.groups is not None and (view.groups.known >= 2).any():
        varied = not bool(view.flat[view.groups.known >= 2].all())
        return np.full(steps.size, varied)
    return None


def no_gradient(view: View) -> Finding:
    """The gradient norm is exactly 0 in steps whose groups have spread."""
    id = "loss.no_gradient"
    norm = view.metric("grad_norm")
    spread = spread_by_step(view)
    if norm is None or spread is None:
        return skip(id)
    dead = (norm == 0) & spread
    usable = np.isfinite(norm) & spread
    evidence = {
        "steps_with_zero_gradient_and_spread": int(dead.sum()),
        "steps_with_spread": int(usable.sum()),
    }
    if dead.sum() >= 3 and dead.sum() >= 0.2 * usable.sum():
        first = int(view.metric_steps[np.flatnonzero(dead)[0]])
        return fail(
            view,
            id,
            f"the gradient is exactly 0 in {int(dead.sum())} of {int(usable.sum())} steps whose "
            f"groups have spread (from step {first})",
            evidence | {"first_step": first},
        )
    return fine(view, id, evidence)


def nothing_trains(view: View) -> Finding:
    """Gradients are there, and the weights, the sampler or the log-probs stay as they are."""
    id = "loss.nothing_trains"
    rate, moved = finite(view.metric("learning_rate")), finite(view.metric("weight_change"))
    norm = finite(view.metric("grad_norm"))
    alive = norm.size == 0 or bool((norm > 0).any())
    if rate.size >= 3 and (rate == 0).all():
        return fail(view, id, "the learning rate is 0 in every step", {"steps": rate.size})
    if moved.size >= 3 and (moved == 0).all() and alive:
        return fail(view, id, "the weights do not change in any step", {"steps": moved.size})
    pairs = view.pairs("logprobs", "old_logprobs")
    kl = finite(view.metric("kl"))
    frozen_kl = kl.size >= 8 and bool((np.abs(kl) < 1e-12).all()) and view.number("beta") > 0
    if pairs is None and rate.size == 0 and moved.size == 0:
        return skip(id)
    largest = float(np.abs(pairs.gap).max()) if pairs is not None else math.nan
    evidence = {
        "largest_change_of_a_logprob": largest,
        "kl": float(kl.max()) if kl.size else None,
        "learning_rate": float(rate.max()) if rate.size else None,
    }
    still = pairs is not None and largest == 0 and np.abs(finite(view.advantage)).max(initial=1.0) > 1e-6
    if alive and not view.reward_rises and (frozen_kl or (still and not _policy_moves(view))):
        words = "an update changes no log-prob" if still else "KL to the reference is exactly 0 throughout"
        return fail(view, id, f"{words} though there is a gradient", evidence)
    return fine(view, id, evidence)


def _policy_moves(view: View) -> bool:
    """Any sign that the policy changes over the run: KL, entropy, length, or the reference's log-probs."""
    signs = [abs(change(view.metric(name)).z) > 5 for name in ("kl", "entropy", "length")]
    return any(signs)


def flat(view: View) -> Finding:
    """The loss never changes, where nothing better is logged."""
    id = "loss.flat"
    loss = finite(view.first_metric("loss", "policy_loss"))
    if view.metric("grad_norm") is not None or view.metric("weight_change") is not None:
        return skip(id, "nothing: gradients or weights are logged and say more")
    if loss.size < 5:
        return skip(id)
    if np.ptp(loss) == 0:
        return fail(view, id, f"the loss is {loss[0]:g} in every step", {"steps": loss.size})
    return fine(view, id)


def exploding(view: View) -> Finding:
    """The gradient norm grows to many times its start and stays there, or reaches absurd heights."""
    id = "loss.exploding"
    logged = view.metric("grad_norm")
    if logged is None or finite(logged).size < 5:
        return skip(id)
    logged = np.where(logged > 0, logged, math.nan)  # steps without any signal have nothing to compare
    norm = finite(logged)
    if norm.size < 5:
        return fine(view, id)
    early, late = thirds(norm)
    typical = max(float(np.median(norm[: max(3, norm.size // 2)])), 1e-9)
    tail = float(np.median(norm[-max(3, norm.size // 10) :]))
    peaks = norm > EXPLODING * typical
    evidence = {
        "early": early,
        "late": late,
        "tail": tail,
        "largest": float(norm.max()),
        "typical": typical,
        "limit": EXPLODING,
    }
    sustained = tail > EXPLODING * typical or late > EXPLODING * max(early, 1e-9)
    absurd = norm.max() > 1e4 * typical and norm.max() > 1e3
    if (
        (sustained and max(tail, late) > 2)
        or absurd
        or (peaks.sum() >= max(5, 0.1 * norm.size) and norm.max() > 10)
    ):
        first = int(view.metric_steps[np.isfinite(logged)][np.flatnonzero(peaks)[0]]) if peaks.any() else None
        return fail(
            view,
            id,
            f"the gradient norm grows from {typical:.3g} to {norm.max():.3g}",
            evidence | {"first_step": first},
        )
    if peaks.any():
        return warn(
            view, id, f"{int(peaks.sum())} spikes of the gradient norm (largest {norm.max():.3g})", evidence
        )
    return fine(view, id, evidence)


@dataclass(frozen=True, slots=True)
class Jump:
    """The largest move of a series within a few steps. before, after: medians of 5 points; place: its index."""

    place: int
    before: float
    after: float
    end: float
    spread: float

    @property
    def size(self) -> float:
        """after - before."""
        return self.after - self.before


def largest_jump(values: Floats | None, gap: int = 3) -> Jump | None:
    """Compare medians of the points before and after each place, ``gap`` points apart."""
    known = finite(values)
    width = 5 if known.size >= 20 else 3
    if known.size < 2 * width + gap:
        return None
    starts = [float(np.median(known[max(0, i - width) : i])) for i in range(1, known.size - width - gap + 1)]
    moves = [
        (float(np.median(known[i + gap : i + gap + width])) - start, i) for i, start in enumerate(starts, 1)
    ]
    size, place = max(moves, key=lambda pair: abs(pair[0]))
    before = starts[place - 1]
    return Jump(
        place, before, before + size, float(np.median(known[-max(3, known.size // 10) :])), noise(known)
    )


def step_too_large(view: View) -> Finding:
    """Within a few steps KL jumps, entropy leaves its range or the reward falls, and does not come back."""
    id = "loss.step_too_large"
    jumps = {
        name: jump
        for name in ("kl", "policy_kl", "entropy", "reward")
        if (jump := largest_jump(view.metric(name))) is not None
    }
    if not jumps or not ({"kl", "policy_kl", "entropy"} & jumps.keys()):
        return skip(id)
    low, high = view.scale
    signs = {name: True for name in ("kl", "policy_kl") if name in jumps and _kl_jumps(jumps[name])}
    if "entropy" in jumps and _entropy_jumps(jumps["entropy"]):
        signs["entropy"] = True
    drop = "reward" in jumps and _reward_drops(jumps["reward"], high - low)
    rises = view.reward_rises and not drop
    evidence = {
        name: {
            "before": jump.before,
            "after": jump.after,
            "at": int(view.metric_steps[min(jump.place, view.metric_steps.size - 1)]),
        }
        for name, jump in jumps.items()
    }
    together = len(signs) >= 2 or (len(signs) == 1 and drop)
    if (
        together
        and not rises
        and _near([jumps[n].place for n in signs] + ([jumps["reward"].place] if drop else []))
    ):
        parts = [
            f"{name} {jumps[name].before:.3g} -> {jumps[name].after:.3g}"
            for name in (*signs, *(["reward"] if drop else []))
        ]
        return fail(
            view, id, f"one or a few updates changed the policy at once: {', '.join(parts)}", evidence
        )
    return fine(view, id, evidence)


def _near(places: list[int]) -> bool:
    return max(places) - min(places) <= 15


def _kl_jumps(jump: Jump) -> bool:
    return (
        jump.after > 8 * max(jump.before, 1e-4)
        and jump.after > 0.3
        and jump.size > 6 * jump.spread / math.sqrt(3)
    )


def _entropy_jumps(jump: Jump) -> bool:
    stays = abs(jump.end - jump.before) > 0.5 * abs(jump.size)
    return abs(jump.size) > 0.5 * max(abs(jump.before), 0.05) and abs(jump.size) > 5 * jump.spread and stays


def _reward_drops(jump: Jump, scale: float) -> bool:
    falls = jump.size < -max(0.15 * scale, 0.35 * abs(jump.before))
    return falls and jump.size < -4 * jump.spread and jump.end < jump.before + 0.6 * jump.size


def inverted(view: View) -> Finding:
    """The reward falls steadily, and truth does not rise: the update works against the advantage."""
    id = "loss.inverted"
    if view.metric("margin") is not None:
        return _inverted_preference(view, id)
    moved = view.reward_change
    if moved.points < 8:
        return skip(id)
    low, high = view.scale
    fall = -moved.difference
    sudden = at_once(finite(view.metric("reward")))
    truth = view.truth_change
    evidence = {
        "first": moved.first,
        "last": moved.last,
        "z": moved.z,
        "truth_change": truth.difference,
        "sudden": sudden,
    }
    deep = fall > 0.1 * (high - low) or (fall > 0.4 * abs(moved.first) and fall > 0.03 * (high - low))
    if moved.z < -6 and deep and not sudden and not truth.z > 3 and not _wrecked(view):
        return fail(
            view, id, f"the reward falls steadily, from {moved.first:.3f} to {moved.last:.3f}", evidence
        )
    return fine(view, id, evidence)


def _inverted_preference(view: View, id: str) -> Finding:
    """A loss of preferences (ln 2 at margin 0, never below 0) with its sign turned, or a margin that surely falls."""
    loss, moved = finite(view.metric("loss")), change(view.metric("margin"))
    evidence = {
        "margin": [moved.first, moved.last],
        "z": moved.z,
        "steps_below_zero": int((loss < 0).sum()),
    }
    if loss.size >= 3 and (loss < 0).all() and abs(loss[0] + math.log(2)) < 0.1:
        return fail(view, id, f"the loss starts at {loss[0]:.3f}, minus ln 2: its sign is turned", evidence)
    if moved.points >= 8 and moved.z < -6:
        words = f"the margin falls steadily, from {moved.first:.3f} to {moved.last:.3f}"
        return fail(view, id, words, evidence)
    return fine(view, id, evidence)


RAMPS = (0.1, 0.2, 0.4, 0.7, 1.0)
"""Lengths of a steady change that are tried, as shares of the run."""


def at_once(values: Floats) -> bool:
    """Whether a series changes within a few points rather than steadily.

    A step (over 1 or 3 points) must fit clearly better than every ramp: by four times the variance of one point.
    """
    if values.size > 400:
        width = values.size // 200
        values = values[: values.size // width * width].reshape(-1, width).mean(axis=1)
    if values.size < 8:
        return False
    lengths = [max(4, round(share * values.size)) for share in RAMPS]
    steady = min(_misfit(values, length) for length in lengths)
    return min(_misfit(values, length) for length in (1, 3)) + 4 * noise(values) ** 2 < steady


def _misfit(values: Floats, length: int) -> float:
    """Smallest sum of squares around flat, a straight change over ``length`` points, flat; over all places of it."""
    n = values.size
    starts = np.arange(max(1, n - length + 1))[:, None]
    ramps = np.clip((np.arange(n)[None] - starts + 0.5) / length, 0.0, 1.0)
    ramps -= ramps.mean(axis=1, keepdims=True)
    centred = values - values.mean()
    explained = (ramps @ centred) ** 2 / np.maximum((ramps**2).sum(axis=1), 1e-12)
    return float((centred**2).sum() - explained.max())


def _wrecked(view: View) -> bool:
    """Whether something else explains a falling reward: exploding gradients, or policy and entropy gone at once."""
    return any(check(view).status == "fail" for check in (exploding, step_too_large))
