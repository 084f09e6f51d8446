"""Linking findings to a run: the share of rollouts that use each exploit, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.records.finding import Finding
from assay.records.readers.folder import read_run
from assay.records.run_folder import RunFolder

if TYPE_CHECKING:
    import polars as pl

Uses = Callable[[str, str], bool]
"""Whether a completion (first) to a prompt (second) uses an exploit."""
ANSWERS = re.compile(
    r"\\boxed\{([^{}]*)\}|<answer>\s*(.*?)\s*</answer>|(?:answer is|####|Answer:)\s*(\S+)", re.S
)
LITERAL = frozenset({"accepts_marker", "accepts_judge_injection", "pays_format_only", "exit_code_trusted"})


Step = tuple[int, list[str], list[str], list[float | None]]
"""A step's number, and its rollouts' texts, prompts and rewards."""


def rollouts_of(run: str) -> Iterable[Step]:
    """The rollouts of a run of ours, or of another trainer's log that holds completions.

    Raises:
        BadInput: at once, when there is nothing to read.
    """
    folder = RunFolder(run)
    if (Path(run) / "run.json").is_file():
        folder.read_run()
        tables = ((step, folder.read_table(folder.rollouts(step))) for step in folder.steps("rollouts"))
        return (_step(step, table) for step, table in tables)
    table = read_run(run).rollouts
    if not {"reward_text", "completion"} & set(table.columns):
        raise BadInput(
            f"{run}: expected rollouts with completions, got none; log the completions of each step"
        )
    if "step" not in table.columns:
        return [_step(0, table)]
    known = table.filter(table["step"].is_not_null())
    steps = known.partition_by("step", as_dict=True)
    return [_step(int(step), part) for (step,), part in sorted(steps.items(), key=lambda row: row[0])]


def _step(step: int, table: pl.DataFrame) -> Step:
    """Rows without a text (a log keeps an excerpt) are left out."""
    column = "reward_text" if "reward_text" in table.columns else "completion"
    kept = table.filter(table[column].is_not_null())
    texts = [str(text) for text in kept[column].to_list()]
    prompts = kept["prompt"].to_list() if "prompt" in kept.columns else [""] * len(texts)
    none: list[float | None] = [None] * len(texts)
    rewards = kept["reward"].to_list() if "reward" in kept.columns else none
    return step, texts, [str(prompt or "") for prompt in prompts], rewards


def exploit_shares(findings: Sequence[Finding], steps: Iterable[Step]) -> dict[str, list[dict[str, Any]]]:
    """Per id: for every step with rollouts, the share that uses the exploit, and their mean reward."""
    rules = {f.id: rule for f in findings if f.status == "fail" and (rule := uses_exploit(f)) is not None}
    shares: dict[str, list[dict[str, Any]]] = {id: [] for id in rules}
    for step, texts, prompts, rewards in steps:
        for id, rule in rules.items():
            flags = [rule(text, prompt) for text, prompt in zip(texts, prompts, strict=True)]
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
