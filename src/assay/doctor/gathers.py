"""From logged logits: which computation gives the logged log-probs, the right one or a known wrong one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.doctor.trend import Floats
from assay.records.run_record import Logits

CLOSE = 0.05
"""Median absolute difference, nats, below which two sets of log-probs are the same (bfloat16 keeps about 0.02)."""


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
    tried = [Match(None, "log_softmax over the vocabulary", error)]
    tried += (
        _unnormalised(data)
        + _shifts(data, normal)
        + _axes(data, normal)
        + _temperatures(data)
        + _supports(data, normal)
    )
    best = min(tried, key=lambda match: match.error)
    if error <= CLOSE and best.error > error / 4:
        return tried[0]
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
    """log_softmax over the most likely tokens only: top-k, or a nucleus of a given mass."""
    ordered = -np.sort(-np.where(np.isnan(normal), -np.inf, normal), axis=-1)
    right = gather(normal, data.token_ids)
    found: list[Match] = []
    mass = np.exp(ordered)
    total = np.cumsum(mass, axis=-1)
    for k in (5, 10, 20, 40, 50):
        if k < normal.shape[-1]:
            kept = right - np.log(total[..., k - 1])
            found.append(
                Match(
                    "logprob.truncated_support",
                    f"renormalised over the {k} most likely tokens",
                    _where_kept(kept, right, ordered[..., k - 1], data),
                )
            )
    for p in (0.5, 0.7, 0.8, 0.9, 0.95):
        place = np.argmax(total >= p - 1e-9, axis=-1)[..., None]
        cut, sum_ = (
            np.take_along_axis(ordered, place, -1)[..., 0],
            np.take_along_axis(total, place, -1)[..., 0],
        )
        found.append(
            Match(
                "logprob.truncated_support",
                f"renormalised over a nucleus of mass {p}",
                _where_kept(right - np.log(sum_), right, cut, data),
            )
        )
    return found


def _where_kept(values: Floats, right: Floats, cut: Floats, data: Logits) -> float:
    kept = right >= cut - 1e-9
    if (
        np.isfinite(data.logged).sum() == 0
        or (kept & np.isfinite(data.logged)).sum() < 0.5 * np.isfinite(data.logged).sum()
    ):
        return math.inf
    return difference(np.where(kept, values, math.nan), data.logged)
