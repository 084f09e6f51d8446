"""Stage 4: the terms of the loss, their weights and their shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from assay.doctor.catalogue import fail, finding, fine, skip, warn
from assay.doctor.stage4_loss import spread_by_step
from assay.doctor.trend import Floats, change, finite
from assay.doctor.view import View, step_change
from assay.records.finding import Finding

CLIP_FAIL, CLIP_WARN = 0.8, 0.5


PULL_FAIL, PULL_NIL = 1.0, 1e-4
"""The KL term's push on a token's log-prob as a part of the advantages': where it rules, where it has no weight."""
PINNED_COEFFICIENT, PINNED_KL = 0.5, 0.02


@dataclass(frozen=True, slots=True)
class _Pull:
    """What the KL term and the policy term do to a token's log-prob, by their derivatives.

    On the policy that sampled, the policy term's value is about 0 by construction (ratio 1, advantages that sum to
    0), so that values of the loss say nothing about the two. Its derivative by a token's log-prob is the advantage;
    that of coefficient x KL is the coefficient x |log(policy / reference)|, which is near sqrt(2 KL) a token.

    Attributes:
        coefficient: of the KL term. kl: (S,) KL by step, nats a token. advantage: size of the advantages.
    """

    coefficient: float
    kl: Floats
    advantage: float

    def ratio(self, kl: float) -> float:
        """The KL term's push at a KL, as a part of the advantages'."""
        return self.coefficient * math.sqrt(2 * max(kl, 0.0)) / max(self.advantage, 1e-12)


def _pull(view: View) -> _Pull | None:
    """None where the KL or its coefficient is not known, or too few steps are."""
    kl, term, beta = view.metric("kl"), view.metric("kl_term"), view.number("beta")
    if not beta > 0 or (kl is None and term is None):
        return None
    known = finite(kl) if kl is not None else finite(term) / beta
    return _Pull(beta, known, _advantage_size(view)) if known.size >= 5 else None


def _advantage_size(view: View) -> float:
    """Root mean square of the advantages that are not 0; else 1, that of normalised ones, or the rewards' spread."""
    rows = finite(view.advantage)
    rows = rows[np.abs(rows) > 1e-6]
    if rows.size:
        return float(np.sqrt(np.mean(rows**2)))
    spread = finite(view.metric("group_std"))
    return max(1.0, float(np.median(spread)) if spread.size else 1.0)


def kl_dominates(view: View) -> Finding:
    """The KL term moves the policy more than the advantages do, and the reward does not rise."""
    id = "loss.kl_dominates"
    pull = _pull(view)
    if pull is None:
        no_term = view.number("beta") == 0
        return fine(view, id, {"coefficient": 0}) if no_term else skip(id, _KL_NEEDS)
    level = float(np.median(pull.kl))
    ratio = pull.ratio(level)
    evidence = {"coefficient": pull.coefficient, "kl": level, "size_of_advantages": pull.advantage,
                "ratio_of_pushes": ratio, "limit": PULL_FAIL}  # fmt: skip
    spread = spread_by_step(view)
    signal = spread is None or bool(spread.mean() > 0.5)
    if view.reward_rises or not signal:
        return fine(view, id, evidence)
    words = f"the KL term (coefficient {pull.coefficient:g}, KL {level:.2g})"
    if ratio > PULL_FAIL:
        summary = (
            f"{words} moves a token {ratio:.2g} times as much as its advantage, and the reward does not rise"
        )
        return fail(view, id, summary, evidence)
    if _pinned(pull) and _not_dead(view):
        return fail(
            view, id, f"{words} holds the policy where it started, and the reward does not rise", evidence
        )
    return fine(view, id, evidence)


_KL_NEEDS = "kl and its coefficient, or the gradient norms of the policy term and of the KL term"


def _pinned(pull: _Pull) -> bool:
    """A high coefficient, and a KL that left 0 and stays low: a policy that still moves away is not held."""
    low = 0 < float(np.median(pull.kl)) < PINNED_KL
    return pull.coefficient >= PINNED_COEFFICIENT and low and not change(pull.kl).z > 3.3


def _not_dead(view: View) -> bool:
    norm = finite(view.metric("grad_norm"))
    return norm.size == 0 or float(np.median(norm)) > 1e-8


