"""Comparisons: pairs of a chosen and a rejected completion, from files in TRL's form or from simulated raters.

A file's row holds ``chosen`` and ``rejected`` as texts with an explicit ``prompt`` or with their common start
as the prompt, or as lists of messages. ``margin``, and what the rater saw of each side (``chosen_quality``,
``rejected_quality``, and so ``_length``, ``_marker`` and ``_agrees``) are optional.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput
from assay.models.policy import Policy
from assay.records.run_folder import write_text
from assay.tasks.raters import Answer, Raters
from assay.tasks.task_set import Task
from assay.train.collect import ScoreBatch
from assay.train.forward import TokenRows


@dataclass(frozen=True)
class Pair:
    """One comparison; ``margin`` is by how much the chosen should win (0 when unknown)."""

    prompt: str
    chosen: Answer
    rejected: Answer
    margin: float = 0.0

    def to_row(self) -> dict[str, Any]:
        """The row of a file in TRL's form, with what the rater saw as further columns."""
        return {
            "prompt": self.prompt,
            "chosen": self.chosen.completion,
            "rejected": self.rejected.completion,
            "margin": self.margin,
            "chosen_quality": _known(self.chosen.quality),
            "rejected_quality": _known(self.rejected.quality),
            "chosen_length": self.chosen.length,
            "rejected_length": self.rejected.length,
            "chosen_marker": self.chosen.marker,
            "rejected_marker": self.rejected.marker,
            "chosen_agrees": self.chosen.agrees,
            "rejected_agrees": self.rejected.agrees,
        }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def write_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    """Write JSONL, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps(pair.to_row(), ensure_ascii=False) + "\n" for pair in pairs))


def read_pairs(path: str | Path) -> list[Pair]:
    """Read JSONL or Parquet.

    Raises:
        BadInput: no file, no rows, or a row without two different answers; the message has its number.
    """
    pairs = [pair_of_row(row, f"{path} row {number}") for number, row in enumerate(read_rows(path), 1)]
    if not pairs:
        raise BadInput(f"{path}: expected rows with 'chosen' and 'rejected', got none")
    return pairs


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Rows of a JSONL or Parquet file."""
    file = Path(path)
    if not file.is_file():
        raise BadInput(f"expected a file of rows, {path} does not exist")
    if file.suffix == ".parquet":
        import polars as pl

        return pl.read_parquet(file).to_dicts()
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise BadInput(f"{path} line {number}: expected a JSON object, got {line[:60]!r}") from None
        if not isinstance(row, dict):
            raise BadInput(f"{path} line {number}: expected a JSON object, got {type(row).__name__}")
        rows.append(cast("dict[str, Any]", row))
    return rows


def pair_of_row(row: Mapping[str, Any], where: str) -> Pair:
    """Read one row; ``where`` names it in errors."""
    for name in ("chosen", "rejected"):
        if name in row and not isinstance(row[name], str | list):
            raise BadInput(f"{where}: expected a text or a list of messages as {name!r}, got {row[name]!r}")
        if name not in row:
            raise BadInput(f"{where}: expected columns 'chosen' and 'rejected', got {', '.join(row)}")
    prompt, chosen, rejected = (as_text(row.get(name)) for name in ("prompt", "chosen", "rejected"))
    if not prompt:
        prompt = common_start(chosen, rejected)
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if chosen == rejected:
        raise BadInput(f"{where}: chosen and rejected are the same text; nothing can be learned from it")
    answers = [_answer(row, "chosen", chosen, where), _answer(row, "rejected", rejected, where)]
    return Pair(prompt, answers[0], answers[1], _number(row, "margin", 0.0, where))


def _answer(row: Mapping[str, Any], side: str, text: str, where: str) -> Answer:
    return Answer(
        text,
        _number(row, f"{side}_quality", math.nan, where),
        _number(row, f"{side}_length", float(len(text.split())), where),
        marker=bool(row.get(f"{side}_marker")),
        agrees=bool(row.get(f"{side}_agrees")),
    )


