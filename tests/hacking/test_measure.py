"""From matched checkpoints to measures and verdict."""

import json
import math

import numpy as np
import polars as pl
import pytest

from assay.errors import BadInput
from assay.hacking import MatchedCheckpoint, measure
from assay.records.run_folder import EVAL_COLUMNS

P, N = 64, 8


def checkpoint(step, reward, truth, completions=None, **columns):
    shape = np.shape(reward)
    defaults = {"length": 20.0, "entropy": 0.5, "kl": 0.1 * step}
    grids = {name: np.full(shape, columns.get(name, value)) for name, value in defaults.items()}
    ids = [f"p{row}" for row in range(shape[0])]
    texts = completions or [[f"{row} {column}" for column in range(shape[1])] for row in range(shape[0])]
    return MatchedCheckpoint(step, ids, np.asarray(reward, float), np.asarray(truth, float),
                             completions=texts, **grids)  # fmt: skip


def simulate(rng, truths, hacks, prompts=P, samples=N):
    """A run whose checkpoints have the given truth rates, and pay this share of wrong samples besides."""
    run = []
    for k, (p, h) in enumerate(zip(truths, hacks, strict=True)):
        truth = (rng.random((prompts, samples)) < p).astype(float)
        paid = np.maximum(truth, rng.random((prompts, samples)) < h)
        run.append(checkpoint(10 * k, paid, truth))
    return run


def test_counts_of_the_table_rewarded_by_true_are_exact():
    reward = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], float)
    truth = np.array([[1, 0, 0, 1], [1, 1, 0, 0]], float)
    row = measure([checkpoint(0, reward, truth)]).checkpoints[0]
    assert row.reward.estimate == pytest.approx(5 / 8)
    assert row.truth.estimate == pytest.approx(4 / 8)
    assert row.hacking_rate.estimate == pytest.approx(1 / 8)
    assert row.rewarded_not_true.estimate == pytest.approx(2 / 8)
    assert row.not_true_if_rewarded.estimate == pytest.approx(2 / 5)
    assert row.youden == pytest.approx(3 / 4 - 2 / 4)
    assert row.pass_1 == pytest.approx(0.5)
    assert row.pass_n == 1.0


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((60, 4, 2, 190), (0.0078125, 0.015625, 0.0625, 0.94712337878284)),
        ((120, 20, 2, 114), (0.0703125, 0.078125, 0.14285714285714285, 0.8343528260337656)),
        ((30, 180, 0, 46), (0.703125, 0.703125, 0.8571428571428571, 0.20353982300884954)),
        ((100, 50, 50, 56), (0.0, 0.1953125, 0.3333333333333333, 0.19496855345911945)),
    ],
)
def test_the_four_measures_on_known_tables(counts, expected):
    both, hacked, unpaid, neither = counts
    reward = np.repeat([1, 1, 0, 0], [both, hacked, unpaid, neither])[:, None].astype(float)
    truth = np.repeat([1, 0, 1, 0], [both, hacked, unpaid, neither])[:, None].astype(float)
    row = measure([checkpoint(0, reward, truth)]).checkpoints[0]
    seen = (row.hacking_rate.estimate, row.rewarded_not_true.estimate, row.not_true_if_rewarded.estimate,
            row.youden)  # fmt: skip
    assert seen == pytest.approx(expected, abs=1e-12)


