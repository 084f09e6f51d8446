"""Stage 3: are the log-probs log-probs of these tokens, and do trainer and sampler mean the same policy?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, fine, skip
from assay.doctor.gathers import Match, explain
from assay.doctor.trend import Floats, finite
from assay.doctor.view import Ints, Pairs, View
from assay.records.finding import Finding

ABOVE_ZERO = 0.1
"""Nats above 0 that rounding in bfloat16 and noise of a few hundredths cannot make."""
GAP_WARN = 0.02
"""Mean absolute gap, nats a token, that bfloat16 explains."""
COLUMNS = ("old_logprobs", "logprobs", "sampler_logprobs", "ref_logprobs")


def match_of(view: View) -> Match | None:
    """What gives the logged log-probs of the logits excerpt; None without one."""
    data = view.run.logits
    return None if data is None or np.isfinite(data.logged).sum() < 8 else explain_once(view)


def explain_once(view: View) -> Match:
    """The search over known mistakes, done once a run."""
    cached = view.__dict__.get("_match")
    if cached is None:
        assert view.run.logits is not None
        cached = view.__dict__["_match"] = explain(view.run.logits)
    return cached


def from_logits(view: View, id: str) -> Finding | None:
    """A finding where the logits excerpt speaks for or against an id; None where it says nothing about it."""
    match = match_of(view)
    if match is None:
        return None
    evidence = {"median_error": match.error, "computation": match.words}
    if match.id == id:
        return fail(view, id, f"the logged log-probs are {match.words}", evidence)
    return fine(view, id, evidence)


def _values(view: View, name: str) -> tuple[Floats, Ints]:
    """All finite values of a list column and the row of each."""
    frame = view.rows.select(pl.col(name)).with_row_index("row").drop_nulls().explode(name)
    frame = frame.drop_nulls().filter(pl.col(name).is_finite())
    return frame[name].to_numpy(), frame["row"].to_numpy().astype(np.int64)


def positive(view: View) -> Finding:
    """Log-probs above 0: raw logits, or a turned sign."""
    id = "logprob.positive"
    present = [name for name in COLUMNS if view.has(name)]
    sums = [
        (n, finite(view.metric(n))) for n in ("logp_chosen", "logp_rejected", "ref_chosen", "ref_rejected")
    ]
    sums = [(name, values) for name, values in sums if values.size]
    if not present and not sums:
        return from_logits(view, id) or skip(id)
    for name in present:
        values, rows = _values(view, name)
        above = values > (1e-4 if view.word("logprob_dtype") in ("float32", "fp32") else ABOVE_ZERO)
        if above.sum() >= 3 and above.mean() > 1e-3 and not _mere_noise(view, float(values.max())):
            evidence = {
                "column": name,
                "above_zero": int(above.sum()),
                "of": values.size,
                "largest": float(values.max()),
                "limit": ABOVE_ZERO,
            }
            return fail(
                view,
                id,
                f"{above.mean():.0%} of {name} are above 0 (largest {values.max():.2f})",
                evidence,
                view.refs(np.unique(rows[above])),
            )
    for name, values in sums:
        if (values > ABOVE_ZERO).mean() > 0.5:
            return fail(view, id, f"the log-probs {name} are above 0", {"largest": float(values.max())})
    return from_logits(view, id) or fine(view, id, {"columns": present})


def _mere_noise(view: View, largest: float) -> bool:
    """Whether trainer and sampler scatter evenly around one another, so that values above 0 are noise of that size.

    Logits and turned signs move all values of one side the same way.
    """
    pairs = view.sampler_pairs
    if pairs is None or largest > 3:
        return False
    gap = pairs.gap
    return float(np.abs(gap).mean()) > GAP_WARN and abs(float(gap.mean())) < 0.2 * float(np.abs(gap).mean())


def not_normalised(view: View) -> Finding:
    """None above 0, but rows do not sum to 1."""
    return from_logits(view, "logprob.not_normalised") or skip("logprob.not_normalised")


def wrong_axis(view: View) -> Finding:
    """The softmax or the gather runs over another axis."""
    return from_logits(view, "logprob.wrong_axis") or skip("logprob.wrong_axis")


def shifted(view: View) -> Finding:
    """Trainer and sampler agree after moving one of them along the tokens."""
    id = "logprob.shifted"
    found = from_logits(view, id)
    if found is not None and found.status == "fail":
        return found
    pairs = view.sampler_pairs
    if pairs is None or pairs.gap.size < 40:
        return found or skip(id)
    here = float(np.median(np.abs(pairs.gap)))
    errors = {shift: _shift_error(pairs, shift) for shift in (1, -1, 2, -2)}
    shift, best = min(errors.items(), key=lambda item: item[1])
    evidence = {"median_gap": here, "median_gap_after_shift": best, "shift": shift}
    if here > 0.2 and best < 0.05 and best < here / 5:
        side = "later" if shift > 0 else "earlier"
        return fail(
            view,
            id,
            f"the sampler's log-probs match the trainer's {abs(shift)} position(s) {side}",
            evidence,
            view.refs(np.unique(pairs.row)),
        )
    return fine(view, id, evidence)


def _shift_error(pairs: Pairs, shift: int) -> float:
    """Median gap between the trainer at t + shift and the sampler at t, inside rows."""
    one, two = (
        (pairs.first[shift:], pairs.second[:-shift])
        if shift > 0
        else (pairs.first[:shift], pairs.second[-shift:])
    )
    rows = (pairs.row[shift:], pairs.row[:-shift]) if shift > 0 else (pairs.row[:shift], pairs.row[-shift:])
    same = rows[0] == rows[1]
    return float(np.median(np.abs(one - two)[same])) if same.sum() >= 20 else math.inf


def mask(view: View) -> Finding:
    """The mask counts positions that the policy did not sample: beyond the length, pads after the end, or none."""
    id = "logprob.mask"
    if not view.has("mask"):
        return _longer_than_length(view, id)
    frame = view.rows.select(
        pl.col("mask").list.sum().alias("on"), pl.col("mask").list.len().alias("size")
    ).to_dict(as_series=False)
    on = np.array([math.nan if v is None else v for v in frame["on"]])
    length = view.column("length")
    beyond = np.isfinite(on) & np.isfinite(length) & (on > length + 0.5)
    padded = _counts_pads(view)
    empty = np.isfinite(on) & (on == 0) & (length > 1)
    evidence = {
        "beyond_length": int(beyond.sum()),
        "on_pad": int(padded.sum()),
        "all_zero": int(empty.sum()),
        "of": int(np.isfinite(on).sum()),
    }
    for rows, words in (
        (padded, "the mask is on at pad tokens"),
        (beyond, "the mask counts more tokens than the completion has"),
        (empty, "the mask is 0 everywhere"),
    ):
        if rows.sum() >= 2 and rows.sum() > 0.05 * max(1, np.isfinite(on).sum()):
            return fail(
                view, id, f"{words} in {int(rows.sum())} rows", evidence, view.refs(np.flatnonzero(rows))
            )
    return fine(view, id, evidence)


def _longer_than_length(view: View, id: str) -> Finding:
    """Without a mask: more log-probs than the completion has tokens means that others were counted."""
    name = view.trainer_column
    if name is None or not view.has("length"):
        return skip(id)
    sizes = view.rows[name].list.len().cast(pl.Float64).to_numpy().astype(np.float64)
    beyond = np.isfinite(sizes) & (sizes > view.column("length") + 0.5)
    total = int(np.isfinite(sizes).sum())
    evidence = {"rows_with_more_logprobs_than_tokens": int(beyond.sum()), "of": total}
    if beyond.sum() >= 4 and beyond.sum() > 0.3 * total:
        return fail(
            view,
            id,
            f"{name} has more entries than the completion has tokens in {int(beyond.sum())} rows",
            evidence,
            view.refs(np.flatnonzero(beyond)),
        )
    return skip(id)


def _counts_pads(view: View) -> np.ndarray:
    """Rows whose mask is on at a pad id, or after an end token."""
    rows = np.zeros(view.rows.height, dtype=bool)
    if not view.has("token_ids"):
        return rows
    pads, ends = ids_of(view, "pad_token_id"), ids_of(view, "eos_token_id")
    for number, (ids, on) in enumerate(
        zip(view.rows["token_ids"].to_list(), view.rows["mask"].to_list(), strict=True)
    ):
        if ids is None or on is None or len(ids) != len(on):
            continue
        counted = [token for token, use in zip(ids, on, strict=True) if use]
        end = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        rows[number] = any(token in pads - ends for token in counted) or any(on[end + 1 :])
    return rows


def ids_of(view: View, name: str) -> set[int]:
    """Token ids of a setting that is one id or a list of them."""
    value = view.config.get(name)
    values = value if isinstance(value, list) else [value]
    return {item for item in values if isinstance(item, int) and not isinstance(item, bool)}


def retokenised(view: View) -> Finding:
    """Ids and log-probs of one completion differ in number: the text was encoded again."""
    id = "logprob.retokenised"
    columns = [name for name in COLUMNS if view.has(name)]
    if not view.has("token_ids") or not columns:
        return skip(id)
    sizes = view.rows["token_ids"].list.len().cast(pl.Float64).to_numpy().astype(np.float64)
    for name in columns:
        other = view.rows[name].list.len().cast(pl.Float64).to_numpy().astype(np.float64)
        known = np.isfinite(sizes) & np.isfinite(other) & (other > 0)
        differs = known & (sizes != other)
        offsets = np.unique((sizes - other)[known])
        evidence = {"column": name, "rows": int(differs.sum()), "of": int(known.sum())}
        whole_prompt = (
            known.sum() > 3
            and differs.sum() == known.sum()
            and (offsets.size == 1 or (sizes - other)[known].min() > 0)
        )
        if differs.sum() and differs.sum() > 0.01 * known.sum() and not whole_prompt:
            return fail(
                view,
                id,
                f"{int(differs.sum())} of {int(known.sum())} completions have another number of "
                f"ids than of {name}",
                evidence,
                view.refs(np.flatnonzero(differs)),
            )
    return fine(view, id, {"rows": int(np.isfinite(sizes).sum())})
