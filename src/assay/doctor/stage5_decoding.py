"""Stage 5: do completions end, and does the text survive on its way to the reward?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, fine, skip, warn
from assay.doctor.texts import Compared, bare, compare, configured_specials
from assay.doctor.trend import finite, wilson
from assay.doctor.view import View
from assay.records.finding import Finding

COMPARED_ROWS = 4000
"""Rows whose texts are compared, spread evenly over the run."""


def sampled(view: View, *names: str) -> np.ndarray:
    """Row numbers in which all these columns are known, at most :data:`COMPARED_ROWS`."""
    known = view.rows.select(pl.all_horizontal(pl.col(n).is_not_null() for n in names).alias("k"))[
        "k"
    ].to_numpy()
    rows = np.flatnonzero(known)
    return (
        rows if rows.size <= COMPARED_ROWS else rows[np.linspace(0, rows.size - 1, COMPARED_ROWS).astype(int)]
    )


def compared(view: View) -> list[tuple[int, Compared]] | None:
    """Each sampled row with its comparison, computed once; None where one of the two texts was not logged."""
    if not view.has("completion", "reward_text"):
        return None
    cached = view.__dict__.get("_compared")
    if cached is None:
        rows = sampled(view, "completion", "reward_text")
        extra = configured_specials(view.config)
        frame = view.rows.select(
            n for n in ("prompt", "completion", "reward_text", "answer") if n in view.rows.columns
        )[rows]
        cached = [
            (
                int(number),
                compare(row.get("prompt"), row["completion"], row["reward_text"], row.get("answer"), extra),
            )
            for number, row in zip(rows, frame.to_dicts(), strict=True)
        ]
        view.__dict__["_compared"] = cached
    return cached


def share_finding(
    view: View, id: str, rows: list[int], total: int, words: str, limit: float = 0.05
) -> Finding:
    """Fail where more than ``limit`` of the rows have the fault (three and more), warn where any has."""
    low, _ = wilson(len(rows), total, 2.6)
    evidence = {
        "rows": len(rows),
        "of": total,
        "lower_bound": low,
        "limit": limit,
        "text": _shown(view, rows),
    }
    if len(rows) >= min(3, total) and low > limit / 2 and len(rows) / total > limit:
        return fail(view, id, f"{words} in {len(rows)} of {total} rows", evidence, view.refs(rows))
    if rows:
        return warn(view, id, f"{words} in {len(rows)} of {total} rows", evidence, view.refs(rows))
    return fine(view, id, {"rows": total})


def _shown(view: View, rows: list[int]) -> dict[str, str] | None:
    if not rows:
        return None
    row = view.rows[rows[0]].to_dicts()[0]
    return {n: str(row[n])[:300] for n in ("completion", "reward_text") if row.get(n) is not None}


def _texts_check(view: View, id: str, flag: Callable[[Compared], bool], words: str) -> Finding:
    pairs = compared(view)
    if not pairs:
        return skip(id)
    return share_finding(view, id, [number for number, row in pairs if flag(row)], len(pairs), words)


def prompt_in_text(view: View) -> Finding:
    """The reward's text holds the prompt."""
    return _texts_check(
        view, "decode.prompt_in_text", lambda row: row.prompt, "the reward's text holds the prompt"
    )


def padding_in_text(view: View) -> Finding:
    """The reward's text holds padding."""
    return _texts_check(
        view, "decode.padding_in_text", lambda row: row.padding, "the reward's text holds padding"
    )


def content_stripped(view: View) -> Finding:
    """The reward's text lacks content of the completion."""
    return _texts_check(
        view,
        "decode.content_stripped",
        lambda row: row.stripped,
        "the reward's text lacks content of the completion",
    )


def wrong_text(view: View) -> Finding:
    """The reward saw another text than was generated; says whether it is that of another row."""
    id = "reward.wrong_text"
    found = _texts_check(
        view, id, lambda row: row.other_text, "the reward saw another text than was generated"
    )
    if found.status != "fail":
        return found
    pairs = compared(view) or []
    texts = {bare(text or "") for text in view.texts("completion")}
    rows = [number for number, row in pairs if row.other_text]
    swapped = sum(bare(view.rows["reward_text"][number]) in texts for number in rows[:500])
    evidence = {**found.evidence, "text_of_another_row": swapped}
    words = " (the text of another completion)" if swapped > 0.5 * min(len(rows), 500) else ""
    return fail(view, id, found.summary + words, evidence, found.samples)


