"""Stage 2: are the groups such that an advantage can be taken over them?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.trend import Floats, finite, wilson
from assay.doctor.view import Groups, View
from assay.records.finding import Finding

ZERO_SPREAD_FAIL, ZERO_SPREAD_WARN = 0.8, 0.5


def group_size(view: View) -> Finding:
    """Groups of one give no advantage; of two, little (the share without spread is shown for larger G)."""
    id = "advantage.group_size"
    size, method = view.group_size, view.is_group_method
    ones = _ones_by_id(view)
    configured = view.number("group_size")
    if size is None and ones is None:
        return skip(id)
    if method is False and not ones:
        return fine(view, id, {"group_size": size, "note": "the method needs no group"})
    flat = _all_flat_metric(view)
    if ones or (configured == 1 and (method or _advantages_vanish(view) or flat)):
        evidence = {"configured": configured, "distinct_ids": len(view.groups) if view.groups else None}
        return fail(
            view, id, "every group holds one completion: reward minus its own mean is always 0", evidence
        )
    if size == 1 or (view.groups is not None and len(view.groups) and (view.groups.size == 1).all()):
        if math.isfinite(configured) and configured > 1:
            return fine(
                view, id, {"configured": configured, "note": "the log holds single rows of the groups"}
            )
        if np.isfinite(view.advantage).any() and not _advantages_vanish(view):
            return fine(
                view, id, {"note": "one completion a prompt, with a baseline that is not the group's"}
            )
        status = "fail" if method else "warn"
        return finding(
            view, id, status, "each prompt has one completion: a group-relative method learns nothing from it"
        )
    if size == 2:
        return _pairs(view, id)
    return fine(view, id, {"group_size": size})


def _ones_by_id(view: View) -> bool | None:
    """Whether ids differ within what should be a group; None where rollouts have no ids."""
    groups = view.groups
    if groups is None or not view.has("prompt_id") or len(groups) < 4:
        return None
    if not (groups.size == 1).all() or (np.isfinite(view.advantage).any() and not _advantages_vanish(view)):
        return False
    configured = view.number("group_size")
    prompts = view.rows.select("step", "prompt").drop_nulls() if view.has("prompt") else None
    if prompts is not None and prompts.height == view.rows.height:
        counts = prompts.group_by("step", "prompt").len()["len"].to_numpy()
        if (counts > 1).mean() > 0.9:
            return True
    samples = finite(view.column("sample"))
    return bool(configured > 1 and samples.size and np.ptp(samples) == 0)


def _advantages_vanish(view: View) -> bool:
    known = finite(view.advantage)
    ends = [finite(view.metric(name)) for name in ("advantage_max", "advantage_min")]
    if known.size == 0 and all(end.size == 0 for end in ends):
        return False
    return all((np.abs(values) < 1e-9).all() for values in (known, *ends))


def _all_flat_metric(view: View) -> bool:
    flat, spread = finite(view.metric("zero_spread")), finite(view.metric("group_std"))
    return bool((flat.size and (flat > 0.999).all()) or (spread.size and (spread == 0).all()))


def _pairs(view: View, id: str) -> Finding:
    """G = 2: the expected share of groups without spread for the measured pass rate, and the observed one."""
    low, high = view.scale
    groups = view.groups
    known = finite(view.reward)
    rate = float(((known - low) / (high - low)).mean()) if known.size else math.nan
    table = {str(g): rate**g + (1 - rate) ** g for g in (2, 3, 4, 8, 16)}
    share, count = _zero_share(view)
    evidence = {"pass_rate": rate, "expected_share_without_spread": table, "observed": share, "groups": count}
    bound, _ = wilson(share * count, count, 2.6) if count else (0.0, 1.0)
    empty = bound > 0.5 and not view.reward_rises and groups is not None
    summary = "groups of two: " + (
        f"{share:.0%} of them have no spread" if count else "most of them may have no spread"
    )
    return finding(view, id, "fail" if empty else "warn", summary, evidence)


def _zero_share(view: View) -> tuple[float, int]:
    """Share of groups without spread over the whole run, and how many groups that is."""
    if view.groups is not None and (view.groups.known >= 2).any():
        usable = view.groups.known >= 2
        return float(view.flat[usable].mean()), int(usable.sum())
    known = finite(zero_metric(view))
    return (float(known.mean()), known.size) if known.size else (math.nan, 0)


def zero_metric(view: View) -> Floats | None:
    """The logged share of groups without spread, by step; None where it is not logged."""
    share = view.metric("zero_spread")
    if share is not None:
        return share
    mixed = view.metric("mixed_groups")
    if mixed is not None:
        return 1 - mixed
    ends = [view.metric(name) for name in ("solved_all", "solved_none")]
    if ends[0] is not None and ends[1] is not None:
        return ends[0] + ends[1]
    return _bound_from_spread(view)


def _bound_from_spread(view: View) -> Floats | None:
    """Where only the mean spread inside groups is logged: with rewards of 0 and 1 a group with spread has at least
    sqrt(G-1)/G, so the mean bounds the share of groups that have any. Whole numbers of right answers show 0/1."""
    spread, reward, size = view.metric("group_std"), view.metric("reward"), view.number("group_size")
    batch = view.number("batch_size")
    if spread is None or reward is None or not size >= 2 or not batch >= size or view.scale != (0.0, 1.0):
        return None
    counts = finite(reward) * batch
    if counts.size < 10 or (np.abs(counts - np.round(counts)) > 1e-6).any():
        return None
    return 1 - np.minimum(1.0, spread / (math.sqrt(size - 1) / size))


def zero_spread_groups(view: View) -> Finding:
    """At least 80% of the groups have no spread while the reward does not rise (a warning from 50%)."""
    id = "advantage.zero_spread_groups"
    logged = finite(zero_metric(view))
    groups = view.groups
    if groups is not None and not (groups.known >= 2).any():
        groups = None
    if groups is None and logged.size == 0:
        return skip(id) if (view.group_size or 0) != 1 else skip(id, "groups of two and more")
    evidence = _split_by_cause(view, groups) if groups is not None else {}
    early, early_count = _early_share(view, groups)
    if logged.size >= 4:
        share, whole = float(logged[: max(1, logged.size // 2)].mean()), float(logged.mean())
        enough, low = logged.size >= 5, whole
    else:
        share, count = early, early_count
        whole, total = _zero_share(view)
        low, _ = wilson(whole * total, total, 2.6)
        enough = low > 0.6 or (whole == 1.0 and total >= 3 and view.reward_change.points < 4)
        evidence |= {"groups": count}
    evidence |= {"early_share": share, "whole_run": whole, "limits": [ZERO_SPREAD_WARN, ZERO_SPREAD_FAIL]}
    summary = f"{share:.0%} of the groups in the first half of the run have no spread{_cause_words(evidence)}"
    rises = view.reward_rises
    if share >= ZERO_SPREAD_FAIL and whole >= 0.7 and enough and not rises:
        return fail(view, id, summary, evidence, _flat_rows(view))
    if share >= ZERO_SPREAD_WARN and not rises:
        return warn(view, id, summary, evidence, _flat_rows(view))
    return fine(view, id, evidence)


def _early_share(view: View, groups: Groups | None) -> tuple[float, int]:
    if groups is None:
        return math.nan, 0
    steps = np.unique(groups.step)
    first = (
        groups.step <= steps[(steps.size - 1) // 2]
        if steps.size > 1
        else np.ones(groups.step.size, dtype=bool)
    )
    usable = first & (groups.known >= 2)
    return (float(view.flat[usable].mean()), int(usable.sum())) if usable.any() else (math.nan, 0)


def _split_by_cause(view: View, groups: Groups) -> dict[str, object]:
    low, high = view.scale
    flat = view.flat
    return {
        "without_spread": int(flat.sum()),
        "all_right": int((flat & (groups.mean >= (low + high) / 2)).sum()),
        "all_wrong": int((flat & (groups.mean < (low + high) / 2)).sum()),
        "identical_text": int((flat & _identical(view)).sum()) if view.has("completion") else None,
    }


def _cause_words(evidence: dict[str, object]) -> str:
    if "all_right" not in evidence:
        return ""
    return f" (all right {evidence['all_right']}, all wrong {evidence['all_wrong']}, of {evidence['without_spread']})"


def _flat_rows(view: View) -> tuple:
    return view.refs(view.groups.first_row[view.flat]) if view.groups is not None else ()


LONG_TEXT, SHARED_START = 60, 0.8
"""Texts of at least so many characters that share this part of the shorter one are copies."""


def _identical(view: View) -> np.ndarray:
    """(K,) which groups of two and more hold one text only, or long texts that differ only at their ends."""
    groups = view.groups
    assert groups is not None
    text = pl.col("text")
    start = (pl.col("short") * SHARED_START).cast(pl.UInt32)
    frame = pl.DataFrame({"group": groups.of_row, "text": view.rows["completion"]}).drop_nulls()
    frame = frame.filter(pl.col("group") >= 0).with_columns(
        text.str.len_chars().min().over("group").alias("short")
    )
    table = frame.with_columns(text.str.head(start).alias("start")).group_by("group").agg(
        text.n_unique(), pl.col("start").n_unique(), pl.col("short").first(), pl.len()
    )  # fmt: skip
    copies = (text == 1) | ((pl.col("start") == 1) & (pl.col("short") >= LONG_TEXT))
    same = table.filter(copies & (pl.col("len") >= 2))["group"].to_numpy()
    flags = np.zeros(len(groups), dtype=bool)
    flags[same.astype(np.int64)] = True
    return flags


def identical_completions(view: View) -> Finding:
    """The completions of a prompt are copies from the start of the run (late in a run that is convergence)."""
    id = "advantage.identical_completions"
    groups = view.groups
    if groups is None or not view.has("completion") or not (groups.size >= 2).any():
        return skip(id)
    steps = np.unique(groups.step)
    first = (groups.size >= 2) & (groups.step <= steps[max(0, steps.size // 3 - 1)])
    same = _identical(view)
    count, total = int((same & first).sum()), int(first.sum())
    low, _ = wilson(count, total, 3.1)
    texts = [text for text in view.texts("completion")[:2000] if text is not None]
    long = float(np.median([len(text) for text in texts])) >= 20 if texts else False
    evidence = {
        "groups": total,
        "identical": count,
        "lower_bound": low,
        "temperature": view.config.get("temperature"),
    }
    rows = view.refs(groups.first_row[same])
    if low > 0.3 and long:
        return fail(
            view,
            id,
            f"in {count} of the first {total} groups all completions are the same text",
            evidence,
            rows,
        )
    late = int((same & (groups.size >= 2)).sum())
    if total and late / max(1, (groups.size >= 2).sum()) > 0.5:
        return warn(view, id, f"in {late} groups all completions are the same text", evidence, rows)
    return fine(view, id, evidence)


def mixed_prompts(view: View) -> tuple[float, np.ndarray] | None:
    """Share of groups whose rows have several prompts, and a row of each such group; None where not logged."""
    groups = view.groups
    if groups is None or not view.has("prompt_id", "prompt"):
        return None
    frame = pl.DataFrame({"g": groups.of_row, "p": view.rows["prompt"]}).drop_nulls().filter(pl.col("g") >= 0)
    table = frame.group_by("g").agg(pl.col("p").n_unique().alias("n"), pl.len()).filter(pl.col("len") >= 2)
    if not table.height:
        return None
    bad = table.filter(pl.col("n") > 1)["g"].to_numpy().astype(np.int64)
    return bad.size / table.height, groups.first_row[bad] if bad.size else np.empty(0, np.int64)
