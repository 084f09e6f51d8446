"""What a run may switch on: a held KL, an early stop, a curriculum, the KL's estimator, a sampler that differs."""

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.algos.curriculum import Curriculum
from assay.config import RunConfig, build_config
from assay.engines.sample import sample
from assay.errors import BadInput, ContractBroken
from assay.maths.importance import importance_weights
from assay.maths.kl import adaptive_kl_coef, kl_estimate
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy
from assay.records.score import scored
from assay.train.collect import Collector
from assay.train.forward import exact_token_kl, token_scores
from assay.train.setup import algorithm_of
from assay.train.trainer import Trainer

TASKS = [{"prompt_id": str(i), "prompt": f"sort {i} {i + 1}\n"} for i in range(6)]
SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 24, "max_positions": 64}
SMALL = {"batch_size": 16, "group_size": 4, "max_new_tokens": 6, "learning_rate": 1e-2, "reward": "sound"}


def start_policy(seed: int = 0) -> Policy:
    return TinyPolicy.create(["sort 1 2\n", "12 34"], seed=seed, vocab_size=300, **SIZES).frozen_copy()


def moved(policy: Policy, by: float) -> Policy:
    """The policy with noise on its weights."""
    other, noise = policy.frozen_copy(), torch.Generator().manual_seed(3)
    for parameter in other.module.parameters():
        parameter.add_(by * torch.randn(parameter.shape, generator=noise))
    return other


def count_length(texts, tasks):
    """A reward with spread from the first step on: odd lengths are paid."""
    return [scored(float(len(text) % 2)) for text in texts]


def trainer_of(reference: Policy | None = None, sampler=sample, **keys: Any) -> Trainer:
    config: RunConfig = build_config({**SMALL, **keys})
    algorithm, start = algorithm_of(config), start_policy()
    reference = (reference or start) if algorithm.needs_reference else None
    collector = Collector(config, TASKS, count_length, sampler=sampler)
    return Trainer(config, start.trainable_copy(), reference, algorithm, collector)


def steps(trainer: Trainer, count: int) -> list[dict[str, Any]]:
    rows = [trainer.train_step().metrics for _ in range(count)]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def weights_of(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.policy.module.parameters()])


def resumed(trainer: Trainer, **keys: Any) -> Trainer:
    """Another trainer that takes up the state, as it comes back from a file."""
    twin = trainer_of(**keys)
    twin.policy.module.load_state_dict(trainer.policy.module.state_dict())
    file = io.BytesIO()
    torch.save(trainer.state(), file)
    file.seek(0)
    twin.restore(torch.load(file, weights_only=True))
    return twin


HELD = {
    "algorithm": "grpo",
    "algorithm_options": {"kl_coef": 0.5, "minibatches": 2},
    "kl_control": {"target": 1e-3, "horizon": 100},
}


def test_the_coefficient_follows_the_measured_kl():
    trainer = trainer_of(**HELD)
    rows, coef = steps(trainer, 4), 0.5
    for row in rows:
        assert row["kl_coef"] == pytest.approx(coef, rel=1e-12)
        coef = adaptive_kl_coef(coef, row["kl_sampled"], target=1e-3, samples=16, horizon=100)
    assert rows[0]["kl_sampled"] == 0.0
    assert rows[1]["kl_coef"] == pytest.approx(0.5 * (1 - 0.2 * 16 / 100))  # no KL yet: cheaper
    assert rows[-1]["kl_sampled"] > 1e-3
    assert trainer.algorithm.kl.coef > rows[-1]["kl_coef"]  # too far: dearer


def test_the_coefficient_is_part_of_a_checkpoint():
    trainer = trainer_of(**HELD)
    steps(trainer, 2)
    twin = resumed(trainer, **HELD)
    assert twin.algorithm.kl.coef == trainer.algorithm.kl.coef != 0.5
    assert steps(twin, 2) == steps(trainer, 2)
    assert torch.equal(weights_of(twin), weights_of(trainer))


