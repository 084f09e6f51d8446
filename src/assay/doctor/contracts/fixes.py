"""What to change in a function, by the id that names its fault."""

from __future__ import annotations

from collections.abc import Mapping

FIXES: Mapping[str, str] = {
    "advantage.collapsed": (
        "return (reward - group mean) / (group std + epsilon); something scales it to nothing"
    ),
    "advantage.dtype": "compute advantages in float32 and add an epsilon that this dtype can represent",
    "advantage.epsilon": (
        "replace the epsilon by one far below the groups' spread, such as 1e-6; keep the term"
    ),
    "advantage.group_size": "use an estimator that is defined for two completions, or refuse such groups",
    "advantage.grouping": (
        "take mean and std over the completions of one prompt only (the last axis of (P, G)); a function that "
        "is called with one group at a time says so: annotate `rewards: list[float]`"
    ),
    "advantage.inverted": "subtract the group mean from the reward, not the reward from the mean",
    "advantage.mismatch": (
        "use one of: reward - mean; (reward - mean) / (std + epsilon), ddof 0 or 1; leave-one-out"
    ),
    "advantage.noise": "use the centred variance and decide 'no spread' by max - min, then return exactly 0",
    "advantage.non_finite": (
        "guard the division: a group without spread has advantage 0; leave missing scores out"
    ),
    "advantage.zero_spread_groups": "a group without spread teaches nothing: return 0 for all of it",
    "logprob.positive": (
        "take log_softmax over the vocabulary, then gather the token; a log-prob is at most 0"
    ),
    "logprob.not_normalised": "subtract the logsumexp over the whole vocabulary (use log_softmax)",
    "logprob.shifted": "logits[t] must meet ids[t] here; shift both sides once, before the call, or neither",
    "logprob.wrong_axis": "take log_softmax and gather over the last axis (the vocabulary), index by ids",
    "logprob.temperature": (
        "divide the logits by the temperature that sampled the tokens, 1 unless it was set"
    ),
    "logprob.truncated_support": "normalise over the whole vocabulary: no top-k, top-p or min-p when scoring",
    "logprob.positions": "a row's log-probs must not depend on the other rows or on padding",
    "logprob.mask": "select the completion's tokens with the mask before summing",
    "loss.inverted": "the loss is minus the objective: a good completion's log-prob must rise",
    "loss.no_gradient": "keep the policy's log-probs attached to the graph: no detach, no .item(), no numpy",
    "loss.non_finite": (
        "select the live tokens first and bound the log ratio before exp; never multiply by a mask"
    ),
    "loss.normalisation": "divide once, by the number of live tokens (or sequences) of the optimiser step",
    "loss.clip_saturated": (
        "take the minimum of ratio * A and clip(ratio) * A, with bounds around a ratio of 1"
    ),
    "loss.step_too_large": (
        "bound the update: once the ratio left the clip range on its good side, no gradient"
    ),
    "loss.length_bias": "weigh tokens alike, or by one over their own sequence's length; nothing else",
    "loss.kl_dominates": (
        "lower the KL coefficient until its gradient is below the policy's at a drift of 0.1"
    ),
    "decode.content_stripped": (
        "mend the branch that loses the content; leave the other branches as they are"
    ),
    "decode.empty": "return the text itself where no marker is found",
    "decode.padding_in_text": "cut the padding tokens before the text reaches the reward",
    "decode.prompt_in_text": "pass only the completion's part to the reward",
    "decode.special_tokens": "cut the end and pad marks, and only those, before scoring",
    "reward.constant": "make the reward tell a right answer from a wrong one; print what it parses",
    "reward.inverted": "swap the branches or the sign: the right answer must score above a wrong one",
    "reward.missing": "return a number for every completion that can be read; 0 for one that cannot",
    "reward.non_finite": "guard the division or the logarithm; return a finite number for every text",
    "reward.unreachable": "score the gold answer with the reward before training: it must get the top score",
    "reward.unrelated_to_truth": (
        "the score must depend on the answer: compare the parsed answer with the gold"
    ),
    "reward.wrong_shape": "return one number per completion, in their order",
    "not_deterministic": "score the same text alike every time: seed or remove the randomness",
    "side_effects": "copy what you change: the trainer passes its own objects",
    "state_leak": "score a completion alone: no cache or counter that other completions change",
}
