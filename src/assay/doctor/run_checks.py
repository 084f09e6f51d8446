"""The run itself: were steps replayed after a resume, and do its logs agree?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import finding, fine, skip
from assay.doctor.trend import finite
from assay.doctor.view import View
from assay.records.finding import Finding

REPLAYED = 3
"""Consecutive steps that must repeat earlier ones exactly before a replay is named."""


def resume(view: View) -> Finding:
    """Earlier steps come again: the same numbers, the same completions, or the same prompts with a reset schedule."""
    id = "run.resume"
    numbers = _replayed_numbers(view)
    texts = _replayed_texts(view)
    prompts = _replayed_prompts(view)
    found = [item for item in (numbers, texts, prompts) if item is not None]
    if not found:
        return skip(id)
    hit = next((item for item in found if item[0] >= item[3]), None)
    if hit is not None:
        count, later, earlier, _, what = hit
        summary = f"from step {later} on {count} steps repeat {what} of step {earlier} and after"
        return finding(
            view,
            id,
            "fail",
            summary,
            {"first_replayed_step": later, "original_step": earlier, "steps": count},
        )
    return fine(view, id)


Replay = tuple[int, int, int, int, str]
"""(steps replayed, first of them, the step it repeats, steps needed, what repeats)"""


def _longest_replay(keys: list[object], steps: list[int]) -> tuple[int, int, int]:
    """Longest run of consecutive keys that repeat an earlier run: (length, later step, earlier step)."""
    seen: dict[object, int] = {}
    best = (0, 0, 0)
    length, offset = 0, None
    for place, key in enumerate(keys):
        earlier = seen.get(key) if key is not None else None
        if earlier is not None and (offset is None or earlier == place - offset):
            offset, length = place - earlier, length + 1
            if length > best[0]:
                first = place - length + 1
                best = (length, steps[first], steps[first - offset])
        else:
            length, offset = (1, place - earlier) if earlier is not None else (0, None)
        seen.setdefault(key, place) if key is not None else None
    return best


def _replayed_numbers(view: View) -> Replay | None:
    """Rows of metrics whose noisy numbers equal those of an earlier step to the last digit."""
    names = [
        n
        for n in ("reward", "length", "entropy", "grad_norm", "policy_loss", "loss", "kl")
        if view.metric(n) is not None
    ]
    names = [
        n for n in names if np.unique(finite(view.metric(n))).size > 0.5 * finite(view.metric(n)).size > 2
    ]
    if len(names) < 3:
        return None
    table = np.stack([view.metric(n) for n in names], axis=1)  # type: ignore[arg-type]
    keys: list[object] = [tuple(row) if np.isfinite(row).all() else None for row in table.tolist()]
    return (*_longest_replay(keys, view.metric_steps.tolist()), REPLAYED, "the exact numbers")


def _replayed_texts(view: View) -> Replay | None:
    """Steps whose sampled completions are those of an earlier step."""
    if not view.has("completion", "prompt") and not view.has("completion", "prompt_id"):
        return None
    frame = view.rows.select("step", pl.col("completion")).drop_nulls()
    table = (
        frame.group_by("step")
        .agg(
            pl.col("completion").sort().hash(seed=1).alias("h"),
            pl.col("completion").str.len_chars().mean().alias("n"),
            pl.col("completion").n_unique().alias("u"),
        )
        .sort("step")
    )
    if table.height < 4:
        return None
    keys: list[object] = [
        tuple(h) if n >= 20 and u >= 4 else None
        for h, n, u in zip(table["h"].to_list(), table["n"], table["u"], strict=True)
    ]
    return (*_longest_replay(keys, table["step"].to_list()), 2, "the completions")


def _replayed_prompts(view: View) -> Replay | None:
    """Prompts of the first steps again while the learning rate jumps back up to its first value."""
    prompts = view.run.prompts_by_step
    rate = view.metric("learning_rate")
    if len(prompts) < 4 or rate is None:
        return None
    steps = sorted(prompts)
    keys: list[object] = [prompts[step] for step in steps]
    length, later, earlier = _longest_replay(keys, steps)
    by_step = dict(zip(view.metric_steps.tolist(), rate.tolist(), strict=True))
    back = by_step.get(later, math.nan) > by_step.get(later - 1, math.inf) * 1.001
    return (length if back else 0), later, earlier, 2, "the prompts"


def data(view: View) -> Finding:
    """Metrics and rollouts of the same steps contradict each other, or one file another."""
    id = "run.data"
    clashes = [note.text for note in view.run.notes if note.kind == "contradiction"]
    metric = view.metric("reward")
    if metric is None or not np.isfinite(view.reward).any():
        return finding(view, id, "warn", clashes[0], {"contradictions": clashes}) if clashes else skip(id)
    by_step = dict(zip(view.metric_steps.tolist(), metric.tolist(), strict=True))
    far, total = 0, 0
    scores: list[float] = []
    for step in np.unique(view.step).tolist():
        rows = finite(view.reward[view.step == step])
        logged = by_step.get(step, math.nan)
        if rows.size < 8 or not math.isfinite(logged):
            continue
        total += 1
        spread = max(float(rows.std()), 0.05 * (view.scale[1] - view.scale[0])) * math.sqrt(
            _cluster(view, rows.size) / rows.size
        )
        scores.append((float(rows.mean()) - logged) / spread)
        far += abs(scores[-1]) > 5
    evidence = {
        "steps_compared": total,
        "steps_apart": far,
        "mean_z": float(np.mean(scores)) if scores else None,
        "contradictions": clashes,
    }
    apart = total >= 4 and (far > 0.5 * total)
    if apart:
        return finding(
            view,
            id,
            "fail",
            f"the rewards of the rollouts contradict the metrics in {far} of {total} steps",
            evidence,
        )
    if clashes:
        return finding(view, id, "warn", clashes[0], evidence)
    return fine(view, id, evidence)


def _cluster(view: View, rows: int) -> float:
    """Rows of one prompt go together: the worst design effect is the group's size."""
    return float(min(rows, view.group_size or 1))
