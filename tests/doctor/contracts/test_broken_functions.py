"""Thirty functions as users write them: six of each kind with one fault, and each one mended."""

import math
import re

import numpy as np
import pytest

from assay.doctor import check_advantages, check_decode, check_logprobs, check_loss, check_reward

torch = pytest.importorskip("torch")
F = torch.nn.functional


# advantages -----------------------------------------------------------------------------------------


def epsilon_of_ten(rewards):
    mean = rewards.mean(axis=1, keepdims=True)
    return (rewards - mean) / (rewards.std(axis=1, keepdims=True) + 10.0)


def epsilon_of_ten_mended(rewards):
    mean = rewards.mean(axis=1, keepdims=True)
    return (rewards - mean) / (rewards.std(axis=1, keepdims=True) + 1e-6)


def half_precision(rewards, group_size):
    grouped = torch.as_tensor(rewards).half().view(-1, group_size)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    return (centred / (grouped.std(dim=1, keepdim=True) + 1e-8)).view(-1)


def half_precision_mended(rewards, group_size):
    grouped = torch.as_tensor(rewards).float().view(-1, group_size)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    return (centred / (grouped.std(dim=1, keepdim=True) + 1e-6)).view(-1)


def reshaped_the_wrong_way(rewards, num_generations):
    table = np.asarray(rewards).reshape(num_generations, -1)
    scaled = (table - table.mean(axis=0)) / (table.std(axis=0) + 1e-4)
    return scaled.reshape(-1)


def reshaped_the_wrong_way_mended(rewards, num_generations):
    table = np.asarray(rewards).reshape(-1, num_generations)
    scaled = (table - table.mean(axis=1, keepdims=True)) / (table.std(axis=1, keepdims=True) + 1e-4)
    return scaled.reshape(-1)


