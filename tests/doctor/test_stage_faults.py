"""One planted fault, one name: each test breaks a healthy log in one place."""

import math

import numpy as np
import pytest

from assay.doctor.diagnosis import diagnose
from assay.records.run_record import Logits


def groups_of(log):
    found = {}
    for row in log.rollouts:
        found.setdefault((row["step"], row["prompt_id"]), []).append(row)
    return list(found.values())


def set_advantages(log, function):
    for rows in groups_of(log):
        values = function(np.array([row["reward"] for row in rows]))
        for row, value in zip(rows, values, strict=True):
            row["advantage"] = float(value)


def z_scores(rewards, epsilon=1e-4, ddof=0):
    return (rewards - rewards.mean()) / (rewards.std(ddof=ddof) + epsilon)


# stage 1


def test_a_constant_reward_is_the_root_of_empty_groups(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["reward"] = row["advantage"] = 0.0
    for row in log.metrics:
        row.update({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0})
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "reward.constant"
    follows = {f.id: f.follows_from for f in diagnosis.of("fail")}
    assert follows["advantage.zero_spread_groups"] == "reward.constant"
    assert "right" in diagnosis.root_cause.evidence


def test_a_reward_that_ignores_truth(make_log, failed):
    log = make_log(end=0.35, groups=8)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["reward"] = float(rng.random() < 0.4)
    set_advantages(log, z_scores)
    assert failed(log.diagnose()) == ["reward.unrelated_to_truth"]


def test_a_noisy_but_honest_checker_is_left_in_peace(make_log, failed):
    log = make_log(groups=8)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["reward"] = row["truth"] if rng.random() > 0.2 else 1.0 - row["truth"]
    set_advantages(log, z_scores)
    log.metrics = [{**row, "reward": 0.2 + 0.6 * row["reward"]} for row in log.metrics]
    assert failed(log.diagnose()) == []


def test_an_inverted_reward(make_log, failed):
    log = make_log(end=0.35, groups=8)
    for row in log.rollouts:
        row["reward"] = 1.0 - row["truth"]
    set_advantages(log, z_scores)
    log.metrics = [{**row, "reward": 1 - row["reward"]} for row in log.metrics]
    assert failed(log.diagnose())[0] == "reward.inverted"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite(make_log, failed, value):
    log = make_log()
    for row in log.rollouts[::40]:
        row["reward"] = value
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "reward.non_finite"
    assert diagnosis.root_cause.samples[0].step == log.rollouts[0]["step"]


def test_missing_rewards_are_counted_not_taken_for_zero(make_log, failed):
    log = make_log()
    for row in log.rollouts[::2]:
        row["reward"] = None
        row["advantage"] = math.nan
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "reward.missing"
    assert diagnosis.root_cause.evidence["missing"] == len(log.rollouts[::2])


@pytest.mark.parametrize("value", [[1.0, 0.0], "1.0"])
def test_a_reward_of_another_type(make_log, failed, value):
    log = make_log()
    for row in log.rollouts:
        row["reward"] = value
    assert failed(log.diagnose())[0] == "reward.wrong_shape"


def test_one_part_decides_the_sum(make_log, failed):
    log = make_log(end=0.35, groups=8)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["reward_parts"] = {"correct": 0.05 * row["truth"], "style": float(rng.normal(2, 1))}
        row["reward"] = sum(row["reward_parts"].values())
    set_advantages(log, z_scores)
    log.metrics = [{**row, "reward": 2 + 0.1 * row["reward"]} for row in log.metrics]
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "reward.component_dominates"
    assert diagnosis.root_cause.evidence["shares_of_spread"]["style"] > 0.9


def test_the_reward_was_called_on_a_neighbour(make_log, failed):
    log = make_log()
    texts = [row["reward_text"] for row in log.rollouts]
    for row, text in zip(log.rollouts, texts[1:] + texts[:1], strict=True):
        row["reward_text"] = text
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "reward.wrong_text"
    assert "another completion" in diagnosis.root_cause.summary


# stage 2


def test_groups_of_one(make_log, failed):
    log = make_log(size=1, groups=16, batch=64, end=0.35)
    assert failed(log.diagnose())[0] == "advantage.group_size"


def test_ids_that_differ_within_a_group(make_log, failed):
    log = make_log(end=0.35)
    for number, row in enumerate(log.rollouts):
        row.update({"prompt_id": f"u{number}", "sample": 0, "advantage": 0.0})
    assert failed(log.diagnose())[0] == "advantage.group_size"


def test_most_groups_without_spread(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)
    for rows in groups_of(log):
        if rng.random() < 0.9:
            solved = float(rng.random() < 0.35)
            for row in rows:
                row["reward"] = row["truth"] = solved
    set_advantages(log, lambda r: z_scores(r) if np.ptp(r) else 0 * r)
    for row in log.metrics:
        row["frac_reward_zero_std"] = 0.88
    diagnosis = log.diagnose()
    assert failed(diagnosis) == ["advantage.zero_spread_groups"]
    assert diagnosis.root_cause.evidence["without_spread"] > 30


def test_copies_in_a_group(make_log, failed):
    log = make_log(end=0.35)
    for rows in groups_of(log):
        for row in rows:
            row.update(
                {n: rows[0][n] for n in ("completion", "reward_text", "reward", "truth")} | {"advantage": 0.0}
            )
    for row in log.metrics:
        row.update({"frac_reward_zero_std": 1.0, "reward_std": 0.0})
    assert failed(log.diagnose())[0] == "advantage.identical_completions"


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("said", [True, False])
def test_an_epsilon_that_swallows_the_spread(make_log, failed, epsilon, said):
    log = make_log(end=0.35)
    set_advantages(log, lambda r: z_scores(r, epsilon))
    log.config["advantage_epsilon"] = epsilon
    if not said:
        log.config.pop("advantage_epsilon")
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "advantage.epsilon"
    assert diagnosis.root_cause.evidence["epsilon"] == pytest.approx(epsilon, rel=0.1)
    assert "assert not check_advantages" in diagnosis.root_cause.regression_test


def test_an_epsilon_that_is_zero_in_half_precision(make_log, failed):
    log = make_log(end=0.35)
    log.config.update({"advantage_dtype": "float16", "advantage_epsilon": 1e-8})
    for rows in groups_of(log):
        if np.ptp([row["reward"] for row in rows]) == 0:
            for row in rows:
                row["advantage"] = math.nan
    log.metrics[30]["loss"] = math.nan
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "advantage.dtype"
    assert all(f.follows_from for f in diagnosis.of("fail") if f.id != "advantage.dtype")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda r: z_scores(r) / 5000, "advantage.collapsed"),
        (lambda r: -z_scores(r), "advantage.inverted"),
        (lambda r: (r - r.mean()) / (r.var() + 1e-4), "advantage.mismatch"),
        (lambda r: z_scores(r) ** 2, "advantage.mismatch"),
    ],
)
def test_other_formulas(make_log, failed, function, name):
    log = make_log(end=0.35)
    set_advantages(log, function)
    assert failed(log.diagnose())[0] == name


