"""Stage 3: are the log-probs log-probs of these tokens, and do trainer and sampler mean the same policy?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.gathers import Match, explain
from assay.doctor.trend import Floats, finite
from assay.doctor.view import Bools, Ints, Pairs, View
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
    """Ids and log-probs of one completion differ in number: the text was encoded again.

    Ids that hold the prompt too are as many more as the prompt has, or start alike for every completion of a prompt.
    """
    id = "logprob.retokenised"
    columns = [name for name in COLUMNS if view.has(name)]
    if not view.has("token_ids") or not columns:
        return skip(id)
    sizes = sizes_of(view, "token_ids")
    with_prompt = padded = 0
    for name in columns:
        other = sizes_of(view, name)
        known = np.isfinite(sizes) & np.isfinite(other) & (other > 0)
        more = np.where(known, sizes - other, 0)
        pads = (more > 0) & (more == trailing_pads(view, more > 0))
        inside = (more > 0) & ~pads & _holds_prompt(view, more)
        with_prompt, padded = with_prompt + int(inside.sum()), padded + int(pads.sum())
        differs = (more != 0) & ~inside & ~pads
        if not differs.any():
            continue
        words = f"{int(differs.sum())} of {int(known.sum())} completions have another number of ids than of {name}"
        evidence = {"column": name, "rows": int(differs.sum()), "of": int(known.sum()),
                    "ids_minus_logprobs": [float(more[differs].min()), float(more[differs].max())]}  # fmt: skip
        rare = differs.sum() <= 0.01 * known.sum()
        open_ = not rare and _as_many_as_a_prompt(view, more, differs)
        words += ": the ids may hold the prompt too (log prompt_ids to tell)" if open_ else ""
        return (warn if rare or open_ else fail)(
            view, id, words, evidence, view.refs(np.flatnonzero(differs))
        )
    evidence = {"rows": int(np.isfinite(sizes).sum()), "with_prompt": with_prompt, "padded": padded}
    if with_prompt:
        return finding(
            view, id, "pass", "the ids hold the prompt too; each other id has its log-prob", evidence
        )
    return fine(view, id, evidence)


def sizes_of(view: View, name: str) -> Floats:
    """(N,) entries of a list column, NaN where it was not logged."""
    return view.rows[name].list.len().cast(pl.Float64).to_numpy().astype(np.float64)


def trailing_pads(view: View, rows: Bools) -> Floats:
    """(N,) pad tokens at the end of the ids of these rows; where pads are end tokens the first of them is none."""
    counts, pads = np.zeros(rows.size), ids_of(view, "pad_token_id")
    if not pads:
        return counts
    for row in np.flatnonzero(rows):
        ids = view.rows["token_ids"][int(row)].to_list()
        kept = next((n for n in range(len(ids), 0, -1) if ids[n - 1] not in pads), 0)
        ended = bool(pads & ids_of(view, "eos_token_id")) and kept < len(ids)
        counts[row] = len(ids) - kept - ended
    return counts


def _holds_prompt(view: View, more: Floats) -> Bools:
    """(N,) rows whose surplus of ids is the prompt's: by its logged number or ids, or by what its completions share."""
    rows, lengths = more > 0, prompt_lengths(view)
    exact = rows & (lengths == more)
    if view.has("prompt_ids"):
        for row in np.flatnonzero(rows & ~exact & view.rows["prompt_ids"].is_not_null().to_numpy()):
            asked, ids = (view.rows[name][int(row)].to_list() for name in ("prompt_ids", "token_ids"))
            starts = len(asked) > 0 and ids[: len(asked)] == asked
            exact[row] = starts and more[row] in (1, len(asked) - 1)
    left = rows & ~exact & (view.column("length") != sizes_of(view, "token_ids"))
    shared = _shared_starts(view, left, more)
    seen = [row for row, fits in shared.items() if fits]
    if seen and all(shared.values()):
        exact |= left
    else:
        exact[seen] = True
    return exact


_A_PROMPT = 8
"""Ids that all completions of a prompt must share before a single id without log-prob is the first of a prompt."""


def _shared_starts(view: View, rows: Bools, more: Floats) -> dict[int, bool]:
    """Whether the surplus lies in what the differing ids of a row's prompt start with, where several were logged."""
    name = next((name for name in ("prompt_id", "prompt") if view.has(name)), None)
    if name is None:
        return {}
    frame = view.rows.select("step", name, "token_ids").with_row_index("row").filter(pl.Series(rows))
    fits: dict[int, bool] = {}
    for numbers, lists in (
        frame.drop_nulls().group_by("step", name).agg("row", "token_ids").select("row", "token_ids").rows()
    ):
        if len({tuple(ids) for ids in lists}) < 2:
            continue
        low, high = min(lists), max(lists)  # what the least and the greatest share, all share
        start = next(
            (n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high))
        )
        surplus = {float(more[row]) for row in numbers}
        needed = _A_PROMPT if surplus == {1.0} else max(surplus)
        fits |= dict.fromkeys(numbers, len(surplus) == 1 and start >= needed)
    return fits


def _as_many_as_a_prompt(view: View, more: Floats, rows: Bools) -> bool:
    """Whether nothing but the text of the prompts tells how long they are, and it allows for the surplus."""
    if not view.has("prompt") or _shared_starts(view, rows, more) or np.isfinite(prompt_lengths(view)).any():
        return False
    letters = view.rows["prompt"].str.len_chars().cast(pl.Float64).to_numpy().astype(np.float64)[rows]
    surplus = more[rows]
    completion = view.column("length")[rows] == sizes_of(view, "token_ids")[rows]
    return bool(((surplus >= 4) & (surplus > letters / 12) & (surplus < letters + 32) & ~completion).all())


def prompt_lengths(view: View) -> Floats:
    """(N,) tokens of each row's prompt, as logged; NaN where unknown."""
    if view.has("prompt_length") or not view.has("prompt_ids"):
        return view.column("prompt_length")
    return sizes_of(view, "prompt_ids")
