"""From logged logits: which computation gives the logged log-probs, the right one or a known wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.doctor.trend import Floats
from assay.records.run_record import Logits

CLOSE = 0.05
"""Median absolute difference, nats, below which two sets of log-probs are the same (bfloat16 keeps about 0.02)."""
ROUNDING = 0.02
"""Nats by which the log of a kept mass may be off."""
MASKED = 100.0
"""Nats below its log-prob at which a token was masked out, by minus infinity or a large negative number."""
LEAST_LOST = 0.005
"""Mean log of the kept mass, nats, above which nothing is truncated."""


@dataclass(frozen=True, slots=True)
class Match:
    """The best explanation of the logged values: an id of the doctor (None for the right one), its words, the error."""

    id: str | None
    words: str
    error: float


def log_softmax(logits: Floats, axis: int = -1) -> Floats:
    """log_softmax that leaves NaN rows NaN."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        top = np.max(np.where(np.isnan(logits), -np.inf, logits), axis=axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        total = np.nansum(np.exp(logits - top), axis=axis, keepdims=True)
        return logits - top - np.log(total)


def gather(values: Floats, ids: NDArray[np.int64]) -> Floats:
    """(B, T, V) and (B, T) to (B, T); NaN where the id is outside the vocabulary."""
    inside = (ids >= 0) & (ids < values.shape[-1])
    taken = np.take_along_axis(values, np.where(inside, ids, 0)[..., None], axis=-1)[..., 0]
    return np.where(inside, taken, math.nan)


def difference(first: Floats, second: Floats) -> float:
    """Median absolute difference over what both know; infinity where that is less than 8 values."""
    known = np.isfinite(first) & np.isfinite(second)
    return float(np.median(np.abs(first[known] - second[known]))) if known.sum() >= 8 else math.inf


def explain(data: Logits) -> Match:
    """Search the known mistakes for the one that gives the logged values."""
    normal = log_softmax(data.logits)
    right = gather(normal, data.token_ids)
    error = difference(right, data.logged)
    # supports come first: where most tokens are alone in theirs, a median error of 0 fits other mistakes too
    wrong = _supports(data, normal) + _unnormalised(data) + _shifts(data, normal) + _axes(data, normal)
    wrong += _temperatures(data)
    best = min(wrong, key=lambda match: round(match.error, 6))
    if error <= CLOSE and best.error >= error / 4:
        return Match(None, "log_softmax over the vocabulary", error)
    return best if best.error <= CLOSE else Match("logprob.sampler_mismatch", "no known computation", error)


def _unnormalised(data: Logits) -> list[Match]:
    raw = gather(data.logits, data.token_ids)
    with np.errstate(invalid="ignore"):
        top = np.max(np.where(np.isnan(data.logits), -np.inf, data.logits), axis=-1)
    right = gather(log_softmax(data.logits), data.token_ids)
    above = "logprob.positive" if np.nanmax(data.logged) > 0.1 else "logprob.not_normalised"
    return [
        Match(above, "the raw logit of the token (no log_softmax)", difference(raw, data.logged)),
        Match(
            "logprob.not_normalised",
            "logit minus the largest logit (no log-sum-exp)",
            difference(raw - top, data.logged),
        ),
        Match("logprob.positive", "the log-prob with its sign turned", difference(-right, data.logged)),
        Match(
            "logprob.not_normalised",
            "the probability instead of its logarithm",
            difference(np.exp(right), data.logged),
        ),
        Match(
            "logprob.not_normalised", "log-prob in bits (log2)", difference(right / math.log(2), data.logged)
        ),
        Match("logprob.not_normalised", "log-prob in base 10", difference(right / math.log(10), data.logged)),
    ]


def _shifts(data: Logits, normal: Floats) -> list[Match]:
    found: list[Match] = []
    length = data.token_ids.shape[1]
    for shift in (1, -1, 2, -2):
        if length <= abs(shift) + 1:
            continue
        keep = slice(shift, None) if shift > 0 else slice(None, shift)
        other = slice(None, -shift) if shift > 0 else slice(-shift, None)
        words = (
            f"the logits {abs(shift)} position{'s' if abs(shift) > 1 else ''} "
            f"{'earlier' if shift > 0 else 'later'}"
        )
        shifted = gather(normal[:, other], data.token_ids[:, keep])
        found.append(Match("logprob.shifted", words, difference(shifted, data.logged[:, keep])))
        ids = gather(normal[:, keep], data.token_ids[:, other])
        found.append(
            Match("logprob.shifted", f"the ids {abs(shift)} off", difference(ids, data.logged[:, keep]))
        )
        right = gather(normal, data.token_ids)
        found.append(
            Match(
                "logprob.shifted",
                f"the log-probs {abs(shift)} off",
                difference(right[:, other], data.logged[:, keep]),
            )
        )
    return found


