"""Stage 5: do completions end, and are they more than nothing or a loop?"""

from __future__ import annotations

import math
import re

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.stage3_logprobs import ids_of, sizes_of, trailing_pads
from assay.doctor.stage5_decoding import sampled, share_finding
from assay.doctor.texts import SPECIAL, bare
from assay.doctor.trend import Floats, finite, thirds, wilson
from assay.doctor.view import Bools, Ints, View
from assay.records.finding import Finding

TRUNCATED_FAIL, TRUNCATED_WARN, NEVER_ENDS = 0.4, 0.15, 0.97
TRUNCATED_UNKNOWN, TRUNCATED_ANYWAY = 0.6, 0.8
"""Shares of cut completions that fail where nothing shows what being cut costs, and where it seems to cost nothing."""
EMPTY = 0.2
"""Share of completions without content that fails."""


def _truncated_rows(view: View) -> Floats:
    """Per row 1 for cut, 0 for ended, NaN for unknown: as logged, else full length without an end token.

    Full length with an end token at its end was not cut, whatever the log says.
    """
    logged, full, ended = 1.0 - view.column("finished"), _full(view), _ended(view)
    cut = np.where(np.isfinite(logged), logged, np.where(np.isfinite(ended), full * (1 - ended), math.nan))
    return np.where(_miscounted(view), 0.0, cut)


def _miscounted(view: View) -> Bools:
    """(N,) rows logged as cut whose ids fill the limit (the longest row, where none is known) up to an end token."""
    full = _full(view)
    if not np.isfinite(full).any() and view.has("token_ids"):
        lengths = sizes_of(view, "token_ids")
        full = (lengths >= np.nanmax(lengths, initial=1)).astype(np.float64)
    return (view.column("finished") == 0) & (full == 1) & (_ended(view) == 1)


def _full(view: View) -> Floats:
    """(N,) 1 where the ids, pads apart, fill the limit of the length; NaN where either is unknown."""
    if not view.has("token_ids"):
        return np.full(view.rows.height, math.nan)
    lengths, limit = sizes_of(view, "token_ids") - _padding(view), view.column("max_length")
    limit = np.where(np.isfinite(limit), limit, view.number("max_length"))
    return np.where(np.isfinite(lengths) & np.isfinite(limit), lengths >= limit, math.nan)


def _ended(view: View) -> Floats:
    """(N,) 1 where the last id, pads apart, is an end token; NaN where ids or end tokens are unknown."""
    ends = ids_of(view, "eos_token_id")
    if not view.has("token_ids") or not ends:
        return np.full(view.rows.height, math.nan)
    places = pl.Series(-1 - _padding(view)).cast(pl.Int64)
    last = view.rows["token_ids"].list.get(places, null_on_oob=True).cast(pl.Float64).to_numpy()
    return np.where(view.rows["token_ids"].is_null().to_numpy(), math.nan, np.isin(last, list(ends)))


def _padding(view: View) -> Floats:
    """(N,) pads at the end of the ids that are no end tokens."""
    pads = ids_of(view, "pad_token_id") - ids_of(view, "eos_token_id")
    return trailing_pads(view, np.isin(view.rows["token_ids"].list.last().to_numpy(), list(pads)))