def kl_negligible(view: View) -> Finding:
    """A KL penalty was asked for, the policy is far from the reference, and the term has no weight."""
    id = "loss.kl_negligible"
    pull = _pull(view)
    if pull is None:
        return skip(id)
    level = float(np.median(pull.kl[-max(2, pull.kl.size // 5) :]))
    ratio = pull.ratio(level)
    evidence = {"ratio_of_pushes": ratio, "kl": level, "coefficient": pull.coefficient, "limit": PULL_NIL}
    if ratio < PULL_NIL and level > 0.5:
        words = f"at KL {level:.2f} the KL term moves a token {ratio:.1e} as much as its advantage"
        return warn(view, id, f"{words}: it restrains nothing", evidence)
    return fine(view, id, evidence)


def clip_saturated(view: View) -> Finding:
    """Nearly all tokens are outside the clip range; the evidence says whether old log-probs or the step are to blame."""  # noqa: E501
    id = "loss.clip_saturated"
    logged = finite(view.metric("clip_fraction"))
    pairs = view.pairs("logprobs", "old_logprobs")
    clip = view.number("clip_low")
    if logged.size == 0 and pairs is None:
        return skip(id)
    share = float(np.median(logged)) if logged.size else math.nan
    tail = float(np.median(logged[-max(2, logged.size // 3) :])) if logged.size else math.nan
    range_ = clip if 0 < clip < 1 else 0.2
    outside = float((np.abs(pairs.gap) > math.log1p(range_)).mean()) if pairs is not None else math.nan
    largest = max(x for x in (share, tail, outside if logged.size == 0 else math.nan) if math.isfinite(x))
    evidence = {
        "clip_fraction": share,
        "last_third": tail,
        "outside_in_rollouts": outside,
        "limit": CLIP_FAIL,
        "cause": _clip_cause(view, pairs is not None),
    }
    tight = clip < 0.01
    if largest > (0.95 if tight else CLIP_FAIL):
        return fail(view, id, f"{largest:.0%} of the tokens are clipped: {evidence['cause']}", evidence)
    if largest > CLIP_WARN and not tight:
        return warn(view, id, f"{largest:.0%} of the tokens are clipped: {evidence['cause']}", evidence)
    return fine(view, id, evidence)


def _clip_cause(view: View, rollouts: bool) -> str:
    moved = finite(view.metric("policy_kl"))
    first = finite(view.metric("clip_fraction"))
    gaps = view.sampler_pairs
    if first.size and np.median(first[:3]) > CLIP_FAIL:
        agree = gaps is not None and float(np.abs(gaps.gap).mean()) < 0.02
        return "from the first step on, so the old log-probs are stale or of another policy" + (
            " (they agree with the sampler, so the batch is older than the weights)" if agree else ""
        )
    if moved.size and float(np.median(moved)) > 0.1:
        return f"the policy moves {float(np.median(moved)):.2f} nats a token in one update, so the step is too large"
    return (
        "old log-probs are not those of the policy that is updated"
        if rollouts
        else "stale old log-probs or too large a step"
    )


def normalisation(view: View) -> Finding:
    """A configuration whose loss is known to depend on the split into micro-batches."""
    id = "loss.normalisation"
    parts = view.number("gradient_accumulation")
    whole, split = view.metric("loss_whole"), view.metric("loss_micro")
    if whole is not None and split is not None:
        gap = finite(np.abs(split - whole) / np.maximum(np.abs(whole), 1e-12))
        evidence = {"relative_difference": float(np.median(gap)) if gap.size else math.nan, "steps": gap.size}
        words = (
            f"the same batch has another loss in micro-batches: {evidence['relative_difference']:.1%} apart"
        )
        return (
            fail(view, id, words, evidence)
            if gap.size and np.median(gap) > 0.01
            else fine(view, id, evidence)
        )
    found = _divided_alone(view, int(parts)) if parts > 1 else None
    if found is not None:
        alone, of = found
        evidence = {"steps_that_fit_micro_batches": alone, "steps": of, "gradient_accumulation": parts}
        words = (
            f"the loss of {alone} of {of} steps is the mean of {parts:g} micro-batches, each divided alone"
        )
        return fail(view, id, words, evidence) if of >= 3 and alone > 0.8 * of else fine(view, id, evidence)
    local = view.word("loss_type") == "bnpo"
    if local and parts > 1:
        return warn(
            view,
            id,
            f"loss_type bnpo divides by each micro-batch's own tokens, over {parts:g} of them",
            {"gradient_accumulation": parts},
        )
    return skip(id)


SPLIT_MATCH = 0.05
"""A loss is that of a split when it is nearer to it than this part of its distance to the undivided one."""


def _policy_loss(view: View) -> Floats | None:
    """The policy term by step: as logged, else the loss without its KL term; None where it cannot be told."""
    own, whole, kl, beta = (
        view.metric("policy_loss"),
        view.metric("loss"),
        view.metric("kl"),
        view.number("beta"),
    )
    if own is not None or whole is None:
        return own
    return whole if beta == 0 else whole - beta * kl if kl is not None and beta > 0 else None


def _divided_alone(view: View, parts: int) -> tuple[int, int] | None:
    """(Steps whose policy loss is that of micro-batches divided alone, steps whose whole batch was logged).

    On the policy that sampled, the loss is minus the mean advantage, token by token: over the whole batch, or over
    each micro-batch and then over these.
    """
    logged, size = _policy_loss(view), view.number("batch_size")
    if logged is None or not view.has("advantage", "length") or not size >= 2 * parts:
        return None
    losses = dict(zip(view.metric_steps.tolist(), logged.tolist(), strict=True))
    alone, of = 0, 0
    for step in np.unique(view.step).tolist():
        rows = view.step == step
        tokens, value = view.column("length")[rows], losses.get(step, math.nan)
        push = tokens * view.advantage[rows]
        if rows.sum() != size or not np.isfinite(push.sum() + value) or tokens.min() < 1:
            continue
        whole = -push.sum() / tokens.sum()
        pieces = zip(np.array_split(push, parts), np.array_split(tokens, parts), strict=True)
        split = -float(np.mean([a.sum() / n.sum() for a, n in pieces]))
        of += 1
        alone += int(abs(value - split) < SPLIT_MATCH * abs(split - whole))
    return (alone, of) if of else None


_PER_SEQUENCE = ("grpo", "seq-mean-token-mean", "sequence")


def length_bias(view: View) -> Finding:
    """Wrong completions grow while right ones do not: a mean over each completion's own tokens pays long errors less."""  # noqa: E501
    id = "loss.length_bias"
    quality = view.truth if np.isfinite(view.truth).any() else view.reward
    length = view.column("length")
    if not np.isfinite(length).any() or not np.isfinite(quality).any() or np.unique(view.step).size < 4:
        return skip(id)
    low, high = view.scale if quality is view.reward else (0.0, 1.0)
    good = quality >= (low + high) / 2
    wrong = step_change(view.step, np.where(good, math.nan, length))
    right = step_change(view.step, np.where(good, length, math.nan))
    if wrong.points < 4 or right.points < 4:
        return skip(id, "right and wrong completions early and late in the run")
    growth = (wrong.last / max(wrong.first, 1e-9), right.last / max(right.first, 1e-9))
    stated = view.word("loss_type") in _PER_SEQUENCE
    evidence = {
        "growth_of_wrong": growth[0],
        "growth_of_right": growth[1],
        "z": wrong.z,
        "loss_type": view.config.get("loss_type"),
    }
    paired = wrong.difference - right.difference > 5 * math.hypot(wrong.error, right.error)
    apart = growth[0] > 1.5 and growth[0] > 1.4 * growth[1] and wrong.z > 5 and paired
    only_wrong = (
        stated and growth[1] < 1.15
    )  # what is learnt needs no length, so that the errors' is the divisor's
    if apart and (only_wrong or not view.truth_change.z > 3):
        status = "fail" if stated else "warn"
        return finding(
            view,
            id,
            status,
            f"wrong completions grow {growth[0]:.1f} times, right ones {growth[1]:.1f} times",
            evidence,
        )
    return fine(view, id, evidence)


def reward_position(view: View) -> Finding:
    """Token rewards whose score sits after the last real token."""
    id = "loss.reward_position"
    if not view.has("token_rewards", "mask"):
        return skip(id)
    bad: list[int] = []
    total = 0
    for number, (scores, on) in enumerate(
        zip(view.rows["token_rewards"].to_list(), view.rows["mask"].to_list(), strict=True)
    ):
        if scores is None or on is None or len(scores) != len(on) or not any(on):
            continue
        total += 1
        last = max(i for i, use in enumerate(on) if use)
        if any(score for score in scores[last + 1 :]):
            bad.append(number)
    if total == 0:
        return skip(id)
    evidence = {"rows": len(bad), "of": total}
    if len(bad) > 0.05 * total:
        return fail(
            view, id, f"in {len(bad)} of {total} rows the score sits on a pad token", evidence, view.refs(bad)
        )
    return fine(view, id, evidence)


def likelihood_displacement(view: View) -> Finding:
    """Preference learning: the chosen answers' log-prob falls far while the margin grows (explained, not a bug)."""
    id = "loss.likelihood_displacement"
    chosen = _chosen_change(view)
    if chosen is None:
        return skip(id)
    tokens = view.number("chosen_tokens")
    evidence = {"nats": chosen, "per_token": chosen / tokens if tokens > 0 else None}
    if chosen < -10:
        return warn(
            view,
            id,
            f"the log-prob of the chosen answers fell by {-chosen:.0f} nats: probability moves to other text",
            evidence,
        )
    return fine(view, id, evidence)


def _chosen_change(view: View) -> float | None:
    """Change of the chosen answers' log-prob since the start, nats."""
    policy, reference = view.metric("logp_chosen"), view.metric("ref_chosen")
    if policy is not None:
        values = finite(policy - reference) if reference is not None else finite(policy)
        return float(values[-1] - values[0]) if values.size >= 2 else None
    rewards, beta = finite(view.metric("chosen_reward")), view.number("beta")
    return float((rewards[-1] - rewards[0]) / beta) if rewards.size >= 2 and beta > 0 else None
