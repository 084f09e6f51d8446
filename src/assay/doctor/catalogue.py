"""Every id of the doctor: what it means, what to do about it, and what must be logged to check it."""

# ruff: noqa: E501 - the table reads best with one sentence a line

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.doctor.settings import setting
from assay.doctor.view import View
from assay.records.finding import Finding, SampleRef, Stage, Status

STAGE_OF: dict[str, Stage] = {
    "reward": 1, "advantage": 2, "logprob": 3, "loss": 4, "decode": 5, "hacking": "hacking", "run": "run",
}  # fmt: skip
STAGE_NAMES: dict[Stage, str] = {
    1: "reward signal", 2: "advantages", 3: "log-probabilities", 4: "loss and gradient",
    5: "generation and decoding", "hacking": "reward against truth", "run": "the run itself",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One id: the sentence of a pass, the repair (``{name}`` is a setting), and the columns it needs."""

    fine: str
    fix: str
    needs: str


CATALOGUE: dict[str, Entry] = {
    "reward.constant": Entry("rewards vary", "Call the reward function on a gold answer and on junk in the very process that trains; it must return two different numbers.", "reward"),
    "reward.unreachable": Entry("the gold answer is paid", "Make the reward pay the gold answer in the form the prompt asks for; until then nothing can be learnt.", "answer column and --reward FILE.py:function"),
    "reward.unrelated_to_truth": Entry("reward and truth go together inside groups", "Compare the reward with the truth on twenty completions by hand; the reward measures something else.", "reward and truth of each rollout, in groups where both vary"),
    "reward.inverted": Entry("right completions are paid more than wrong ones", "Turn the reward's sign (or its comparison) round: right completions are paid less than wrong ones.", "reward and truth of each rollout"),
    "reward.non_finite": Entry("all rewards are finite", "Return a number for every completion: NaN and infinity come from 0/0, log(0) or an empty parse in the reward function.", "reward"),
    "reward.missing": Entry("every completion has a score", "Find out why the reward function returns nothing (a time-out, a dead worker, None); leave such samples out of the group, never count them as 0.", "reward of each rollout, null where there is none"),
    "reward.wrong_shape": Entry("one number a completion", "Return exactly one number for every completion, in their order.", "reward of each rollout as returned"),
    "reward.wrong_text": Entry("the reward saw what was generated", "Log the string handed to the reward beside the completion, and hand over the decoded completion and nothing else.", "completion and reward_text"),
    "reward.component_dominates": Entry("no single part decides the reward", "Lower the weight of the part that decides the sum, or normalise the parts before adding them.", "the parts of the reward (one column or metric each)"),
    "advantage.group_size": Entry("groups are large enough", "Sample at least 4, better 8 or more completions a prompt: set {group_size}.", "group size in the configuration, or prompt_id of each rollout"),
    "advantage.zero_spread_groups": Entry("enough groups have spread", "Drop prompts that are always or never solved (filter on a measured pass rate), mix in others of middling difficulty, or raise {group_size}.", "prompt_id and reward of each rollout, or the share of groups without spread"),
    "advantage.identical_completions": Entry("completions of a prompt differ", "Sample with temperature 1 and a seed that differs within the group ({sampling}): the completions of a prompt are copies.", "prompt_id and completion"),
    "advantage.epsilon": Entry("epsilon is small against the groups' spread", "Set epsilon to about 1e-4 or less, far below the groups' standard deviation: {epsilon}.", "advantage_epsilon in the configuration, or reward and advantage of each rollout"),
    "advantage.dtype": Entry("the advantage arithmetic keeps its digits", "Compute advantages in float32, with an epsilon that the dtype can hold.", "advantage_dtype and advantage_epsilon in the configuration"),
    "advantage.collapsed": Entry("advantages have the size their rewards give", "Recompute one group by hand: (reward - mean) / (std + epsilon); something after it shrinks the result.", "advantage (of each rollout, or its minimum and maximum)"),
    "advantage.inverted": Entry("better completions have larger advantages", "Use reward - baseline, not baseline - reward.", "reward and advantage of each rollout"),
    "advantage.grouping": Entry("each group holds one prompt", "Group by prompt id, not by position: repeat each prompt {group_size} times in a row, or gather by id before the mean is taken.", "prompt_id, reward and advantage of whole groups"),
    "advantage.noise": Entry("float residue is not normalised", "Decide 'no spread' by max - min, and set the advantage of such a group to exactly 0.", "reward and advantage of whole groups"),
    "advantage.mismatch": Entry("a known formula gives the logged advantages", "Compare the advantage code with the formula of its method; state the baseline, ddof and epsilon.", "reward and advantage of whole groups"),
    "advantage.non_finite": Entry("all advantages are finite", "Give a group without spread the advantage 0 instead of dividing by its standard deviation.", "advantage"),
    "logprob.positive": Entry("no log-probability is above 0", "Apply log_softmax over the vocabulary before gathering; what is logged are logits or negated values.", "logprobs or old_logprobs"),
    "logprob.not_normalised": Entry("probabilities sum to 1", "Subtract the log-sum-exp over the whole vocabulary (log_softmax), not the maximum or a part of it.", "logits with token_ids and logprobs"),
    "logprob.shifted": Entry("log-probs stand at their own tokens", "Logits at position t predict token t+1: use logits[:, :-1] with ids[:, 1:], on both sides.", "logits, or trainer and sampler log-probs of the same tokens"),
    "logprob.wrong_axis": Entry("the softmax runs over the vocabulary", "Take log_softmax over the last axis and gather the ids of the same row.", "logits with token_ids and logprobs"),
    "logprob.temperature": Entry("trainer and sampler use one temperature", "Divide the trainer's logits by the sampling temperature, or sample at temperature 1 ({sampling}).", "trainer and sampler log-probs of the same tokens"),
    "logprob.truncated_support": Entry("the sampler keeps the whole vocabulary", "Sample with top_p 1 and top_k off, or renormalise the trainer's log-probs over the kept tokens ({sampling}).", "trainer and sampler log-probs of the same tokens"),
    "logprob.positions": Entry("padding does not change log-probs", "Pass the attention mask and position ids counted from the first real token when padding on the left.", "trainer and sampler log-probs, and the prompts' lengths"),
    "logprob.mask": Entry("only the completion's own tokens count", "Set the mask to 1 exactly on the sampled tokens (the sampled end token included), 0 on prompt, pad and tool text.", "mask and token_ids"),
    "logprob.retokenised": Entry("each id has its log-prob", "Train on the sampled ids: never decode and encode again.", "token_ids and logprobs"),
    "logprob.stale_weights": Entry("the sampler follows the trainer", "Send the new weights to the sampler after every update, and log the version it uses.", "trainer and sampler log-probs over the run, or version numbers"),
    "logprob.sampler_mismatch": Entry("trainer and sampler agree", "Compare both log-probs of one completion before the first update; look at dtype, template, adapters and sampling settings.", "trainer and sampler log-probs of the same tokens"),
    "logprob.negative_kl": Entry("the KL estimate is not negative", "Sample from the policy's own full distribution (no top-k, minimum length, suppressed end token or dropout), or use the estimator exp(d) - d - 1.", "kl"),
    "logprob.reference_not_start": Entry("the policy starts at the reference", "Load the reference from the same weights as the policy, with dropout off in both.", "a reference said to be the start, and kl at the first step"),
    "loss.non_finite": Entry("loss and gradient are finite", "Stop at the first non-finite loss, save that batch, bound log ratios before exp and select with the mask instead of multiplying.", "loss or grad_norm"),
    "loss.no_gradient": Entry("the gradient is not 0", "The loss is cut off from the parameters: look for detach, no_grad, .item() or frozen parameters between log-probs and loss.", "grad_norm, and rewards or advantages with spread"),
    "loss.nothing_trains": Entry("an update changes the policy", "Check that the optimiser holds the parameters the model uses, that its learning rate is not 0 ({learning_rate}), and that the step is called.", "learning_rate, or logprobs after and old_logprobs before the update"),
    "loss.flat": Entry("the loss moves", "Log the gradient norm: a flat loss alone says little.", "loss (where neither gradients nor weights are logged)"),
    "loss.exploding": Entry("the gradient norm stays bounded", "Clip the gradient ({max_grad_norm}), lower {learning_rate}, and look at the batch of the first spike.", "grad_norm"),
    "loss.step_too_large": Entry("no update wrecks the policy", "Lower {learning_rate} (by 10 to begin with) or the number of updates of one batch ({iterations}), and go back to the checkpoint before the jump.", "kl, policy_kl or entropy by step"),
    "loss.inverted": Entry("training does not lower the reward", "Minimise the negative of advantage x log-prob: the update makes good completions less likely.", "reward by step"),
    "loss.kl_dominates": Entry("the KL term leaves room to learn", "Lower the KL coefficient: {kl}.", "kl and its coefficient"),
    "loss.kl_negligible": Entry("the KL term has weight", "Raise {kl}, or set it to 0 and save the reference model.", "kl, its coefficient and the policy loss"),
    "loss.clip_saturated": Entry("few tokens are clipped", "Recompute the old log-probs for the batch that is trained on, make fewer updates of one batch ({iterations}), or lower {learning_rate}; then look at {clip}.", "clip fraction, or logprobs and old_logprobs"),
    "loss.normalisation": Entry("the loss does not depend on the split", "Divide by one global token count of the optimiser step, not by each micro-batch's own.", "loss of the same batch under two splits (loss_micro and loss_whole), or check_loss on the function"),
    "loss.length_bias": Entry("wrong answers do not grow", "Use a token-level mean over the whole batch (or a constant divisor) instead of each completion's own mean.", "length, reward and truth of each rollout"),
    "loss.reward_position": Entry("the score sits on the last real token", "Put the score on the last real token (the end token), not on the first pad.", "token_rewards with mask"),
    "loss.likelihood_displacement": Entry("the chosen answers stay likely", "Not a sign error: only the margin has to grow. If samples get worse, lower {learning_rate}, raise beta, or add an SFT term on the chosen answers.", "log-probs of chosen and rejected answers"),
    "decode.prompt_in_text": Entry("the prompt is not in the reward's text", "Cut the prompt's ids off before decoding: decode only the completion's ids.", "completion and reward_text"),
    "decode.padding_in_text": Entry("no padding in the reward's text", "Cut each row at its own length before decoding.", "completion and reward_text"),
    "decode.special_tokens": Entry("special tokens are handled as the reward needs", "Remove end and pad marks only: decode with skip_special_tokens=False and strip those, so that the tags that the reward reads survive.", "completion and reward_text"),
    "decode.content_stripped": Entry("nothing else is lost on the way to the reward", "Mend the branch of the decoding function that loses text; keep the other branches.", "completion and reward_text"),
    "decode.prefilled": Entry("the template prefills nothing the reward wants", "Score the prefill together with the completion, or let the reward accept a text that starts after the tag.", "prompt, completion and reward"),
    "decode.no_eos": Entry("completions end", "Check the chat template, the set of end-token ids and that the sampler stops at them; train on the sampled end token; if answers simply need more room, raise {max_length}.", "finished or finish_reason, or the share of truncated completions"),
    "decode.truncated": Entry("few completions are cut", "Raise {max_length}, or leave cut completions out of the loss.", "finished or finish_reason, or the share of truncated completions"),
    "decode.double_bos": Entry("no prompt starts with two start tokens", "Encode templated text with add_special_tokens=False.", "prompt ids (and bos_token_id), or prompts with their special tokens"),
    "decode.empty": Entry("completions are not empty", "Look at the first sampled token: an end token at once means a wrong template or a suppressed start.", "completion or length"),
    "decode.repetition": Entry("completions do not loop", "Look at temperature, repetition and the start model; loops early in a run come from sampling or a wrong template, late ones from training.", "completion"),
    "decode.sampling_settings": Entry("the sampler uses what was asked for", "Set temperature, top_p, top_k, min_p and repetition_penalty explicitly ({sampling}): the model's own file sets others.", "effective sampling settings (generation_config) in the configuration"),
    "hacking.reward_without_truth": Entry("truth follows reward", "Stop training on this reward: look at the samples that are paid and not true, close that hole, and go on from the checkpoint before the onset.", "held-out truth over the run"),
    "hacking.overoptimisation": Entry("truth does not fall", "Take the checkpoint with the best truth; strengthen the KL term ({kl}) or the reward before going on.", "held-out truth over the run"),
    "hacking.length": Entry("reward does not buy length", "Take length out of the reward, or compare completions at equal length.", "length, reward and truth"),
    "hacking.entropy_collapse": Entry("the policy keeps some entropy", "Lower {learning_rate}, add an entropy bonus or a KL term ({kl}), or raise the upper clip bound.", "entropy"),
    "hacking.evaluation_leak": Entry("training and evaluation prompts differ", "Take the evaluation prompts out of the training data and evaluate again.", "prompts of training and of evaluation"),
    "run.resume": Entry("no step was replayed", "Save and restore the data position, the scheduler and the random state with the weights.", "steps in order, with prompts, completions or learning rate"),
    "run.data": Entry("the logs agree", "Check which run each file belongs to; numbers below mean nothing until the logs agree.", "metrics and rollouts of the same steps"),
}  # fmt: skip


def finding(
    view: View,
    id: str,
    status: Status,
    summary: str,
    evidence: Mapping[str, Any] | None = None,
    samples: Sequence[SampleRef] = (),
    fix: str | None = None,
) -> Finding:
    """One finding with its repair in the words of the trainer that made the log."""
    entry = CATALOGUE[id]
    repair = entry.fix.format_map(_Settings(view.run.source)) if fix is None else fix
    wanted = status in ("fail", "warn")
    return Finding(
        id=id,
        stage=STAGE_OF[id.partition(".")[0]],
        status=status,
        summary=summary,
        evidence=evidence or {},
        samples=tuple(samples),
        fix=repair if wanted else "",
        regression_test=REGRESSION.get(id) if wanted else None,
    )


def fail(
    view: View,
    id: str,
    summary: str,
    evidence: Mapping[str, Any] | None = None,
    samples: Sequence[SampleRef] = (),
) -> Finding:
    """The fault is there."""
    return finding(view, id, "fail", summary, evidence, samples)


def warn(
    view: View,
    id: str,
    summary: str,
    evidence: Mapping[str, Any] | None = None,
    samples: Sequence[SampleRef] = (),
) -> Finding:
    """Something that may be a fault, or one that does little harm."""
    return finding(view, id, "warn", summary, evidence, samples)


def fine(view: View, id: str, evidence: Mapping[str, Any] | None = None) -> Finding:
    """The check ran and found nothing."""
    return finding(view, id, "pass", CATALOGUE[id].fine, evidence)


def skip(id: str, needs: str | None = None) -> Finding:
    """The check could not run; says what to log."""
    wanted = needs or CATALOGUE[id].needs
    return Finding(
        id=id,
        stage=STAGE_OF[id.partition(".")[0]],
        status="skip",
        summary=f"not checked: needs {wanted}",
        needs=wanted,
    )


class _Settings(dict[str, str]):
    def __init__(self, source: str) -> None:
        self.source = source

    def __missing__(self, key: str) -> str:
        return setting(key, self.source)


def _contract(check: str, thing: str) -> str:
    return (
        f"from assay.doctor import {check}\n\nfrom my_trainer import {thing}\n\n\n"
        f"def test_{thing}():\n    assert not {check}({thing})\n"
    )


REGRESSION: dict[str, str] = {
    **dict.fromkeys(
        ("advantage.epsilon", "advantage.dtype", "advantage.collapsed", "advantage.inverted", "advantage.grouping",
         "advantage.noise", "advantage.mismatch", "advantage.non_finite"),
        _contract("check_advantages", "compute_advantages"),
    ),
    **dict.fromkeys(
        ("logprob.positive", "logprob.not_normalised", "logprob.shifted", "logprob.wrong_axis", "logprob.temperature"),
        _contract("check_logprobs", "compute_logprobs"),
    ),
    **dict.fromkeys(
        ("loss.non_finite", "loss.no_gradient", "loss.inverted", "loss.normalisation", "loss.length_bias"),
        _contract("check_loss", "policy_loss"),
    ),
    **dict.fromkeys(
        ("decode.prompt_in_text", "decode.padding_in_text", "decode.special_tokens", "decode.content_stripped",
         "decode.empty"),
        _contract("check_decode", "decode_completion"),
    ),
    **dict.fromkeys(
        ("reward.constant", "reward.inverted", "reward.non_finite", "reward.missing", "reward.wrong_shape",
         "reward.unreachable"),
        _contract("check_reward", "reward"),
    ),
}  # fmt: skip