def _axes(data: Logits, normal: Floats) -> list[Match]:
    time = gather(log_softmax(data.logits, axis=1), data.token_ids)
    batch = gather(log_softmax(data.logits, axis=0), data.token_ids)
    everything = gather(data.logits, data.token_ids) - _log_sum(data.logits)
    rows = [gather(normal, np.roll(data.token_ids, k, axis=0)) for k in (1, -1)]
    back = gather(normal, data.token_ids[:, ::-1])
    return [
        Match("logprob.wrong_axis", "softmax over the positions", difference(time, data.logged)),
        Match("logprob.wrong_axis", "softmax over the batch", difference(batch, data.logged)),
        Match(
            "logprob.wrong_axis", "softmax over positions and vocabulary", difference(everything, data.logged)
        ),
        *(
            Match("logprob.wrong_axis", "the ids of another row", difference(row, data.logged))
            for row in rows
        ),
        Match("logprob.wrong_axis", "the ids in reverse order", difference(back, data.logged)),
        *_fixed_column(data, normal),
        Match("logprob.wrong_axis", "softmax over the positions", _offset_error(data, by_row=True)),
        Match("logprob.wrong_axis", "softmax over the batch", _offset_error(data, by_row=False)),
    ]


def _offset_error(data: Logits, *, by_row: bool) -> float:
    """Spread of (logit - logged) among equal tokens of one row (or of one position).

    A softmax over the positions subtracts what depends on row and token only, also where the excerpt shows a part
    of the positions; one over the batch what depends on position and token.
    """
    offset = gather(data.logits, data.token_ids) - data.logged
    known = np.isfinite(offset)
    place = np.broadcast_to(
        np.arange(offset.shape[0 if by_row else 1])[:, None] if by_row else np.arange(offset.shape[1]),
        offset.shape,
    )
    keys = (place.astype(np.int64) * (int(data.token_ids.max()) + 1) + data.token_ids)[known]
    values = offset[known]
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    gaps = np.abs(np.diff(values[order]))[same]
    return float(np.median(gaps)) if gaps.size >= 8 else math.inf


def _fixed_column(data: Logits, normal: Floats) -> list[Match]:
    """The largest log-prob whatever the token, and the last or first id for every position."""
    with np.errstate(invalid="ignore"):
        top = np.max(np.where(np.isnan(normal), -np.inf, normal), axis=-1)
    return [
        Match(
            "logprob.wrong_axis",
            "the most likely token instead of the sampled one",
            difference(top, data.logged),
        ),
        Match(
            "logprob.wrong_axis",
            "the first id for every position",
            difference(
                gather(normal, np.repeat(data.token_ids[:, :1], data.token_ids.shape[1], 1)), data.logged
            ),
        ),
    ]


