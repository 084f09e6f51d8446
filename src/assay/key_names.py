"""Keys of a run that there are not: the nearest known one, or what another trainer's name for one is here."""

from __future__ import annotations

from collections.abc import Iterable

from assay.errors import nearest

ELSEWHERE = {
    "lr": "learning_rate", "num_generations": "group_size", "n": "group_size", "max_steps": "steps",
    "max_completion_length": "max_new_tokens", "max_tokens": "max_new_tokens", "max_response_length": "max_new_tokens",
    "per_device_train_batch_size": "micro_batch_size", "train_batch_size": "batch_size",
    "beta": "algorithm_options.kl_coef", "kl_loss_coef": "algorithm_options.kl_coef",
    "num_iterations": "algorithm_options.epochs",
    "model_name_or_path": "model", "reward_funcs": "reward", "reward_fn": "reward", "output_dir": "--out",
    "report_to": "tracker", "bf16": "dtype=bfloat16", "use_vllm": "vllm.colocated=true", "eval_steps": "eval_every",
}  # fmt: skip
"""What other trainers call some of the keys."""


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that there is not."""
    hint = f"; here it is {ELSEWHERE[key]!r}" if key in ELSEWHERE else nearest(key, known)
    return f"unknown key {key!r}{hint}"
