"""Kinds of runs: each fault is one change of the world, named by the ids that name it; shapes are healthy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.doctor.simulate import parts
from assay.doctor.simulate.tokenizer import ID, START, THINK
from assay.records.finding import Stage


@dataclass(frozen=True, slots=True)
class Kind:
    """One planted fault.

    Attributes:
        ids: any one of these names it. stage: where it sits. truth: one sentence.
        change: fields of the world. also: ids that are true beside it.
    """

    ids: tuple[str, ...]
    stage: Stage
    truth: str
    change: Mapping[str, Any] = field(default_factory=dict[str, Any])
    also: tuple[str, ...] = ()


_FLAT = ("advantage.zero_spread_groups", "advantage.collapsed", "loss.no_gradient", "loss.flat")
_WRONG = ("reward.unrelated_to_truth", "reward.wrong_text", "hacking.reward_without_truth")
_GAP = ("logprob.sampler_mismatch", "loss.clip_saturated", "logprob.negative_kl", "logprob.not_normalised")

REWARD_FAULTS: Mapping[str, Kind] = {
    "reward_constant": Kind(
        ("reward.constant", "reward.unreachable"), 1, "the verifier pays a form that nobody writes",
        {"reward": parts.always_zero}, ("reward.unrelated_to_truth", *_FLAT),
    ),
    "reward_unreachable": Kind(
        ("reward.unreachable", "reward.unrelated_to_truth"), 1, "style earns 0.2, the right answer nothing",
        {"reward": parts.unreachable}, ("hacking.length",),
    ),
    "reward_unrelated": Kind(
        ("reward.unrelated_to_truth",), 1, "the score is a hash of the text", {"reward": parts.unrelated},
        ("hacking.reward_without_truth",),
    ),
    "reward_inverted": Kind(
        ("reward.inverted",), 1, "wrong answers are paid, right ones are not", {"reward": parts.inverted},
        ("hacking.reward_without_truth", "hacking.overoptimisation"),
    ),
    "reward_not_finite": Kind(
        ("reward.non_finite",), 1, "0 / 0 where the completion has no box",
        {"reward": parts.not_a_number, "form": 1.8}, ("advantage.non_finite", "loss.non_finite"),
    ),
    "reward_missing": Kind(
        ("reward.missing",), 1, "six calls of ten to the verifier give nothing",
        {"reward": parts.service_down},
        ("advantage.zero_spread_groups", "advantage.mismatch"),
    ),
    "reward_wrong_text": Kind(
        ("reward.wrong_text",), 1, "each completion is scored on its neighbour's text", {"shift_texts": True},
        ("reward.unrelated_to_truth",),
    ),
    "component_dominates": Kind(
        ("reward.component_dominates",), 1, "a style judge of scale 1.5 beside a correctness of 0.05",
        {"reward": parts.style_dominates}, ("reward.unrelated_to_truth",),
    ),
}  # fmt: skip

ADVANTAGE_FAULTS: Mapping[str, Kind] = {
    "group_of_one": Kind(
        ("advantage.group_size",), 2, "one completion a prompt: reward minus its own mean",
        {"group": 1, "prompts": 64}, ("reward.constant", *_FLAT),
    ),
    "group_of_two": Kind(
        ("advantage.group_size",), 2, "two completions of hard prompts: most groups are empty",
        {"group": 2, "prompts": 48, "skill": -2.6}, ("advantage.zero_spread_groups",),
    ),
    "no_spread": Kind(
        ("advantage.zero_spread_groups",), 2, "nine prompts of ten are always or never solved",
        {"easy": 0.96},
    ),
    "identical_completions": Kind(
        ("advantage.identical_completions",), 2, "greedy sampling: one text for the whole group",
        {"same": True},
        (*_FLAT, "advantage.zero_spread_groups"),
    ),
    "epsilon_too_large": Kind(
        ("advantage.epsilon",), 2, "the divisor is std + 10", {"epsilon": 10.0},
        ("advantage.collapsed", "advantage.mismatch"),
    ),
    "half_precision": Kind(
        ("advantage.dtype",), 2, "scores around 2,000 in float16 with an epsilon of 1e-8",
        {"reward": parts.around_thousand, "advantage": parts.in_half_precision, "dtype": "float16",
        "epsilon": 1e-8},
        ("advantage.non_finite", "advantage.mismatch", "advantage.collapsed", "loss.non_finite"),
    ),
    "advantages_collapsed": Kind(
        ("advantage.collapsed",), 2, "divided once more by 65,536", {"advantage": parts.divided_again},
        ("advantage.mismatch", "loss.flat"),
    ),
    "advantages_inverted": Kind(
        ("advantage.inverted",), 2, "mean minus reward",
        {"advantage": parts.flipped}, ("advantage.mismatch",),
    ),
    "groups_interleaved": Kind(
        ("advantage.grouping",), 2, "a, b, a, b is reshaped as a, a, b, b", {"advantage": parts.interleaved},
        ("advantage.mismatch",),
    ),
    "residue_as_signal": Kind(
        ("advantage.noise",), 2, "the variance of equal scores is what rounding leaves, and it divides",
        {"reward": parts.saturated, "advantage": parts.residue, "skill": 1.2},
        ("advantage.mismatch", "advantage.zero_spread_groups", "reward.unrelated_to_truth",
        "advantage.dtype", "loss.step_too_large"),
    ),
    "other_formula": Kind(
        ("advantage.mismatch",), 2, "divided by the variance", {"advantage": parts.by_variance},
    ),
    "no_guard": Kind(
        ("advantage.non_finite", "advantage.dtype"), 2, "0 / 0 in every group without spread",
        {"advantage": parts.without_guard, "epsilon": 0.0}, ("loss.non_finite",),
    ),
}  # fmt: skip

LOGPROB_FAULTS: Mapping[str, Kind] = {
    "raw_logits": Kind(
        ("logprob.positive",), 3, "the log-softmax is missing",
        {"trainer_score": parts.raw_logits, "keep_logits": True}, _GAP,
    ),
    "not_normalised": Kind(
        ("logprob.not_normalised",), 3, "only the largest logit is subtracted",
        {"trainer_score": parts.minus_max, "keep_logits": True}, _GAP,
    ),
    "shifted_by_one": Kind(
        ("logprob.shifted",), 3, "the trainer reads the logits one position late",
        {"trainer_score": parts.one_late, "keep_logits": True}, _GAP,
    ),
    "wrong_axis": Kind(
        ("logprob.wrong_axis",), 3, "the softmax runs over the positions",
        {"trainer_score": parts.over_time, "keep_logits": True}, _GAP,
    ),
    "trainer_temperature": Kind(
        ("logprob.temperature",), 3, "the trainer divides the logits by 1.6, the sampler does not",
        {"trainer_score": parts.hot, "keep_logits": True}, _GAP,
    ),
    "sampler_temperature": Kind(
        ("logprob.temperature",), 3, "sampled and reported at 0.6, trained at 1",
        {"temperature": 0.6, "keep_logits": True}, _GAP,
    ),
    "truncated_support": Kind(
        ("logprob.truncated_support",), 3, "sampled and reported with top-p 0.7, trained on all tokens",
        {"top_p": 0.7, "keep_logits": True}, _GAP,
    ),
    "stale_sampler": Kind(
        ("logprob.stale_weights",), 3, "the sampler keeps the weights of the first step",
        {"stale": True, "learning_rate": 0.05}, ("logprob.sampler_mismatch", "logprob.negative_kl"),
    ),
    "sampler_mismatch": Kind(
        ("logprob.sampler_mismatch",), 3, "another kernel: half a nat of noise on every token",
        {"noise": 0.5},
    ),
    "retokenised": Kind(
        ("logprob.retokenised",), 3, "the text is encoded again: other ids for the same log-probs",
        {"respell": True, "whole": True},
    ),
    "mask_covers_padding": Kind(
        ("logprob.mask",), 3, "the mask is 1 on every pad token", {"mask_everything": True, "length": 30.0},
    ),
    "pads_are_counted": Kind(
        ("logprob.positions",), 3, "positions count the padding on the left: padded rows get other log-probs",
        {"wordy": True, "count_pads": True}, _GAP,
    ),
    "negative_kl": Kind(
        ("logprob.negative_kl",), 3, "the sampler never writes words that training raises", {"suppressed": True},
        ("logprob.truncated_support",),
    ),
    "reference_is_another": Kind(
        ("logprob.reference_not_start",), 3, "the reference is another model than the one that starts",
        {"start_is_other": True, "config": {"ref_model": "same as the start"}},
        ("loss.kl_dominates",),
    ),
}  # fmt: skip

LOSS_FAULTS: Mapping[str, Kind] = {
    "loss_not_finite": Kind(
        ("loss.non_finite",), 4, "a masked token overflows at step 90 and ruins the weights",
        {"nan_from": 90},
        ("decode.repetition", "decode.no_eos", "decode.truncated", "hacking.entropy_collapse"),
    ),
    "no_gradient": Kind(
        ("loss.no_gradient",), 4, "the log-probs are detached", {"detached": True},
        ("loss.nothing_trains", "loss.flat"),
    ),
    "nothing_trains": Kind(
        ("loss.nothing_trains",), 4, "the optimiser holds a copy of the parameters", {"frozen": True},
        ("loss.flat",),
    ),
    "exploding": Kind(
        ("loss.exploding",), 4, "the gradient norm grows by 18% a step from step 80", {"explode_from": 80},
        ("loss.step_too_large", "hacking.entropy_collapse"),
    ),
    "step_too_large": Kind(
        ("loss.step_too_large",), 4, "a learning rate 100 times too high wrecks the policy",
        {"learning_rate": 2.5, "logged_rate": 1e-4},
        ("hacking.entropy_collapse", "loss.exploding", "advantage.zero_spread_groups", "loss.kl_dominates"),
    ),
    "loss_inverted": Kind(
        ("loss.inverted",), 4, "the objective is minimised", {"sign": -1.0},
    ),
    "kl_dominates": Kind(
        ("loss.kl_dominates",), 4, "beta 20 to a reference far away", {"beta": 20.0, "start_is_other": True},
        ("logprob.reference_not_start",),
    ),
    "kl_negligible": Kind(
        ("loss.kl_negligible",), 4, "a coefficient of 1e-7 beside a policy that runs away",
        {"beta": 1e-7, "learning_rate": 0.12, "steps": 300},
    ),
    "micro_batches_alone": Kind(
        ("loss.normalisation",), 4, "each of four micro-batches divides by its own tokens",
        {"micro_batches": 4, "one_denominator": False, "logged_groups": 16, "length_spread": 0.6},
    ),
    "own_length": Kind(
        ("loss.length_bias",), 4, "each completion's loss is divided by its own length: long errors cost less",
        {"own_length": True, "max_length": 2000, "config": {"loss_type": "grpo"}},
    ),
    "score_on_padding": Kind(
        ("loss.reward_position",), 4, "the score sits on the first pad token", {"score_at": 1},
    ),
    "both_fall": Kind(
        ("loss.likelihood_displacement",), 4, "chosen and rejected answers fall together, the margin grows",
        {"overlap": 1.5},
    ),
    "clip_saturated": Kind(
        ("loss.clip_saturated",), 4, "the old log-probs are those of another model", {"old_is_other": True},
        ("logprob.stale_weights", "logprob.sampler_mismatch"),
    ),
}  # fmt: skip

DECODE_FAULTS: Mapping[str, Kind] = {
    "prompt_in_text": Kind(
        ("decode.prompt_in_text",), 5, "the reward is called on prompt and completion",
        {"decode": parts.prompt_too},
        ("reward.wrong_text", "decode.special_tokens"),
    ),
    "padding_in_text": Kind(
        ("decode.padding_in_text",), 5, "the reward is called on the padded row",
        {"decode": parts.padding_too},
        ("reward.wrong_text", "decode.special_tokens"),
    ),
    "tags_removed": Kind(
        ("decode.special_tokens",), 5, "the answer's tags are special tokens and are removed",
        {"decode": parts.no_special, "tags": "ans", "reward": parts.in_tags, "form": 9.0},
        ("reward.constant", "reward.unreachable", "decode.content_stripped", *_FLAT, *_WRONG),
    ),
    "text_cut": Kind(
        ("decode.content_stripped",), 5, "the text is cut at the first backslash, where the box begins",
        {"decode": parts.cut_at_backslash},
        ("reward.constant", "reward.unreachable", *_FLAT, *_WRONG),
    ),
    "last_character_lost": Kind(
        ("decode.content_stripped",), 5, "find() gives -1 and the tag's last character goes",
        {"decode": parts.last_character_lost, "tags": "ans", "reward": parts.in_tags, "form": 9.0},
        ("reward.constant", "reward.unreachable", "decode.special_tokens", *_FLAT, *_WRONG),
    ),
    "prefilled": Kind(
        ("decode.prefilled",), 5, "the template ends with the tag that the reward wants in the completion",
        {"reward": parts.thinks, "prompt_tail": f"\n{THINK}"},
        ("reward.constant", "reward.unreachable", "reward.unrelated_to_truth", *_FLAT),
    ),
    "never_ends": Kind(
        ("decode.no_eos", "decode.truncated"), 5, "no completion ever ends",
        {"ending": 0.0}, ("reward.constant", "reward.unreachable", *_FLAT, "reward.unrelated_to_truth"),
    ),
    "cap_too_short": Kind(
        ("decode.truncated",), 5, "the cap cuts nine completions of ten",
        {"max_length": 28, "length_spread": 0.25},
        ("advantage.zero_spread_groups",),
    ),
    "two_starts": Kind(
        ("decode.double_bos",), 5, "the template writes a start token and the tokenizer adds another",
        {"starts": 2, "config": {"bos_token_id": ID[START]}, "skill": -1.1},
    ),
    "inherited_sampling": Kind(
        ("decode.sampling_settings",), 5, "the model's own file sets temperature and top-p for the sampler",
        {"temperature": 0.7, "top_p": 0.8,
        "config": {"generation_config": {"temperature": 0.7, "top_p": 0.8, "top_k": 0}}},
        ("logprob.temperature", "logprob.truncated_support", *_GAP),
    ),
    "empty_completions": Kind(
        ("decode.empty",), 5, "six completions of ten are empty", {"blank": 0.6},
        ("advantage.zero_spread_groups",),
    ),
    "loops": Kind(
        ("decode.repetition",), 5, "seven completions of ten repeat one phrase to the cap", {"loops": 0.7},
        ("decode.truncated", "decode.no_eos", "advantage.zero_spread_groups"),
    ),
}  # fmt: skip

HACKING_FAULTS: Mapping[str, Kind] = {
    "hack_marker": Kind(
        ("hacking.reward_without_truth", "hacking.overoptimisation"), "hacking",
        "the verifier pays anything that says OK",
        {"reward": parts.accepts_marker, "hack": -2.0, "hack_cost": 0.5, "skill": -1.6},
        ("reward.unrelated_to_truth", "advantage.zero_spread_groups"),
    ),
    "overoptimised": Kind(
        ("hacking.overoptimisation",), "hacking", "the exploit costs the truth",
        {"reward": parts.accepts_marker, "hack": -1.6, "hack_cost": 1.0, "skill": 0.0, "learning_rate": 0.04},
        ("hacking.reward_without_truth", "reward.unrelated_to_truth", "advantage.zero_spread_groups"),
    ),
    "hack_length": Kind(
        ("hacking.length",), "hacking", "a point for every 40 tokens",
        {"reward": parts.pays_length, "learning_rate": 0.03, "max_length": 400},
        ("hacking.reward_without_truth", "hacking.overoptimisation", "reward.component_dominates",
         "reward.unrelated_to_truth", "decode.truncated"),
    ),
    "evaluation_leak": Kind(
        ("hacking.evaluation_leak",), "hacking", "a third of the evaluation's prompts are trained on",
        {"shared": 0.35, "pool": 48},
    ),
    "entropy_collapse": Kind(
        ("hacking.entropy_collapse", "hacking.overoptimisation"), "hacking",
        "the policy sharpens to a few texts, and truth goes with the words it loses",
        {"sharpen": 1.3, "reward": parts.accepts_marker, "hack": -1.5, "hack_cost": 0.3},
        ("hacking.reward_without_truth", "advantage.zero_spread_groups", "reward.unrelated_to_truth"),
    ),
}  # fmt: skip

RUN_FAULTS: Mapping[str, Kind] = {
    "data_replayed": Kind(
        ("run.resume",), "run", "after step 96 the data and random numbers of step 49 come again",
        {"replay_at": 96},
    ),
    "other_metrics": Kind(
        ("run.data",), "run", "the metrics are another run's than the rollouts", {"other_log": True},
    ),
}  # fmt: skip

FAULTS: Mapping[str, Kind] = {
    **REWARD_FAULTS,
    **ADVANTAGE_FAULTS,
    **LOGPROB_FAULTS,
    **LOSS_FAULTS,
    **DECODE_FAULTS,
    **HACKING_FAULTS,
    **RUN_FAULTS,
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "noisy_verifier": {"reward": parts.noisy},
    "short": {"steps": 60, "learning_rate": 0.06},
    "very_short": {"steps": 25, "learning_rate": 0.1, "log_every": 8},
    "saturating": {"skill": 0.4, "learning_rate": 0.05},
    "plateau": {"skill": 0.2, "learning_rate": 0.008},
    "late": {"skill": -2.4, "learning_rate": 0.03, "steps": 300, "group": 16},
    "longer_and_better": {"longer_helps": 2.0, "length": 44.0, "max_length": 400, "beta": 0.0},
    "sparse": {"skill": -2.6, "difficulty": 1.6, "group": 16, "learning_rate": 0.05},
    "dense": {"reward": parts.dense},
    "partial_credit": {"reward": parts.partial},
    "two_parts": {"reward": parts.with_format},
    "negative_scale": {"reward": parts.negative},
    "signed_scale": {"reward": parts.signed},
    "group_4": {"group": 4, "prompts": 32},
    "group_16": {"group": 16, "prompts": 8},
    "group_32": {"group": 32, "prompts": 8, "logged_groups": 3},
    "group_64": {"group": 64, "prompts": 4, "logged_groups": 2},
    "no_kl": {"beta": 0.0},
    "small_kl": {"beta": 0.001},
    "strong_kl": {"beta": 0.4},
    "off_policy": {"updates": 4},
    "dynamic_sampling": {"refill": True, "clip": 0.25, "beta": 0.0},
    "bfloat16": {"noise": 0.02},
    "bfloat16_clean": {"noise": 0.008},
    "mean_only": {"normalised": False, "learning_rate": 0.06},
    "unbiased_std": {"ddof": 1, "epsilon": 1e-6},
    "easy_prompts": {"skill": 1.2, "difficulty": 0.8, "learning_rate": 0.03},
    "tags": {"tags": "ans", "reward": parts.in_tags},
    "mostly_finished": {"max_length": 70},
    "with_logits": {"keep_logits": True},
    "whole_completions": {"whole": True},
    "wide_prompts": {"difficulty": 2.2},
    "unequal_prompts": {"wordy": True, "starts": 1, "config": {"bos_token_id": ID[START]}},
    "accumulated": {"micro_batches": 4, "logged_groups": 16},
    "token_rewards": {"score_at": 0},
    "evaluated": {"shared": 0.0},
    "preferences": {"overlap": 0.0},
}
"""Healthy runs, by what is unusual about them."""
