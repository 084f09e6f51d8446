"""What one step shows by itself: cheap looks at its metrics and rollouts, without the rest of the run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.records.finding import Finding, SampleRef, Stage

Row = Mapping[str, Any]
PATIENCE = 3  # steps in a row before a state that one step can show by chance is reported
SAME = 1e-9
HALF = 0.5
FAR = 0.5  # nats: bfloat16 kernels stay far below on average
PROMPT_LENGTH = 12  # characters; a shorter prompt can stand in a completion by chance

Sign = tuple[str, Stage, str, str]
"""Id, stage, sentence, fix."""


class StepLook:
    """Looks at each step in turn; remembers only how long each sign has lasted."""

    def __init__(self) -> None:
        self._lasted: Counter[str] = Counter()

    def look(self, metrics: Row, rows: Sequence[Row], step: int) -> list[Finding]:
        """Return what this step shows: at once where it is certain, else when it has lasted long enough."""
        certain = [*_not_finite(metrics), *_texts(rows)]
        lasting = [*_rewards(rows), *_gradient(metrics, rows), *_endings(rows), *_gap(rows)]
        present = {sign[0] for sign in lasting}
        for identifier in list(self._lasted):
            if identifier not in present:
                del self._lasted[identifier]
        self._lasted.update(present)
        due = [sign for sign in lasting if self._lasted[sign[0]] >= PATIENCE]
        return [_finding(sign, rows, step) for sign in (*certain, *due)]


def _finding(sign: Sign, rows: Sequence[Row], step: int) -> Finding:
    identifier, stage, summary, fix = sign
    shown = tuple(SampleRef(step, str(r.get("prompt_id")), r.get("sample")) for r in rows[:3])
    evidence = {"step": step, "rollouts": len(rows)}
    return Finding(identifier, stage, "warn", f"step {step}: {summary}", evidence, shown, fix)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _not_finite(metrics: Row) -> Iterator[Sign]:
    bad = [k for k, v in metrics.items() if (n := _number(v)) is not None and not math.isfinite(n)]
    loss = [k for k in bad if "loss" in k or "grad" in k]
    if loss:
        fix = "stop; find the sample with the largest log ratio, and mask by selection"
        yield "loss.non_finite", 4, f"{', '.join(loss[:3])} is not finite", fix
    reward = [k for k in bad if k == "reward" or k.startswith("rewards/")]
    if reward:
        yield "reward.non_finite", 1, f"{', '.join(reward[:3])} is not finite", "guard the reward's divisions"


def _texts(rows: Sequence[Row]) -> Iterator[Sign]:
    pairs = [(str(r.get("prompt") or ""), str(r.get("reward_text") or "")) for r in rows]
    inside = [p for p, text in pairs if len(p) >= PROMPT_LENGTH and p in text]
    if pairs and len(inside) > HALF * len(pairs):
        fix = "pass the completion only"
        yield "decode.prompt_in_text", 5, "the reward is called on texts that contain the prompt", fix
    empty = [r for r in rows if "completion" in r and not str(r["completion"]).strip()]
    if rows and len(empty) > HALF * len(rows):
        fix = "check the chat template, the end tokens and the decoding"
        yield "decode.empty", 5, f"{len(empty)} of {len(rows)} completions are empty", fix


def _groups(rows: Sequence[Row]) -> list[list[float]]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        reward = _number(row.get("reward"))
        if reward is not None and math.isfinite(reward):
            groups[str(row.get("prompt_id"))].append(reward)
    return list(groups.values())


def _rewards(rows: Sequence[Row]) -> Iterator[Sign]:
    if not rows:
        return
    groups = _groups(rows)
    scored = [value for group in groups for value in group]
    if len(scored) < HALF * len(rows):
        fix = "look at the reward's service; missing scores leave the groups"
        yield "reward.missing", 1, f"{len(rows) - len(scored)} of {len(rows)} completions have no score", fix
    if len(scored) > 1 and max(scored) - min(scored) <= SAME:
        fix = "score a gold answer by hand"
        yield "reward.constant", 1, f"every completion scores {scored[0]:g}", fix
        return
    if groups and all(len(group) == 1 for group in groups) and len(groups) > 1:
        fix = "sample several completions a prompt (num_generations)"
        yield "advantage.group_size", 2, "every group has one completion", fix
    elif groups and all(max(group) - min(group) <= SAME for group in groups):
        fix = "mix in prompts that are sometimes solved"
        yield "advantage.zero_spread_groups", 2, "no group has two different rewards", fix


def _gradient(metrics: Row, rows: Sequence[Row]) -> Iterator[Sign]:
    norm = next((_number(metrics[k]) for k in ("grad_norm", "actor/grad_norm") if k in metrics), None)
    spread = any(max(group) - min(group) > SAME for group in _groups(rows))
    if norm == 0.0 and spread:
        fix = "look for a detach, no_grad or frozen parameters"
        yield "loss.no_gradient", 4, "the gradient is exactly 0 although groups have spread", fix


def _endings(rows: Sequence[Row]) -> Iterator[Sign]:
    ends = [r["finish_reason"] for r in rows if r.get("finish_reason")]
    if ends and all(end == "length" for end in ends):
        fix = "raise the cap, or check the end tokens and the chat template"
        yield "decode.truncated", 5, "every completion is cut at the cap", fix


def _gap(rows: Sequence[Row]) -> Iterator[Sign]:
    gaps: list[float] = []
    for row in rows:
        old, sampler = row.get("old_logprobs") or (), row.get("sampler_logprobs") or ()
        gaps += [abs(a - b) for a, b in zip(old, sampler, strict=False) if math.isfinite(a - b)]
    if gaps and sum(gaps) / len(gaps) > FAR:
        fix = "compare temperature, truncation, positions and weights of sampler and trainer"
        mean = sum(gaps) / len(gaps)
        yield "logprob.sampler_mismatch", 3, f"sampler and trainer differ by {mean:.2g} nats a token", fix