def test_a_batch_is_left_when_the_policy_has_moved_too_far():
    once = trainer_of(algorithm="dr_grpo")
    steps(once, 1)
    options = {"algorithm": "dr_grpo", "algorithm_options": {"epochs": 4}}
    stopped, free = trainer_of(**options, kl_control={"stop_at": 1e-9}), trainer_of(**options)
    (row,) = steps(stopped, 1)
    assert row["updates_skipped"] == 3.0
    assert torch.equal(weights_of(stopped), weights_of(once))  # the gradient past the limit is not applied
    (plain,) = steps(free, 1)
    assert not torch.equal(weights_of(free), weights_of(once))
    assert "updates_skipped" not in plain
    wide = trainer_of(**options, kl_control={"stop_at": 99.0})
    assert steps(wide, 1)[0]["updates_skipped"] == 0.0
    assert torch.equal(weights_of(wide), weights_of(free))


def test_nothing_is_logged_or_kept_that_was_not_asked_for():
    trainer = trainer_of()
    row = steps(trainer, 1)[0]
    assert not {"kl_coef", "kl_sampled", "updates_skipped", "sampler_gap", "weight_mean"} & set(row)
    assert not any(name.startswith("difficulty/") for name in row)
    assert trainer.state()["pass_state"] == {}
    assert not trainer.recomputes


BY_RATE = {"curriculum": {"decay": 0.5, "floor": 0.01}}


def test_prompts_are_drawn_by_their_pass_rate():
    trainer = trainer_of(**BY_RATE)
    curriculum, state = Curriculum(decay=0.5, floor=0.01), {}
    names = [task["prompt_id"] for task in TASKS]
    for step in range(4):
        expected = curriculum.choose(state, names, 4, seed=0, step=step)
        result = trainer.train_step()
        drawn = [rollout.prompt_id for rollout in result.rollouts]
        assert drawn[::4] == expected
        state = curriculum.update(state, drawn, [rollout.reward for rollout in result.rollouts])
        assert trainer.collector.pass_state == state
        shown = {k: v for k, v in result.metrics.items() if k.startswith("difficulty/")}
        assert sum(shown.values()) == len(TASKS)
        assert shown["difficulty/unseen"] == len(TASKS) - len(state)
    assert {"difficulty/never", "difficulty/0.4-0.5", "difficulty/always"} <= set(shown)


def test_a_resumed_curriculum_goes_on_bit_for_bit():
    trainer = trainer_of(**BY_RATE)
    steps(trainer, 2)
    twin = resumed(trainer, **BY_RATE)
    assert steps(twin, 3) == steps(trainer, 3)
    assert torch.equal(weights_of(twin), weights_of(trainer))


def test_a_curriculum_needs_as_many_prompts_as_a_step_draws():
    with pytest.raises(BadInput, match=r"at least 8 tasks .* got 6"):
        trainer_of(batch_size=32, curriculum={})


def paid_kl(estimator: str, where: str) -> tuple[list[float], torch.Tensor, torch.Tensor]:
    """KL that each completion paid, and its log-probs under policy and (another) reference."""
    options = {"kl_coef": 0.3, "kl_estimator": estimator, "kl_where": where}
    reference = moved(start_policy(), 0.05)
    trainer = trainer_of(reference, algorithm="rloo", algorithm_options=options)
    trainer.step = 1  # the reference is not the start policy here
    collected = trainer.collector.collect(trainer.policy, 1, 0)
    trainer._prepare(collected)
    paid = [(rollout.reward - rollout.shaped_reward) / 0.3 for rollout in collected.rollouts]
    with torch.no_grad():
        own, other = (token_scores(m, collected.rows).logp_BT for m in (trainer.policy, reference))
        if estimator == "exact":
            return paid, exact_token_kl(trainer.policy, reference, collected.rows), other
    return paid, own, other


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_reward_pays_the_kl_by_its_estimator(estimator: Any):
    paid, own, other = paid_kl(estimator, "reward" if estimator == "k1" else "reward!")
    expected = kl_estimate(own, other, estimator).sum(-1)
    assert paid == pytest.approx(expected.tolist(), abs=1e-4)
    assert max(map(abs, paid)) > 0.01


