"""The formats of rollout files: who writes them, how they are recognised, and how a row is flattened.

Recognised by the keys of the rows, never by the file's name alone; the path gives what the rows leave out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.records.readers import flatten
from assay.records.readers.aliases import METRICS, ROLLOUTS, STEP_NAMES, find

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RolloutFormat:
    """One way to write rollouts.

    Attributes:
        source: the trainer. keys: keys that every row has. flatten: one row to flat rows.
        step_in_path: a pattern with one group, the step.
        evaluation: whether the rows are of an evaluation unless they say otherwise.
        plain: whether a row needs no change of shape, so that the fast parser may take the file.
    """

    source: str
    keys: frozenset[str]
    flatten: Callable[[Row], list[Row]]
    step_in_path: re.Pattern[str] | None = None
    evaluation: bool = False
    plain: bool = False


def _format(
    source: str, keys: str, function: Callable[[Row], list[Row]], step: str = "", **more: bool
) -> RolloutFormat:
    return RolloutFormat(
        source, frozenset(keys.split()), function, re.compile(step) if step else None, **more
    )


FORMATS: tuple[RolloutFormat, ...] = (
    _format("prime-rl", "token_ids loss_mask inference_logprobs trainer_logprobs", flatten.token_export,
            r"step_(\d+)"),
    _format("prime-rl", "traces task run", flatten.episode, r"step_(\d+)"),
    _format("verifiers", "traces task", flatten.episode),
    _format("verifiers", "example_id prompt completion reward", flatten.verifiers_legacy, evaluation=True),
    _format("open-instruct", "prompt_idx response_tokens reward", flatten.open_instruct),
    _format("skyrl", "input_prompt output_response score", flatten.skyrl, r"global_step_(\d+)_evals",
            evaluation=True),
    _format("nemo-rl", "rewards token_loss_mask generation_logprobs", flatten.nemo, r"train_data_step(\d+)"),
    _format("nemo-rl", "content rewards idx", flatten.nemo, r"val_data_step(\d+)", evaluation=True),
    _format("areal", "task_id head_version reward completion", flatten.generic, plain=True),
    _format("tinker", "group_idx traj_idx total_reward", flatten.tinker, r"iteration_(\d+)"),
    _format("verl", "input output score", flatten.verl, r"(\d+)\.jsonl$"),
)  # fmt: skip
GENERIC = RolloutFormat("generic", frozenset(), flatten.generic, plain=True)
TRL = RolloutFormat("trl", frozenset({"step", "prompt", "completion", "advantage"}), flatten.trl)
ASSAY = RolloutFormat("assay", frozenset(), flatten.generic, plain=True)

_TOKEN_COLUMNS = (
    "token_ids",
    "logprobs",
    "old_logprobs",
    "sampler_logprobs",
    "reward_text",
    "completion",
    "advantage",
)


def rollout_format(rows: list[Row]) -> RolloutFormat | None:
    """The format of a file of rollouts; None when the rows are no rollouts."""
    keys = set[str]().union(*(row.keys() for row in rows)) if rows else set[str]()
    common = set(rows[0]).intersection(*(row.keys() for row in rows)) if rows else set[str]()
    for form in FORMATS:
        if form.keys <= common:
            return form
    return GENERIC if _looks_like_rollouts(keys, rows) else None


def _looks_like_rollouts(keys: set[str], rows: list[Row]) -> bool:
    """Rows of single completions: an identity, a text or token lists, and no more than that needs."""
    identity = any(
        find(keys, ROLLOUTS[name]) for name in ("prompt_id", "prompt", "completion", "token_ids", "sample")
    )
    if any(find(keys, ROLLOUTS[name]) for name in _TOKEN_COLUMNS) and identity:
        return not ("completions" in keys or "log_history" in keys)
    return identity and bool(find(keys, ROLLOUTS["reward"])) and "prompt_ids" not in rows[0]


_SIGNATURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("verl", ("critic/score/mean", "actor/pg_loss", "actor/grad_norm", "response_length/clip_ratio")),
    ("trl", ("frac_reward_zero_std", "completions/mean_length", "clip_ratio/region_mean", "rewards/margins",
             "objective/scores", "sampling/sampling_logp_difference/mean")),
    ("openrlhf", ("actor_grad_norm", "actor_lr", "ppo_clip_ratio", "group_reward_std", "rollout/reward_mean")),
    ("prime-rl", ("entropy/all/mean", "mismatch_kl/all/mean")),
    ("tinker", ("env/all/reward/total", "optim/kl_sample_train_v1", "progress/batch", "progress/done_frac")),
    ("skyrl", ("reward/avg_raw_reward", "policy/policy_entropy", "policy/final_loss")),
    ("open-instruct", ("objective/verifiable_reward", "objective/kl0_avg", "val/sequence_lengths")),
    ("nemo-rl", ("train/token_mult_prob_error", "token_mult_prob_error", "mean_gen_tokens_per_sample",
                 "train/gen_kl_error")),
)  # fmt: skip


def metrics_source(names: set[str]) -> str:
    """The trainer whose names these are, or ``generic``."""
    scores = [(sum(name in names for name in signature), source) for source, signature in _SIGNATURES]
    best, source = max(scores, key=lambda pair: pair[0])
    return source if best else "generic"


def looks_like_metrics(rows: list[Row]) -> bool:
    """Rows of a training log: a step, or known names, with numbers."""
    names = {name for row in rows for name, value in row.items() if isinstance(value, int | float)}
    if not names:
        return False
    concepts = sum(bool(find(names, patterns)) for patterns in METRICS.values())
    return concepts > 0 and (bool(find(names, STEP_NAMES)) or concepts > 1)


def step_of(path: Path, pattern: re.Pattern[str] | None) -> int | None:
    """The step that a path names."""
    match = pattern.search(path.as_posix()) if pattern else None
    return int(match.group(1)) if match and len(match.group(1)) < 18 else None
