"""The run itself: were steps replayed after a resume, and do its logs agree?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from assay.doctor.catalogue import fail, fine, skip, warn
from assay.doctor.stage1_reward import centred
from assay.doctor.trend import finite
from assay.doctor.view import View
from assay.records.finding import Finding

CHANCE = 9.2
"""Log odds (1 in 10,000) beyond which equal sets of prompts are no accident."""
ALL_STEPS = 5.0
"""Standard errors by which all steps together may be apart."""
TWO_RUNS = 3
"""Metrics that two files must disagree about before the folder is taken for one of two runs."""
REPLAYED = 3
"""Consecutive steps that must repeat earlier ones exactly before a replay is named."""


def resume(view: View) -> Finding:
    """Earlier steps come again: the same numbers, the same completions, or the same prompts with a reset schedule."""
    id = "run.resume"
    numbers = _replayed_numbers(view)
    texts = _replayed_texts(view)
    prompts = _replayed_prompts(view)
    again = _prompts_again(view)
    found = [item for item in (numbers, texts, prompts, again) if item is not None]
    if not found:
        return skip(id)
    hit = next((item for item in found if item[0] >= item[3]), None)
    if hit is not None:
        count, later, earlier, _, what = hit
        summary = f"from step {later} on {count} steps repeat {what} of step {earlier} and after"
        return fail(
            view, id, summary, {"first_replayed_step": later, "original_step": earlier, "steps": count}
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


def _prompts_again(view: View) -> Replay | None:
    """From some step on the prompts are those of a fixed number of steps before, and until then they were not.

    Epochs in one order repeat at their own distance from the start on: a distance at which steps first differ and
    then agree, one after the other, is a jump back. Small sets agree by chance, so that this must be ruled out.
    """
    prompts = _prompt_sets(view)
    if len(prompts) < 6:
        return None
    steps = sorted(prompts)
    known = len(frozenset().union(*prompts.values()))
    kept = min(len(names) for names in prompts.values())
    rare = math.log(math.comb(known, kept)) if known > kept else 0.0
    best: Replay = (0, 0, 0, 2, "the prompts")
    for distance in sorted({b - a for a in steps for b in steps if b > a}):
        later = [step for step in steps if step - distance in prompts]
        same = [prompts[step] == prompts[step - distance] for step in later]
        first = same.index(True) if True in same else len(same)
        count = (*same[first:], False).index(False) if first < len(same) else 0
        if first >= 2 and count > best[0] and count * rare > CHANCE + 2 * math.log(len(steps)):
            best = (count, later[first], later[first] - distance, 2, "the prompts")
    return best


def _prompt_sets(view: View) -> dict[int, frozenset[str]]:
    """Prompts of each logged step, by id or by text."""
    name = next((name for name in ("prompt_id", "prompt") if view.has(name)), None)
    if name is None or not view.rows.height:
        return {}
    table = view.rows.select("step", name).drop_nulls().unique().group_by("step").agg(pl.col(name))
    return {step: frozenset(names) for step, names in table.rows()}


def data(view: View) -> Finding:
    """Metrics and rollouts of the same steps contradict each other, or one file another."""
    id = "run.data"
    clashes = [note.text for note in view.run.notes if note.kind == "contradiction"]
    metric = view.metric("reward")
    if metric is None or not np.isfinite(view.reward).any():
        return warn(view, id, _clash_words(clashes), {"contradictions": clashes}) if clashes else skip(id)
    scores = _apart(view, metric)
    far = int((np.abs(scores) > 5).sum())
    together = float(scores.mean() * math.sqrt(scores.size)) if scores.size else 0.0
    halves = [
        part.sum() * np.sign(together) / math.sqrt(max(1, part.size)) for part in np.array_split(scores, 2)
    ]
    one_way = scores.size >= 6 and min(halves) > ALL_STEPS / 2  # another run is apart from its first step on
    evidence = {
        "steps_compared": scores.size,
        "steps_apart": far,
        "z_of_all_steps": together,
        "contradictions": clashes,
    }
    words = f"the rewards of the rollouts contradict the metrics in {far} of {scores.size} steps"
    if scores.size >= 4 and far > 0.5 * scores.size:
        return fail(view, id, words, evidence)
    if one_way and abs(together) > ALL_STEPS:
        side = "above" if together > 0 else "below"
        words = f"the rollouts' rewards lie {side} the metrics' in nearly every step ({together:.1f} standard errors)"
        return fail(view, id, words, evidence)
    return warn(view, id, _clash_words(clashes), evidence) if clashes else fine(view, id, evidence)


def _clash_words(clashes: list[str]) -> str:
    if len(clashes) < TWO_RUNS:
        return clashes[0]
    return f"two files disagree about {len(clashes)} metrics at the same steps, as two runs would: give one of them"


def _apart(view: View, metric: np.ndarray) -> np.ndarray:
    """Mean reward of the rollouts minus that of the metrics, in standard errors, for each step that has both."""
    by_step = dict(zip(view.metric_steps.tolist(), metric.tolist(), strict=True))
    scores: list[float] = []
    for step in np.unique(view.step).tolist():
        use = (view.step == step) & np.isfinite(view.reward)
        rows, logged = view.reward[use], by_step.get(step, math.nan)
        if rows.size >= 8 and math.isfinite(logged):
            scores.append((float(rows.mean()) - logged) / _error(view, use))
    return np.array(scores)


def _error(view: View, use: np.ndarray) -> float:
    """Standard error of a step's mean, rows of one prompt as one draw; never below that of independent rows.

    The spread of the groups' means is taken over all steps: near the top of the scale a step's own spread is small
    exactly when its mean is high, which would make a chance look like a difference.
    """
    rows, groups = view.reward[use], view.groups
    spread = max(float(rows.std()), 0.05 * (view.scale[1] - view.scale[0]))
    worst = spread * math.sqrt(min(rows.size, view.group_size or 1) / rows.size)
    if groups is None or (groups.of_row[use] < 0).any():
        return worst
    means = groups.mean[np.unique(groups.of_row[use])]
    means = means[np.isfinite(means)]
    if means.size < 4:
        return worst
    return max(_spread_of_groups(view) / math.sqrt(means.size), spread / math.sqrt(rows.size))


def _spread_of_groups(view: View) -> float:
    """Standard deviation of the groups' means inside steps, pooled over the run."""
    groups = view.groups
    assert groups is not None
    known = np.isfinite(groups.mean)
    _, index = np.unique(groups.step[known], return_inverse=True)
    away = centred(groups.mean[known], index, int(index.max()) + 1)
    return math.sqrt(float((away**2).sum()) / max(1, away.size - int(index.max()) - 1))
