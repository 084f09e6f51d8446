"""Learning from pairs: ln 2 at the start, the margin grows, both may fall, online pairs, resume."""

import math

import pytest
import torch

from assay.algos.dpo import LOSSES, PairLogps, Preference
from assay.algos.recipes import make_algorithm, option_names
from assay.config import build_config
from assay.errors import BadInput, ContractBroken
from assay.maths.tilt import kl_tilt
from assay.models.tiny_policy import TinyPolicy
from assay.records.rollout import Rollout
from assay.records.score import scored
from assay.tasks.raters import Answer
from assay.train.collect import Collected, Collector
from assay.train.dpo import PreferenceTrainer, best_and_worst, explain_displacement, pair_logps, pairs_of_step
from assay.train.forward import TokenRows, token_scores
from assay.train.preference_data import Pair, PairRows

TASKS = [{"prompt_id": str(i), "prompt": f"sort {i} {i + 1}\n"} for i in range(4)]
PAIRS = [
    Pair(f"sort {i} {i + 1}\n", Answer(f"{i} {i + 1}.", 1.0, 3.0), Answer(f"{i + 1} so", 0.0, 2.0))
    for i in range(6)
]


def pay_for_the_digit(completions, tasks):
    return [scored(float(len(completion))) for completion in completions]


def new_trainer(name: str = "dpo", **options) -> PreferenceTrainer:
    start = TinyPolicy.create(
        ["sort 1 2\n1 2. so", "sort 4 3\n3 4."],
        vocab_size=300, hidden_size=16, layers=1, heads=2, intermediate_size=24, max_positions=48,
    )  # fmt: skip
    config = build_config(
        {"batch_size": 8, "group_size": 4, "max_new_tokens": 6, "learning_rate": 2e-3, "algorithm": name,
         "tasks": "padded-v1"}
    )  # fmt: skip
    algorithm = make_algorithm(name, **options)
    policy = start.frozen_copy()
    policy.module.requires_grad_(True)
    return PreferenceTrainer(
        config,
        policy,
        start.frozen_copy() if algorithm.needs_reference else None,
        algorithm,
        Collector(config, TASKS, pay_for_the_digit),
        pairs=PairRows(policy, PAIRS) if name == "dpo" else None,
    )


