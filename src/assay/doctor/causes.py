"""What explains what: from the failed checks to one root cause, the others following from it.

The order is the flow of data: sampling, decoding, the text, the reward, the advantage, the log-probs, the update,
what the run becomes. Two corrections: a fault of completions that starts only late in the run is a result of
training, not of decoding; and a number that is not finite is explained by what makes it so, where that is seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from assay.records.finding import Finding

ORDER: tuple[str, ...] = (
    "run.data", "run.resume",
    "decode.double_bos", "decode.sampling_settings", "decode.prompt_in_text", "decode.padding_in_text",
    "decode.special_tokens", "decode.content_stripped", "reward.wrong_text", "decode.prefilled", "decode.empty",
    "decode.repetition", "decode.no_eos", "decode.truncated",
    "reward.wrong_shape", "reward.non_finite", "reward.missing", "reward.constant", "reward.unreachable",
    "reward.inverted", "reward.component_dominates", "reward.unrelated_to_truth",
    "advantage.group_size", "advantage.grouping", "advantage.identical_completions", "advantage.dtype",
    "advantage.noise", "advantage.non_finite", "advantage.epsilon", "advantage.inverted", "advantage.collapsed",
    "advantage.mismatch", "advantage.zero_spread_groups",
    "logprob.positive", "logprob.not_normalised", "logprob.wrong_axis", "logprob.shifted", "logprob.retokenised",
    "logprob.mask", "logprob.temperature", "logprob.truncated_support", "logprob.positions", "logprob.stale_weights",
    "logprob.sampler_mismatch", "logprob.reference_not_start", "logprob.negative_kl",
    "loss.reward_position", "loss.normalisation", "loss.no_gradient", "loss.nothing_trains", "loss.flat",
    "loss.clip_saturated", "loss.kl_dominates", "loss.exploding", "loss.step_too_large", "loss.non_finite",
    "loss.inverted", "loss.length_bias", "hacking.evaluation_leak", "hacking.length", "hacking.overoptimisation",
    "hacking.reward_without_truth", "hacking.entropy_collapse", "loss.kl_negligible",
    "loss.likelihood_displacement",
)  # fmt: skip

_SHAPES = ("decode.empty", "decode.no_eos", "decode.truncated", "decode.repetition")
_WRECKED = (
    "advantage.zero_spread_groups",
    "decode.repetition", "decode.empty", "decode.truncated", "decode.no_eos", "hacking.entropy_collapse",
    "loss.non_finite", "loss.inverted", "loss.kl_dominates",
)  # fmt: skip
_STALE = ("loss.clip_saturated", "logprob.sampler_mismatch", "logprob.negative_kl")

_UNPAID = (
    "reward.constant",
    "reward.unreachable",
    "advantage.zero_spread_groups",
    "reward.unrelated_to_truth",
)

EXPLAINS: dict[str, tuple[str, ...]] = {
    "decode.prefilled": _UNPAID, "decode.special_tokens": _UNPAID, "decode.content_stripped": _UNPAID,
    "decode.no_eos": _UNPAID, "reward.wrong_text": _UNPAID, "decode.empty": _UNPAID,
    "reward.missing": ("advantage.non_finite", "advantage.mismatch", "advantage.zero_spread_groups", "loss.non_finite",
                       "loss.no_gradient", "loss.flat", "loss.nothing_trains", "reward.constant"),
    "reward.non_finite": ("advantage.non_finite", "advantage.mismatch", "loss.non_finite"),
    "advantage.non_finite": ("loss.non_finite", "advantage.mismatch"),
    "reward.constant": ("reward.unreachable", "advantage.zero_spread_groups", "advantage.collapsed", "loss.no_gradient",
                        "loss.flat", "loss.nothing_trains"),
    "advantage.group_size": ("advantage.zero_spread_groups", "advantage.collapsed", "loss.no_gradient", "loss.flat"),
    "advantage.identical_completions": ("advantage.zero_spread_groups", "decode.repetition"),
    "advantage.epsilon": ("advantage.collapsed", "advantage.mismatch"),
    "advantage.dtype": ("advantage.non_finite", "advantage.mismatch", "advantage.noise", "loss.non_finite"),
    "advantage.inverted": ("advantage.mismatch", "advantage.grouping", "loss.inverted"),
    "advantage.grouping": ("advantage.mismatch", "advantage.noise", "advantage.inverted"),
    "advantage.noise": ("advantage.mismatch", "loss.exploding"),
    "reward.inverted": ("reward.unrelated_to_truth", "loss.inverted", "hacking.overoptimisation"),
    "reward.component_dominates": ("reward.unrelated_to_truth", "hacking.reward_without_truth"),
    "reward.unrelated_to_truth": ("hacking.reward_without_truth", "hacking.overoptimisation", "hacking.length"),
    "logprob.positive": ("logprob.not_normalised", "logprob.sampler_mismatch", "loss.clip_saturated"),
    "logprob.shifted": ("logprob.sampler_mismatch",), "logprob.wrong_axis": ("logprob.sampler_mismatch",),
    "logprob.not_normalised": ("logprob.sampler_mismatch",), "logprob.temperature": ("logprob.sampler_mismatch",),
    "logprob.truncated_support": ("logprob.sampler_mismatch", "logprob.negative_kl"),
    "logprob.retokenised": ("logprob.sampler_mismatch",), "logprob.mask": ("logprob.sampler_mismatch",),
    "logprob.positions": ("logprob.sampler_mismatch",), "logprob.stale_weights": _STALE,
    "loss.exploding": _WRECKED, "loss.step_too_large": (
        *_WRECKED, "loss.exploding", "loss.no_gradient", "advantage.identical_completions", "reward.constant",
    ),
    "loss.no_gradient": ("loss.nothing_trains", "loss.flat"),
    "hacking.length": ("hacking.reward_without_truth", "hacking.overoptimisation", "decode.truncated", "decode.no_eos"),
    "hacking.overoptimisation": ("hacking.reward_without_truth", "hacking.entropy_collapse", "decode.empty"),
    "hacking.reward_without_truth": ("hacking.entropy_collapse", "decode.repetition", "decode.truncated"),
    "loss.length_bias": ("decode.truncated", "decode.no_eos"),
    "loss.inverted": ("loss.exploding",),
}  # fmt: skip
"""Direct explanations, beyond the order of the flow."""


MOOT: dict[str, tuple[str, ...]] = {
    "reward.wrong_text": ("reward.inverted", "reward.unrelated_to_truth"),
    "advantage.inverted": ("loss.inverted",), "reward.inverted": ("loss.inverted",),
    "loss.non_finite": ("loss.inverted",), "loss.exploding": ("loss.inverted",),
    "logprob.positive": ("logprob.temperature", "logprob.truncated_support"),
    "logprob.positions": ("logprob.temperature", "logprob.truncated_support"),
}  # fmt: skip
"""What cannot be judged while another fault stands: its sign would be that fault's."""


