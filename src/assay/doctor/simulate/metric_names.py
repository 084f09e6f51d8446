"""The same numbers under the names of each trainer's log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Framework = Literal["generic", "trl", "verl", "openrlhf"]
FRAMEWORKS: tuple[Framework, ...] = ("generic", "trl", "verl", "openrlhf")

_GENERIC = {
    "reward": "reward", "reward_std": "reward_std", "zero_spread": "zero_spread_fraction", "length": "length",
    "truncated": "truncated_fraction", "entropy": "entropy", "kl": "kl", "clip_fraction": "clip_fraction",
    "policy_loss": "policy_loss", "kl_loss": "kl_loss", "loss": "loss", "gradient_norm": "grad_norm",
    "learning_rate": "learning_rate", "sampler_gap": "sampler_logprob_gap", "truth": "truth",
}  # fmt: skip
_TRL = {
    "loss": "loss", "gradient_norm": "grad_norm", "learning_rate": "learning_rate", "reward": "reward",
    "reward_std": "reward_std", "zero_spread": "frac_reward_zero_std", "length": "completions/mean_length",
    "length_min": "completions/min_length", "length_max": "completions/max_length",
    "truncated": "completions/clipped_ratio", "entropy": "entropy", "kl": "kl",
    "clip_fraction": "clip_ratio/region_mean",
    "sampler_gap": "sampling/sampling_logp_difference/mean", "truth": "eval_accuracy",
}  # fmt: skip
_VERL = {
    "reward": "critic/score/mean", "advantage_mean": "critic/advantages/mean",
    "advantage_min": "critic/advantages/min", "advantage_max": "critic/advantages/max",
    "entropy": "actor/entropy", "policy_loss": "actor/pg_loss", "kl": "actor/kl_loss",
    "clip_fraction": "actor/pg_clipfrac", "gradient_norm": "actor/grad_norm", "learning_rate": "actor/lr",
    "length": "response_length/mean", "length_min": "response_length/min",
    "length_max": "response_length/max", "truncated": "response_length/clip_ratio",
    "sampler_gap": "training/rollout_probs_diff_mean",
    "truth": "val-core/math/acc/mean@1",
}  # fmt: skip
_OPENRLHF = {
    "policy_loss": "policy_loss", "kl": "kl", "reward": "reward", "length": "response_length",
    "learning_rate": "actor_lr", "clip_fraction": "ppo_clip_ratio", "reward_std": "group_reward_std",
    "truncated": "truncated", "entropy": "entropy_loss", "gradient_norm": "actor_grad_norm",
    "sampler_gap": "logprobs_diff", "truth": "eval_acc",
}  # fmt: skip
NAMES: Mapping[str, Mapping[str, str]] = {
    "generic": _GENERIC, "trl": _TRL, "verl": _VERL, "openrlhf": _OPENRLHF,
}  # fmt: skip


def rename(row: Mapping[str, float], framework: Framework, *, with_kl: bool) -> dict[str, Any]:
    """Return one step's numbers as the trainer logs them; the KL only where there is a penalty."""
    table = NAMES[framework]
    kept = {
        name: row[key] for key, name in table.items() if key in row and (with_kl or not key.startswith("kl"))
    }
    kept |= {name: value for name, value in row.items() if name.startswith(("rewards/", "logps/"))}
    step = int(row["step"])
    if framework == "verl":
        return {"step": step, "data": kept}
    if framework == "openrlhf":
        return {"global_step": step, **kept}
    extra = {
        f"rewards/{k.removeprefix('reward/')}/mean": v for k, v in row.items() if k.startswith("reward/")
    }
    return {"step": step, **kept, **extra}


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write JSON lines; NaN stays NaN, as these trainers leave it."""
    return "".join(json.dumps(row) + "\n" for row in rows)