def _log_sum(logits: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        top = np.nanmax(np.where(np.isnan(logits), -np.inf, logits), axis=(1, 2), keepdims=True)
        return (top + np.log(np.nansum(np.exp(logits - top), axis=(1, 2), keepdims=True)))[..., 0]


def _temperatures(data: Logits) -> list[Match]:
    grid = [
        t
        for t in np.round(np.exp(np.linspace(math.log(0.2), math.log(5), 161)), 4)
        if abs(math.log(t)) > 0.05
    ]
    errors = [difference(gather(log_softmax(data.logits / t), data.token_ids), data.logged) for t in grid]
    best = int(np.argmin(errors))
    return [
        Match("logprob.temperature", f"log_softmax of the logits divided by {grid[best]:.2f}", errors[best])
    ]


def _supports(data: Logits, normal: Floats) -> list[Match]:
    """log_softmax over the most likely tokens only: top-k, a nucleus of a given mass, or a share of the largest.

    The kept mass of each position is exp(right - logged), and so the number of kept tokens is read off the sorted
    probabilities. A rule holds where one threshold of its own gives that number everywhere.
    """
    ordered = -np.sort(-np.where(np.isnan(normal), -np.inf, normal), axis=-1)
    right = gather(normal, data.token_ids)
    total = np.cumsum(np.exp(ordered), axis=-1)
    least, most = _kept_counts(total, right - data.logged)
    found: list[Match] = []
    for words, low, high, counts in _rules(ordered, total, least, most):
        threshold = _commonest(low, high)
        if math.isnan(threshold):
            continue
        last = counts(threshold)[..., None] - 1
        cut, mass = (np.take_along_axis(values, last, -1)[..., 0] for values in (ordered, total))
        error = _where_kept(right - np.log(mass), right, cut, data)
        found.append(Match("logprob.truncated_support", words.format(threshold), error))
    return found


Counts = NDArray[np.int64]
Rule = tuple[str, Floats, Floats, Callable[[float], Counts]]


def _kept_counts(total: Floats, log_mass: Floats) -> tuple[Counts, Counts]:
    """(B, T) fewest and most tokens whose mass is a position's within rounding; 0 and 0 where no count is."""
    with np.errstate(over="ignore", invalid="ignore"):
        fewest = (total < np.exp(log_mass - ROUNDING)[..., None]).sum(-1) + 1
        most = (total <= np.exp(log_mass + ROUNDING)[..., None]).sum(-1)
    fits = np.isfinite(log_mass) & (most >= fewest) & (log_mass < ROUNDING)
    return np.where(fits, fewest, 0), np.where(fits, most, 0)


def _rules(ordered: Floats, total: Floats, least: Counts, most: Counts) -> list[Rule]:
    """Each rule: words, the thresholds (low, high] of the positions that give their counts, and the counts of one."""
    known = least > 0
    with np.errstate(invalid="ignore"):
        share = np.exp(ordered - ordered[..., :1])
    size = ordered.shape[-1]

    def at(values: Floats, count: Counts, beyond: float) -> Floats:
        """The value at a count (1 is the first), ``beyond`` outside."""
        inside = (count >= 1) & (count <= size)
        taken = np.take_along_axis(values, np.clip(count - 1, 0, size - 1)[..., None], -1)[..., 0]
        return np.where(inside, taken, beyond)[known].astype(np.float64)

    return [
        ("renormalised over the {:.0f} most likely tokens", least[known].astype(np.float64) - 0.5,
         most[known].astype(np.float64) + 0.5, lambda k: np.full_like(least, round(k))),
        ("renormalised over a nucleus of mass {:.2g}", at(total, least - 1, 0.0), at(total, most, 1.0),
         lambda p: np.minimum((total < p).sum(-1) + 1, size)),
        ("renormalised over tokens of at least {:.2g} of the largest", at(share, most + 1, 0.0), at(share, least, 1.0),
         lambda s: np.maximum((share >= s).sum(-1), 1)),
    ]  # fmt: skip


def _commonest(low: Floats, high: Floats) -> float:
    """The middle of the stretch that most of the intervals share; NaN where that is less than 9 of 10 of them."""
    if low.size < 8:
        return math.nan
    ends = np.concatenate([low, high])
    order = np.lexsort(
        (np.repeat([1, 0], low.size), ends)
    )  # where one ends and one begins, the end comes first
    depth = np.cumsum(np.where(order < low.size, 1, -1))
    best = int(depth.argmax())
    if depth[best] < 0.9 * low.size:
        return math.nan
    return float((ends[order[best]] + ends[order[best + 1]]) / 2)


def _where_kept(values: Floats, right: Floats, cut: Floats, data: Logits) -> float:
    """Median error over the kept tokens; infinity where many of the logged ones are not, or no mass is lost."""
    known = np.isfinite(data.logged) & (data.logged > right - MASKED)
    kept = (right >= cut - 1e-9) & known
    lost = float((values - right)[kept].mean()) if kept.any() else 0.0
    if kept.sum() < 0.5 * known.sum() or lost < LEAST_LOST:
        return math.inf
    error = difference(np.where(kept, values, math.nan), data.logged)
    wrong = np.abs(values - data.logged)[kept] > CLOSE
    return error if wrong.mean() < 0.1 else math.inf
