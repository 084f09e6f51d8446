"""What the checks look at: the columns of a run as arrays, its groups, and its pairs of log-probs, computed once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay.doctor.trend import UNKNOWN, Change, Floats, change, finite
from assay.records.finding import SampleRef
from assay.records.run_record import RunRecord

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_SPREAD = 1e-6
"""A group whose rewards span at most this part of their scale has no spread (float noise is far below)."""

GROUP_METHODS = ("grpo", "rloo", "dapo", "gspo", "group", "cispo", "gmpo", "remax", "opo", "grouped")
CRITIC_METHODS = ("ppo", "gae", "reinforce", "dpo", "sft", "kto", "reward", "orpo")


@dataclass(frozen=True)
class Groups:
    """The groups of a run: completions of one prompt in one step.

    Attributes:
        of_row: (N,) the group of each row, -1 for none. size, step: (K,).
        mean, std, span, known: (K,) of the scored rewards: mean, biased standard deviation, max - min, count.
        first_row: (K,) a row of the group.
    """

    of_row: Ints
    size: Ints
    step: Ints
    mean: Floats
    std: Floats
    span: Floats
    known: Ints
    first_row: Ints

    def __len__(self) -> int:
        return self.size.size


@dataclass(frozen=True)
class Pairs:
    """Two logged log-probs of the same tokens, flattened. row: (M,) the row; place: (M,) position in the row."""

    first: Floats
    second: Floats
    row: Ints
    place: Ints

    @property
    def gap(self) -> Floats:
        """First minus second, nats."""
        return self.first - self.second


class View:
    """Cached arrays of a :class:`RunRecord`."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.rows = run.rollouts
        self.config = run.config

    # ---- metrics

    def metric(self, name: str) -> Floats | None:
        """A metric by step, NaN where not logged; None where it was never logged."""
        if name not in self.run.metrics.columns:
            return None
        values = self.run.metrics[name].cast(pl.Float64).to_numpy()
        return values if self.run.metrics[name].null_count() < values.size else None

    @cached_property
    def metric_steps(self) -> Ints:
        """The steps of the metrics."""
        return (
            self.run.metrics["step"].to_numpy()
            if "step" in self.run.metrics.columns
            else np.empty(0, np.int64)
        )

    def first_metric(self, *names: str) -> Floats | None:
        """The first of several metrics that was logged."""
        return next((values for name in names if (values := self.metric(name)) is not None), None)

    # ---- configuration

    def number(self, name: str) -> float:
        """A setting as a number; NaN where not given or no number."""
        value = self.config.get(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            return math.nan
        return float(value) if abs(value) < 1e300 else math.inf

    def word(self, name: str) -> str:
        """A setting as lower-case text; empty where not given."""
        value = self.config.get(name)
        return value.lower() if isinstance(value, str) else ""

    @property
    def is_group_method(self) -> bool | None:
        """Whether advantages are relative to a group; None where the log does not say."""
        name = self.word("algorithm")
        if any(word in name for word in GROUP_METHODS):
            return True
        if any(word in name for word in CRITIC_METHODS) or self.metric("value_loss") is not None:
            return False
        return True if self.metric("zero_spread") is not None else None

    # ---- rollouts

    def has(self, *names: str) -> bool:
        """Whether all these columns were logged for some row."""
        return all(name in self.rows.columns for name in names)

    def column(self, name: str) -> Floats:
        """A column of numbers, NaN where missing or not logged."""
        if name not in self.rows.columns:
            return np.full(self.rows.height, math.nan)
        return self.rows[name].cast(pl.Float64).to_numpy().astype(np.float64)

    def texts(self, name: str) -> list[str | None]:
        """A column of texts, None where missing."""
        return self.rows[name].to_list() if name in self.rows.columns else [None] * self.rows.height

    @cached_property
    def step(self) -> Ints:
        """The step of each row."""
        return self.rows["step"].to_numpy().astype(np.int64) if self.rows.height else np.empty(0, np.int64)

    @cached_property
    def reward(self) -> Floats:
        """The reward of each row; NaN where there is none."""
        values = self.column("reward")
        return np.where(np.isfinite(values), values, math.nan)

    @cached_property
    def truth(self) -> Floats:
        """The truth of each row; NaN where there is none."""
        values = self.column("truth")
        return np.where(np.isfinite(values), values, math.nan)

    @cached_property
    def shaped(self) -> View:
        """The same run with the reward that advantages are made of: after penalties, where that was logged."""
        shaped = self.column("shaped_reward")
        if not np.isfinite(shaped).any():
            return self
        used = np.where(np.isfinite(shaped), shaped, self.column("reward"))
        kept = self.rows["reward"].is_not_null().to_numpy() if self.has("reward") else np.isfinite(shaped)
        column = pl.Series("reward", used).set(pl.Series(~kept), None)
        return View(dataclasses.replace(self.run, rollouts=self.rows.with_columns(column)))

    @cached_property
    def judged(self) -> View:
        """The run with rows that carry reward and truth: the rollouts, else those of the matched evaluations."""
        held_out = self.run.evaluations
        if self.has("truth") or not {"step", "prompt_id", "reward", "truth"} <= set(held_out.columns):
            return self
        return View(dataclasses.replace(self.run, rollouts=held_out.drop_nulls("step")))

    @cached_property
    def advantage(self) -> Floats:
        """The advantage of each row; NaN where there is none."""
        return self.column("advantage")

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest reward possible as far as the log shows: (0, 1), (-1, 1), or what was seen."""
        seen = [
            self.reward,
            *(v for n in ("reward", "reward_min", "reward_max") if (v := self.metric(n)) is not None),
        ]
        known = finite(np.concatenate(seen))
        if known.size == 0:
            return 0.0, 1.0
        low, high = float(known.min()), float(known.max())
        if low >= -1e-6 and high <= 1 + 1e-6:
            return 0.0, 1.0
        if low >= -1 - 1e-6 and high <= 1 + 1e-6:
            return -1.0, 1.0
        return min(low, 0.0), max(high, low + 1e-12)

    @cached_property
    def groups(self) -> Groups | None:
        """The groups; None where neither prompt ids nor prompts nor a group size say which rows belong together."""
        if not self.rows.height or not self.has("reward"):
            return None
        key = _group_key(self.rows, self.number("group_size"))
        return None if key is None else _groups(key, self.step, self.reward)

    @cached_property
    def group_size(self) -> int | None:
        """Completions a prompt: as configured, else the commonest size in the rollouts."""
        configured = self.number("group_size")
        if math.isfinite(configured) and configured >= 1:
            return int(configured)
        if self.groups is None or len(self.groups) == 0:
            return None
        sizes, counts = np.unique(self.groups.size, return_counts=True)
        return int(sizes[counts.argmax()])

    @cached_property
    def flat(self) -> Bools:
        """(K,) which groups have no spread in their rewards (groups of at least two scored rows)."""
        assert self.groups is not None
        scale = max(1e-12, float(np.nanmax(np.abs(self.reward), initial=0.0)))
        return (self.groups.span <= NO_SPREAD * scale) & (self.groups.known >= 2)

    @cached_property
    def complete(self) -> Bools:
        """(K,) which groups were logged whole, with a score for every row."""
        assert self.groups is not None
        size = self.group_size or 0
        return (self.groups.size == size) & (self.groups.known == size)

    @cached_property
    def reward_change(self) -> Change:
        """How the mean reward moved, from the metrics or, without them, from the rollouts of each step."""
        values = self.metric("reward")
        return change(values) if values is not None else step_change(self.step, self.reward)

    @cached_property
    def reward_rises(self) -> bool:
        """Whether the mean reward rises clearly: 3.3 standard errors, and by 2% of its scale."""
        low, high = self.scale
        return self.reward_change.z > 3.3 and self.reward_change.difference > 0.02 * (high - low)

    @cached_property
    def truth_change(self) -> Change:
        """How the held-out truth moved; the truth of the rollouts where there is no other."""
        values = self.metric("truth")
        known = finite(values)
        if known.size >= 4:
            count = self.number("heldout_n")
            level = float(np.clip(known.mean(), 0.02, 0.98))
            floor = math.sqrt(level * (1 - level) / count) if count > 0 and (known <= 1).all() else 0.0
            return change(known, floor)
        return step_change(self.step, self.truth) if np.isfinite(self.truth).any() else UNKNOWN

    # ---- log-probs

    def pairs(self, first: str, second: str) -> Pairs | None:
        """All tokens for which two columns of log-probs were logged; rows of unequal length are left out."""
        if not self.has(first, second):
            return None
        frame = self.rows.select(first, second).with_row_index("row").drop_nulls()
        frame = frame.filter(pl.col(first).list.len() == pl.col(second).list.len())
        frame = frame.filter(pl.col(first).list.len() > 0)
        if not frame.height:
            return None
        lengths = frame[first].list.len().to_numpy().astype(np.int64)
        row = np.repeat(frame["row"].to_numpy().astype(np.int64), lengths)
        place = np.concatenate([np.arange(length) for length in lengths])
        one, two = (frame[name].explode().cast(pl.Float64).to_numpy() for name in (first, second))
        keep = np.isfinite(one) & np.isfinite(two) & ((one != 0) | (two != 0))
        return Pairs(one[keep], two[keep], row[keep], place[keep]) if keep.any() else None

    @cached_property
    def trainer_column(self) -> str | None:
        """The trainer's log-probs at sampling time, or its later ones where those are missing or another model's.

        One update moves log-probs a little, so that the nearer of the two to the sampler is the trainer's own.
        """
        gaps = {name: self._sampler_gap(name) for name in ("old_logprobs", "logprobs") if self.has(name)}
        return min(gaps, key=lambda name: gaps[name]) if gaps else None

    def _sampler_gap(self, name: str) -> float:
        pairs = self.pairs(name, "sampler_logprobs")
        return math.inf if pairs is None else float(np.abs(pairs.gap).mean())

    @cached_property
    def sampler_pairs(self) -> Pairs | None:
        """Trainer against sampler."""
        return self.pairs(self.trainer_column, "sampler_logprobs") if self.trainer_column else None

    def refs(self, rows: Sequence[int] | Ints, count: int = 5) -> tuple[SampleRef, ...]:
        """References to rows."""
        picked = self.rows[[int(row) for row in list(rows)[:count]]] if len(rows) else self.rows[:0]
        names = [name for name in ("step", "prompt_id", "sample") if name in picked.columns]
        return tuple(SampleRef(**row) for row in picked.select(names).to_dicts())


def step_change(step: Ints, values: Floats) -> Change:
    """Compare early with late rows: the mean over the last third of the steps against the first third.

    The error is that of the means over steps, so that rows of one step count as one draw.
    """
    known = np.isfinite(values)
    steps, index = np.unique(step[known], return_inverse=True)
    if steps.size < 3:
        return UNKNOWN
    counts = np.bincount(index)
    means = np.bincount(index, values[known]) / counts
    part = max(1, steps.size // 3)
    first, last = index < part, index >= steps.size - part
    data = values[known]
    error = math.sqrt(data[first].var() / max(1, first.sum()) + data[last].var() / max(1, last.sum()))
    if (
        steps.size >= 6
    ):  # rows of one prompt go together: take the spread of the step means where it is larger
        spread = math.sqrt((means[:part].var(ddof=1) + means[-part:].var(ddof=1)) / part) if part > 1 else 0.0
        error = max(error, spread)
    difference = float(data[last].mean() - data[first].mean())
    return Change(float(data[first].mean()), float(data[last].mean()), difference, error, int(steps.size))


def _group_key(rows: pl.DataFrame, size: float) -> pl.Series | None:
    """A label of each row's group; rows of one label and step beyond the group's size start another group."""
    name = next(
        (n for n in ("prompt_id", "prompt") if n in rows.columns and rows[n].null_count() < rows.height), None
    )
    if name is None:
        if not (math.isfinite(size) and size >= 1):
            return None
        return (rows.with_row_index("i")["i"] // int(min(size, rows.height + 1))).cast(pl.String)
    if not (math.isfinite(size) and size >= 2):
        return rows[name]
    whole = int(min(size, rows.height + 1))
    place = rows.select((pl.int_range(pl.len()).over("step", name) // whole).cast(pl.String).alias("part"))[
        "part"
    ]
    counts = rows.select(pl.len().over("step", name).alias("n"))["n"]
    return pl.select(pl.when(counts > whole).then(rows[name] + "#" + place).otherwise(rows[name])).to_series()


def _groups(key: pl.Series, step: Ints, reward: Floats) -> Groups:
    frame = pl.DataFrame({"key": key, "step": step, "r": reward, "row": np.arange(step.size)})
    frame = frame.with_columns(pl.col("r").fill_nan(None))
    table = frame.drop_nulls("key").group_by("step", "key", maintain_order=True).agg(
        pl.len().alias("size"),
        pl.col("r").mean().alias("mean"),
        pl.col("r").std(ddof=0).alias("std"),
        (pl.col("r").max() - pl.col("r").min()).alias("span"),
        pl.col("r").count().alias("known"),
        pl.col("row").first().alias("first"),
    ).with_row_index("group")  # fmt: skip
    of_row = frame.join(
        table.select("group", "step", "key"), on=["step", "key"], how="left", maintain_order="left"
    )

    def floats(name: str) -> Floats:
        return table[name].cast(pl.Float64).fill_null(math.nan).to_numpy().astype(np.float64)

    def ints(values: Any) -> Ints:
        return values.to_numpy().astype(np.int64)

    return Groups(
        ints(of_row["group"].cast(pl.Int64).fill_null(-1)), ints(table["size"]), ints(table["step"]), floats("mean"),
        floats("std"), floats("span"), ints(table["known"]), ints(table["first"]),
    )  # fmt: skip
