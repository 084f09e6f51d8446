"""Checks that call the user's reward or need a tokenizer: is the gold paid, and which text would be?

The reward runs in a worker process with a time limit (:class:`assay.rewards.running.RewardRunner`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assay.doctor.catalogue import fail, fine, skip, warn
from assay.doctor.stage3_logprobs import ids_of
from assay.doctor.stage5_decoding import COMPARED_ROWS
from assay.doctor.texts import SPECIAL, frames
from assay.doctor.view import View
from assay.doctor.vocabulary import Tokenizer, load_tokenizer
from assay.errors import BadInput
from assay.records.finding import Finding
from assay.records.score import Score
from assay.rewards.running import RewardRunner

ROWS = 64
TASKS = 12
FORMS = (
    "{}", "\\boxed{{{}}}", "The answer is {}.", "The answer is \\boxed{{{}}}.", "<answer>{}</answer>", "#### {}",
    "<think>\nThe task asks for it.\n</think>\n<answer>{}</answer>",
    "<think>\nThe task asks for it.\n</think>\n\\boxed{{{}}}",
    "<think>\nThe task asks for it.\n</think>\n{}", "Answer: {}", "<ans>{}</ans>",
)  # fmt: skip
"""Forms in which a gold answer may be asked for."""

_OPEN_AT_END = re.compile(r"<[A-Za-z_][\w-]{0,30}>\s*$")
_END_MARK = re.compile(rf"(?:\s*(?:{SPECIAL.pattern}))+\s*$", re.IGNORECASE)

Scoring = Callable[[list[str], list[dict[str, Any]]], list[float]]

__all__ = ["Tokenizer", "load_tokenizer", "rescored", "retokenised_by"]


def rescored(view: View, reward: str | Callable[..., Any] | None, words: Tokenizer | None) -> list[Finding]:
    """Findings that need the reward function: unreachable golds, prefilled tags, special tokens in the way.

    Raises:
        BadInput: the reward cannot be loaded, gives no number for any completion, or wants a column that the
            rollouts do not have.
    """
    if reward is None:
        return [skip("reward.unreachable")]
    tasks, texts = _rows(view, words)
    results: list[Score] = []
    with RewardRunner(reward, time_limit=10.0) as runner:

        def score(completions: list[str], of: list[dict[str, Any]]) -> list[float]:
            scores = runner.score(completions, of) if completions else []
            results.extend(scores)
            return [result.value for result in scores]

        found = [_unreachable(view, score, tasks)]
        if texts:
            found.append(_prefilled(view, score, tasks, texts))
            found.append(_special_tokens(view, score, tasks, texts, words))
    _expect_a_score(results)
    return found


def _expect_a_score(results: Sequence[Score]) -> None:
    if results and not any(result.state == "scored" for result in results):
        raise BadInput(
            f"the reward gave no number for any of {len(results)} completions ({results[0].reason}); "
            "mend it, or leave --reward out"
        )


def _rows(view: View, words: Tokenizer | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Tasks and raw texts of at most :data:`ROWS` rows, spread over the run."""
    frame = view.rows
    if "completion" not in frame.columns and not ("token_ids" in frame.columns and words):
        return _tasks(view, np.arange(min(ROWS, frame.height))), []
    name = "completion" if "completion" in frame.columns else "token_ids"
    known = np.flatnonzero(frame[name].is_not_null().to_numpy())
    picked = (
        known[np.unique(np.linspace(0, known.size - 1, min(ROWS, known.size)).astype(int))]
        if known.size
        else known
    )
    values = frame[name][picked.tolist()].to_list()
    texts = values if name == "completion" else [words.decode(ids) if words else "" for ids in values]
    return _tasks(view, picked), texts


def _tasks(view: View, rows: np.ndarray) -> list[dict[str, Any]]:
    names = [n for n in ("prompt", "answer", "prompt_id") if n in view.rows.columns]
    if not names:
        return [{"prompt": ""} for _ in rows]
    table = view.rows.select(names)[rows.tolist()].to_dicts()
    return [{"prompt": "", **{k: v for k, v in row.items() if v is not None}} for row in table]


def _unreachable(view: View, score: Scoring, tasks: list[dict[str, Any]]) -> Finding:
    """No form of the gold answer is paid more than the worst completion."""
    id = "reward.unreachable"
    golds = {task["answer"]: task for task in tasks if "answer" in task}
    if not golds:
        return skip(id, "answer column")
    picked = list(golds.values())[:TASKS]
    texts = [form.format(task["answer"]) for task in picked for form in FORMS]
    scores = np.array(score(texts, [task for task in picked for _ in FORMS])).reshape(len(picked), len(FORMS))
    best = np.nanmax(np.where(np.isfinite(scores), scores, -np.inf), axis=1)
    junk = np.array(score(["", "I do not know."], [picked[0]] * 2))
    floor = float(np.nanmin(np.where(np.isfinite(junk), junk, 0.0)))
    top = float(np.nanmax(view.reward)) if np.isfinite(view.reward).any() else floor
    evidence = {
        "tasks": len(picked),
        "best_score_of_gold": float(np.median(best)),
        "junk": floor,
        "best_logged": top,
    }
    if (best <= floor + 1e-9).all() and top <= floor + 1e-9:
        return fail(view, id, f"no form of the gold answer is paid more than {floor:g}", evidence)
    return fine(view, id, evidence)


