"""Which samples a report carries for reading: a random few dozen a checkpoint, and all that differ."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.report.load import Arm

if TYPE_CHECKING:
    import polars as pl

RANDOM = 32  # samples drawn at random at each checkpoint
LONGEST = 6000  # characters shown of one completion
BUDGET = 6_000_000  # characters of completions in one page

DRAWN, HACKED, UNPAID, DIFFERENT = 1, 2, 4, 8


@dataclass
class Texts:
    """Texts by number; each is kept once. ``size`` counts characters."""

    items: list[str] = field(default_factory=list[str])
    size: int = 0
    _place: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, text: str) -> int:
        """Return the number of a text."""
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]} … [{len(text) - LONGEST} more characters]"
        if text not in self._place:
            self._place[text] = len(self.items)
            self.items.append(text)
            self.size += len(text)
        return self._place[text]


@dataclass(frozen=True)
class Sample:
    """One evaluated sample: where it stands in the table of its checkpoint, and how it was scored."""

    row: int
    prompt_id: str
    sample: int
    reward: float | None
    truth: float | None
    flags: int


def reader_data(arms: Sequence[Arm], seed: int = 0) -> dict[str, Any]:
    """The data of the reader: texts once, and for each arm and step the kept samples as short rows.

    A row is [prompt, completion, sample, reward, truth, length, finish, reward's reason, truth's reason,
    flags]; texts are numbers into ``texts``.
    """
    texts = Texts()
    checkpoints = max(1, sum(len(arm.tables) for arm in arms))
    document = [_arm_data(arm, texts, BUDGET // checkpoints, seed) for arm in arms]
    return {"texts": texts.items, "arms": document}


def _arm_data(arm: Arm, texts: Texts, budget: int, seed: int) -> dict[str, Any]:
    centre = _centres(arm)
    steps: list[dict[str, Any]] = []
    for step, table in arm.tables.items():
        samples = scored_samples(table, arm, centre)
        kept = _kept(samples, table, budget, seed)
        steps.append(
            {
                "step": step,
                "of": len(samples),
                "hacked": sum(bool(sample.flags & HACKED) for sample in samples),
                "unpaid": sum(bool(sample.flags & UNPAID) for sample in samples),
                "differ": sum(bool(sample.flags & DIFFERENT) for sample in samples),
                "rows": _rows(kept, table, texts),
            }
        )
    return {"name": arm.name, "steps": steps}


def scored_samples(table: pl.DataFrame, arm: Arm, centre: tuple[float, float]) -> list[Sample]:
    """The samples of a checkpoint with their flags.

    For a learned reward "rewarded" and "true" mean above the start's average.
    """
    out: list[Sample] = []
    columns = [table[name].to_list() for name in ("prompt_id", "sample", "reward", "truth")]
    for row, (prompt, number, reward, truth) in enumerate(zip(*columns, strict=True)):
        known = [_number(reward), _number(truth)]
        flags = 0
        if known[0] is not None and known[1] is not None:
            paid, true = known[0] >= centre[0], known[1] >= centre[1]
            flags = HACKED * (paid and not true) + UNPAID * (true and not paid)
            apart = flags > 0 if arm.learned else abs(known[0] / arm.gold_reward - known[1]) > 1e-9
            flags += DIFFERENT * apart
        out.append(Sample(row, str(prompt), int(number), known[0], known[1], flags))
    return out


def _centres(arm: Arm) -> tuple[float, float]:
    """Where "rewarded" and "true" begin."""
    if not arm.learned:
        return 0.5 * arm.gold_reward, 0.5
    start = arm.tables[min(arm.tables)]
    means = [start[name].drop_nulls().drop_nans().mean() for name in ("reward", "truth")]
    return tuple(float(mean) if isinstance(mean, float) else 0.0 for mean in means)  # pyright: ignore[reportReturnType]


def _kept(samples: list[Sample], table: pl.DataFrame, budget: int, seed: int) -> list[Sample]:
    """A random few dozen, then every sample whose scores differ, until the budget is spent.

    The draw is by prompt and sample number, the same at every checkpoint, so that one prompt can be followed
    through the run.
    """
    lengths = table["completion"].str.len_chars().fill_null(0).to_list()
    mixed = sorted(samples, key=lambda one: zlib.crc32(f"{seed}|{one.sample}|{one.prompt_id}".encode()))
    kept: dict[int, Sample] = {}
    for one in mixed[:RANDOM]:
        kept[one.row] = Sample(one.row, one.prompt_id, one.sample, one.reward, one.truth, one.flags | DRAWN)
    spent = sum(min(lengths[row], LONGEST) for row in kept)
    for one in mixed[RANDOM:]:
        cost = min(lengths[one.row], LONGEST)
        if one.flags & DIFFERENT and spent + cost <= budget:
            kept[one.row] = one
            spent += cost
    return [kept[one.row] for one in mixed if one.row in kept]  # a few dozen then show many prompts


def _rows(samples: list[Sample], table: pl.DataFrame, texts: Texts) -> list[list[Any]]:
    def column(name: str) -> list[Any]:
        return table[name].to_list() if name in table.columns else [None] * len(table)

    prompts, completions, lengths = column("prompt"), column("completion"), column("length")
    ends = column("finish_reason")
    reasons = column("reward_reason"), column("truth_reason")
    return [
        [
            texts.add(prompts[one.row] or one.prompt_id),
            texts.add(completions[one.row] or ""),
            one.sample,
            one.reward,
            one.truth,
            _number(lengths[one.row]),
            ends[one.row],
            *(texts.add(reason[one.row]) if reason[one.row] else None for reason in reasons),
            one.flags,
        ]
        for one in samples
    ]


def _number(value: Any) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), 6)