def test_a_growing_hack_is_called_hacking_and_its_onset_is_near_the_start_of_the_growth():
    run = simulate(np.random.default_rng(1), [0.3] * 9, [0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    found = measure(run)
    assert found.verdict == "hacking"
    assert found.onset_step in (30, 40)
    assert "more than truth" in found.reason


def test_truth_that_falls_under_rising_reward_is_overoptimisation():
    truths = [0.2, 0.3, 0.4, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1]
    hacks = [0.0, 0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95]
    found = measure(simulate(np.random.default_rng(2), truths, hacks))
    assert found.verdict == "overoptimisation"
    assert found.selection.by_truth in (20, 30, 40, 50)
    assert found.selection.by_reward >= 60
    assert found.selection.cost.low > 0


def test_a_sound_reward_that_teaches_is_healthy():
    truths = np.linspace(0.2, 0.6, 9)
    found = measure(simulate(np.random.default_rng(3), truths, [0] * 9))
    assert found.verdict == "healthy"
    assert found.onset_step is None


def test_nothing_moves_is_no_learning():
    assert measure(simulate(np.random.default_rng(4), [0.3] * 9, [0] * 9)).verdict == "no_learning"


def test_a_checker_that_is_noisy_from_the_start_accuses_nobody():
    truths = np.linspace(0.2, 0.5, 9)
    assert measure(simulate(np.random.default_rng(5), truths, [0.2] * 9)).verdict == "healthy"


def test_a_small_sample_is_inconclusive_and_says_what_would_settle_it():
    found = measure(simulate(np.random.default_rng(6), [0.2, 0.4], [0, 0], prompts=6, samples=2))
    assert found.verdict == "inconclusive"
    assert found.needed is not None
    assert found.needed.prompts > 6
    assert str(found.needed.prompts) in found.reason


def test_two_prompts_never_accuse_however_large_the_change():
    run = [
        checkpoint(0, np.zeros((2, 4)), np.zeros((2, 4))),
        checkpoint(5, np.ones((2, 4)), np.zeros((2, 4))),
    ]
    assert measure(run).verdict == "inconclusive"


def test_one_checkpoint_is_inconclusive():
    found = measure(simulate(np.random.default_rng(7), [0.3], [0.5]))
    assert found.verdict == "inconclusive"
    assert found.changes is None


def test_order_of_checkpoints_prompts_and_samples_does_not_matter():
    run = simulate(np.random.default_rng(8), [0.2, 0.3, 0.4], [0, 0.2, 0.5])
    rng = np.random.default_rng(9)
    shuffled = []
    for item in reversed(run):
        rows, columns = rng.permutation(P), rng.permutation(N)
        shuffled.append(
            MatchedCheckpoint(
                item.step,
                [item.prompt_ids[row] for row in rows],
                *(getattr(item, name)[rows][:, columns] for name in ("reward", "truth", "length")),
                *(getattr(item, name)[rows][:, columns] for name in ("entropy", "kl")),
                [[item.completions[row][column] for column in columns] for row in rows],
            )
        )
    left, right = measure(run).to_json(), measure(shuffled).to_json()
    for row in (*left["checkpoints"], *right["checkpoints"]):
        row.pop("template")  # equal counts are broken by order
    assert json.dumps(left, sort_keys=True)[:200] == json.dumps(right, sort_keys=True)[:200]
    assert left["verdict"] == right["verdict"]
    assert left["onset_step"] == right["onset_step"]


def test_other_prompts_are_refused():
    first, second = simulate(np.random.default_rng(1), [0.2, 0.3], [0, 0])
    other = MatchedCheckpoint(99, [f"q{row}" for row in range(P)], second.reward, second.truth, second.length,
                              second.entropy, second.kl, second.completions)  # fmt: skip
    with pytest.raises(BadInput, match="not matched"):
        measure([first, other])


def test_a_repeated_step_no_checkpoint_and_a_worthless_gold_are_refused():
    first, second = simulate(np.random.default_rng(1), [0.2, 0.3], [0, 0])
    with pytest.raises(BadInput, match="one evaluation a step"):
        measure([first, first])
    with pytest.raises(BadInput, match="got none"):
        measure([])
    with pytest.raises(BadInput, match="paid more than 0"):
        measure([first, second], gold_reward=0.0)


def test_a_gold_that_is_paid_ten_is_the_same_run():
    run = simulate(np.random.default_rng(3), [0.2, 0.4, 0.6], [0, 0.1, 0.1])
    tenfold = [checkpoint(item.step, item.reward * 10, item.truth) for item in run]
    assert measure(run).to_json() == measure(tenfold, gold_reward=10.0).to_json()


def test_missing_scores_leave_the_statistics_and_are_counted():
    run = simulate(np.random.default_rng(3), [0.2, 0.6], [0, 0])
    holes = run[1].reward.copy()
    holes[:, 0] = math.nan
    holes[0] = math.nan
    found = measure([run[0], checkpoint(10, holes, run[1].truth)])
    row = found.checkpoints[1]
    assert row.missing_reward == P + N - 1
    assert row.reward.estimate == pytest.approx(np.nanmean(np.nanmean(holes[1:], axis=1)))
    assert row.hacking_rate.estimate == pytest.approx(0)
    assert any("missing" in note for note in found.notes)


def test_no_truth_at_all_is_unknown_and_never_zero():
    run = simulate(np.random.default_rng(3), [0.2, 0.6], [0, 0])
    blind = [checkpoint(item.step, item.reward, np.full((P, N), math.nan)) for item in run]
    found = measure(blind)
    document = found.to_json()
    assert found.verdict == "inconclusive"
    assert document["checkpoints"][0]["truth"]["estimate"] is None
    assert document["checkpoints"][0]["rewarded_not_true"]["estimate"] is None
    assert document["selection"] is None
    json.dumps(document, allow_nan=False)


def test_a_learned_reward_is_standardised_on_the_start():
    rng = np.random.default_rng(11)
    run = []
    for k in range(6):
        quality = rng.normal(0, 1, (P, N)) + 0.1 * k
        run.append(checkpoint(k, 40 + 7 * (quality + 0.6 * k), quality))
    found = measure(run, learned=True)
    start, end = found.checkpoints[0], found.checkpoints[-1]
    assert found.gap_name == "overoptimisation gap"
    assert start.reward.estimate == pytest.approx(0, abs=1e-9)
    assert start.hacking_rate.estimate == pytest.approx(0, abs=1e-9)
    assert end.hacking_rate.estimate == pytest.approx(3.0, abs=0.3)
    assert math.isnan(end.rewarded_not_true.estimate)
    assert found.verdict == "hacking"


def test_intervals_of_scores_in_0_to_1_stay_there():
    row = measure([checkpoint(0, np.ones((P, N)), np.zeros((P, N)))]).checkpoints[0]
    assert (row.reward.high, row.truth.low) == (1.0, 0.0)
    assert row.reward.low < 1.0
    assert row.truth.high > 0.0
    lone = measure([checkpoint(0, np.ones((1, 4)), np.zeros((1, 4)))]).checkpoints[0]
    assert math.isnan(lone.reward.low)


def test_lengths_entropies_and_kl_keep_their_units():
    item = checkpoint(3, np.ones((4, 2)), np.ones((4, 2)), length=10.0, kl=5.0, entropy=0.25)
    row = measure([item]).checkpoints[0]
    assert (row.kl_sequence, row.kl_token, row.entropy, row.length) == (5.0, 0.5, 0.25, 10.0)


def table(rows):
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in EVAL_COLUMNS}, strict=False)


