"""The simulator: what a fault does to a run follows from the fault, and nothing else follows."""

import functools
import json
import math

import numpy as np
import pytest

from assay.doctor.simulate import FAULTS, FRAMEWORKS, SHAPES, parts, simulate, write
from assay.doctor.simulate.policy import divergence, new_policy, sample_fillers, token_logits
from assay.doctor.simulate.tokenizer import ANS, END, ID, PIECES, decode, encode, split_words
from assay.doctor.simulate.world import World
from assay.errors import BadInput

KNOWN_STAGES = {1, 2, 3, 4, 5, "hacking", "run"}


@functools.cache
def run(kind="healthy", seed=1, steps=40, **options):
    return simulate(kind, seed=seed, steps=steps, **options)


def series(run, name):
    return np.array([row[name] for row in run.metrics], dtype=float)


def groups(rows):
    found = {}
    for row in rows:
        found.setdefault((row["step"], row["prompt_id"]), []).append(row)
    return found


# the toy tokenizer ----------------------------------------------------------------------------------


def test_ids_and_text_round_trip():
    text = f" check carry units The answer is \\boxed{{42}}.{END}"
    assert decode(encode(text)) == text
    assert decode(encode(text), skip_special=True) == text.replace(END, "")


def test_one_text_has_two_spellings():
    ids = encode(" check carry units digits then")
    other = split_words(ids)
    assert decode(other) == decode(ids)
    assert len(other) > len(ids)
    assert encode(decode(other)) == ids


def test_every_piece_has_one_id():
    assert len(set(PIECES)) == len(PIECES) == len(ID)


# the policy -----------------------------------------------------------------------------------------


def test_kl_is_zero_at_the_start_and_grows_with_the_distance():
    policy = new_policy(World(), np.random.default_rng(0))
    assert divergence(policy, policy)[0] == 0.0
    near, far = (policy.moved(policy.theta + d) for d in (0.3, 1.5))
    assert 0 < divergence(near, policy)[0] < divergence(far, policy)[0]
    assert divergence(policy, policy)[1] > 1.0


def test_words_are_sampled_from_the_softmax_that_is_logged():
    policy = new_policy(World(), np.random.default_rng(0))
    ids = sample_fillers(policy, np.full(4000, 1), np.random.default_rng(1), World())[:, 0]
    logits = token_logits(policy, np.zeros((1, 1), dtype=np.int64))[0, 0]
    expected = np.exp(parts.log_softmax(logits))
    counted = np.bincount(ids, minlength=len(PIECES)) / len(ids)
    assert np.abs(expected - counted).max() < 5 * math.sqrt(0.25 / len(ids))


