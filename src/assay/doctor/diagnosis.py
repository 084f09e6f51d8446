"""From a path or a record to a diagnosis: every check once, one root cause, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.doctor import (
    hacking,
    run_checks,
    stage1_reward,
    stage2_advantage,
    stage2_groups,
    stage2_scale,
    stage3_logprobs,
    stage3_sampler,
    stage3_stale,
    stage4_loss,
    stage4_terms,
    stage5_completions,
    stage5_decoding,
)
from assay.doctor.causes import link, settle
from assay.doctor.rescoring import Tokenizer, load_tokenizer, rescored, retokenised_by
from assay.doctor.trend import change
from assay.doctor.view import View
from assay.records.finding import Finding
from assay.records.readers import read_run
from assay.records.run_record import Note, RunRecord

Verdict = Literal["healthy", "broken", "cannot_tell"]
Check = Callable[[View], Finding]

CHECKS: tuple[Check, ...] = (
    stage1_reward.non_finite, stage1_reward.missing, stage1_reward.wrong_shape, stage1_reward.constant,
    stage5_decoding.wrong_text, stage1_reward.inverted, stage1_reward.unrelated_to_truth,
    stage1_reward.component_dominates,
    stage2_groups.group_size, stage2_groups.zero_spread_groups, stage2_groups.identical_completions,
    stage2_scale.epsilon, stage2_scale.dtype, stage2_scale.collapsed, stage2_advantage.inverted,
    stage2_advantage.grouping, stage2_advantage.noise, stage2_advantage.mismatch, stage2_advantage.non_finite,
    stage3_logprobs.positive, stage3_logprobs.not_normalised, stage3_logprobs.shifted, stage3_logprobs.wrong_axis,
    stage3_sampler.temperature, stage3_sampler.truncated_support, stage3_sampler.positions, stage3_logprobs.mask,
    stage3_logprobs.retokenised, stage3_stale.stale_weights, stage3_sampler.sampler_mismatch,
    stage3_sampler.negative_kl, stage3_sampler.reference_not_start,
    stage4_loss.non_finite, stage4_loss.no_gradient, stage4_loss.nothing_trains, stage4_loss.flat,
    stage4_loss.exploding, stage4_loss.step_too_large, stage4_loss.inverted, stage4_terms.kl_dominates,
    stage4_terms.kl_negligible, stage4_terms.clip_saturated, stage4_terms.normalisation, stage4_terms.length_bias,
    stage4_terms.reward_position, stage4_terms.likelihood_displacement,
    stage5_decoding.prompt_in_text, stage5_decoding.padding_in_text, stage5_decoding.special_tokens,
    stage5_decoding.content_stripped, stage5_decoding.prefilled, stage5_completions.no_eos,
    stage5_completions.truncated,
    stage5_completions.double_bos, stage5_completions.empty, stage5_completions.repetition,
    stage5_completions.sampling_settings,
    hacking.reward_without_truth, hacking.overoptimisation, hacking.length, hacking.entropy_collapse,
    hacking.evaluation_leak, run_checks.resume, run_checks.data,
)  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """The doctor's answer.

    Attributes:
        verdict: ``broken`` on any failure; ``healthy`` when the reward rises, or when every stage was checked and
            passed; ``cannot_tell`` otherwise.
        root_cause: the failure that explains the others; None without one.
        findings: one per id and check, failures with ``follows_from``.
        source: the trainer that made the log. notes: what the readers dropped or did not know. origin: the path.
    """

    verdict: Verdict
    root_cause: Finding | None
    findings: tuple[Finding, ...]
    source: str = "generic"
    notes: tuple[Note, ...] = field(default=())
    origin: str = ""

    def of(self, *status: str) -> list[Finding]:
        """Findings with one of these statuses."""
        return [found for found in self.findings if found.status in status]

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form; non-finite numbers are null."""
        root = self.root_cause
        return {
            "verdict": self.verdict,
            "root_cause": None
            if root is None
            else {"stage": root.stage, "id": root.id, "summary": root.summary, "fix": root.fix},
            "findings": [found.to_json() for found in self.findings],
            "source": self.source,
            "notes": [{"kind": note.kind, "text": note.text} for note in self.notes],
            "path": self.origin,
        }


def diagnose(
    run: str | Path | RunRecord,
    *,
    reward: str | Callable[..., Any] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
) -> Diagnosis:
    """Find out why a run does not improve.

    Args:
        run: the path of what a run left (folder or file), or a record of it.
        reward: the reward function or ``file.py:name``; it is called on golds and logged completions.
        tokenizer: a tokenizer, its folder, or a ``vocab.json`` (a list of texts, or ids with text and special flag).

    Raises:
        BadInput: the path holds no log of a run, a line is broken, or the reward cannot be loaded.
    """
    record = run if isinstance(run, RunRecord) else read_run(run)
    view = View(record)
    with np.errstate(all="ignore"):
        findings = [check(view) for check in CHECKS]
    words = load_tokenizer(tokenizer) if tokenizer is not None else None
    findings = _replaced(findings, rescored(view, reward, words))
    if words is not None:
        found = next(f for f in findings if f.id == "logprob.retokenised")
        findings = _replaced(findings, retokenised_by(view, words, found))
    linked, root = link(settle(findings))
    return Diagnosis(_verdict(view, linked), root, tuple(linked), record.source, record.notes, record.origin)


def _replaced(findings: Sequence[Finding], better: Sequence[Finding]) -> list[Finding]:
    """Findings with those of ``better`` in place of a weaker one of the same id."""
    strength = {"fail": 3, "warn": 2, "pass": 1, "skip": 0}
    kept = {found.id: found for found in findings}
    for found in better:
        if found.id not in kept or strength[found.status] >= strength[kept[found.id].status]:
            kept[found.id] = found
    return list(kept.values())


def _verdict(view: View, findings: Sequence[Finding]) -> Verdict:
    if any(found.status == "fail" for found in findings):
        return "broken"
    run = next((found for found in findings if found.id == "run.data"), None)
    if run is not None and len(run.evidence.get("contradictions", ())) >= run_checks.TWO_RUNS:
        return "cannot_tell"
    checked = {found.stage for found in findings if found.status == "pass"}
    if view.reward_rises or _truth_rises(view) or change(view.metric("margin")).z > 3.3:
        return "healthy"
    everything = {1, 2, 3, 4, 5} <= checked and any(
        f.id == "decode.prompt_in_text" and f.status == "pass" for f in findings
    )
    return "healthy" if everything else "cannot_tell"


def _truth_rises(view: View) -> bool:
    return view.truth_change.z > 3.3 and view.truth_change.difference > 0.02


__all__ = ["CHECKS", "Diagnosis", "diagnose"]