@pytest.mark.parametrize(
    "function",
    [
        lambda r: z_scores(r, 1e-6, 1), lambda r: z_scores(r, 1e-9, 1), lambda r: r - r.mean(),
        lambda r: (r - r.mean()) * r.size / (r.size - 1), lambda r: z_scores(r, 1e-8),
    ],
)  # fmt: skip
def test_known_formulas_are_accepted(make_log, failed, function):
    log = make_log()
    set_advantages(log, lambda r: function(r) if np.ptp(r) else 0 * r)
    assert failed(log.diagnose()) == []


def test_advantages_taken_by_position(make_log, failed):
    log = make_log(end=0.35)
    steps = {}
    for row in log.rollouts:
        steps.setdefault(row["step"], []).append(row)
    log.rollouts = []
    for rows in steps.values():
        mixed = [rows[i * 8 + j] for j in range(8) for i in range(4)]
        for start in range(0, 32, 8):
            part = mixed[start : start + 8]
            values = z_scores(np.array([row["reward"] for row in part]))
            for row, value in zip(part, values, strict=True):
                row["advantage"] = float(value)
        log.rollouts += mixed
    assert failed(log.diagnose())[0] == "advantage.grouping"


def test_several_prompts_under_one_id(make_log, failed):
    log = make_log()
    for number, row in enumerate(log.rollouts):
        row["prompt"] = f"prompt {number % 3} with some words"
    assert failed(log.diagnose())[0] == "advantage.grouping"


