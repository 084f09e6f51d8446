"""Linking findings to a run: the share of rollouts that use each exploit, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from assay.records.finding import Finding
from assay.records.run_folder import RunFolder

Uses = Callable[[str, str], bool]
"""Whether a completion (first) to a prompt (second) uses an exploit."""
ANSWERS = re.compile(
    r"\\boxed\{([^{}]*)\}|<answer>\s*(.*?)\s*</answer>|(?:answer is|####|Answer:)\s*(\S+)", re.S
)
LITERAL = frozenset({"accepts_marker", "accepts_judge_injection", "pays_format_only", "exit_code_trusted"})


def exploit_shares(findings: Sequence[Finding], run: str) -> dict[str, list[dict[str, Any]]]:
    """Per id: for every step with rollouts, the share that uses the exploit, and their mean reward.

    Raises:
        BadInput: the folder is not a run.
    """
    folder = RunFolder(run)
    folder.read_run()
    rules = {f.id: rule for f in findings if f.status == "fail" and (rule := uses_exploit(f)) is not None}
    shares: dict[str, list[dict[str, Any]]] = {id: [] for id in rules}
    for step in folder.steps("rollouts"):
        table = folder.read_table(folder.rollouts(step))
        column = "reward_text" if "reward_text" in table.columns else "completion"
        texts = [text or "" for text in table[column].to_list()]
        prompts = table["prompt"].to_list() if "prompt" in table.columns else [""] * len(texts)
        rewards = table["reward"].to_list() if "reward" in table.columns else [None] * len(texts)
        for id, rule in rules.items():
            flags = [rule(text, prompt or "") for text, prompt in zip(texts, prompts, strict=True)]
            paid = [r for r, flag in zip(rewards, flags, strict=True) if flag and r is not None and r == r]
            shares[id].append({
                "step": step, "share": sum(flags) / len(flags) if flags else None, "rollouts": len(flags),
                "mean_reward": sum(paid) / len(paid) if paid else None,
            })  # fmt: skip
    return shares


def uses_exploit(finding: Finding) -> Uses | None:
    """A rule that recognises the exploit of a finding in a rollout; None where a text alone cannot tell."""
    if finding.exploit is None:
        return None
    if finding.id in ("accepts_empty", "accepts_noop"):
        return lambda text, _: not text.strip()
    if finding.id == "accepts_prompt_echo":
        return lambda text, prompt: len(prompt) > 8 and prompt.strip() in text
    if finding.id == "accepts_guess_list":
        return lambda text, _: len(set(_answers(text))) > 1
    if finding.id in LITERAL:
        words = finding.exploit.completion.strip()
        return (lambda text, _: words in text) if words else None
    return None


def _answers(text: str) -> list[str]:
    return [next(group for group in found if group) for found in ANSWERS.findall(text) if any(found)]