def test_a_truncated_sampler_never_leaves_its_support():
    policy = new_policy(World(), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    free = sample_fillers(policy, np.full(600, 1), rng, World())
    kept = sample_fillers(policy, np.full(600, 1), rng, World(top_p=0.5))
    assert len(np.unique(kept)) < len(np.unique(free))


# healthy runs ---------------------------------------------------------------------------------------


def test_a_healthy_run_learns_because_of_its_advantages():
    healthy, dead = run(steps=90, shape="saturating"), run("advantages_collapsed", steps=90)
    assert series(healthy, "truth")[-20:].mean() > series(healthy, "truth")[:20].mean() + 0.1
    assert abs(series(dead, "truth")[-20:].mean() - series(dead, "truth")[:20].mean()) < 0.06
    assert series(healthy, "kl")[-1] > 50 * series(dead, "kl")[-1]


def test_one_seed_is_one_run():
    first, again, other = run(), simulate("healthy", seed=1, steps=40), run(seed=2)
    assert first.metrics == again.metrics
    assert first.rollouts == again.rollouts
    assert first.metrics != other.metrics


def test_logged_advantages_are_the_arithmetic_of_logged_rewards():
    made = run(shape="unbiased_std")
    epsilon = made.config["advantage_epsilon"]
    for rows in groups(made.rollouts).values():
        rewards = np.array([r["reward"] for r in rows])
        assert len(rewards) == made.config["num_generations"]
        spread = rewards.std(ddof=1)
        expected = np.zeros(len(rewards)) if spread == 0 else (rewards - rewards.mean()) / (spread + epsilon)
        np.testing.assert_allclose([r["advantage"] for r in rows], expected, atol=1e-9)


def test_rows_are_whole_and_agree_with_themselves():
    made = run(shape="whole_completions")
    for row in made.rollouts:
        assert decode(row["token_ids"]) == row["completion"]
        assert row["length"] == len(row["token_ids"]) == len(row["mask"])
        assert all(len(row[n]) == row["length"] for n in ("logprobs", "old_logprobs", "sampler_logprobs"))
        assert max(row["old_logprobs"]) < 0.1
        assert row["reward"] == float(f"boxed{{{row['answer']}}}" in row["completion"])
        assert row["reward"] <= row["truth"]  # right, but not in the asked form
        assert row["finished"] == row["completion"].endswith(END)


def test_the_sampler_agrees_with_the_trainer_up_to_its_noise():
    for shape, low, high in (("plain", 0.001, 0.01), ("bfloat16", 0.008, 0.03)):
        rows = run(shape=shape).rollouts
        gap = np.concatenate([np.subtract(r["old_logprobs"], r["sampler_logprobs"]) for r in rows])
        assert low < np.abs(gap).mean() < high
        assert abs(gap.mean()) < 0.1 * np.abs(gap).mean() + 1e-3


def test_the_first_step_is_the_reference():
    first = [r for r in run().rollouts if r["step"] == 1]
    gap = np.concatenate([np.subtract(r["old_logprobs"], r["ref_logprobs"]) for r in first])
    assert np.abs(gap).mean() < 0.02


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_runs_and_none_falls(shape):
    steps = 16
    made = simulate("healthy", seed=5, steps=steps, shape=shape)
    learnt = series(made, "rewards/margins" if shape == "preferences" else "truth")
    assert made.healthy
    assert made.ids == ()
    assert len(made.metrics) == steps
    assert learnt[-8:].mean() > learnt[:8].mean() - 0.08
    finite = [v for row in made.metrics for v in row.values()]
    assert np.isfinite(finite).all()


def test_sizes_and_counts_are_as_asked():
    small, large = run(steps=20), run(steps=20, size="large")
    assert len(large.rollouts) > 3 * len(small.rollouts)
    made = simulate("healthy", seed=1, steps=5, prompts=3, group_size=6)
    assert {len(rows) for rows in groups(made.rollouts).values()} == {6}
    assert len({r["prompt_id"] for r in made.rollouts if r["step"] == 1}) == 3


# faults ---------------------------------------------------------------------------------------------


def test_there_are_enough_kinds_and_each_is_named():
    assert len(FAULTS) >= 25
    assert len({i for kind in FAULTS.values() for i in kind.ids}) >= 40
    assert {kind.stage for kind in FAULTS.values()} == KNOWN_STAGES
    for kind in FAULTS.values():
        assert kind.truth
        assert all("." in i for i in (*kind.ids, *kind.also))


LATE = ("loss_not_finite", "exploding", "data_replayed")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k in LATE else k for k in FAULTS]
)
def test_every_fault_runs_and_changes_the_log(kind):
    steps = 100 if kind in LATE else 6
    made, healthy = run(kind, steps=steps), run(steps=steps)
    assert made.ids == FAULTS[kind].ids
    assert not made.healthy
    assert json.dumps(made.rollouts) != json.dumps(healthy.rollouts) or made.metrics != healthy.metrics


def test_a_constant_reward_leaves_nothing_to_learn():
    made = run("reward_constant")
    assert {r["reward"] for r in made.rollouts} == {0.0}
    assert {r["truth"] for r in made.rollouts} == {0.0, 1.0}
    assert (series(made, "grad_norm") == 0).all()


@pytest.mark.slow
def test_an_inverted_loss_unlearns_and_an_inverted_reward_too():
    for kind in ("loss_inverted", "advantages_inverted", "reward_inverted"):
        truth = series(run(kind, steps=90), "truth")
        assert truth[-20:].mean() < truth[:20].mean() - 0.05