def common_start(first: str, second: str) -> str:
    """The longest text both begin with."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return first[:place]
    return min(first, second, key=len)


def _number(row: Mapping[str, Any], name: str, usual: float, where: str) -> float:
    """A column's number, ``usual`` where there is none; a quality alone may be NaN, unknown."""
    value = usual if row.get(name) is None else row[name]
    if not isinstance(value, int | float) or not (math.isfinite(value) or math.isnan(usual)):
        raise BadInput(f"{where}: expected a finite number as {name}, got {value!r}")
    return float(value)


def as_text(value: Any) -> str:
    """A text, or a list of messages as lines ``role: content`` (an assistant's without its role)."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(m, Mapping) and "content" in m for m in cast("Any", value)):
        messages = cast("list[Mapping[str, Any]]", value)
        return "".join(message_text(message) for message in messages)
    raise BadInput(f"expected a text or a list of messages, got {str(value)[:60]!r}")


def message_text(message: Mapping[str, Any]) -> str:
    """One message of a chat without a template: ``role: content`` and a line end; assistants only content."""
    content = str(message["content"])
    return content if message.get("role") == "assistant" else f"{message.get('role')}: {content}\n"


class PairRows:
    """Pairs as token ids under one policy: what reward models and DPO read."""

    def __init__(self, policy: Policy, pairs: Sequence[Pair]) -> None:
        prompts = [policy.encode_prompt(pair.prompt) for pair in pairs]
        self.pairs = list(pairs)
        self.chosen = TokenRows(prompts, [policy.encode_completion(p.chosen.completion) for p in pairs])
        self.rejected = TokenRows(prompts, [policy.encode_completion(p.rejected.completion) for p in pairs])
        longest = max(
            len(prompt) + max(len(chosen), len(rejected)) + 1
            for prompt, chosen, rejected in zip(
                prompts, self.chosen.completion_ids, self.rejected.completion_ids, strict=True
            )
        )
        if longest > policy.max_positions:
            raise BadInput(f"a pair needs {longest} positions, the model has {policy.max_positions}")

    def __len__(self) -> int:
        return len(self.pairs)


def rated_pairs(
    policy: Policy,
    tasks: Sequence[Task],
    quality: ScoreBatch,
    raters: Raters,
    settings: SamplingSettings,
    *,
    count: int,
    marker: str | None = None,
    belief: str | None = None,
    round_name: str = "preferences",
) -> list[Pair]:
    """Sample two completions a prompt from ``policy`` and let ``raters`` choose.

    Args:
        tasks: prompts, taken in order and again from the start. quality: what a rater knows of correctness.
        count: comparisons asked for; pairs of equal texts are dropped, so a few fewer may come.
        marker: a word that raters may like. belief: a column of the tasks with what the asker believes; an answer
            that holds it agrees. round_name: another name draws other random numbers.
    """
    if belief is not None and any(belief not in task for task in tasks):
        raise BadInput(f"learned_reward.belief: expected a column of every task, {belief!r} is not one")
    asked = [tasks[index % len(tasks)] for index in range(count) for _ in range(2)]
    keys = [(f"{round_name}:{i // 2}", str(task["prompt_id"]), i % 2) for i, task in enumerate(asked)]
    prompts = [policy.encode_prompt(str(task["prompt"])) for task in asked]
    drawn = sample(policy, [Request(p, key) for p, key in zip(prompts, keys, strict=True)], settings)
    texts = [policy.decode(one.token_ids) for one in drawn]
    known = [
        {**task, "draw": keyed_integer(settings.seed, *key)} for task, key in zip(asked, keys, strict=True)
    ]
    scores = quality(texts, known)
    answers = [
        Answer(
            text,
            score.value,
            float(len(one.token_ids)),
            marker=_holds(text, marker),
            agrees=_holds(text, None if belief is None else task[belief]),
        )
        for text, score, one, task in zip(texts, scores, drawn, asked, strict=True)
    ]
    pairs: list[Pair] = []
    for index in range(count):
        first, second = answers[2 * index], answers[2 * index + 1]
        if first.completion == second.completion or math.isnan(first.quality + second.quality):
            continue
        key = f"{round_name}:{index}"
        won = raters.prefers_first(first, second, seed=settings.seed, key=key)
        chosen, rejected = (first, second) if won else (second, first)
        pairs.append(Pair(str(asked[2 * index]["prompt"]), chosen, rejected))
    return pairs


def _holds(text: str, part: object) -> bool:
    return part is not None and str(part) != "" and str(part) in text
