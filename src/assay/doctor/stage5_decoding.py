"""Stage 5: do completions end, and does the text survive on its way to the reward?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import polars as pl

from assay.doctor.catalogue import finding, fine, skip
from assay.doctor.stage3_logprobs import ids_of
from assay.doctor.texts import SPECIAL, Compared, bare, compare, configured_specials
from assay.doctor.trend import Floats, finite, thirds, wilson
from assay.doctor.view import View
from assay.records.finding import Finding

COMPARED_ROWS = 4000
"""Rows whose texts are compared, spread evenly over the run."""
TRUNCATED_FAIL, TRUNCATED_WARN, NEVER_ENDS = 0.4, 0.15, 0.97


def _sample(view: View, *names: str) -> np.ndarray:
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
        rows = _sample(view, "completion", "reward_text")
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


def _share_finding(
    view: View, id: str, rows: list[int], total: int, words: str, limit: float = 0.05
) -> Finding:
    low, _ = wilson(len(rows), total, 2.6)
    evidence = {
        "rows": len(rows),
        "of": total,
        "lower_bound": low,
        "limit": limit,
        "text": _shown(view, rows),
    }
    if len(rows) >= min(3, total) and low > limit / 2 and len(rows) / total > limit:
        return finding(view, id, "fail", f"{words} in {len(rows)} of {total} rows", evidence, view.refs(rows))
    if rows:
        return finding(view, id, "warn", f"{words} in {len(rows)} of {total} rows", evidence, view.refs(rows))
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
    return _share_finding(view, id, [number for number, row in pairs if flag(row)], len(pairs), words)


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
    return finding(view, id, "fail", found.summary + words, evidence, found.samples)


def special_tokens(view: View) -> Finding:
    """Tags that are special tokens vanish before scoring, or end marks stay and right completions go unpaid."""
    id = "decode.special_tokens"
    pairs = compared(view)
    if not pairs:
        return skip(id)
    removed = [number for number, row in pairs if row.special_removed]
    if removed:
        return _share_finding(
            view, id, removed, len(pairs), "tags of the completion are missing in the reward's text"
        )
    kept = [number for number, row in pairs if row.special_kept]
    if not kept:
        return fine(view, id, {"rows": len(pairs)})
    low, high = view.scale
    truth, reward = view.truth[kept], view.reward[kept]
    right = truth >= 0.5
    unpaid = int((right & (reward < (low + high) / 2)).sum())
    evidence = {
        "rows": len(kept),
        "of": len(pairs),
        "right": int(right.sum()),
        "right_and_unpaid": unpaid,
        "text": _shown(view, kept),
    }
    bound, _ = wilson(unpaid, int(right.sum()), 2.6)
    blind = right.sum() == 0 and np.ptp(finite(view.reward)) == 0 if finite(view.reward).size else False
    if len(kept) > 0.05 * len(pairs) and (bound > 0.5 or blind):
        return finding(
            view,
            id,
            "fail",
            f"end marks stay in the reward's text, and {unpaid} of {int(right.sum())} right completions are unpaid",
            evidence,
            view.refs(kept),
        )
    return finding(
        view,
        id,
        "warn",
        f"end marks stay in the reward's text in {len(kept)} of {len(pairs)} rows",
        evidence,
        view.refs(kept),
    )


_OPEN_AT_END = re.compile(r"<([A-Za-z_][\w-]{0,30})>\s*$")


def prefilled(view: View) -> Finding:
    """The prompt ends with a tag that completions close without opening, and nothing is ever paid."""
    id = "decode.prefilled"
    if not view.has("prompt", "completion"):
        return skip(id)
    rows = _sample(view, "prompt", "completion")
    hits: list[int] = []
    for number in rows:
        match = _OPEN_AT_END.search(view.rows["prompt"][int(number)])
        if match and f"<{match.group(1)}>" not in view.rows["completion"][int(number)]:
            hits.append(int(number))
    paid = _format_paid(view)
    evidence = {"rows": len(hits), "of": int(rows.size), "paid": paid}
    if rows.size and len(hits) > 0.5 * rows.size:
        if paid is not None and not paid:
            return finding(
                view,
                id,
                "fail",
                "the prompt ends with the tag that the reward wants at the start of the completion, and no completion is paid",
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


def _truncated_rows(view: View) -> Floats:
    """Per row 1 for cut, 0 for ended, NaN for unknown: as logged, else full length without an end token."""
    if view.has("finished"):
        known = view.rows["finished"].cast(pl.Float64).to_numpy().astype(np.float64)
        cut = 1.0 - known
    else:
        cut = np.full(view.rows.height, math.nan)
    ends = ids_of(view, "eos_token_id")
    if not view.has("token_ids") or not ends:
        return cut
    limit = view.column("max_length")
    limit = np.where(np.isfinite(limit), limit, view.number("max_length"))
    lengths = view.rows["token_ids"].list.len().cast(pl.Float64).to_numpy().astype(np.float64)
    last = view.rows["token_ids"].list.last().cast(pl.Float64).to_numpy().astype(np.float64)
    full = np.where(
        np.isfinite(lengths) & np.isfinite(limit), (lengths >= limit) & ~np.isin(last, list(ends)), math.nan
    )
    return np.where(np.isfinite(cut), cut, full)


def truncated_share(view: View) -> tuple[float, float, int] | None:
    """Share of cut completions in the first and the last third of the run, and how many values it rests on."""
    logged = finite(view.metric("truncated"))
    if logged.size == 0 and view.metric("stop_rate") is not None:
        logged = 1 - finite(view.metric("stop_rate"))
    if logged.size >= 3:
        return (*thirds(logged), logged.size * 8)
    rows = _truncated_rows(view)
    known = np.isfinite(rows)
    if not known.any():
        return None
    steps = np.unique(view.step[known])
    first, last = steps[max(0, steps.size // 3 - 1)], steps[-max(1, steps.size // 3)]
    early, late = rows[known & (view.step <= first)], rows[known & (view.step >= last)]
    return float(early.mean()), float(late.mean()), int(min(early.size, late.size))


def no_eos(view: View) -> Finding:
    """Nearly every completion runs to the cap."""
    id = "decode.no_eos"
    share = truncated_share(view)
    if share is None:
        return skip(id)
    early, late, count = share
    evidence = {"early": early, "late": late, "limit": NEVER_ENDS}
    low, _ = wilson(max(early, late) * count, count, 2.6)
    if max(early, late) >= NEVER_ENDS and low > 0.4:
        when = "" if early >= NEVER_ENDS else " at the end of the run"
        return finding(
            view,
            id,
            "fail",
            f"no completion ends by itself{when}: {max(early, late):.0%} run to the cap",
            evidence,
            _cut_refs(view),
        )
    return fine(view, id, evidence)


def _cut_refs(view: View) -> tuple:
    return view.refs(np.flatnonzero(_truncated_rows(view) == 1)) if view.rows.height else ()


def truncated(view: View) -> Finding:
    """Many completions are cut at the cap, though others end."""
    id = "decode.truncated"
    share = truncated_share(view)
    if share is None:
        return skip(id)
    early, late, count = share
    largest = max(early, late)
    low, _ = wilson(largest * count, count, 3.1)
    evidence = {"early": early, "late": late, "lower_bound": low, "limits": [TRUNCATED_WARN, TRUNCATED_FAIL]}
    if largest >= NEVER_ENDS:
        return fine(view, id, {**evidence, "note": "all of them: see decode.no_eos"})
    if (
        largest > TRUNCATED_FAIL
        and low > TRUNCATED_WARN
        and not (view.reward_rises and early <= TRUNCATED_FAIL)
    ):
        return finding(
            view,
            id,
            "fail",
            f"{largest:.0%} of the completions are cut at the cap",
            evidence,
            _cut_refs(view),
        )
    if largest > TRUNCATED_WARN:
        return finding(
            view,
            id,
            "warn",
            f"{largest:.0%} of the completions are cut at the cap",
            evidence,
            _cut_refs(view),
        )
    return fine(view, id, evidence)


_START = r"<s>|<bos>|<\|begin_of_text\|>|<\|startoftext\|>|<\|endoftext\|>|<｜begin▁of▁sentence｜>|\[CLS\]"
_TWO_STARTS = re.compile(rf"^\s*({_START})\s*\1")


def double_bos(view: View) -> Finding:
    """Prompts start with two start tokens, in ids or in text."""
    id = "decode.double_bos"
    if view.has("prompt_ids"):
        starts, pads = ids_of(view, "bos_token_id"), ids_of(view, "pad_token_id")
        rows = _sample(view, "prompt_ids")
        lists = view.rows["prompt_ids"][rows.tolist()].to_list()
        bad = [int(n) for n, ids in zip(rows, lists, strict=True) if _starts_twice(ids, starts, pads)]
        return _share_finding(
            view, id, bad, max(1, int(rows.size)), "the prompt starts with two start tokens"
        )
    texts = [name for name in ("prompt", "reward_text") if view.has(name)]
    if "prompt" not in texts:
        return skip(id)
    rows = _sample(view, "prompt")
    texts_ = view.rows["prompt"][rows.tolist()].to_list()
    bad = [int(n) for n, text in zip(rows, texts_, strict=True) if _TWO_STARTS.match(text)]
    if not bad and not any(SPECIAL.search(text) for text in texts_[:200]):
        return skip(id)
    return _share_finding(view, id, bad, max(1, int(rows.size)), "the prompt starts with two start tokens")


def _starts_twice(ids: list[int], starts: set[int], pads: set[int]) -> bool:
    rest = list(ids)
    while rest and rest[0] in pads and rest[0] not in starts:
        rest.pop(0)
    return len(rest) >= 2 and rest[0] == rest[1] and rest[0] in starts


def empty(view: View) -> Finding:
    """Completions without text (special tokens apart): more than a fifth is a failure."""
    id = "decode.empty"
    if view.has("completion"):
        rows = _sample(view, "completion")
        texts = view.rows["completion"][rows.tolist()].to_list()
        bad = [int(n) for n, text in zip(rows, texts, strict=True) if not bare(text)]
    elif view.has("token_ids"):
        rows = _sample(view, "token_ids")
        sizes = view.rows["token_ids"].list.len().to_numpy()
        bad = [int(n) for n in rows if sizes[n] == 0]
    else:
        mean = finite(view.metric("length"))
        if mean.size < 3:
            return skip(id)
        if float(np.median(mean)) < 1.5:
            return finding(
                view,
                id,
                "fail",
                f"the mean length is {float(np.median(mean)):.2f} tokens",
                {"length": float(np.median(mean))},
            )
        return fine(view, id)
    low, _ = wilson(len(bad), int(rows.size), 2.6)
    evidence = {"rows": len(bad), "of": int(rows.size), "lower_bound": low, "limit": 0.2}
    if low > 0.1 and len(bad) > 0.2 * rows.size:
        return finding(
            view, id, "fail", f"{len(bad)} of {rows.size} completions are empty", evidence, view.refs(bad)
        )
    if len(bad) > 0.02 * rows.size:
        return finding(
            view, id, "warn", f"{len(bad)} of {rows.size} completions are empty", evidence, view.refs(bad)
        )
    return fine(view, id, evidence)


def loops(text: str, least: int = 60) -> bool:
    """Whether the text ends in a loop: its last part is one unit repeated four times and more, ``least`` characters long."""
    tail = bare(text)[-600:]
    for unit in range(1, len(tail) // 4 + 1):
        span = max(least, 4 * unit)
        if span > len(tail):
            return False
        if tail[-span:-unit] == tail[-span + unit :]:
            return True
    return False


def repetition(view: View) -> Finding:
    """Completions that end in a loop."""
    id = "decode.repetition"
    if not view.has("completion"):
        return skip(id)
    rows = _sample(view, "completion")
    texts = view.rows["completion"][rows.tolist()].to_list()
    bad = [int(n) for n, text in zip(rows, texts, strict=True) if loops(text)]
    low, _ = wilson(len(bad), int(rows.size), 2.6)
    evidence = {"rows": len(bad), "of": int(rows.size), "lower_bound": low, "limit": 0.25}
    if low > 0.15 and len(bad) > 0.25 * rows.size:
        return finding(
            view, id, "fail", f"{len(bad)} of {rows.size} completions end in a loop", evidence, view.refs(bad)
        )
    if len(bad) > 0.05 * rows.size:
        return finding(
            view, id, "warn", f"{len(bad)} of {rows.size} completions end in a loop", evidence, view.refs(bad)
        )
    return fine(view, id, evidence)


_NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "repetition_penalty": 1.0}
_INHERITED = ("generation_config.", "effective_sampling.", "sampler.effective.", "model_generation_config.")


def sampling_settings(view: View) -> Finding:
    """The sampler runs with settings of the model's own file that the run did not ask for."""
    id = "decode.sampling_settings"
    raw = view.run.raw_config
    found = {
        name: raw[prefix + name]
        for prefix in _INHERITED
        for name in _NEUTRAL
        if isinstance(raw.get(prefix + name), int | float)
    }
    if not found:
        return skip(id)
    asked = {
        name: view.number(name) if math.isfinite(view.number(name)) else _NEUTRAL[name] for name in found
    }
    differ = {
        n: v
        for n, v in found.items()
        if abs(float(v) - asked[n]) > 1e-9 and not (n == "top_k" and v in (-1, 0) and asked[n] in (-1, 0))
    }
    evidence = {"effective": found, "asked": asked}
    if differ:
        words = ", ".join(f"{name}={value:g}" for name, value in differ.items())
        return finding(view, id, "fail", f"the sampler uses {words} from the model's own file", evidence)
    return fine(view, id, evidence)