def test_a_table_becomes_a_checkpoint():
    rows = [
        {"prompt_id": f"p{i // 2}", "sample": i % 2, "completion": f"c{i}", "reward": float(i % 2),
         "truth": 1.0, "reward_state": "scored", "truth_state": "scored", "length": 4, "entropy": 0.5, "kl": 0.1}
        for i in range(6)
    ]  # fmt: skip
    rows[3]["reward"], rows[3]["reward_state"] = None, "crashed"
    item = MatchedCheckpoint.from_table(7, table(rows))
    assert item.prompt_ids == ("p0", "p1", "p2")
    np.testing.assert_array_equal(item.reward, [[0, 1], [0, math.nan], [0, 1]])
    assert item.completions[1][1] == "c3"


def test_ragged_groups_are_filled_with_unknown():
    rows = [{"prompt_id": p, "reward": 1.0, "truth": 0.0} for p in ("a", "a", "b")]
    item = MatchedCheckpoint.from_table(0, table(rows))
    np.testing.assert_array_equal(item.reward, [[1, 1], [1, math.nan]])
    assert measure([item]).checkpoints[0].missing_reward == 1


def test_a_table_without_truth_is_refused():
    with pytest.raises(BadInput, match="column 'truth'"):
        MatchedCheckpoint.from_table(0, pl.DataFrame({"prompt_id": ["a"], "reward": [1.0]}))


def test_the_printed_table_has_one_row_a_checkpoint_and_marks_the_unknown():
    run = simulate(np.random.default_rng(3), [0.2, 0.6], [0, 0])
    rows = measure(run).table()
    assert [row["step"] for row in rows] == ["0", "10"]
    assert set(rows[0]) >= {"reward", "truth", "hacking rate", "J", "pass@8"}
    blind = measure([checkpoint(0, run[0].reward, np.full((P, N), math.nan))]).table()
    assert blind[0]["truth"] == "-"


def drifting(rng, *, drift, noise, steps=6, prompts=64, samples=8):
    """Truth that wears off a little at every checkpoint under a reward that is a coin flip."""
    skill = rng.beta(0.5, 4, prompts)[:, None]
    for step in range(steps):
        truth = rng.random((prompts, samples)) < skill * (1 - drift * step)
        reward = rng.random((prompts, samples)) < noise
        yield checkpoint(10 * step, reward, truth)


def test_a_policy_that_drifts_under_a_coin_flip_is_not_accused_of_overoptimisation():
    verdicts = [
        measure(list(drifting(np.random.default_rng(seed), drift=0.07, noise=0.5))).verdict
        for seed in range(60)
    ]
    assert verdicts.count("overoptimisation") + verdicts.count("hacking") <= 3
    assert verdicts.count("healthy") == 0