def test_residue_made_into_signal(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)

    def noisy(rewards):
        return z_scores(rewards) if np.ptp(rewards) else rng.normal(0, 1, rewards.size)

    set_advantages(log, noisy)
    assert failed(log.diagnose())[0] == "advantage.noise"


# stage 3


def test_logits_taken_for_logprobs(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        for name in ("logprobs", "old_logprobs", "ref_logprobs"):
            row[name] = [value + 5 for value in row[name]]
    assert failed(log.diagnose())[0] == "logprob.positive"


def test_trainer_and_sampler_one_token_apart(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["sampler_logprobs"] = [*row["old_logprobs"][1:], -1.3]
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "logprob.shifted"
    assert diagnosis.root_cause.evidence["shift"] == 1


def test_another_temperature_on_one_side(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["sampler_logprobs"] = [0.7 * value for value in row["old_logprobs"]]
    assert failed(log.diagnose())[0] == "logprob.temperature"


def test_a_sampler_that_keeps_part_of_the_mass(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        mass = rng.uniform(0.7, 0.95, len(row["old_logprobs"]))
        row["old_logprobs"] = [min(v, -0.4) for v in row["old_logprobs"]]
        row["sampler_logprobs"] = (np.array(row["old_logprobs"]) - np.log(mass)).tolist()
    assert failed(log.diagnose())[0] == "logprob.truncated_support"


def test_a_gap_without_a_pattern(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["sampler_logprobs"] = (
            np.array(row["old_logprobs"]) + rng.normal(0, 0.5, len(row["old_logprobs"]))
        ).tolist()
    assert failed(log.diagnose())[0] == "logprob.sampler_mismatch"


def test_a_sampler_that_never_gets_the_weights(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        noise = rng.normal(0, 0.004 + 0.4 * row["step"] / 60, len(row["old_logprobs"]))
        row["sampler_logprobs"] = (np.array(row["old_logprobs"]) + noise).tolist()
    assert failed(log.diagnose())[0] == "logprob.stale_weights"


@pytest.mark.parametrize(
    ("lag", "expected"), [(lambda step: step, ["logprob.stale_weights"]), (lambda step: 1, [])]
)
def test_versions(make_log, failed, lag, expected):
    log = make_log()
    for row in log.metrics:
        row.update({"trainer_version": row["step"], "sampler_version": row["step"] - lag(row["step"])})
    assert failed(log.diagnose()) == expected


def test_ids_and_logprobs_that_differ_in_number(make_log, failed):
    log = make_log()
    for row in log.rollouts[::5]:
        row["token_ids"] = row["token_ids"][:-1]
    assert failed(log.diagnose())[0] == "logprob.retokenised"


def test_a_mask_over_the_padding(make_log, failed):
    log = make_log()
    log.config.update({"pad_token_id": 99, "eos_token_id": 98})
    for row in log.rollouts:
        row["token_ids"] = [*row["token_ids"][:-3], 98, 99, 99]
        row["mask"] = [1] * len(row["token_ids"])
    assert failed(log.diagnose())[0] == "logprob.mask"


@pytest.mark.parametrize(("kl", "expected"), [(-0.4, ["logprob.negative_kl"]), (0.0, [])])
def test_negative_kl(make_log, failed, kl, expected):
    log = make_log()
    rng = np.random.default_rng(0)
    for row in log.metrics:
        row["kl"] = kl + float(rng.normal(0, 0.01))
    assert failed(log.diagnose()) == expected


def logits_of(change, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (16, 12, 30))
    ids = rng.integers(0, 30, (16, 12))
    return Logits(logits, ids, change(logits, ids))


def log_softmax(logits, axis=-1):
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def take(values, ids):
    return np.take_along_axis(values, ids[..., None], -1)[..., 0]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda x, i: take(log_softmax(x), i), None),
        (lambda x, i: take(log_softmax(x), i) + np.random.default_rng(1).normal(0, 0.02, i.shape), None),
        (lambda x, i: take(x, i), "logprob.positive"),
        (lambda x, i: -take(log_softmax(x), i), "logprob.positive"),
        (lambda x, i: take(x, i) - x.max(-1), "logprob.not_normalised"),
        (lambda x, i: take(log_softmax(x, 1), i), "logprob.wrong_axis"),
        (lambda x, i: take(log_softmax(x), np.roll(i, 1, 0)), "logprob.wrong_axis"),
        (
            lambda x, i: np.concatenate(
                [np.full((16, 1), np.nan), take(log_softmax(x)[:, :-1], i[:, 1:])], 1
            ),
            "logprob.shifted",
        ),
        (lambda x, i: take(log_softmax(x / 0.7), i), "logprob.temperature"),
        (lambda x, i: np.random.default_rng(1).normal(-3, 1, i.shape), "logprob.sampler_mismatch"),
    ],
)
def test_logits_name_the_computation(make_log, change, name):
    log = make_log(end=0.35)
    for row in log.rollouts:
        for column in ("logprobs", "old_logprobs", "sampler_logprobs", "ref_logprobs"):
            row.pop(column)
    log.metrics = [{k: v for k, v in row.items() if not k.startswith("sampling")} for row in log.metrics]
    root = diagnose(log.record(logits=logits_of(change))).root_cause
    assert (root.id if root else None) == name


# stage 4


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_loss_that_is_not_finite(make_log, failed, name):
    log = make_log(end=0.35)
    for row in log.metrics[40:]:
        row[name] = math.nan
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "loss.non_finite"
    assert diagnosis.root_cause.evidence["first_step"] == 41


def test_a_gradient_of_zero_is_a_fault_only_where_groups_have_spread(make_log, failed):
    log = make_log(end=0.35)
    for row in log.metrics:
        row.update({"grad_norm": 0.0, "loss": 0.0})
    assert failed(log.diagnose())[0] == "loss.no_gradient"
    for row in log.metrics:
        row["reward_std"], row["frac_reward_zero_std"] = 0.0, 1.0
    assert "loss.no_gradient" not in failed(log.diagnose())


def test_nothing_trains(make_log, failed):
    log = make_log(end=0.35)
    for row in log.metrics:
        row["learning_rate"] = 0.0
    assert failed(log.diagnose()) == ["loss.nothing_trains"]


def test_updates_that_change_no_logprob(make_log, failed):
    log = make_log(end=0.35)
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["logprobs"] = list(row["old_logprobs"])
    for row in log.metrics:
        row.update({"kl": 0.0, "entropy": 1.1 + float(rng.normal(0, 0.02))})
    assert failed(log.diagnose()) == ["loss.nothing_trains"]


def test_an_exploding_gradient(make_log, failed):
    log = make_log(end=0.35)
    for row in log.metrics[20:]:
        row["grad_norm"] *= 1.25 ** (row["step"] - 20)
    assert failed(log.diagnose())[0] == "loss.exploding"


def test_one_spike_is_a_warning(make_log, failed):
    log = make_log()
    log.metrics[10]["grad_norm"] = 30.0
    diagnosis = log.diagnose()
    assert failed(diagnosis) == []
    assert "loss.exploding" in [f.id for f in diagnosis.of("warn")]


def test_a_step_that_wrecks_the_policy(make_log, failed):
    log = make_log()
    for row in log.metrics[30:]:
        row.update({"kl": row["kl"] + 4.0, "entropy": 4.0, "reward": 0.02, "eval_accuracy": 0.02})
    assert failed(log.diagnose())[0] == "loss.step_too_large"


def test_an_update_of_the_wrong_sign(make_log, failed):
    log = make_log(start=0.6, end=0.1)
    assert failed(log.diagnose()) == ["loss.inverted"]


def test_a_kl_term_that_pins_the_policy(make_log, failed):
    log = make_log(end=0.35)
    log.config["beta"] = 5.0
    for row in log.metrics:
        row["kl"], row["loss"] = 0.2, 1.0 + row["loss"]
    assert failed(log.diagnose()) == ["loss.kl_dominates"]


def test_clipping_nearly_everything(make_log, failed):
    log = make_log(end=0.35)
    for row in log.metrics:
        row["clip_ratio/region_mean"] = 0.97
    diagnosis = log.diagnose()
    assert failed(diagnosis) == ["loss.clip_saturated"]
    assert "old log-probs" in diagnosis.root_cause.evidence["cause"]


def test_wrong_completions_that_grow(make_log, failed):
    log = make_log(end=0.35)
    log.config["loss_type"] = "grpo"
    for row in log.rollouts:
        row["length"] = 200.0 + (0 if row["truth"] else 6 * row["step"])
    assert failed(log.diagnose()) == ["loss.length_bias"]


def test_a_score_on_a_pad_token(make_log, failed):
    log = make_log()
    for row in log.rollouts:
        row["mask"] = [1, 1, 1, 0]
        row["token_rewards"] = [0.0, 0.0, 0.0, row["reward"] + 1]
    assert failed(log.diagnose()) == ["loss.reward_position"]


# stage 5


def completion_of(row):
    return row["completion"].removesuffix("<|im_end|>")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda row: row["prompt"] + completion_of(row), "decode.prompt_in_text"),
        (lambda row: completion_of(row) + "<|pad|><|pad|>", "decode.padding_in_text"),
        (
            lambda row: completion_of(row) + "<|endoftext|><|endoftext|><|endoftext|>",
            "decode.padding_in_text",
        ),
        (lambda row: completion_of(row).split("\\boxed")[0], "decode.content_stripped"),
        (lambda row: "", "decode.content_stripped"),
        (lambda row: completion_of(row)[:-2], "decode.content_stripped"),
        (lambda row: "an entirely different text about nothing at all", "reward.wrong_text"),
    ],
)
def test_the_reward_saw_something_else(make_log, failed, change, name):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["reward_text"] = change(row)
    assert failed(log.diagnose())[0] == name


