"""PPO: where the reward and the KL land, the critic, whitening, the controller, and the closed form it reaches."""

import math

import pytest
import torch

from assay.algos.batch import TokenBatch
from assay.algos.ppo import ActorCritic, Critic
from assay.algos.recipes import make_algorithm, option_names
from assay.config import build_config
from assay.errors import BadInput
from assay.maths.kl import kl_estimate
from assay.maths.masking import whiten
from assay.maths.rewards import missing_eos_penalty
from assay.maths.tilt import kl_tilt
from assay.maths.value import gae
from assay.models.heads import ScalarModel
from assay.models.tiny_policy import TinyPolicy
from assay.records.score import scored
from assay.train.collect import Collector
from assay.train.ppo import ActorCriticTrainer, token_rewards
from assay.train.trainer import Trainer

TASKS = [{"prompt_id": str(i), "prompt": f"sort {i} {i + 1}\n"} for i in range(4)]


def test_the_score_sits_on_the_last_token_and_never_on_a_pad():
    """Padded and unpadded rows; pads hold garbage log-probs that count nowhere."""
    mask = torch.tensor([[True, True, True, False, False], [True] * 5])
    sampler = torch.tensor([[0.1, 0.2, 0.1, 9.0, 9.0], [0.0] * 5])
    rewards = token_rewards(torch.tensor([1.0, 1.0]), sampler, torch.zeros(2, 5), mask, kl_coef=0.5)
    expected = torch.tensor([[-0.05, -0.10, 0.95, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    torch.testing.assert_close(rewards, expected)
    advantages, _ = gae(rewards, torch.zeros(2, 5), mask, gamma=1.0, lam=1.0)
    assert float(advantages[0, 0]) == pytest.approx(0.80)
    ended = torch.tensor([True, False])
    punished = missing_eos_penalty(torch.tensor([1.0, 1.0]), ended, 1.0)
    assert token_rewards(punished, sampler, torch.zeros(2, 5), mask, kl_coef=0.5)[1].tolist() == [0.0] * 5


def test_without_a_reference_there_is_only_the_score():
    mask = torch.tensor([[True, False]])
    rewards = token_rewards(torch.tensor([2.0]), torch.tensor([[5.0, 5.0]]), None, mask, kl_coef=0.5)
    assert rewards.tolist() == [[2.0, 0.0]]


def test_options_and_refusals():
    assert len(option_names("ppo")) <= 10
    algorithm = make_algorithm("ppo")
    assert isinstance(algorithm, ActorCritic)
    assert algorithm.critic == Critic()
    assert (algorithm.kl.coef, algorithm.kl.estimator, algorithm.kl.where) == (0.05, "k1", "token_reward")
    assert make_algorithm("ppo", match="trl") == algorithm
    adaptive = make_algorithm("ppo", kl_target=3.0)
    assert isinstance(adaptive, ActorCritic)
    assert (adaptive.kl_control.kind, adaptive.kl_control.target) == ("adaptive", 3.0)
    for bad in ({"lam": 1.5}, {"value_clip": 0.0}, {"whiten": "all"}, {"value_coef": -1.0}):
        with pytest.raises(BadInput):
            make_algorithm("ppo", **bad)


def pay_for_the_digit(completions, tasks):
    return [scored(float("1" in completion)) for completion in completions]


def new_trainer(keys=None, **options) -> ActorCriticTrainer:
    start = TinyPolicy.create(
        ["sort 1 2\n1 2. so", "sort 4 3\n3 4."],
        vocab_size=300, hidden_size=16, layers=1, heads=2, intermediate_size=24, max_positions=48,
    )  # fmt: skip
    config = build_config(
        {"batch_size": 8, "group_size": 2, "max_new_tokens": 6, "learning_rate": 1e-3, "algorithm": "ppo",
         "tasks": "padded-v1", **(keys or {})}
    )  # fmt: skip
    reference = start.frozen_copy()
    policy = start.frozen_copy()
    policy.module.requires_grad_(True)
    return ActorCriticTrainer(
        config,
        policy,
        reference,
        make_algorithm("ppo", **options),
        Collector(config, TASKS, pay_for_the_digit),
        critic=ScalarModel(reference),
    )


def test_both_networks_train_and_everything_is_measured():
    trainer = new_trainer(epochs=2)
    before = [p.detach().clone() for p in (*trainer.policy.module.parameters(), *trainer.critic.parameters())]
    result = trainer.train_step()
    after = [*trainer.policy.module.parameters(), *trainer.critic.parameters()]
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert trainer.critic.head.linear.bias.abs().sum() > 0
    assert {"value_loss", "explained_variance", "kl_coef", "kl_sequence", "clip_fraction"} <= set(
        result.metrics
    )
    assert all(math.isfinite(rollout.advantage) for rollout in result.rollouts)
    same = [trainer.reference, trainer.critic.policy]
    assert not torch.equal(*(policy.module.head_weight_VH for policy in same))  # the critic is a copy


def test_the_controller_moves_the_coefficient_and_fixed_does_not():
    still, moving = new_trainer(epochs=1), new_trainer(epochs=1, kl_target=0.01, kl_coef=0.1)
    still.train_step()
    assert still.algorithm.kl.coef == 0.05
    moving.train_step()  # the first batch is sampled at KL 0, below any target
    assert moving.algorithm.kl.coef == pytest.approx(0.1 * (1 - 0.2 * 8 / 10_000))
    by_key = new_trainer({"kl_control": {"target": 0.01, "horizon": 100}}, epochs=1, kl_coef=0.1)
    by_key.train_step()  # the run's key is the same controller, with its horizon
    assert by_key.algorithm.kl.coef == pytest.approx(0.1 * (1 - 0.2 * 8 / 100))


def test_resume_brings_back_optimiser_critic_and_controller_bit_for_bit():
    straight = new_trainer(epochs=2, kl_target=0.5)
    for _ in range(2):
        straight.train_step()
    first = new_trainer(epochs=2, kl_target=0.5)
    first.train_step()
    state, weights = first.state(), first.policy.module.state_dict()
    second = new_trainer(epochs=2, kl_target=0.5)
    second.policy.module.load_state_dict(weights)
    second.restore(state)
    second.train_step()
    for name in ("policy", "critic"):
        one, other = (
            (t.policy.module if name == "policy" else t.critic).state_dict() for t in (straight, second)
        )
        assert all(torch.equal(one[key], other[key]) for key in one), name
    assert straight.algorithm.kl.coef == second.algorithm.kl.coef != 0.05


def test_value_clip_binds_only_far_from_the_old_value():
    trainer = new_trainer(epochs=1, value_clip=None)
    assert isinstance(trainer, Trainer)
    assert trainer.actor_critic.critic.value_clip is None


# The exact policy gradient on six completions, by enumeration: what each place of the KL converges to.
REF = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.045, 0.005], dtype=torch.float64)
PROXY = torch.tensor([0.0, 0.1, 0.6, 1.0, 1.2, 2.0], dtype=torch.float64)


def climb(method: str, beta: float, steps: int = 1200) -> torch.Tensor:
    """Gradient ascent on the population objective: k1 in the reward, k2 or k3 in the loss, standardised or not."""
    logits = REF.log().clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.02)
    for _ in range(steps):
        logp = torch.log_softmax(logits, 0)
        policy = logp.detach().exp()
        paid = PROXY - beta * (logp.detach() - REF.log()) if method == "k1 in reward" else PROXY
        advantage = paid - policy @ paid
        if method == "grpo":
            advantage = advantage / ((policy @ advantage.square()).sqrt() + 1e-6)
        loss = -(policy * advantage * logp).sum()
        if method == "k2 in loss":
            loss = loss + beta * (policy * kl_estimate(logp, REF.log(), "k2")).sum()
        if method == "grpo":
            loss = loss + beta * (policy * kl_estimate(logp, REF.log(), "k3")).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return torch.softmax(logits.detach(), 0)


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("method", ["k1 in reward", "k2 in loss"])
def test_the_right_kl_reaches_the_closed_form(method, beta):
    found = climb(method, beta)
    torch.testing.assert_close(found, kl_tilt(REF, PROXY, beta).policy_K, atol=1e-2, rtol=0)