def special_tokens(view: View) -> Finding:
    """Tags that are special tokens vanish before scoring, or end marks stay and right completions go unpaid."""
    id = "decode.special_tokens"
    pairs = compared(view)
    if not pairs:
        return skip(id)
    removed = [number for number, row in pairs if row.special_removed]
    if removed:
        words = "tags of the completion are missing in the reward's text"
        found = share_finding(view, id, removed, len(pairs), words)
        return found if _unpaid(view, removed)[0] else dataclasses.replace(found, status="warn")
    kept = [number for number, row in pairs if row.special_kept]
    if not kept:
        return fine(view, id, {"rows": len(pairs)})
    harms, right, unpaid = _unpaid(view, kept)
    counts = {"rows": len(kept), "of": len(pairs), "right": right, "right_and_unpaid": unpaid}
    evidence = counts | {"text": _shown(view, kept)}
    if len(kept) > 0.05 * len(pairs) and harms:
        words = f"end marks stay in the reward's text, and {unpaid} of {right} right completions are unpaid"
        return fail(view, id, words, evidence, view.refs(kept))
    if len(kept) < 0.05 * len(pairs):  # stray marks that the policy itself wrote in the middle of a text
        return fine(view, id, evidence)
    return warn(
        view,
        id,
        f"end marks stay in the reward's text in {len(kept)} of {len(pairs)} rows",
        evidence,
        view.refs(kept),
    )


def _unpaid(view: View, rows: list[int]) -> tuple[bool, int, int]:
    """Whether the reward fails these rows (right ones are unpaid, or nothing is ever paid); right, right and unpaid."""
    low, high = view.scale
    right = view.truth[rows] >= 0.5
    unpaid = int((right & (view.reward[rows] < (low + high) / 2)).sum())
    bound, _ = wilson(unpaid, int(right.sum()), 2.6)
    known = finite(view.reward)
    blind = right.sum() == 0 and known.size > 0 and bool(np.ptp(known) == 0)
    return bound > 0.5 or blind, int(right.sum()), unpaid


_OPEN_AT_END = re.compile(r"<([A-Za-z_][\w-]{0,30})>\s*$")


def prefilled(view: View) -> Finding:
    """The prompt ends with a tag that completions close without opening, and nothing is ever paid."""
    id = "decode.prefilled"
    if not view.has("prompt", "completion"):
        return skip(id)
    rows = sampled(view, "prompt", "completion")
    hits: list[int] = []
    for number in rows:
        match = _OPEN_AT_END.search(view.rows["prompt"][int(number)])
        if match and f"<{match.group(1)}>" not in view.rows["completion"][int(number)]:
            hits.append(int(number))
    paid = _format_paid(view)
    evidence = {"rows": len(hits), "of": int(rows.size), "paid": paid}
    if rows.size and len(hits) > 0.5 * rows.size:
        if paid is not None and not paid:
            return fail(
                view,
                id,
                "the prompt ends with the tag that the reward wants at the start of the "
                "completion, and no completion is paid",
                evidence,
                view.refs(hits),
            )
        return fine(view, id, evidence)
    return fine(view, id, evidence)


def _format_paid(view: View) -> bool | None:
    """Whether any completion was paid (for its format, where the parts are logged)."""
    names = [
        n
        for n in view.rows.columns
        if n.startswith("part:") and any(w in n.lower() for w in ("format", "tag", "think"))
    ]
    for name in names:
        values = finite(view.column(name))
        if values.size and values.max() <= 0:
            return False
    known = finite(view.reward)
    means = finite(view.metric("reward"))
    seen = np.concatenate([known, means])
    return None if seen.size == 0 else bool(np.ptp(seen) > 0 or seen[0] > 0)