def truncated_share(view: View) -> tuple[float, float, int] | None:
    """Share of cut completions in the first and the last third of the run, and how many values it rests on."""
    logged = finite(view.metric("truncated"))
    if logged.size == 0 and view.metric("stop_rate") is not None:
        logged = 1 - finite(view.metric("stop_rate"))
    rows = _truncated_rows(view)
    known = np.isfinite(rows)
    if logged.size >= 3 and not _contradicted(logged, rows[known]):
        return (*thirds(logged), logged.size * 8)
    if not known.any():
        return None
    steps = np.unique(view.step[known])
    first, last = steps[max(0, steps.size // 3 - 1)], steps[-max(1, steps.size // 3)]
    early, late = rows[known & (view.step <= first)], rows[known & (view.step >= last)]
    return float(early.mean()), float(late.mean()), int(min(early.size, late.size))


def _contradicted(logged: Floats, rows: Floats) -> bool:
    """Whether the metrics say that nothing ends, and most of the logged completions do."""
    return rows.size >= 8 and max(thirds(logged)) >= NEVER_ENDS and float(rows.mean()) < 0.5


def _first_share(view: View) -> float:
    """Share of cut completions at the first step, before any update; NaN where unknown."""
    logged, rows = finite(view.metric("truncated")), _truncated_rows(view)
    if logged.size >= 3 and not _contradicted(logged, rows[np.isfinite(rows)]):
        return float(logged[0])
    rows = rows[view.step == view.step.min(initial=0)]
    return float(np.nanmean(rows)) if np.isfinite(rows).sum() >= 8 else math.nan


def _by_time(view: View, rows: np.ndarray, bad: list[int]) -> dict[str, float]:
    """Share of bad rows in the first and the last third of the steps."""
    steps = np.unique(view.step)
    part = max(1, steps.size // 3)
    wrong = np.isin(rows, bad)
    ends = {"early": view.step[rows] <= steps[part - 1], "late": view.step[rows] >= steps[-part]}
    return (
        {name: float(wrong[use].mean()) for name, use in ends.items() if use.any()} if steps.size >= 3 else {}
    )


def no_eos(view: View) -> Finding:
    """Nearly every completion runs to the cap."""
    id = "decode.no_eos"
    share = truncated_share(view)
    if share is None:
        return skip(id)
    early, late, count = share
    evidence = {"first": _first_share(view), "early": early, "late": late, "limit": NEVER_ENDS}
    low, _ = wilson(max(early, late) * count, count, 2.6)
    if max(early, late) >= NEVER_ENDS and low > 0.4:
        when = "" if early >= NEVER_ENDS else " at the end of the run"
        return fail(
            view,
            id,
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
    evidence = {"first": _first_share(view), "early": early, "late": late, "lower_bound": low,
                "limits": [TRUNCATED_WARN, TRUNCATED_FAIL]}  # fmt: skip
    if largest >= NEVER_ENDS:
        return fine(view, id, {**evidence, "note": "all of them: see decode.no_eos"})
    words = f"{largest:.0%} of the completions are cut at the cap"
    unpaid = _cut_is_unpaid(view)
    limit = {True: TRUNCATED_FAIL, None: TRUNCATED_UNKNOWN, False: TRUNCATED_ANYWAY}[unpaid]
    hopeful = view.reward_rises or (unpaid is None and view.reward_change.z > 1)
    if largest > limit and low > TRUNCATED_WARN and not hopeful:
        return fail(view, id, words, evidence | {"cut_are_paid_less": unpaid}, _cut_refs(view))
    if largest > TRUNCATED_WARN:
        return warn(view, id, words, evidence, _cut_refs(view))
    wrong = np.flatnonzero(_miscounted(view))
    if wrong.size > 0.05 * view.rows.height:
        words = (
            f"{wrong.size} of {view.rows.height} completions count as cut, and their last id is an end token"
        )
        return warn(view, id, words, evidence | {"count_as_cut": int(wrong.size)}, view.refs(wrong))
    return fine(view, id, evidence)


def _cut_is_unpaid(view: View) -> bool | None:
    """Whether cut completions surely earn less than those that end; None where rewards or ends are not known."""
    cut, known = _truncated_rows(view), np.isfinite(view.reward)
    sides = [view.reward[known & (cut == side)] for side in (1.0, 0.0)]
    if min(side.size for side in sides) < 8 or np.ptp(view.reward[known]) == 0:
        return None
    error = math.sqrt(sum(float(side.var()) / side.size for side in sides))
    return bool(sides[1].mean() - sides[0].mean() > 3 * error)


_START = (
    r"<s>|<bos>|<\|bos\|>|<\|begin_of_text\|>|<\|startoftext\|>|<\|endoftext\|>|<｜begin▁of▁sentence｜>"
    r"|\[CLS\]|\[BOS\]"
)
_TWO_STARTS = re.compile(rf"^\s*({_START})\s*\1")


def double_bos(view: View) -> Finding:
    """Prompts start with two start tokens, in ids or in text; in ids also with none, or with more inside."""
    id = "decode.double_bos"
    if view.has("prompt_ids"):
        starts = ids_of(view, "bos_token_id")
        if starts:
            return _start_tokens(view, starts)
        named = [name for name in ("bos_token_id", "bos_id", "bos") if name in view.run.raw_config]
        if named:
            return finding(view, id, "pass", "the configuration names no start token", dict.fromkeys(named))
    if not view.has("prompt"):
        return skip(id)
    rows = sampled(view, "prompt")
    texts = view.rows["prompt"][rows.tolist()].to_list()
    bad = [int(n) for n, text in zip(rows, texts, strict=True) if _TWO_STARTS.match(text)]
    if not bad and not any(SPECIAL.search(text) for text in texts[:200]):
        return skip(id)
    return share_finding(view, id, bad, max(1, int(rows.size)), TWICE)


TWICE = "the prompt starts with two start tokens"
_STARTLESS = re.compile(r"qwen|bloom|phi-?3", re.IGNORECASE)
"""Models whose files name a start token that their tokenizers do not write."""


def _start_tokens(view: View, starts: set[int]) -> Finding:
    """Start tokens in the prompts' ids, padding on the left apart: one each, at the first place or after an end."""
    id, rows = "decode.double_bos", sampled(view, "prompt_ids")
    pads, ends = ids_of(view, "pad_token_id"), ids_of(view, "eos_token_id")
    bodies = [_unpadded(ids, pads - starts) for ids in view.rows["prompt_ids"][rows.tolist()].to_list()]
    leading = [next((n for n, token in enumerate(ids) if token not in starts), len(ids)) for ids in bodies]
    unsure = bool(starts & pads) and set(leading) != {2}  # pads of any number, unless all have two
    twice = [int(row) for row, count in zip(rows, leading, strict=True) if count >= 2 and not unsure]
    if twice:
        return share_finding(view, id, twice, int(rows.size), TWICE)
    absent = [int(row) for row, ids, n in zip(rows, bodies, leading, strict=True) if ids and n == 0]
    if absent and _writes_start(view, starts):
        return _without_start(view, absent, int(rows.size), starts)
    inside = [
        int(row) for row, ids, n in zip(rows, bodies, leading, strict=True) if _inside(ids[n:], starts, ends)
    ]
    if inside:
        words = f"a second start token stands inside {len(inside)} of {rows.size} prompts (a template of each turn?)"
        return warn(view, id, words, {"rows": len(inside), "of": int(rows.size)}, view.refs(inside))
    return fine(view, id, {"rows": int(rows.size), "without": len(absent)})


def _unpadded(ids: list[int], pads: set[int]) -> list[int]:
    return ids[next((n for n, token in enumerate(ids) if token not in pads), len(ids)) :]


def _inside(ids: list[int], starts: set[int], ends: set[int]) -> bool:
    """Whether a start token follows that does not open a turn, right after an end token or one token later."""
    return any(
        token in starts - ends and not ends & set(ids[max(0, n - 2) : n]) for n, token in enumerate(ids)
    )


def _writes_start(view: View, starts: set[int]) -> bool:
    """Whether the model's tokenizer writes the start token: some only name one, often the end or pad token."""
    others = ids_of(view, "eos_token_id") | ids_of(view, "pad_token_id")
    switched_off = view.run.raw_config.get("add_bos_token") is False
    return not (starts & others or switched_off or _STARTLESS.search(view.word("model")))


def _without_start(view: View, rows: list[int], total: int, starts: set[int]) -> Finding:
    """Prompts without the start token: all of them fail, unless the run learns; some of them are a warning."""
    id, token = "decode.double_bos", "/".join(map(str, sorted(starts)))
    most = len(rows) >= 0.95 * total
    words = (
        f"no prompt begins with the start token {token}"
        if len(rows) == total
        else f"{len(rows)} of {total} prompts lack the start token {token} that the others begin with"
    )
    fix = (
        f"Let the template or the tokenizer write the start token {token} once, at the front; "
        "set bos_token_id to null in the log's configuration if the model has none."
    )
    evidence = {"rows": len(rows), "of": total}
    status = "fail" if most and not view.reward_rises else "warn"
    return finding(view, id, status, words, evidence, view.refs(rows), fix)


def empty(view: View) -> Finding:
    """Completions without text (special tokens apart): more than a fifth is a failure."""
    id = "decode.empty"
    if view.has("completion"):
        rows = sampled(view, "completion")
        texts = view.rows["completion"][rows.tolist()].to_list()
        bad = [int(n) for n, text in zip(rows, texts, strict=True) if not bare(text)]
    elif view.has("token_ids"):
        rows = sampled(view, "token_ids")
        bad = _without_content(view, rows)
    else:
        mean = finite(view.metric("length"))
        if mean.size < 3:
            return skip(id)
        cut = truncated_share(view)
        if float(np.median(mean)) < 1.5 and not (cut and max(cut[:2]) > 0.5):
            return fail(
                view,
                id,
                f"the mean length is {float(np.median(mean)):.2f} tokens",
                {"length": float(np.median(mean))},
            )
        return fine(view, id)
    low, _ = wilson(len(bad), int(rows.size), 2.6)
    evidence = {"rows": len(bad), "of": int(rows.size), "lower_bound": low, "limit": EMPTY} | _by_time(
        view, rows, bad
    )
    if low > EMPTY / 2 and len(bad) > EMPTY * rows.size:
        return fail(view, id, f"{len(bad)} of {rows.size} completions are empty", evidence, view.refs(bad))
    if len(bad) > 0.02 * rows.size:
        return warn(view, id, f"{len(bad)} of {rows.size} completions are empty", evidence, view.refs(bad))
    return fine(view, id, evidence)


def _without_content(view: View, rows: Ints) -> list[int]:
    """Rows without any id; and those of end and pad tokens only, where these make up a good part of the run."""
    marks = ids_of(view, "eos_token_id") | ids_of(view, "pad_token_id")
    lists = view.rows["token_ids"][rows.tolist()].to_list()
    blank = [int(row) for row, ids in zip(rows, lists, strict=True) if marks.issuperset(ids)]
    if len(blank) > EMPTY * rows.size and wilson(len(blank), int(rows.size), 2.6)[0] > EMPTY / 2:
        return blank
    return [int(row) for row, ids in zip(rows, lists, strict=True) if not ids]


def loops(text: str, least: int = 60) -> bool:
    """Whether the text ends in a loop: its last part is one unit repeated four times and more, ``least`` characters long."""  # noqa: E501
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
    rows = sampled(view, "completion")
    texts = view.rows["completion"][rows.tolist()].to_list()
    bad = [int(n) for n, text in zip(rows, texts, strict=True) if loops(text)]
    low, _ = wilson(len(bad), int(rows.size), 2.6)
    evidence = {"rows": len(bad), "of": int(rows.size), "lower_bound": low, "limit": 0.25} | _by_time(
        view, rows, bad
    )
    if low > 0.15 and len(bad) > 0.25 * rows.size:
        return fail(
            view, id, f"{len(bad)} of {rows.size} completions end in a loop", evidence, view.refs(bad)
        )
    if len(bad) > 0.05 * rows.size:
        return warn(
            view, id, f"{len(bad)} of {rows.size} completions end in a loop", evidence, view.refs(bad)
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
        return fail(view, id, f"the sampler uses {words} from the model's own file", evidence)
    return fine(view, id, evidence)