def train_on_samples(method: str, beta: float, group: int = 64, steps: int = 300) -> torch.Tensor:
    """The same problem from samples by the public parts of each method: credit, loss and denominator."""
    ppo, batch = method == "ppo", 4096
    options = {"kl_coef": beta, "epochs": 1} if ppo else {"kl_coef": beta, "kl_estimator": "k2"}
    algorithm = make_algorithm(method, **options)
    logits = REF.log().float().clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05)
    generator, mask = torch.Generator().manual_seed(0), torch.ones(batch, 1, dtype=torch.bool)
    groups, mean = torch.arange(batch) // group, torch.zeros_like(REF)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / steps)
        logp = torch.log_softmax(logits, 0)
        drawn = torch.multinomial(logp.detach().exp(), batch, replacement=True, generator=generator)
        old, reference = logp.detach()[drawn, None], REF.log().float()[drawn, None]
        if ppo:
            rewards = token_rewards(PROXY[drawn], old, reference, mask, kl_coef=beta)
            advantages, _ = gae(rewards, torch.zeros_like(old), mask, gamma=1.0, lam=0.95)
            advantages = whiten(advantages, mask, ddof=1, epsilon=1e-8)
        else:
            advantages, _ = algorithm.advantages(PROXY[drawn], groups, {}, mask_BT=mask)
        tokens = TokenBatch(logp[drawn, None], old, advantages.float(), mask, reference)
        loss = algorithm.loss(tokens, algorithm.denominator(mask, 1)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        mean += torch.softmax(logits.detach().double(), 0) / (steps // 5) * (step >= steps - steps // 5)
    return mean


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("method", ["ppo", "dr_grpo"])
def test_from_samples_the_public_losses_reach_the_closed_form(method, beta):
    """dr_grpo is the group mean without division by the deviation; its k2 goes into the loss."""
    found = train_on_samples(method, beta)
    torch.testing.assert_close(found, kl_tilt(REF, PROXY, beta).policy_K, atol=1e-2, rtol=0)


def test_a_small_groups_mean_shrinks_the_reward_and_so_raises_beta():
    """The mean holds the sample itself: its gradient is 1 - 1/G of the reward's, so beta acts as G / (G - 1) of it."""
    found = train_on_samples("dr_grpo", 0.75, group=4)
    torch.testing.assert_close(found, kl_tilt(REF, PROXY, 1.0).policy_K, atol=1e-2, rtol=0)


def test_published_grpo_reaches_its_own_fixed_point():
    """k3 in the loss, standardised: pi A = beta (pi - ref) at every completion, and that is not the tilt."""
    beta = 1.0
    found = climb("grpo", beta)
    mean = found @ PROXY
    spread = (found @ (PROXY - mean).square()).sqrt()
    advantage = (PROXY - mean) / spread
    # Where beta - A is negative no fixed point exists, and the mass runs to that completion.
    assert bool((advantage < beta).logical_or(found > 0.1).all())
    stationary = found * advantage - beta * (found - REF)
    torch.testing.assert_close(stationary, torch.zeros_like(found), atol=2e-3, rtol=0)
    assert float((found - kl_tilt(REF, PROXY, beta).policy_K).abs().max()) > 0.02