def mean_minus_reward(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [mean - reward for reward in rewards]


def mean_minus_reward_mended(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def no_epsilon(rewards):
    return (rewards - rewards.mean(axis=1, keepdims=True)) / rewards.std(axis=1, keepdims=True)


def no_epsilon_mended(rewards):
    spread = np.ptp(rewards, axis=1, keepdims=True)
    std = rewards.std(axis=1, keepdims=True)
    return np.where(spread > 1e-9, (rewards - rewards.mean(axis=1, keepdims=True)) / (std + 1e-8), 0.0)


def naive_variance(rewards):
    r = np.asarray(rewards, dtype=np.float32)
    mean = r.mean(axis=1, keepdims=True)
    std = np.sqrt(np.maximum((r * r).mean(axis=1, keepdims=True) - mean * mean, 0))
    return np.where(std > 0, (r - mean) / (std + np.float32(1e-6)), 0)


def naive_variance_mended(rewards):
    r = np.asarray(rewards, dtype=np.float32)
    centred = r - r.mean(axis=1, keepdims=True)
    std = np.sqrt((centred * centred).mean(axis=1, keepdims=True))
    return np.where(np.ptp(r, axis=1, keepdims=True) > 1e-6, centred / (std + np.float32(1e-6)), 0)


ADVANTAGES = [
    (epsilon_of_ten, epsilon_of_ten_mended, "advantage.epsilon"),
    (half_precision, half_precision_mended, "advantage.dtype"),
    (reshaped_the_wrong_way, reshaped_the_wrong_way_mended, "advantage.grouping"),
    (mean_minus_reward, mean_minus_reward_mended, "advantage.inverted"),
    (no_epsilon, no_epsilon_mended, "advantage.dtype"),
    (naive_variance, naive_variance_mended, "advantage.noise"),
]


# log-probs ------------------------------------------------------------------------------------------


def pick(values, ids):
    return torch.gather(values, -1, ids.unsqueeze(-1)).squeeze(-1)


def cross_entropy_sign(logits, ids):
    flat = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids.reshape(-1), reduction="none")
    return flat.reshape(ids.shape)


def cross_entropy_sign_mended(logits, ids):
    return -cross_entropy_sign(logits, ids)


def softmax_over_time(logits, ids):
    return pick(torch.log_softmax(logits, dim=1), ids)


def softmax_over_vocabulary(logits, ids):
    return pick(torch.log_softmax(logits, dim=-1), ids)


def one_token_late(logits, ids):
    late = pick(torch.log_softmax(logits[:, :-1], dim=-1), ids[:, 1:])
    return F.pad(late, (1, 0))


def divided_by_temperature(logits, ids, temperature=0.7):
    return pick(torch.log_softmax(logits / temperature, dim=-1), ids)


def divided_by_temperature_mended(logits, ids, temperature=1.0):
    return pick(torch.log_softmax(logits / temperature, dim=-1), ids)


def only_the_maximum(logits, ids):
    shifted = logits - logits.max(-1, keepdims=True)
    return np.take_along_axis(shifted, np.asarray(ids)[..., None], axis=-1)[..., 0]


def only_the_maximum_mended(logits, ids):
    shifted = logits - logits.max(-1, keepdims=True)
    normal = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.take_along_axis(normal, np.asarray(ids)[..., None], axis=-1)[..., 0]


def raw_logits(logits, ids):
    return pick(logits, ids)


LOGPROBS = [
    (cross_entropy_sign, cross_entropy_sign_mended, "logprob.positive"),
    (softmax_over_time, softmax_over_vocabulary, "logprob.wrong_axis"),
    (one_token_late, softmax_over_vocabulary, "logprob.shifted"),
    (divided_by_temperature, divided_by_temperature_mended, "logprob.temperature"),
    (only_the_maximum, only_the_maximum_mended, "logprob.not_normalised"),
    (raw_logits, softmax_over_vocabulary, "logprob.positive"),
]


# losses ---------------------------------------------------------------------------------------------


def clipped(logp, old_logp, advantages, clip=0.2):
    ratio = torch.exp(logp - old_logp)
    a = advantages.unsqueeze(1)
    return torch.min(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)


def live(mask, *values):
    return [torch.where(mask > 0, v, torch.zeros_like(v)) for v in values]


def sound_loss(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    return -(clipped(logp, old_logp, advantages) * mask).sum() / mask.sum()


def maximised(logp, old_logp, advantages, mask):
    return -sound_loss(logp, old_logp, advantages, mask)


def detached(logp, old_logp, advantages, mask):
    return sound_loss(logp.detach(), old_logp, advantages, mask)


def multiplied_by_the_mask(logp, old_logp, advantages, mask):
    return -(clipped(logp, old_logp, advantages) * mask).sum() / mask.sum()


def pads_in_the_denominator(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    return -(clipped(logp, old_logp, advantages) * mask).mean()


def clipped_without_the_minimum(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    ratio = torch.exp(logp - old_logp).clamp(0.8, 1.2)
    return -(ratio * advantages.unsqueeze(1) * mask).sum() / mask.sum()


def clipped_with_the_minimum(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    ratio, a = torch.exp(logp - old_logp), advantages.unsqueeze(1)
    return -(torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a) * mask).sum() / mask.sum()


def long_rows_count_twice(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    lengths = mask.sum(1)
    return -((clipped(logp, old_logp, advantages) * mask).sum(1) * lengths).sum() / (lengths**2).sum()


def rows_by_their_own_length(logp, old_logp, advantages, mask):
    logp, old_logp = live(mask, logp, old_logp)
    return -((clipped(logp, old_logp, advantages) * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


LOSSES = [
    (maximised, sound_loss, "loss.inverted"),
    (detached, sound_loss, "loss.no_gradient"),
    (multiplied_by_the_mask, sound_loss, "loss.non_finite"),
    (pads_in_the_denominator, sound_loss, "loss.normalisation"),
    (clipped_without_the_minimum, clipped_with_the_minimum, "loss.clip_saturated"),
    (long_rows_count_twice, rows_by_their_own_length, "loss.length_bias"),
]


# decoders -------------------------------------------------------------------------------------------


def needs_both_tags(text):
    return text.split("<answer>")[1].split("</answer>")[0].strip()


def needs_both_tags_mended(text):
    if "<answer>" in text:
        text = text.split("<answer>")[-1]
    return text.replace("</answer>", "").strip()


ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def empty_without_tags(text):
    found = ANSWER.findall(text)
    return found[-1].strip() if found else ""


def empty_without_tags_mended(text):
    found = ANSWER.findall(text)
    if found:
        return found[-1].strip()
    return re.sub(r"</?answer>", "", text).strip()


def strips_letters(text):
    return text.strip("<|im_end|>").strip()  # noqa: B005 - the fault: a set of letters, not a mark


def strips_letters_mended(text):
    return text.removesuffix("<|im_end|>").strip()


def keeps_the_prompt(text):
    for token in ("<|im_start|>assistant\n", "<|im_end|>", "<|endoftext|>"):
        text = text.replace(token, "")
    return text.strip()


def keeps_the_prompt_mended(text):
    text = text.split("<|im_start|>assistant\n")[-1]
    for token in ("<|im_end|>", "<|endoftext|>"):
        text = text.replace(token, "")
    return text.strip()


def keeps_the_padding(text):
    return text.split("<|im_start|>assistant\n")[-1].replace("<|im_end|>", "").strip()


def drops_other_alphabets(text):
    return text.encode("ascii", "ignore").decode().strip()


def drops_other_alphabets_mended(text):
    return text.strip()


DECODERS = [
    (needs_both_tags, needs_both_tags_mended, "decode.content_stripped"),
    (empty_without_tags, empty_without_tags_mended, "decode.content_stripped"),
    (strips_letters, strips_letters_mended, "decode.content_stripped"),
    (keeps_the_prompt, keeps_the_prompt_mended, "decode.prompt_in_text"),
    (keeps_the_padding, keeps_the_prompt_mended, "decode.padding_in_text"),
    (drops_other_alphabets, drops_other_alphabets_mended, "decode.content_stripped"),
]


# rewards --------------------------------------------------------------------------------------------


def last_number(text):
    found = re.findall(r"-?\d+", text)
    return found[-1] if found else None


def sound_reward(completion, answer):
    return float(last_number(completion) == answer)


def compares_with_a_number(completion, answer):
    return float(last_number(completion) == int(answer))  # a text never equals a number


def pays_the_wrong(completion, answer):
    return 1.0 if last_number(completion) != answer else 0.0


def mean_over_nothing(completion, answer):
    found = re.findall(r"-?\d+", completion)
    return sum(x == answer for x in found) / len(found) if found else math.nan


def forgets_to_return(completion, answer):
    if last_number(completion) == answer:
        return 1.0
    return None


def one_number_for_the_batch(completions, answer, **_):
    return sum(last_number(c) == a for c, a in zip(completions, answer, strict=True)) / len(completions)


def one_number_each(completions, answer, **_):
    return [float(last_number(c) == a) for c, a in zip(completions, answer, strict=True)]


def pays_words(completion, answer):
    return min(1.0, len(completion.split()) / 50)


REWARDS = [
    (compares_with_a_number, sound_reward, "reward.constant"),
    (pays_the_wrong, sound_reward, "reward.inverted"),
    (mean_over_nothing, sound_reward, "reward.non_finite"),
    (forgets_to_return, sound_reward, "reward.missing"),
    (one_number_for_the_batch, one_number_each, "reward.wrong_shape"),
    (pays_words, sound_reward, "reward.unrelated_to_truth"),
]

ALL = [
    (check, *row)
    for check, rows in (
        (check_advantages, ADVANTAGES),
        (check_logprobs, LOGPROBS),
        (check_loss, LOSSES),
        (check_decode, DECODERS),
        (check_reward, REWARDS),
    )
    for row in rows
]


def test_there_are_six_of_each():
    assert [len(rows) for rows in (ADVANTAGES, LOGPROBS, LOSSES, DECODERS, REWARDS)] == [6] * 5


@pytest.mark.parametrize(
    ("check", "broken", "mended", "identifier"), ALL, ids=lambda x: getattr(x, "__name__", x)
)
def test_the_fault_is_named_and_the_repair_passes(check, broken, mended, identifier):
    found = check(broken)
    assert found, "no finding"
    assert found[0].id == identifier
    assert found[0].status == "fail"
    assert not check(mended)


@pytest.mark.parametrize(
    ("check", "broken", "mended", "identifier"), ALL, ids=lambda x: getattr(x, "__name__", x)
)
def test_a_finding_says_what_came_and_what_to_do(check, broken, mended, identifier):
    first = check(broken)[0]
    assert first.fix
    assert broken.__name__ in first.summary
    assert first.evidence["violations"][0]["why"]
    assert f"def test_{broken.__name__}" in (first.regression_test or "")
    document = first.to_json()
    assert document["id"] == identifier
    assert "shapes_tried" in document["evidence"]


@pytest.mark.parametrize(
    ("check", "broken", "mended", "identifier"), ALL, ids=lambda x: getattr(x, "__name__", x)
)
def test_every_other_finding_follows_or_is_a_fault_of_its_own(check, broken, mended, identifier):
    found = check(broken)
    known = {f.id for f in found}
    assert len(known) == len(found)
    assert all(f.follows_from in known for f in found[1:])