@pytest.mark.parametrize(
    "change",
    [
        completion_of, lambda row: row["completion"], lambda row: f"  {completion_of(row)}\n",
        lambda row: completion_of(row).rsplit("</think>", 1)[-1],
    ],
)  # fmt: skip
def test_what_a_reward_may_see(make_log, failed, change):
    log = make_log()
    for row in log.rollouts:
        row["completion"] = f"<think>{row['completion'][:40]}</think> {row['completion']}"
        row["reward_text"] = change(row)
    assert failed(log.diagnose()) == []


def test_tags_that_vanish_before_scoring(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["completion"] = f"<ans>{row['answer']}</ans><|im_end|>"
        row["reward_text"] = row["answer"]
        row["reward"] = row["advantage"] = 0.0
    for row in log.metrics:
        row.update({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0})
    assert failed(log.diagnose())[0] == "decode.special_tokens"


def test_end_marks_that_cost_right_answers_their_pay(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["reward_text"] = row["completion"]
        row["reward"] = row["advantage"] = 0.0
    for row in log.metrics:
        row.update({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0})
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "decode.special_tokens"


def test_a_prefilled_tag(make_log, failed):
    log = make_log(end=0.35)
    for row in log.rollouts:
        row["prompt"] += "\n<think>\n"
        row["completion"] = "It is so.</think> " + row["completion"]
        row.update(
            {"reward": 0.0, "advantage": 0.0, "reward_text": row["completion"].removesuffix("<|im_end|>")}
        )
    for row in log.metrics:
        row.update({"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0})
    diagnosis = log.diagnose()
    assert failed(diagnosis)[0] == "decode.prefilled"
    assert {f.id: f.follows_from for f in diagnosis.of("fail")}["reward.constant"] == "decode.prefilled"


@pytest.mark.parametrize(
    ("share", "unpaid", "name"),
    [(1.0, False, "decode.no_eos"), (0.7, True, "decode.truncated"), (0.7, False, None), (0.1, False, None)],
)
def test_completions_that_do_not_end(make_log, failed, share, unpaid, name):
    log = make_log(end=0.3)  # the reward stays: a run that learns in spite of it is warned only
    rng = np.random.default_rng(0)
    for row in log.rollouts:
        row["finished"] = bool(row["reward"]) if unpaid else bool(rng.random() >= share)
    for row in log.metrics:
        row["completions/clipped_ratio"] = share
    diagnosis = log.diagnose()
    assert failed(diagnosis) == ([name] if name else [])
    if share == 0.7:
        assert "decode.truncated" in [f.id for f in [*diagnosis.of("fail"), *diagnosis.of("warn")]]


def test_full_length_with_an_end_token_is_not_truncated(make_log):
    log = make_log()
    log.config["eos_token_id"] = [2, 4]
    log.metrics = [{k: v for k, v in row.items() if "clipped" not in k} for row in log.metrics]
    for number, row in enumerate(log.rollouts):
        row.pop("finished")
        row["token_ids"] = [7, 8, 9, 2 if number % 2 else 4]
        row["max_tokens"] = 4
        for name in ("logprobs", "old_logprobs", "sampler_logprobs", "ref_logprobs"):
            row[name] = row[name][:4]
    found = {f.id: f for f in log.diagnose().findings}
    assert found["decode.no_eos"].evidence["early"] == 0.0


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "decode.empty"), ("<|im_end|>", "decode.empty"), ("again and " * 40, "decode.repetition")],
)
def test_degenerate_completions(make_log, failed, text, name):
    log = make_log(end=0.35)
    for row in log.rollouts[::2]:
        row["completion"] = row["reward_text"] = text
    assert name in failed(log.diagnose())


def test_two_start_tokens(make_log, failed):
    log = make_log()
    for row in log.rollouts:
        row["prompt"] = "<s><s>" + row["prompt"]
    assert failed(log.diagnose()) == ["decode.double_bos"]


def test_settings_nobody_asked_for(make_log, failed):
    log = make_log()
    log.config["generation_config.top_k"] = 20
    assert failed(log.diagnose()) == ["decode.sampling_settings"]


# hacking, and the run


def test_reward_up_and_truth_flat(make_log, failed):
    log = make_log(end=0.9, truth_end=0.35)
    assert failed(log.diagnose())[0] == "hacking.reward_without_truth"
    log.rollouts = []
    assert failed(log.diagnose()) == ["hacking.reward_without_truth"]


def test_truth_that_falls(make_log, failed):
    log = make_log(end=0.9, truth_end=0.05)
    log.rollouts = []
    assert failed(log.diagnose())[0] == "hacking.overoptimisation"


def test_reward_that_buys_length(make_log, failed):
    log = make_log(end=0.9, truth_end=0.35)
    log.rollouts = []
    for row in log.metrics:
        row["completions/mean_length"] = 200 + 8 * row["step"]
    assert failed(log.diagnose())[0] == "hacking.length"


def test_length_that_grows_with_truth_is_no_fault(make_log, failed):
    log = make_log()
    for row in log.metrics:
        row["completions/mean_length"] = 200 + 8 * row["step"]
    assert failed(log.diagnose()) == []


@pytest.mark.parametrize(("end", "expected"), [(0.4, ["hacking.entropy_collapse"]), (0.97, [])])
def test_entropy_that_collapses_before_the_task_is_solved(make_log, failed, end, expected):
    log = make_log(start=0.35, end=end)
    for row in log.metrics:
        row["entropy"] = 1.1 * 0.9 ** row["step"]
    assert failed(log.diagnose()) == expected


def test_steps_that_come_again(make_log, failed):
    log = make_log()
    for later, earlier in zip(range(40, 55), range(10, 25), strict=True):
        log.metrics[later] = {**log.metrics[earlier], "step": later + 1}
    diagnosis = log.diagnose()
    assert "run.resume" in failed(diagnosis)
    assert next(f for f in diagnosis.of("fail") if f.id == "run.resume").evidence["first_replayed_step"] == 41


def test_metrics_of_another_run(make_log, failed):
    log, other = make_log(start=0.1, end=0.15, groups=8), make_log(seed=9, start=0.8, end=0.9)
    log.metrics = other.metrics
    assert failed(log.diagnose())[0] == "run.data"


def test_rewards_of_a_neighbour_in_the_group_are_unrelated_and_not_inverted(make_log, failed):
    log = make_log(seed=3, size=4, groups=16, batch=64)
    for first in range(0, len(log.rollouts), 4):
        group = log.rollouts[first : first + 4]
        rewards = [row["reward"] for row in group]
        for row, reward in zip(group, [*rewards[1:], rewards[0]], strict=True):
            row["reward"] = reward
    assert "reward.unrelated_to_truth" in failed(log.diagnose())
    assert "reward.inverted" not in failed(log.diagnose())
