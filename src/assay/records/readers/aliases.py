"""The one table of names: every trainer's name of a metric, a column or a setting, and ours.

A name may be a pattern: ``*`` stands for any text without a slash, ``**`` for any text. Order matters: the
first name of a row that the log holds is used. Names were read in the trainers' public source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

METRICS: dict[str, tuple[str, ...]] = {
    "reward": (
        "reward", "critic/score/mean", "rollout/reward_mean", "train/agg/all/*/reward/mean", "reward/mean",
        "train/**/all/*/reward/mean", "objective/verifiable_reward", "objective/scores", "reward/avg_raw_reward",
        "env/all/reward/total", "train/reward", "rollout/raw_reward", "train_reward", "mean_reward", "reward_mean",
        "rewards/mean", "avg_reward", "score", "critic/rewards/mean", "return",
    ),
    "reward_min": ("reward_min", "critic/score/min", "min_reward", "reward/min"),
    "reward_max": ("reward_max", "critic/score/max", "max_reward", "reward/max"),
    "group_std": ("group_reward_std", "reward_std", "group_std", "reward_std_in_group"),
    "reward_std": ("rollout/reward_std", "batch_reward_std", "reward/std"),
    "zero_spread": (
        "frac_reward_zero_std", "zero_spread", "zero_spread_fraction", "zero_std_fraction",
        "zero_std_frac", "frac_zero_std",
    ),
    "mixed_groups": ("env/all/by_group/frac_mixed", "by_group/frac_mixed"),
    "solved_all": ("solved_all", "zero_spread_all_right", "train/**/solved_all"),
    "solved_none": ("solved_none", "zero_spread_all_wrong", "train/**/solved_none"),
    "missing": ("reward_missing", "missing_fraction", "missing_rewards", "frac_reward_missing"),
    "truth": (
        "truth", "eval_accuracy", "eval_acc", "heldout_accuracy", "held_out_accuracy", "eval_truth", "true_reward",
        "val-core/*/acc/mean@*", "val-core/**/mean@*", "eval/eval_*_pass1", "eval_*_pass1", "eval/*/avg@*",
        "eval/**/avg@*", "eval/scores", "eval/*/avg_score", "test/env/all/correct", "test/env/all/reward/total",
        "validation/accuracy", "accuracy_heldout", "eval/accuracy", "val_accuracy", "gold_reward", "gold_score",
        "eval_gold", "eval_score", "heldout_truth", "eval/truth",
    ),
    "eval_reward": ("eval_reward", "eval/reward", "val/reward", "heldout_reward"),
    "kl": (
        "kl", "actor/kl_loss", "actor/reward_kl_penalty", "objective/kl", "objective/kl_avg", "objective/kl*_avg",
        "loss/avg_kl", "policy/policy_kl", "kl_policy_base", "kl_penalty", "train/kl_penalty", "train/kl_loss",
        "kl_loss", "mean_kl", "kl_to_reference", "ref_kl",
    ),
    "policy_kl": (
        "actor/ppo_kl", "ppo_kl", "policy/approxkl_avg", "kl_pre_post_v1", "train/ppo_kl", "approx_kl", "policy_kl",
        "old_kl",
    ),
    "entropy": (
        "entropy", "actor/entropy", "entropy_loss", "entropy/all/mean", "policy/entropy_avg", "policy/policy_entropy",
        "objective/entropy", "optim/entropy", "train/approx_entropy", "approx_entropy", "train/entropy_loss",
        "rollout/entropy", "actor/entropy_loss", "mean_entropy",
    ),
    "clip_fraction": (
        "clip_ratio/region_mean", "actor/pg_clipfrac", "ppo_clip_ratio", "is_masked/mean", "is_masked",
        "policy/clipfrac_avg", "policy/loss_metrics/clip_ratio", "train/pg_clipfrac", "clip_fraction", "clip_ratio",
        "clipfrac", "clip_frac",
    ),
    "clip_low": ("clip_ratio/low_mean", "clip_fraction_low"),
    "clip_high": ("clip_ratio/high_mean", "clip_fraction_high"),
    "grad_norm": (
        "grad_norm", "actor/grad_norm", "actor_grad_norm", "optim/grad_norm", "policy/grad_norm", "train/grad_norm",
        "gradient_norm", "policy/raw_grad_norm",
    ),
    "learning_rate": (
        "learning_rate", "lr", "actor/lr", "actor_lr", "optim/lr", "policy/policy_lr", "train/lr", "train/lr-pg_0",
    ),
    "loss": (
        "loss", "loss/mean", "train/loss", "policy/final_loss", "final_loss", "actor/loss", "total_loss",
    ),
    "policy_loss": (
        "policy_loss", "actor/pg_loss", "pg_loss", "policy/policy_loss", "loss/policy_avg", "train/pg_loss",
    ),
    "loss_whole": ("loss_whole", "loss_one_batch"),
    "loss_micro": ("loss_micro", "loss_micro_batches", "loss_accumulated"),
    "kl_term": ("kl_term", "loss/kl", "kl_loss_term"),
    "value_loss": ("critic/vf_loss", "critic_loss", "loss/value_avg", "value_loss", "critic/loss"),
    "advantage_mean": ("critic/advantages/mean", "advantage_mean", "advantages/mean", "train/advantages/mean"),
    "advantage_max": ("critic/advantages/max", "advantage_max", "advantages/max", "train/advantages/max"),
    "advantage_min": ("critic/advantages/min", "advantage_min", "advantages/min", "train/advantages/min"),
    "advantage_std": ("advantage_std", "advantages/std"),
    "advantage_abs": ("loss/avg_raw_advantages_abs", "advantage_abs", "advantage_abs_mean"),
    "length": (
        "completions/mean_length", "response_length/mean", "rollout/response_length_mean", "response_length",
        "train/**/num_output_tokens/mean", "num_output_tokens/mean", "val/sequence_lengths", "mean_tokens",
        "generate/avg_num_tokens", "env/all/ac_tokens_per_turn", "train/mean_gen_tokens_per_sample",
        "mean_gen_tokens_per_sample", "rollout/response_len/mean", "length", "mean_length", "completion_length",
        "policy/response_length", "length_mean",
    ),
    "length_min": ("completions/min_length", "response_length/min", "length_min"),
    "length_max": ("completions/max_length", "response_length/max", "length_max"),
    "truncated": (
        "completions/clipped_ratio", "response_length/clip_ratio", "rollout/truncated_rate", "truncated",
        "response_clip_ratio", "train/**/is_truncated/mean", "is_truncated/mean", "truncation_rate",
        "train/truncation_rate", "rollout/truncated_ratio", "truncated_fraction", "frac_truncated",
    ),
    "stop_rate": ("val/stop_rate", "finished_fraction"),
    "sampler_gap": (
        "sampling/sampling_logp_difference/mean", "mismatch_kl/all/mean", "mean_abs_logp_diff", "logprobs_diff",
        "sampler_logprob_gap",
        "training/rollout_probs_diff_mean", "policy/rollout_train_logprobs_abs_diff_mean", "sampler_gap",
        "train_rollout_logprob_abs_diff", "debug/vllm_local_logprob_diff_mean", "sampler_logp_difference",
        "logprob_gap",
    ),
    "sampler_gap_max": ("sampling/sampling_logp_difference/max",),
    "importance_ratio": ("sampling/importance_sampling_ratio/mean", "val/ratio", "train/probs_ratio",
    "importance_ratio"),
    "trainer_version": ("trainer_version", "policy_version", "weights_version"),
    "sampler_version": ("sampler_version", "rollout_version", "engine_version"),
    "weight_change": ("weight_change", "param_change", "update_norm", "weights_changed", "param_update_norm"),
    "margin": ("rewards/margins", "margin", "margins"),
    "chosen_reward": ("rewards/chosen", "chosen_reward"),
    "rejected_reward": ("rewards/rejected", "reject_reward", "rejected_reward"),
    "preference_accuracy": ("rewards/accuracies", "preference_accuracy"),
    "logp_chosen": ("logps/chosen", "logp_c", "logp_chosen"),
    "logp_rejected": ("logps/rejected", "logp_r", "logp_rejected"),
    "ref_chosen": ("ref_c", "ref_logp_chosen", "ref_logps/chosen"),
    "ref_rejected": ("ref_r", "ref_logp_rejected", "ref_logps/rejected"),
    "num_tokens": ("num_tokens",),
    "epoch": ("epoch", "training/epoch"),
}  # fmt: skip
"""Metric names. ``group_std`` is the mean over groups of the spread inside a group; ``reward_std`` that of the batch."""  # noqa: E501

STEP_NAMES = (
    "step",
    "global_step",
    "training/global_step",
    "iteration",
    "train_step",
    "optimizer_step",
    "update",
)

KNOWN_ELSEWHERE: tuple[str, ...] = (
    "perf/**", "timing/**", "timing_s/**", "timing_per_token_ms/**", "time/**", "progress/**", "step_time", "time",
    "completions/**", "rewards/**", "prompt_length/**", "response_length/**", "response/**", "num_turns/**",
    "tool_call_counts/**", "critic/**", "actor/**", "rollout_corr/**", "training/**", "val-aux/**", "val-core/**",
    "sampling/**", "tools/**", "train_runtime", "train_loss", "train_*_per_second", "eval_runtime", "eval_*_per_second",
    "total_flos", "total_length", "logps/**", "logits/**", "mean_token_accuracy", "objective/**", "policy/**", "val/**",
    "eps", "episode", "critic_lr", "values", "dynamic_filtering_pass_rate", "rollout/**", "env/**", "test/**",
    "eval/**",
    "train/**", "validation/**", "optim/**", "loss/**", "batch/**", "debug/**", "generate/**", "async/**", "reward/**",
    "error/**", "stop_condition/**", "pass@*", "avg@*", "is_masked*", "masked_advantage*", "entropy/**",
    "mismatch_kl/**",
    "clip_ratio/**", "ratio", "training_tok/s", "buffer_qsize", "*_time_s", "*_time_ms", "cispo_clip_ratio", "aux_loss",
    "entropy_coef", "accuracy", "acc", "acc_mean", "loss_mean", "eval_num_samples", "eval_*", "policy_version", "seed",
    "prompt_ids", "wall_time", "tokens", "samples", "prompts", "groups", "seconds", "*_seconds", "status", "kl_coef",
    "kl_sample_train*", "kl_pre_post*", "beta", "updates", "advantages/**", "timestamp", "_timestamp", "_step",
    "_runtime", "crashed_count", "missing_count", "invalid_task_count", "distinct_fraction", "ratio_*", "kl_k1",
    "kl_sequence", "surprise", "sequences", "sampled_completions", "zero_spread_identical_text", "entropy_loss",
)  # fmt: skip
"""Names that a trainer is known to log and no check needs."""

ROLLOUTS: dict[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "head_version", "rollout_id"),
    "prompt_id": (
        "prompt_id", "group", "group_id", "example_id", "prompt_idx", "group_idx", "group_index", "task_id", "uid",
        "problem_id", "question_id", "prompt_uid",
    ),
    "sample": ("sample", "rollout", "sample_idx", "traj_idx", "sample_index", "completion_idx", "index"),
    "prompt": ("prompt", "input", "input_prompt", "question", "query", "problem"),
    "answer": ("answer", "gts", "ground_truth", "label", "solution", "golden_answer", "target", "gold"),
    "completion": ("completion", "output", "output_response", "response", "generation", "text"),
    "reward_text": ("reward_text", "text_for_reward", "reward_input", "scored_text", "solution_str"),
    "reward": ("reward", "score", "rewards", "total_reward"),
    "shaped_reward": ("shaped_reward", "penalised_reward"),
    "reward_state": ("reward_state",),
    "truth": ("truth", "correct_truth", "is_correct", "true_reward", "gold_reward", "heldout_truth"),
    "advantage": ("advantage", "advantages", "adv"),
    "length": ("length", "completion_length", "response_length", "num_tokens", "n_tokens", "completion_tokens"),
    "prompt_length": ("prompt_length", "prompt_len", "prompt_tokens_count", "num_prompt_tokens"),
    "max_length": ("max_tokens", "max_completion_length", "max_new_tokens", "max_length"),
    "finished": ("finished", "is_finished", "terminated", "ended"),
    "finish_reason": ("finish_reason", "stop_reason", "stop_condition", "status"),
    "policy_version": ("policy_version", "sampling_client_step", "sampler_version", "tail_version", "weights_version"),
    "split": ("split",),
    "token_ids": ("token_ids", "completion_ids", "response_tokens", "response_ids", "output_ids",
    "completion_token_ids"),
    "prompt_ids": ("prompt_token_ids", "prompt_tokens", "prompt_ids", "input_ids"),
    "logprobs": ("logprobs", "trainer_logprobs", "new_logprobs", "policy_logprobs", "current_logprobs"),
    "old_logprobs": ("old_logprobs", "prev_logprobs", "old_log_probs", "old_per_token_logps"),
    "sampler_logprobs": (
        "sampler_logprobs", "rollout_logprobs", "generation_logprobs", "inference_logprobs", "rollout_log_probs",
        "sampling_logprobs", "vllm_logprobs", "sampling_per_token_logps",
    ),
    "ref_logprobs": ("ref_logprobs", "reference_logprobs", "ref_log_probs", "ref_per_token_logps"),
    "mask": ("mask", "loss_mask", "completion_mask", "response_mask", "token_loss_mask"),
    "token_rewards": ("token_rewards", "token_level_scores", "token_level_rewards", "per_token_rewards"),
    "entropy": ("entropy",),
    "kl": ("kl",),
}  # fmt: skip
"""Columns of a rollout row."""

PART_PREFIXES = ("part:", "reward_part:", "rewards/", "reward_parts.", "reward_parts/", "reward/")

CONFIG: dict[str, tuple[str, ...]] = {
    "algorithm": (
        "algorithm", "algo", "trainer", "algorithm.adv_estimator", "adv_estimator", "algo.advantage.estimator",
        "advantage_estimator", "algorithm.name", "method",
    ),
    "group_size": (
        "num_generations", "group_size", "G", "rollout.n", "actor_rollout_ref.rollout.n", "n_samples_per_prompt",
        "rollouts_per_example", "rollouts_per_prompt", "num_samples_per_prompt_rollout", "samples_per_prompt",
        "num_generations_per_prompt", "generator.n_samples_per_prompt", "orchestrator.rollouts_per_example",
        "grpo.num_generations_per_prompt", "rollout.n_samples_per_prompt", "n_samples", "gconfig.n_samples", "n",
    ),
    "batch_size": ("train_batch_size", "data.train_batch_size", "per_device_train_batch_size", "rollout_batch_size",
                   "batch_size"),
    "max_length": (
        "max_completion_length", "max_tokens", "max_new_tokens", "data.max_response_length", "max_response_length",
        "generate_max_len", "response_length", "max_length_completion", "sampling.max_tokens",
    ),
    "beta": (
        "algorithm.kl.coef", "beta", "kl_coef", "init_kl_coef", "actor_rollout_ref.actor.kl_loss_coef", "kl_loss_coef",
        "algorithm.kl_ctrl.kl_coef", "kl_penalty_coef", "algo.kl.init_coef", "kl.beta",
    ),
    "learning_rate": ("learning_rate", "lr", "actor_rollout_ref.actor.optim.lr", "actor_learning_rate", "optim.lr"),
    "clip_low": ("algorithm.surrogate.clip_low", "epsilon", "clip_ratio", "clip_eps", "cliprange", "eps_clip", "clip",
                 "actor_rollout_ref.actor.clip_ratio", "clip_ratio_low"),
    "clip_high": ("algorithm.surrogate.clip_high", "epsilon_high", "clip_ratio_high", "eps_clip_high"),
    "advantage_epsilon": ("advantage_epsilon", "adv_eps", "advantage_eps", "std_epsilon", "norm_eps"),
    "advantage_dtype": ("advantage_dtype", "adv_dtype", "advantages_dtype"),
    "logprob_dtype": ("logprob_dtype", "dtype", "torch_dtype", "precision"),
    "loss_type": ("loss_type", "actor_rollout_ref.actor.loss_agg_mode", "loss_agg_mode", "aggregation"),
    "scale_rewards": ("scale_rewards", "norm_adv_by_std_in_grpo", "algorithm.norm_adv_by_std_in_grpo"),
    "temperature": ("temperature", "actor_rollout_ref.rollout.temperature", "sampling.temperature"),
    "top_p": ("top_p", "actor_rollout_ref.rollout.top_p", "sampling.top_p"),
    "top_k": ("top_k", "actor_rollout_ref.rollout.top_k", "sampling.top_k"),
    "min_p": ("min_p", "sampling.min_p"),
    "repetition_penalty": ("repetition_penalty", "sampling.repetition_penalty"),
    "num_iterations": ("num_iterations", "ppo_epochs", "actor_rollout_ref.actor.ppo_epochs", "mu", "max_epochs"),
    "eos_token_id": ("eos_token_id", "eos_token_ids", "eos_ids", "eos"),
    "pad_token_id": ("pad_token_id", "pad_id", "pad"),
    "bos_token_id": ("bos_token_id", "bos_id", "bos"),
    "eos_token": ("eos_token",),
    "pad_token": ("pad_token",),
    "special_tokens": ("special_tokens", "additional_special_tokens"),
    "heldout_n": ("heldout_n", "eval_n", "n_eval", "num_eval_samples", "eval_samples"),
    "chosen_tokens": ("chosen_tokens",),
    "reference_is_start": ("reference_is_start", "ref_is_start", "reference_start"),
    "reference": ("reference", "ref_model", "ref_model_name", "reference_model"),
    "model": ("model_name", "model", "model_name_or_path", "model.name"),
    "max_steps": ("max_steps", "total_steps", "trainer.total_training_steps", "steps"),
    "gradient_accumulation": ("gradient_accumulation_steps", "grad_accum", "accumulation_steps"),
    "world_size": ("num_gpus", "world_size", "num_processes"),
    "lag_allowed": ("max_off_policy_steps", "max_async_level", "async_level", "max_lag"),
    "reward_weights": ("reward_weights",),
}  # fmt: skip
"""Settings."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", pattern)
    body = "".join(".*" if part == "**" else "[^/]*" if part == "*" else re.escape(part) for part in parts)
    return re.compile(body)


def matches(name: str, pattern: str) -> bool:
    """Whether a logged name is the pattern's."""
    return name == pattern if "*" not in pattern else bool(_compiled(pattern).fullmatch(name))


def find(names: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    """Logged names of one concept, in the table's order of preference."""
    logged = list(names)
    present = set(logged)
    found: list[str] = []
    for pattern in patterns:
        if "*" not in pattern:
            found += [pattern] if pattern in present else []
        else:
            found += [name for name in logged if matches(name, pattern) and name not in found]
    return found


def unknown_metrics(names: Iterable[str]) -> list[str]:
    """Logged names that neither a check needs nor a trainer is known to write."""
    table = [pattern for patterns in METRICS.values() for pattern in patterns]
    table += [*KNOWN_ELSEWHERE, *STEP_NAMES]
    return [name for name in names if not any(matches(name, pattern) for pattern in table)]