@pytest.mark.slow
def test_the_exploit_is_found_and_costs_the_truth():
    made = run("overoptimised", steps=150)
    assert series(made, "reward")[-20:].mean() > series(made, "reward")[:20].mean() + 0.2
    assert series(made, "truth")[-20:].mean() < series(made, "truth")[:20].mean() - 0.1


def test_wrong_log_probs_are_computed_from_the_same_logits():
    made = run("shifted_by_one", steps=3)
    logits, ids, logged = (made.logits[n] for n in ("logits", "token_ids", "logged_logprobs"))
    steps = parts.log_softmax(logits.astype(float))
    late = np.take_along_axis(steps[:, :-1], ids[:, 1:, None], axis=2)[..., 0]
    right = np.take_along_axis(steps, ids[..., None], axis=2)[..., 0]
    assert np.abs(late - logged[:, 1:]).mean() < 0.02
    assert np.abs(right - logged).mean() > 0.5
    raw = run("raw_logits", steps=3)
    assert max(max(r["old_logprobs"]) for r in raw.rollouts) > 0.5


def test_the_temperature_is_the_only_thing_wrong():
    made = run("trainer_temperature", steps=3)
    logits, ids, logged = (made.logits[n] for n in ("logits", "token_ids", "logged_logprobs"))
    cooled = parts.log_softmax(logits.astype(float) / 1.6)
    assert np.abs(np.take_along_axis(cooled, ids[..., None], axis=2)[..., 0] - logged).mean() < 0.02


@pytest.mark.slow
def test_a_stale_sampler_falls_behind():
    made = run("stale_sampler", steps=150)
    gap = series(made, "sampler_logprob_gap")
    assert gap[-10:].mean() > 10 * gap[:3].mean()
    assert {r["policy_version"] for r in made.rollouts} == {0}
    assert abs(series(made, "reward")[-20:].mean() - series(made, "reward")[:20].mean()) < 0.08


def test_decoding_faults_show_in_the_text_only():
    prompt, pads = run("prompt_in_text", steps=3), run("padding_in_text", steps=3)
    assert all(r["prompt"] in r["reward_text"] for r in prompt.rollouts)
    assert all(r["reward_text"].endswith("<|pad|>") for r in pads.rollouts)
    tags = run("tags_removed", steps=3)
    assert all(ANS in r["completion"] and ANS not in r["reward_text"] for r in tags.rollouts if r["finished"])
    assert {r["reward"] for r in tags.rollouts} == {0.0}


def test_half_precision_and_residue_are_real_arithmetic():
    noisy = [abs(r["advantage"]) for r in run("residue_as_signal").rollouts]
    assert max(noisy) > 100
    half = [r["advantage"] for r in run("half_precision", steps=5).rollouts]
    assert any(not math.isfinite(a) for a in half) or len({round(a, 3) for a in half}) < len(half) / 3


def test_groups_of_prompts_are_mixed():
    rows = groups(run("groups_interleaved", steps=3).rollouts).values()
    sums = [abs(sum(r["advantage"] for r in group)) for group in rows]
    assert max(sums) > 0.5


def test_identical_completions_have_one_text():
    assert all(
        len({r["completion"] for r in g}) == 1 for g in groups(run("identical_completions").rollouts).values()
    )


@pytest.mark.slow
def test_data_come_again_after_a_bad_resume():
    rows = run("data_replayed", steps=120, size="large").rollouts
    prompts = {s: sorted({r["prompt_id"] for r in rows if r["step"] == s}) for s in (56, 64, 104, 112)}
    assert prompts[104] == prompts[56]
    assert prompts[112] == prompts[64]
    assert prompts[56] != prompts[64]


def test_micro_batches_that_divide_alone_have_another_loss_than_the_batch():
    alone, whole = (
        run(kind, steps=3, **more)
        for kind, more in (("micro_batches_alone", {}), ("healthy", {"shape": "accumulated"}))
    )
    for made, fits in ((alone, False), (whole, True)):
        rows = [r for r in made.rollouts if r["step"] == 1]
        length, push = (np.array([r[n] for r in rows], dtype=float) for n in ("length", "advantage"))
        together = -(length * push).sum() / length.sum()
        assert math.isclose(series(made, "policy_loss")[0], together, abs_tol=1e-6) == fits


