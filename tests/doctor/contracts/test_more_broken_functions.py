"""Thirty more functions with one fault each, of other kinds, and their repairs; written apart from the checks."""

import re

import numpy as np
import pytest

from assay.doctor import check_advantages, check_decode, check_logprobs, check_loss, check_reward

torch = pytest.importorskip("torch")
F = torch.nn.functional


# advantages -----------------------------------------------------------------------------------------


def sound(rewards):
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return centred / (rewards.std(axis=1, keepdims=True) + 1e-6)


def mean_of_everything(rewards):
    rewards = np.asarray(rewards)
    return rewards - np.mean(rewards)


def loop_with_one_mean(rewards, group_size):
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def loop_by_group(rewards, group_size):
    out = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        out += [reward - sum(group) / len(group) for reward in group]
    return out


def running_baseline(rewards):
    out, baseline = np.zeros_like(rewards), 0.0
    for i, group in enumerate(rewards):
        out[i] = group - baseline
        baseline = 0.9 * baseline + 0.1 * group.mean()
    return out


def only_the_good_ones(rewards):
    return np.maximum(sound(rewards), 0.0)


def std_of_the_column(rewards):
    return (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=0, keepdims=True) + 1e-6)


def truncated_to_integers(rewards):
    return sound(rewards).astype(int)


ADVANTAGES = [
    (mean_of_everything, sound, "advantage.grouping"),
    (loop_with_one_mean, loop_by_group, "advantage.grouping"),
    (running_baseline, sound, "advantage.mismatch"),
    (only_the_good_ones, sound, "advantage.mismatch"),
    (std_of_the_column, sound, "advantage.mismatch"),
    (truncated_to_integers, sound, "advantage.mismatch"),
]


# log-probs ------------------------------------------------------------------------------------------


def pick(values, ids):
    return values.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def log_probs(logits, ids):
    return pick(logits.log_softmax(-1), ids)


def smoothed(logits, ids):
    flat = logits.reshape(-1, logits.shape[-1])
    return -F.cross_entropy(flat, ids.reshape(-1), reduction="none", label_smoothing=0.1).view(ids.shape)


def rows_for_columns(logits, ids):
    b, t, v = logits.shape
    return pick(logits.log_softmax(-1).reshape(t, b, v).transpose(0, 1), ids)


def summed_along(logits, ids):
    return log_probs(logits, ids).cumsum(-1)


def of_the_best_four(logits, ids):
    least = logits.topk(4, -1).values[..., -1:]
    return pick(logits.masked_fill(logits < least, -1e4).log_softmax(-1), ids)


def overflowing(logits, ids):
    powers = torch.exp(logits)
    return torch.log(pick(powers, ids) / powers.sum(-1))


def bounded_below(logits, ids):
    return log_probs(logits, ids).clamp(min=-2.0)


LOGPROBS = [
    (smoothed, log_probs, "logprob.not_normalised"),
    (rows_for_columns, log_probs, "logprob.wrong_axis"),
    (summed_along, log_probs, "logprob.not_normalised"),
    (of_the_best_four, log_probs, "logprob.truncated_support"),
    (overflowing, log_probs, "logprob.not_normalised"),
    (bounded_below, log_probs, "logprob.not_normalised"),
]


# losses ---------------------------------------------------------------------------------------------


def clipped(logp, old_logp, advantages, mask, best=torch.min):
    logp, old_logp = (torch.where(mask > 0, x, torch.zeros_like(x)) for x in (logp, old_logp))
    ratio, a = torch.exp((logp - old_logp).clamp(-20, 20)), advantages.unsqueeze(1)
    return best(ratio * a, ratio.clamp(0.8, 1.2) * a) * mask


def loss(logp, old_logp, advantages, mask):
    return -clipped(logp, old_logp, advantages, mask).sum() / mask.sum()


def the_larger_of_both(logp, old_logp, advantages, mask):
    return -clipped(logp, old_logp, advantages, mask, best=torch.max).sum() / mask.sum()


def the_first_token_only(logp, old_logp, advantages, mask):
    return -clipped(logp, old_logp, advantages, mask)[:, 0].mean()


def one_advantage_for_all(logp, old_logp, advantages, mask):
    return loss(logp, old_logp, advantages.mean().expand_as(advantages), mask)


def of_another_row(logp, old_logp, advantages, mask):
    return loss(logp, old_logp, torch.roll(advantages, 1, 0), mask)


def divided_twice(logp, old_logp, advantages, mask):
    return loss(logp, old_logp, advantages, mask) / logp.shape[0]


def by_the_root_of_the_length(logp, old_logp, advantages, mask):
    return -(clipped(logp, old_logp, advantages, mask).sum(1) / mask.sum(1).sqrt()).mean()


LOSSES = [
    (the_larger_of_both, loss, "loss.clip_saturated"),
    (the_first_token_only, loss, "logprob.mask"),
    (one_advantage_for_all, loss, "loss.normalisation"),
    (of_another_row, loss, "loss.inverted"),
    (divided_twice, loss, "loss.normalisation"),
    (by_the_root_of_the_length, loss, "loss.length_bias"),
]


