"""The name of a setting in the trainer that made the log, for the sentence that says what to change."""

from __future__ import annotations

SETTINGS: dict[str, dict[str, str]] = {
    "group_size": {
        "trl": "num_generations", "verl": "actor_rollout_ref.rollout.n", "openrlhf": "--rollout.n_samples_per_prompt",
        "prime-rl": "orchestrator.rollouts_per_example", "verifiers": "rollouts_per_example",
        "skyrl": "generator.n_samples_per_prompt", "nemo-rl": "grpo.num_generations_per_prompt",
        "open-instruct": "num_samples_per_prompt_rollout", "areal": "gconfig.n_samples", "tinker": "group_size",
        "assay": "group_size",
    },
    "epsilon": {
        "trl": "the 1e-4 added to the standard deviation in GRPOTrainer", "assay": "advantage_epsilon",
        "verl": "epsilon of compute_grpo_outcome_advantage", "openrlhf": "the 1e-9 of the group_norm estimator",
    },
    "learning_rate": {
        "trl": "learning_rate", "verl": "actor_rollout_ref.actor.optim.lr", "openrlhf": "--actor.learning_rate",
        "prime-rl": "trainer.optim.lr", "assay": "learning_rate",
    },
    "kl": {
        "trl": "beta", "verl": "actor_rollout_ref.actor.kl_loss_coef or algorithm.kl_ctrl.kl_coef",
        "openrlhf": "--algo.kl.init_coef", "assay": "beta",
    },
    "clip": {
        "trl": "epsilon and epsilon_high", "verl": "actor_rollout_ref.actor.clip_ratio", "openrlhf": "--actor.eps_clip",
        "assay": "clip",
    },
    "max_length": {
        "trl": "max_completion_length", "verl": "data.max_response_length", "openrlhf": "--rollout.max_new_tokens",
        "assay": "max_new_tokens", "verifiers": "sampling_args.max_tokens",
    },
    "max_grad_norm": {
        "trl": "max_grad_norm", "verl": "actor_rollout_ref.actor.grad_clip", "openrlhf": "--actor.max_norm",
        "assay": "max_grad_norm",
    },
    "sampling": {
        "trl": "temperature, top_p, top_k, min_p, repetition_penalty", "verl": "actor_rollout_ref.rollout.*",
        "openrlhf": "--rollout.temperature and --rollout.top_p", "assay": "sampling",
    },
    "iterations": {
        "trl": "num_iterations and steps_per_generation", "verl": "actor_rollout_ref.actor.ppo_epochs",
        "openrlhf": "--train.max_epochs", "assay": "epochs",
    },
    "rollouts": {
        "trl": "log_completions=True (and assay.doctor.TRLCallback for the rest)", "verl": "trainer.rollout_data_dir",
        "openrlhf": "a reward_func that writes what it sees", "assay": "rollouts/",
        "open-instruct": "save_traces", "skyrl": "dump_data_batch", "areal": "dump_to_file",
    },
}  # fmt: skip

_PLAIN = {
    "group_size": "the number of completions a prompt", "epsilon": "the epsilon added to the standard deviation",
    "learning_rate": "the learning rate", "kl": "the KL coefficient", "clip": "the clip range",
    "max_length": "the largest completion length", "max_grad_norm": "the gradient clip",
    "sampling": "the sampling settings", "iterations": "the updates made of one batch",
    "rollouts": "the rollouts (text, token ids, log-probs, reward, advantage)",
}  # fmt: skip


def setting(concept: str, source: str) -> str:
    """The setting's name in a trainer, else what it is in plain words."""
    return SETTINGS[concept].get(source, _PLAIN[concept])