def settle(findings: Sequence[Finding]) -> list[Finding]:
    """Turn failures that another failure makes moot into skips that say so."""
    failed = {found.id for found in findings if found.status == "fail"}
    moot = {id: cause for cause in failed for id in MOOT.get(cause, ())}
    return [
        _unjudged(found, moot[found.id]) if found.id in moot and found.status == "fail" else found
        for found in findings
    ]


def _unjudged(found: Finding, cause: str) -> Finding:
    needs = f"a log without {cause}"
    summary = f"not judged: {cause} would look the same"
    return dataclasses.replace(
        found, status="skip", summary=summary, needs=needs, samples=(), fix="", regression_test=None
    )


def _late(found: Finding) -> bool:
    """Whether a fault of the completions is absent at the first step, or in the first third of the run."""
    starts = [value for name in ("first", "early") if isinstance(value := found.evidence.get(name), float)]
    late = found.evidence.get("late")
    return found.id in _SHAPES and isinstance(late, float) and any(start < 0.5 * late for start in starts)


def _rank(found: Finding, failed: dict[str, Finding]) -> tuple[int, int]:
    late = _late(found)
    explained = any(
        found.id in EXPLAINS.get(other, ()) and other != found.id
        for other in failed
        if late or not _is_shape(found)
    )
    return int(explained or late), ORDER.index(found.id)


def _is_shape(found: Finding) -> bool:
    return found.id in _SHAPES


def link(findings: Sequence[Finding]) -> tuple[list[Finding], Finding | None]:
    """Name the root cause and let every other failure follow from what explains it.

    Returns the findings, in the given order, with ``follows_from`` set, and the root cause (None without a failure).
    """
    failed = {found.id: found for found in findings if found.status == "fail"}
    if not failed:
        return list(findings), None
    root = _root(failed)
    linked = [_follow(found, root, failed) for found in findings]
    return linked, next(found for found in linked if found.id == root.id)


def _root(failed: dict[str, Finding]) -> Finding:
    """The failure that nothing explains and that comes first; non-finite numbers count by their own first cause."""
    loose = sorted(failed.values(), key=lambda found: _rank(found, failed))
    first = loose[0]
    broken = [found for found in loose if found.id.endswith(".non_finite")]
    if broken and not _explained_by(broken[0].id, failed):
        first = min(broken, key=lambda found: ORDER.index(found.id))
    return first


def _explained_by(id: str, failed: dict[str, Finding]) -> str | None:
    return next((other for other in ORDER if other in failed and id in EXPLAINS.get(other, ())), None)


def _follow(found: Finding, root: Finding, failed: dict[str, Finding]) -> Finding:
    if found.status not in ("fail", "warn") or found.id == root.id:
        return found
    near = _explained_by(found.id, {id: value for id, value in failed.items() if id != found.id})
    if found.status == "warn":  # a warning stands for itself unless a failure is known to explain it
        return dataclasses.replace(found, follows_from=near) if near else found
    cause = near if near is not None and _leads_to(near, root.id, failed) else root.id
    return dataclasses.replace(found, follows_from=cause)


def _leads_to(id: str, root: str, failed: dict[str, Finding]) -> bool:
    """Whether following the explanations from an id ends at the root (never in a circle)."""
    seen: set[str] = set()
    while id != root and id not in seen:
        seen.add(id)
        nxt = _explained_by(id, {k: v for k, v in failed.items() if k != id})
        if nxt is None:
            return True
        id = nxt
    return id == root