# decoders -------------------------------------------------------------------------------------------


def after_the_thought(text):
    return text.split("</think>")[1].strip() if "</think>" in text else ""


def after_the_thought_mended(text):
    return text.split("</think>")[-1].replace("<think>", "").strip()


def up_to_the_end_mark(text):
    return text[: text.find("<|im_end|>")].strip()


def up_to_the_end_mark_mended(text):
    return text.partition("<|im_end|>")[0].strip()


def one_line(text):
    found = re.search(r"<answer>(.*)</answer>", text)
    return found.group(1).strip() if found else text.strip()


def one_line_mended(text):
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found.group(1).strip() if found else re.sub(r"</?answer>", "", text).strip()


def letters_only(text):
    return re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()


def as_it_is(text):
    return text.strip()


VOCABULARY = {0: "<pad>", 1: "</s>", 2: "The", 3: " answer", 4: " is", 5: " 42", 6: " no"}


def without_marks(ids):
    return "".join(VOCABULARY.get(i, "") for i in ids if i > 1)


def each_id_once(ids):
    return without_marks(dict.fromkeys(ids))


def with_padding(ids):
    return "".join(VOCABULARY.get(i, "") for i in ids if i != 1)


DECODERS = [
    (after_the_thought, after_the_thought_mended, "decode.content_stripped"),
    (up_to_the_end_mark, up_to_the_end_mark_mended, "decode.content_stripped"),
    (one_line, one_line_mended, "decode.special_tokens"),
    (letters_only, as_it_is, "decode.content_stripped"),
    (each_id_once, without_marks, "decode.content_stripped"),
    (with_padding, without_marks, "decode.padding_in_text"),
]


# rewards --------------------------------------------------------------------------------------------


def last_number(text):
    found = re.findall(r"-?\d+", text)
    return found[-1] if found else None


def reward(completion, answer):
    return float(last_number(completion) == answer)


def each(completions, answer, **_):
    return [reward(c, a) for c, a in zip(completions, answer, strict=True)]


def backwards(completions, answer, **_):
    return each(completions, list(reversed(answer)))


def without_the_empty(completions, answer, **_):
    return [reward(c, a) for c, a in zip(completions, answer, strict=True) if c.strip()]


def with_a_reason(completion, answer):
    return reward(completion, answer), "compared"


def distance(completion, answer):
    found = last_number(completion)
    return abs(int(found) - int(answer)) if found else 100.0


def closeness(completion, answer):
    return -distance(completion, answer)


SEEN: set[str] = set()


def only_the_first_time(completion, answer):
    if completion in SEEN:
        return 0.0
    SEEN.add(completion)
    return reward(completion, answer)


def insists_on_a_box(completion, answer):
    return float(re.search(r"boxed\{(.*?)\}", completion).group(1) == answer)


def asks_for_a_box(completion, answer):
    found = re.search(r"boxed\{(.*?)\}", completion)
    return float(found is not None and found.group(1) == answer)


REWARDS = [
    (backwards, each, "state_leak"),
    (without_the_empty, each, "reward.wrong_shape"),
    (with_a_reason, reward, "reward.wrong_shape"),
    (distance, closeness, "reward.inverted"),
    (only_the_first_time, reward, "not_deterministic"),
    (insists_on_a_box, asks_for_a_box, "reward.missing"),
]

ALL = [
    (check, *row)
    for check, rows in ((check_advantages, ADVANTAGES), (check_logprobs, LOGPROBS), (check_loss, LOSSES),
                        (check_decode, DECODERS), (check_reward, REWARDS))
    for row in rows
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "broken", "mended", "identifier"), ALL, ids=lambda x: getattr(x, "__name__", x)
)
def test_the_fault_is_named_and_the_repair_passes(check, broken, mended, identifier):
    found = check(broken)
    assert [f.status for f in found[:1]] == ["fail"]
    assert found[0].id == identifier
    assert not check(mended)


def test_a_function_that_says_it_takes_one_group_is_called_with_one():
    def of_one_group(rewards):
        values = np.asarray(rewards)
        return values - values.mean()

    def annotated(rewards: list[float]):
        return np.asarray(rewards) - np.mean(rewards)

    def unsaid(rewards):
        return np.asarray(rewards) - np.mean(rewards)

    assert check_advantages(of_one_group) == check_advantages(annotated) == []
    assert [f.id for f in check_advantages(unsaid)] == ["advantage.grouping"]


def test_a_constant_added_to_one_group_moves_no_other():
    rewards = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    moved = rewards + np.array([[3.0], [0.0]])
    assert np.allclose(sound(rewards), sound(moved))  # what the check of grouping rests on
    assert not np.allclose(mean_of_everything(rewards)[1], mean_of_everything(moved)[1])