def test_the_exact_kl_in_the_reward_is_over_the_vocabulary():
    paid, exact, _ = paid_kl("exact", "reward")
    assert paid == pytest.approx(exact.sum(-1).tolist(), abs=1e-5)
    assert min(paid) > 0
    assert paid != pytest.approx(paid_kl("k1", "reward")[0], abs=1e-3)


def other_sampler(by: float):
    """An engine whose weights differ from the trainer's."""
    return lambda policy, requests, settings: sample(moved(policy, by), requests, settings)


FORMS = {
    "truncated": {"importance": {"high": 1.002}},
    "option of the method": {"algorithm_options": {"importance_cap": 1.002}},
    "masked": {"importance": {"outside": "mask", "high": 1.002, "low": 0.998}},
    "sequence": {"importance": {"level": "sequence", "high": 1.002}},
    "masked sequence": {"importance": {"level": "sequence", "outside": "mask", "high": 1.002, "low": 0.998}},
    "geometric": {"importance": {"level": "geometric", "high": 1.002}},
}


@pytest.mark.parametrize("form", FORMS)
def test_importance_weights_correct_a_sampler_that_differs(form: str):
    keys = {"algorithm": "grpo", **FORMS[form]}
    keys["algorithm_options"] = {"kl_coef": 0.0, **keys.get("algorithm_options", {})}
    trainer = trainer_of(sampler=other_sampler(2e-3), **keys)
    start = trainer.policy.frozen_copy()
    result = trainer.train_step()
    c = trainer.algorithm.correction
    rows = result.rollouts
    scores = token_scores(start, trainer.collector.collect(start, 1, 0).rows)  # the same tokens again
    mask = scores.mask_BT
    sampler = torch.zeros(mask.shape)
    for i, rollout in enumerate(rows):
        sampler[i, : len(rollout.sampler_logprobs)] = torch.tensor(rollout.sampler_logprobs)
    used = importance_weights(
        scores.logp_BT, sampler, mask, level=c.level, high=c.high, low=c.low, outside=c.outside
    )
    free = importance_weights(scores.logp_BT, sampler, mask, level=c.level, high=None)
    advantage = torch.tensor([rollout.advantage for rollout in rows])
    # at the first update the ratio to the trainer's own log-probs is 1: the loss is -mean of weight * A
    loss = -((used * advantage[:, None]).sum(1) / mask.sum(1)).mean()
    found = result.metrics
    assert found["policy_loss"] == pytest.approx(float(loss), abs=1e-6)
    assert found["weight_mean"] == pytest.approx(float(used[mask].mean()), abs=1e-6)
    assert found["weight_max"] == pytest.approx(float(free[mask].max()), abs=1e-6)
    assert found["weight_max"] > c.high
    assert found["weight_clipped"] == pytest.approx(float((used != free)[mask].float().mean()), abs=1e-6)
    assert 0 < found["weight_clipped"] < 1
    assert (found["weight_dropped"] > 0) == (c.outside == "mask")
    assert found["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    gap = (scores.logp_BT - sampler)[mask].abs()
    assert found["sampler_gap"] == pytest.approx(float(gap.mean()), abs=1e-6)
    assert found["sampler_gap_max"] == pytest.approx(float(gap.max()), abs=1e-6)


def test_the_correction_brings_the_gradient_back():
    """Mean gradient of many batches from a sampler that differs, against that of the trained policy's own."""

    def gradient(by: float, **keys: Any) -> torch.Tensor:
        options = {"baseline": "constant", "baseline_value": 0.5}
        keys = {**keys, "algorithm_options": options, "batch_size": 1024, "group_size": 256}
        trainer = trainer_of(sampler=other_sampler(by) if by else sample, **keys)
        trainer.step = 1  # this gap is meant to be large
        prepared = trainer._prepare(trainer.collector.collect(trainer.policy, 1, 0))
        trainer._gradient(prepared, prepared.trained, check=False)
        return torch.cat([p.grad.flatten() for p in trainer._trainable])

    own = gradient(0.0)
    uncorrected = gradient(0.12)
    corrected = gradient(0.12, importance={"level": "sequence", "high": None})
    cosine = torch.nn.functional.cosine_similarity
    assert float(cosine(corrected, own, 0)) > float(cosine(uncorrected, own, 0))


def test_an_equal_sampler_has_weights_of_one():
    trainer = trainer_of(algorithm="grpo", importance={})
    row = steps(trainer, 1)[0]
    assert row["weight_mean"] == pytest.approx(1.0, abs=1e-5)
    assert row["weight_max"] == pytest.approx(1.0, abs=1e-4)
    assert row["weight_clipped"] == 0.0
    assert row["sampler_gap_max"] < 1e-4
    plain = trainer_of(algorithm="grpo")
    steps(plain, 1)
    assert torch.allclose(weights_of(plain), weights_of(trainer), atol=1e-3)


def test_a_sampler_that_differs_without_a_correction_stops_the_run():
    for keys in ({}, {"recompute_old_logprobs": True}):
        with pytest.raises(ContractBroken, match="trainer and sampler log-probs differ"):
            steps(trainer_of(sampler=other_sampler(2e-3), **keys), 1)
    with pytest.raises(ContractBroken, match="sampler log-probs differ"):  # too far even for another engine
        steps(trainer_of(sampler=other_sampler(1.0), importance={}), 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kl_control": {"target": 6.0}}, "set kl_coef=0.05"),
        ({"kl_control": {"stop_at": 0.1}}, "set minibatches or epochs above 1"),
        (
            {"algorithm": "ppo", "algorithm_options": {"kl_target": 3.0}, "kl_control": {"target": 6.0}},
            "are the same; leave one out",
        ),
        ({"algorithm": "dpo", "curriculum": {}}, "learns from pairs and has no curriculum"),
        ({"algorithm": "online_dpo", "importance": {}}, "learns from pairs and has no importance"),
        ({"algorithm": "grpo", "importance": {}, "recompute_old_logprobs": False}, "true or left out"),
        ({"importance": {"low": 0.5, "high": 0.1}}, "importance.high: .*got 0.1"),
        ({"importance": {"level": "tokens"}}, "importance.level"),
        ({"curriculum": {"low": 0.9, "high": 0.1}, "algorithm": "grpo"}, "0 <= low < high"),
        ({"curriculum": {"decoy": 0.9}}, "unknown key 'curriculum.decoy'"),
        (
            {"algorithm": "rloo", "algorithm_options": {"kl_estimator": "k3"}},
            "use kl_where=loss, or write kl_where=reward!",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(keys: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        trainer_of(**keys)


def test_an_empty_curriculum_or_importance_is_on():
    config = build_config({"curriculum": {}, "importance": {}, "algorithm": "grpo"})
    assert config.curriculum is not None
    assert algorithm_of(config).correction is not None
    assert math.isclose(config.curriculum.high, 0.9)


def test_every_metric_and_key_is_documented():
    """With everything switched on, no metric and no key of the run is missing from the page."""
    text = (Path(__file__).parents[2] / "docs" / "algorithms" / "index.md").read_text("utf-8")
    known = set(re.findall(r"`([\w./]+)`", text))
    options = {"kl_coef": 0.1, "epochs": 2, "kl_estimator": "exact", "entropy_coef": 0.01}
    control = {"target": 1.0, "stop_at": 9.0}
    trainer = trainer_of(
        algorithm="grpo", algorithm_options=options, kl_control=control, curriculum={}, importance={}
    )
    metrics = trainer.train_step().metrics
    shown = {name for name in metrics if not name.startswith("difficulty/")}
    assert shown - {"step"} <= known
    for key in ("kl_control", "curriculum", "importance"):
        inner = getattr(trainer.config, key).model_dump()
        assert {f"{key}.{name}" for name in inner} <= known
    assert "recompute_old_logprobs" in known