def test_the_first_loss_is_ln_2_and_then_the_margin_grows():
    trainer = new_trainer()
    metrics = [trainer.train_step().metrics for _ in range(12)]
    assert metrics[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert metrics[0]["margin"] == pytest.approx(0.0, abs=1e-4)
    assert metrics[-1]["margin"] > metrics[1]["margin"] > 0
    assert metrics[-1]["accuracy"] == 1.0
    assert metrics[-1]["pairs"] == 4.0


def test_the_wrong_reference_stops_the_run():
    trainer = new_trainer()
    with torch.no_grad():
        trainer.reference.module.model.norm.weight.mul_(1.3)
    with pytest.raises(ContractBroken, match="ln 2"):
        trainer.train_step()


def test_pairs_are_summed_over_the_completion_alone():
    trainer = new_trainer()
    rows = trainer.pairs
    logps = pair_logps(trainer.policy, rows.chosen, rows.rejected)
    alone = token_scores(trainer.policy, rows.chosen.select([2]))
    torch.testing.assert_close(logps.chosen_B[2], alone.logp_BT.sum(), atol=1e-5, rtol=1e-5)
    assert logps.chosen_tokens_B[2] == len(rows.chosen.completion_ids[2])


def test_online_pairs_are_the_best_and_the_worst_of_each_group():
    def rollout(reward):
        return Rollout(1, "p", 0, "", "", [1], [0.0], "eos", reward=reward)

    rewards = [0.2, 0.9, math.nan, 0.1, 0.5, 0.5, 0.7, math.nan]
    collected = Collected([rollout(r) for r in rewards], [[0]] * 8, [0, 1, 0, 0, 2, 2, 1, 3])
    best, worst = best_and_worst(collected)
    assert (best, worst) == ([0, 1], [3, 6])


def test_online_dpo_learns_what_the_reward_ranks():
    trainer = new_trainer("online_dpo", beta=0.5)
    first = trainer.train_step()
    assert first.metrics["loss"] == pytest.approx(math.log(2), abs=1e-4)
    assert len(first.rollouts) == 8
    assert first.metrics["pairs"] <= 2.0
    for _ in range(3):
        last = trainer.train_step()
    assert math.isfinite(last.metrics["reward"])


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(loss):
    smoothing = 0.1 if loss == "robust" else 0.0
    trainer = new_trainer(loss=loss, label_smoothing=smoothing, sft_coef=0.01)
    gaps = []
    for _ in range(6):
        trainer.train_step()
        logps = pair_logps(trainer.policy, trainer.pairs.chosen, trainer.pairs.rejected)
        gaps.append(float((logps.chosen_B - logps.rejected_B).detach().mean()))
    assert gaps[-1] > gaps[0]
    assert (trainer.reference is None) == (loss in ("orpo", "simpo"))


def test_resume_is_bit_for_bit():
    straight, first, second = (new_trainer() for _ in range(3))
    for _ in range(3):
        straight.train_step()
    first.train_step()
    second.policy.module.load_state_dict(first.policy.module.state_dict())
    second.restore(first.state())
    for _ in range(2):
        second.train_step()
    one, other = straight.policy.module.state_dict(), second.policy.module.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_every_pair_comes_once_an_epoch():
    taken = [place for step in range(3) for place in pairs_of_step(step, seed=1, pairs=6, batch=4)]
    assert sorted(taken[:6]) == sorted(taken[6:]) == list(range(6))


def test_a_population_of_preferences_ends_at_the_closed_form():
    """Every pair with its Bradley-Terry probability, the public loss, six hundred Newton-like steps of Adam."""
    ref = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    reward = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    chosen, rejected = (index.flatten() for index in torch.meshgrid(*[torch.arange(4)] * 2, indexing="ij"))
    share = torch.sigmoid(reward[chosen] - reward[rejected]) * (chosen != rejected)
    method = make_algorithm("dpo", beta=0.5)
    assert isinstance(method, Preference)
    logits = ref.log().clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05)
    ones = torch.ones(16, dtype=torch.float64)
    reference = PairLogps(ref.log()[chosen], ref.log()[rejected], ones, ones)
    for _ in range(600):
        logp = torch.log_softmax(logits, 0)
        loss = (
            method.pair_losses(PairLogps(logp[chosen], logp[rejected], ones, ones), reference) * share
        ).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = torch.softmax(logits.detach(), 0)
    torch.testing.assert_close(found, kl_tilt(ref, reward, 0.5).policy_K, atol=1e-3, rtol=0)


def test_both_falling_is_explained_and_not_called_a_bug():
    """Log-probs -40 and -45 at the start; -60 and -95 at the end of a run with 40 tokens and beta 0.1."""
    rows = {0: (-40.0, -45.0, 0.0), 50: (-44.0, -59.0, 1.0), 100: (-60.0, -95.0, 3.0)}
    said = {
        step: explain_displacement(c + 40, (c + 40) / 40, margin) for step, (c, _, margin) in rows.items()
    }
    assert said[0] is None
    assert said[50] is None
    assert "not a bug" in said[100]
    assert "fell by 20 nats (0.5 a token" in said[100]
    assert "likelihood displacement" in said[100]


def test_options_and_refusals():
    assert len(option_names("dpo")) <= 10
    for bad in ({"loss": "dop"}, {"beta": 0.0}, {"sft_coef": -1.0}):
        with pytest.raises(BadInput):
            make_algorithm("dpo", **bad)
    trainer = new_trainer()
    trainer.pairs = None
    with pytest.raises(BadInput, match="comparisons"):
        trainer.train_step()


def test_selecting_rows():
    rows = TokenRows([[1], [2]], [[3], [4]])
    assert rows.select([1]).prompt_ids == [[2]]