def test_only_wrong_completions_grow_where_each_divides_by_its_own_length():
    made = run("own_length", steps=120)
    length = {
        (right, late): np.mean([
            r["length"] for r in made.rollouts if r["truth"] == right and (r["step"] > 60) == late
        ])
        for right in (0.0, 1.0) for late in (False, True)
    }  # fmt: skip
    assert length[0.0, True] > 1.5 * length[0.0, False]
    assert length[1.0, True] < 1.1 * length[1.0, False]


def test_words_that_are_never_sampled_make_the_estimate_negative():
    assert (series(run("negative_kl"), "kl")[5:] < 0).all()
    assert (series(run(), "kl") >= 0).all()


def test_scores_and_starts_stand_where_the_fault_puts_them():
    for row in run("score_on_padding", steps=1).rollouts:
        place = row["length"]
        assert row["token_rewards"][place] == row["reward"]
        assert row["mask"][place] == 0
    first = {tuple(r["prompt_ids"][:3]) for r in run("two_starts", steps=1).rollouts}
    assert all(a == b != c for a, b, c in first)


def test_padded_rows_alone_have_other_log_probs():
    rows = run("pads_are_counted", steps=1).rollouts
    longest = max(r["prompt_length"] for r in rows)
    gap = {r["prompt_length"] == longest: np.abs(np.subtract(r["old_logprobs"], r["sampler_logprobs"])).mean()
           for r in rows}  # fmt: skip
    assert gap.get(True, 0.0) < 0.05 < gap[False]


def test_evaluation_prompts_leak_only_where_they_should():
    for kind, leaks in (("evaluation_leak", True), ("healthy", False)):
        rows = run(kind, **({} if leaks else {"shape": "evaluated"})).rollouts
        sides = {split: {r["prompt"] for r in rows if r.get("split") == split} for split in ("eval", None)}
        assert bool(sides["eval"] & sides[None]) == leaks
        assert {r["reward"] - r["truth"] for r in rows if "split" in r} == {0.0}


def test_preferences_widen_the_margin_and_may_lose_the_chosen():
    for kind, more, falls in (("both_fall", {}, True), ("healthy", {"shape": "preferences"}, False)):
        made = run(kind, steps=100, **more)
        assert series(made, "rewards/margins")[-10:].mean() > 0.3
        assert (series(made, "logps/chosen")[-10:].mean() < series(made, "logps/chosen")[:3].mean()) == falls
        assert math.isclose(made.metrics[0]["loss"], math.log(2), abs_tol=1e-6)


# files and names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_metrics_carry_the_names_of_the_trainer(framework):
    row = run(framework=framework, steps=3).metrics[0]
    expected = {
        "generic": "zero_spread_fraction",
        "trl": "frac_reward_zero_std",
        "openrlhf": "ppo_clip_ratio",
    }
    if framework == "verl":
        assert "critic/score/mean" in row["data"]
    else:
        assert expected[framework] in row


def test_without_a_penalty_there_is_no_kl():
    assert "kl" in run(steps=2).metrics[0]
    assert "kl" not in run(steps=2, shape="no_kl").metrics[0]


def test_a_folder_holds_what_was_simulated(tmp_path):
    made = run("raw_logits", steps=4)
    root = write(made, tmp_path / "run")
    lines = (root / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["completion"] for line in lines] == [r["completion"] for r in made.rollouts]
    assert len((root / "metrics.jsonl").read_text().splitlines()) == 4
    assert json.loads((root / "config.json").read_text())["num_generations"] == 8
    assert np.load(root / "logits.npz")["logits"].shape[0] == 32
    with pytest.raises(BadInput, match="not empty"):
        write(made, tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": "reward_constnt"}, "did you mean"), ({"shape": "plian"}, "plain"), ({"size": "huge"}, "size"),
     ({"framework": "trll"}, "trl"), ({"steps": 0}, "at least 1")],
)  # fmt: skip
def test_bad_input_is_named(options, message):
    with pytest.raises(BadInput, match=message):
        simulate(**{"seed": 0, **options})