def _prefilled(view: View, score: Scoring, tasks: list[dict[str, Any]], texts: list[str]) -> Finding:
    """Joined with the tag that the prompt ends with, completions are paid that are not paid alone."""
    id = "decode.prefilled"
    tails = [m.group(0) if (m := _OPEN_AT_END.search(task.get("prompt", ""))) else "" for task in tasks]
    if not any(tails):
        return fine(view, id)
    alone = np.nan_to_num(np.array(score(texts, tasks)))
    joined = np.nan_to_num(np.array(score([t + text for t, text in zip(tails, texts, strict=True)], tasks)))
    better = int((joined > alone + 1e-9).sum())
    evidence = {
        "alone": alone.tolist()[:16],
        "with_prefill": joined.tolist()[:16],
        "better": better,
        "of": len(texts),
    }
    if better > 0.3 * len(texts) and alone.max() < joined.max():
        return fail(
            view,
            id,
            f"the prompt ends with {tails[0].strip()}, which the reward wants in the completion: "
            f"{better} of {len(texts)} completions are paid with it and not without",
            evidence,
        )
    return fine(view, id, evidence)


def _special_tokens(
    view: View, score: Scoring, tasks: list[dict[str, Any]], texts: list[str], words: Tokenizer | None
) -> Finding:
    """With only the end marks removed, completions are paid that are not paid without any or with all special tokens."""  # noqa: E501
    id = "decode.special_tokens"
    variants = _variants(view, texts, words)
    if variants is None:
        return skip(id, "token_ids and --tokenizer, or completions with their special tokens")
    right, skipped, raw = (np.nan_to_num(np.array(score(list(texts_), tasks))) for texts_ in variants)
    lost, spoilt = int((right > skipped + 1e-9).sum()), int((right > raw + 1e-9).sum())
    evidence = {
        "end_marks_removed": right.tolist()[:8],
        "all_special_removed": skipped.tolist()[:8],
        "nothing_removed": raw.tolist()[:8],
    }
    logged = view.reward[np.isfinite(view.reward)]
    unpaid = logged.size == 0 or logged.max() <= skipped.max() + 1e-9
    if lost > 0.2 * len(texts) and unpaid:
        return fail(
            view,
            id,
            f"the reward reads marks that are special tokens: {lost} of {len(texts)} completions "
            f"are paid with them and not without",
            {**evidence, "spoilt_by_end_marks": spoilt},
        )
    seen = [text for text in view.texts("reward_text") if text is not None][:COMPARED_ROWS]
    kept = not seen or sum(bool(_END_MARK.search(text)) for text in seen) > 0.2 * len(seen)
    if spoilt > 0.2 * len(texts) and kept and logged.size and logged.max() <= raw.max() + 1e-9:
        return fail(view, id, f"end marks spoil the score of {spoilt} of {len(texts)} completions", evidence)
    return fine(view, id, evidence)


def _variants(
    view: View, texts: list[str], words: Tokenizer | None
) -> tuple[Sequence[str], Sequence[str], Sequence[str]] | None:
    """(end marks removed, all special tokens removed, nothing removed) of each row."""
    if words is not None and "completion" not in view.rows.columns:
        lists = view.rows["token_ids"].drop_nulls().to_list()[: len(texts)]
        known = ids_of(view, "eos_token_id") | ids_of(view, "pad_token_id")
        right = [words.decode(_within_frame(ids, words, known)) for ids in lists]
        return right, [words.decode(ids, skip_special_tokens=True) for ids in lists], texts
    if not any(SPECIAL.search(text) for text in texts):
        return None
    return [_END_MARK.sub("", t) for t in texts], [SPECIAL.sub("", t) for t in texts], texts


def _within_frame(ids: Sequence[int], words: Tokenizer, known: set[int]) -> Sequence[int]:
    """Ids without the start, end and pad marks around them, and the white space between those."""
    kept = ids[: len(ids) - _framed(ids[::-1], words, known, last=True)]
    return kept[_framed(kept, words, known, last=False) :]


def _framed(ids: Sequence[int], words: Tokenizer, known: set[int], *, last: bool) -> int:
    """How many ids go with the marks that these begin with: marks, and white space up to the last of them."""
    count = 0
    for place, token in enumerate(ids):
        text = words.decode([token]).strip()
        if token in known or (words.is_special(token) and frames(text, last=last)):
            count = place + 1
        elif text:
            break
    return count


def retokenised_by(view: View, words: Tokenizer, found: Finding) -> list[Finding]:
    """A warning where encoding the decoded text gives other ids than were sampled."""
    id = "logprob.retokenised"
    if not view.has("token_ids"):
        return []
    lists = view.rows.with_row_index("row").select("row", "token_ids").drop_nulls().head(500)
    bad = [row for row, ids in lists.iter_rows() if words.encode(words.decode(ids)) != list(ids)]
    if not bad:
        return []
    evidence = {"encoded_otherwise": len(bad), "of": lists.height}
    if found.status == "fail":
        return [dataclasses.replace(found, evidence={**found.evidence, **evidence})]
    return [
        warn(
            view,
            id,
            f"{len(bad)} of {lists.height} completions get other ids when their text is encoded again",
            evidence,
            view.refs(bad),
        )
    ]
