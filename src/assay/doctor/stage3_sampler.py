"""Stage 3: do trainer, sampler and reference mean the same policy?"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.doctor.catalogue import fail, fine, skip, warn
from assay.doctor.stage3_logprobs import ABOVE_ZERO, GAP_WARN, from_logits, match_of, prompt_lengths
from assay.doctor.trend import Floats, finite
from assay.doctor.view import Pairs, View
from assay.records.finding import Finding

GAP_FAIL = 0.1
"""Mean absolute gap of trainer and sampler, nats a token; 0.02 is the tolerance of bfloat16."""
ROUNDING = 0.06
"""Nats that rounding of one token in bfloat16 does not exceed: three times its tolerance."""
FEW = 0.01
"""A share of tokens that noise beyond rounding may have."""


def _early_pairs(view: View) -> Pairs | None:
    """Trainer against sampler in the first third of the steps, where weights cannot be old yet."""
    pairs = view.sampler_pairs
    if pairs is None:
        return None
    steps = np.unique(view.step[pairs.row])
    keep = view.step[pairs.row] <= steps[max(0, steps.size // 3 - 1)]
    return Pairs(pairs.first[keep], pairs.second[keep], pairs.row[keep], pairs.place[keep])


@dataclass(frozen=True, slots=True)
class _Ratios:
    """What trainer / sampler probabilities of sampled tokens tell about how the sampler changed the distribution.

    Under truncation with renormalisation the sampler is never below the trainer, and the mean of the ratio over
    sampled tokens is the kept mass. Where both supports are whole that mean is 1, and a temperature moves every
    token of more than half the mass the same way (up below 1, down above it), and unlikely ones the other way.

    Attributes:
        above, below: shares of the tokens whose trainer log-prob is above or below the sampler's beyond rounding.
        mean, error: mean of the ratio and its standard error.
        raised: of the likely tokens' differences, the part (by size) in which the sampler is above; 0..1.
        fit: the part of the differences' variance that goes with the trainer's log-prob.
        slope: of the sampler's log-probs on the trainer's.
        through_zero: whether that line says that a token of log-prob 0 has no difference.
    """

    above: float
    below: float
    mean: float
    error: float
    raised: float
    fit: float
    slope: float
    through_zero: bool

    @property
    def truncated(self) -> bool:
        """Whether part of the support is gone."""
        lost = 1 - self.mean
        return self.above < FEW and lost > GAP_WARN and lost > 5 * self.error

    @property
    def tempered(self) -> str:
        """``sharper`` or ``flatter`` for a sampler at another temperature; empty otherwise."""
        one_line = self.fit > (0.9 if self.truncated else 0.8) and (self.through_zero or not self.truncated)
        if one_line and abs(self.slope - 1) > 0.1 and self.slope > 0.25:
            return "sharper" if self.slope > 1 else "flatter"
        if self.truncated or self.mean - 5 * self.error > 1 + GAP_WARN:
            return ""
        if self.raised > 0.9 and self.above >= FEW:
            return "sharper"
        return "flatter" if self.raised < 0.1 and self.below >= FEW else ""


def _ratios(pairs: Pairs) -> _Ratios:
    gap = pairs.gap
    ratio = np.exp(np.minimum(gap, 20.0))
    fit, slope, through_zero = _line(pairs)
    return _Ratios(
        above=float((gap > ROUNDING).mean()), below=float((gap < -ROUNDING).mean()), mean=float(ratio.mean()),
        error=float(ratio.std() / math.sqrt(ratio.size)), raised=_raised(pairs), fit=fit, slope=slope,
        through_zero=through_zero,
    )  # fmt: skip


def _raised(pairs: Pairs) -> float:
    """The part in which the sampler is above, of the differences at tokens of more than half the mass.

    Those are the likeliest of their position. They are picked by the trainer and, again, by the sampler, and the less
    clear of both parts counts: picking by one side alone favours that side where the two are unlike models. 0.5 where
    there are too few, or none moved beyond noise.
    """
    parts: list[float] = []
    for side in (pairs.first, pairs.second):
        gap = pairs.gap[side > math.log(0.5)]
        clear = gap.size >= max(10, 0.03 * side.size) and abs(float(gap.mean())) > 5 * float(
            gap.std()
        ) / math.sqrt(gap.size)
        parts.append(float(np.maximum(-gap, 0).sum() / np.abs(gap).sum()) if clear else 0.5)
    return min(parts, key=lambda part: abs(part - 0.5))


def _line(pairs: Pairs) -> tuple[float, float, bool]:
    """(Fit of the gap by a line in the trainer's log-prob, slope of sampler on trainer, whether it meets 0 at 0)."""
    x, gap = pairs.first - pairs.first.mean(), pairs.gap - pairs.gap.mean()
    power, other = float((x * x).sum()), float((gap * gap).sum())
    if power <= 0 or other <= 0:
        return 0.0, 1.0, False
    slope = float((x * gap).sum()) / power
    offset = abs(float(pairs.gap.mean() - slope * pairs.first.mean()))
    return slope * slope * power / other, 1 - slope, offset < 0.1 * float(np.abs(pairs.gap).mean())


def _shape_of_gap(view: View) -> tuple[_Ratios, dict[str, Any]] | None:
    """The ratios with their evidence; None below 100 tokens, or where log-probs above 0 make them meaningless."""
    pairs = _early_pairs(view)
    if pairs is None or pairs.gap.size < 100:
        return None
    ratios = _ratios(pairs)
    evidence: dict[str, Any] = {
        "mean_ratio": ratios.mean, "standard_error": ratios.error, "sampler_below": ratios.above,
        "sampler_above": ratios.below, "likely_tokens_raised": ratios.raised,
        "mean_gap": float(np.abs(pairs.gap).mean()), "tokens": pairs.gap.size,
    }  # fmt: skip
    return ratios, evidence


def _plain(view: View) -> bool:
    """Whether the gap is more than rounding from the first step on, of log-probs, and of the same text."""
    pairs = _early_pairs(view)
    return (
        pairs is not None
        and max(pairs.first.max(), pairs.second.max()) <= ABOVE_ZERO
        and float(np.abs(pairs.gap).mean()) > GAP_WARN
        and float(gap_by_step(view)[0]) > GAP_WARN / 2
        and abs(float(np.median(pairs.gap))) < 2.5
    )


def temperature(view: View) -> Finding:
    """The logits were divided by a temperature on one side only."""
    id = "logprob.temperature"
    found = from_logits(view, id)
    if found is not None and found.status == "fail":
        return found
    shape = _shape_of_gap(view)
    if shape is None:
        return found or skip(id)
    ratios, evidence = shape
    evidence["temperature"] = view.number("temperature")
    word = ratios.tempered
    if word and _plain(view):
        moved = "raises likely tokens and lowers" if word == "sharper" else "lowers likely tokens and raises"
        summary = f"the sampler {moved} unlikely ones against the trainer: one side has another temperature"
        return fail(view, id, summary, evidence | {"sampler": word})
    return fine(view, id, evidence)


def truncated_support(view: View) -> Finding:
    """The sampler's log-probs are above the trainer's by the logarithm of the kept mass."""
    id = "logprob.truncated_support"
    found = from_logits(view, id)
    if found is not None and found.status == "fail":
        return found
    shape = _shape_of_gap(view)
    if shape is None:
        return _truncated_metric(view, id) or found or skip(id)
    ratios, evidence = shape
    evidence |= {name: view.config.get(name) for name in ("top_p", "top_k", "min_p")}
    if ratios.truncated and not ratios.tempered and _plain(view):
        return fail(
            view,
            id,
            f"the sampler kept about {ratios.mean:.0%} of the probability (top-p, top-k or min-p): the "
            f"ratio never returns to 1",
            evidence,
        )
    return fine(view, id, evidence)


def _truncated_metric(view: View, id: str) -> Finding | None:
    """A mean importance ratio that stays below 1 all along while truncation was asked for."""
    ratio = finite(view.metric("importance_ratio"))
    asked = view.number("top_p") < 1 or view.number("top_k") > 0
    if ratio.size >= 10 and asked and float(np.quantile(ratio, 0.95)) < 0.97:
        return fail(
            view,
            id,
            f"the mean importance ratio stays at {ratio.mean():.2f} with top-p or top-k on",
            {"ratio": float(ratio.mean())},
        )
    return None


def positions(view: View) -> Finding:
    """The gap grows with the padding of the row: position ids or the attention mask are missing."""
    id = "logprob.positions"
    pairs = view.sampler_pairs
    lengths = prompt_lengths(view)
    if pairs is None or not np.isfinite(lengths).any():
        return skip(id)
    gap = np.bincount(pairs.row, np.abs(pairs.gap), view.rows.height)
    count = np.bincount(pairs.row, minlength=view.rows.height)
    known = (count > 0) & np.isfinite(lengths)
    if known.sum() < 20:
        return skip(id)
    longest = {step: np.nanmax(lengths[view.step == step]) for step in np.unique(view.step[known])}
    pad = np.array([longest.get(int(step), math.nan) for step in view.step]) - lengths
    mean = gap / np.maximum(count, 1)
    padded, tight = known & (pad > 0), known & (pad <= 0)
    if tight.sum() < 4 or padded.sum() < 8:
        return skip(id, "rows with and without padding in one step")
    evidence = {"gap_padded": float(np.median(mean[padded])), "gap_unpadded": float(np.median(mean[tight]))}
    if evidence["gap_unpadded"] < 0.05 and evidence["gap_padded"] > max(
        GAP_FAIL, 5 * evidence["gap_unpadded"]
    ):
        return fail(
            view, id, "log-probs differ in padded rows only", evidence, view.refs(np.flatnonzero(padded))
        )
    return fine(view, id, evidence)


def gap_by_step(view: View) -> Floats:
    """Mean absolute gap of trainer and sampler by step."""
    pairs = view.sampler_pairs
    if pairs is None:
        return finite(view.metric("sampler_gap"))
    steps, index = np.unique(view.step[pairs.row], return_inverse=True)
    return np.bincount(index, np.abs(pairs.gap), steps.size) / np.maximum(
        np.bincount(index, minlength=steps.size), 1
    )


def sampler_mismatch(view: View) -> Finding:
    """Trainer and sampler disagree before any update of theirs, by more than rounding."""
    id = "logprob.sampler_mismatch"
    gaps = gap_by_step(view)
    match = match_of(view)
    if gaps.size == 0:
        if match is not None and match.id == id:
            return from_logits(view, id) or skip(id)
        return skip(id)
    early = float(np.median(gaps[: max(1, gaps.size // 3)]))
    tokens = view.sampler_pairs.gap.size if view.sampler_pairs is not None else 0
    evidence = {
        "early_mean_gap": early,
        "mean_gap": float(gaps.mean()),
        "limits": [GAP_WARN, GAP_FAIL],
        "tokens": tokens,
    }
    summary = f"trainer and sampler differ by {early:.3f} nats a token from the start"
    if early > GAP_FAIL and (tokens >= 20 or view.sampler_pairs is None):
        return fail(view, id, summary, evidence)
    if early > GAP_WARN:
        return warn(view, id, summary, evidence)
    return fine(view, id, evidence)


def negative_kl(view: View) -> Finding:
    """The mean estimate of KL(policy || reference) is below 0 step after step (single steps below 0 are noise)."""
    id = "logprob.negative_kl"
    values = finite(view.metric("kl"))
    source = "metrics"
    if values.size == 0:
        pairs = view.pairs(view.trainer_column, "ref_logprobs") if view.trainer_column else None
        if pairs is None:
            return skip(id)
        steps, index = np.unique(view.step[pairs.row], return_inverse=True)
        values = np.bincount(index, pairs.gap, steps.size) / np.maximum(
            np.bincount(index, minlength=steps.size), 1
        )
        source = "rollouts"
    evidence = {"mean": float(values.mean()), "below_zero": int((values < 0).sum()), "of": values.size,
    "source": source,
                "sampling": {n: view.config.get(n) for n in ("temperature", "top_p", "top_k", "min_p",
                "repetition_penalty")}}  # fmt: skip
    z = (
        values.mean() / (values.std(ddof=1) / math.sqrt(values.size))
        if values.size > 1 and values.std() > 0
        else -math.inf
    )
    floor = 0.05 if source == "rollouts" else 0.01
    steady = values.size >= 5 and (values < 0).mean() > 0.8 and values.mean() < -floor
    if steady and (z < -4 or (values < 0).all()):
        return fail(
            view,
            id,
            f"the KL estimate is below 0 in {int((values < 0).sum())} of {values.size} steps "
            f"(mean {values.mean():.3f})",
            evidence,
        )
    if values.size and values.min() < -0.05 and source == "metrics":
        return warn(
            view,
            id,
            "the KL estimate dips below 0: noise of the sampled estimate unless it persists",
            evidence,
        )
    return fine(view, id, evidence)


_START = re.compile(r"\b(start|initial|self|same)\b")


def reference_not_start(view: View) -> Finding:
    """A reference that is said to be the start differs from the policy before the first update."""
    id = "logprob.reference_not_start"
    said = view.config.get("reference_is_start") is True or (
        bool(_START.search(view.word("reference")))
        or (view.word("reference") != "" and view.word("reference") == view.word("model"))
    )
    kl = view.metric("kl")
    margin = view.metric("margin")
    if not said or (kl is None and margin is None):
        return skip(id)
    values = finite(kl if kl is not None else margin)
    first = float(values[0]) if values.size else 0.0
    evidence = {"first": first, "limit": GAP_WARN}
    if abs(first) > GAP_WARN and int(view.metric_steps[0]) <= 1:
        return fail(
            view,
            id,
            f"KL to the reference is {first:.3f} at the first step, where both are the same weights",
            evidence,
        )
    return fine(view, id, evidence)
