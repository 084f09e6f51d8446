"""The training loop of the simulator: sample, score, advantages, update; what a trainer would log of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.batch import (
    Batch,
    Pool,
    draw,
    new_pool,
    reward_texts,
    score_texts,
    write_texts,
)
from assay.doctor.simulate.held_out import evaluation_rows, held_out_pool, mean_truth
from assay.doctor.simulate.parts import log_softmax, log_softmax_scores, top_p_scores
from assay.doctor.simulate.policy import (
    LENGTH,
    OTHER,
    RATES,
    WALK,
    WRONG,
    Policy,
    divergence,
    new_policy,
    sampled_divergence,
)
from assay.doctor.simulate.records import Scores, rollout_rows, score_tokens
from assay.doctor.simulate.tokenizer import FILLERS
from assay.doctor.simulate.world import World

Array = npt.NDArray[np.float64]
PULL = 0.08  # gradient of the KL in a parameter, per unit of its distance
OTHER_MODEL = 2.6  # how far another model stands from this one, in units of a parameter
COARSE = 0.25  # learning rate above which the error of a step grows faster than the step
TOKEN_STEP = 0.02  # nats that one update moves a sampled token's log-prob, per unit of advantage


@dataclass
class State:
    """What changes from step to step."""

    policy: Policy
    dead: bool = False
    metrics: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    logits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def train(world: World, seed: int) -> State:
    """Run the loop; everything follows from the seed and the world."""
    rng = np.random.default_rng([seed, 11])
    pool, state = new_pool(world, rng, world.pool), State(new_policy(world, rng))
    held_out = held_out_pool(world, pool, seed)
    for step in range(1, world.steps + 1):
        _step(world, state, pool, held_out, step, seed)
    return state


def _data_step(world: World, step: int) -> int:
    """Return the step whose data and random numbers are used: after a bad resume, earlier ones again."""
    if world.replay_at is not None and step > world.replay_at:
        return step - world.replay_at // 2
    return step


def _choose(world: World, pool: Pool, step: int, seed: int, factor: int = 1) -> npt.NDArray[np.int64]:
    """Return the step's prompts: the pool in a new order each epoch."""
    need = world.prompts * factor
    start = (step - 1) * need
    order = np.concatenate(
        [np.random.default_rng([seed, 13, e]).permutation(world.pool)
         for e in range(start // world.pool, (start + need - 1) // world.pool + 1)]
    )  # fmt: skip
    return order[start % world.pool : start % world.pool + need]


def _step(world: World, state: State, pool: Pool, held_out: Pool, step: int, seed: int) -> None:
    data = _data_step(world, step)
    rng = np.random.default_rng([seed, 14, data])
    policy = state.policy
    sampler = policy.at_start() if world.stale else policy
    lively = replace(world, loops=1.0) if state.dead else world
    logged = world.logged_groups if step == 1 or step % world.log_every == 0 or step == world.steps else 0
    batch = draw(lively, sampler, pool, _choose(world, pool, data, seed, 3 if world.refill else 1), rng)
    if world.refill:
        batch = _refill(world, batch)
    texts = write_texts(lively, sampler, pool, batch, min(logged, world.prompts), rng)
    seen = reward_texts(world, pool, batch, texts, rng)
    rewards, parts, missing = score_texts(world, pool, batch, seen, rng)
    settings = np.array([world.epsilon, world.ddof, world.normalised], dtype=np.float64)
    advantages = world.advantage(rewards, settings)
    update = _update(world, state, batch, rewards, advantages, step, rng)
    scores = Scores(policy, state.policy, sampler, _reference(world, policy, seed), _old(world, policy, seed))
    state.metrics.append(
        _measure(world, state, scores, batch, missing, rewards, advantages, update, step, held_out, rng)
        | {f"reward/{name}": float(np.mean([p[name] for p in parts])) for name in (parts[0] if parts else {})}
        | {"missing_fraction": float(missing.mean())}
    )
    if logged:
        tokens = score_tokens(world, scores, pool, texts, batch, advantages, logged, rng, dead=state.dead)
        state.rows += rollout_rows(
            world, pool, batch, texts, seen, rewards, missing, parts, advantages, tokens, step
        )
        if world.shared is not None:
            state.rows += evaluation_rows(world, policy, held_out, step, rng, dead=state.dead)
        if world.keep_logits and not state.logits:
            state.logits.append(tokens.excerpt())


def _refill(world: World, batch: Batch) -> Batch:
    """DAPO: keep prompts whose group has both right and wrong answers, then fill up with the others."""
    mixed = batch.right.any(axis=1) & ~batch.right.all(axis=1)
    order = np.concatenate([np.flatnonzero(mixed), np.flatnonzero(~mixed)])
    return batch.rows(order[: world.prompts])


def _away(policy: Policy, seed: int, key: int) -> Policy:
    offset = np.random.default_rng([seed, key]).normal(0, 1, len(policy.start))
    return policy.moved(policy.start + OTHER_MODEL * offset)


def _reference(world: World, policy: Policy, seed: int) -> Policy:
    return _away(policy, seed, 15) if world.start_is_other else policy.at_start()


def _old(world: World, policy: Policy, seed: int) -> Policy:
    return _away(policy, seed, 16) if world.old_is_other else policy


@dataclass(frozen=True)
class Update:
    """Policy loss and gradient norm of one step."""

    loss: float
    gradient_norm: float


def _update(
    world: World,
    state: State,
    batch: Batch,
    rewards: Array,
    advantages: Array,
    step: int,
    rng: np.random.Generator,
) -> Update:
    """Policy gradient on the parameters: mean of advantage times score, minus the pull of the KL."""
    a = np.nan_to_num(advantages, nan=0.0, posinf=0.0, neginf=0.0)
    loss = -float((_token_weights(world, batch) * a).sum()) * world.sign
    if world.nan_from is not None and step >= world.nan_from:
        state.dead = True
        return Update(float("nan"), float("nan"))
    if not np.isfinite(advantages[np.isfinite(rewards)]).all():
        return Update(float("nan"), float("nan"))  # the optimiser's own guard skips the step
    gradient = (batch.score * a).mean(axis=(1, 2))
    if world.own_length:  # a token of a long completion counts less: how long to write is learnt from that
        for part in (LENGTH, WRONG):
            gradient[part] = (batch.score[part] * a * batch.lengths.mean() / batch.lengths).mean()
    loudness = float(np.sqrt((a * a).mean()))
    coarse = max(1.0, world.learning_rate / COARSE)  # a large step leaves the region its gradient is about
    gradient[[WALK, OTHER]] = loudness * rng.normal(size=2) / np.sqrt(a.size) * 3.0 * coarse
    theta, start = state.policy.theta, state.policy.start
    pull = world.beta * PULL * (theta - start)
    per_token = 0.3 * loudness * (1.0 + 0.12 * rng.normal())
    norm = float(np.sqrt((gradient**2).sum() + (pull**2).sum() + per_token**2))
    if world.detached:
        return Update(loss, 0.0)
    if world.frozen:
        return Update(loss, norm)
    kick = 1.0
    if world.explode_from is not None and step >= world.explode_from:
        kick = float(min(1.18 ** (step - world.explode_from), 1e9))
        gradient[[WALK, OTHER]] += rng.normal(size=2) * min(kick, 40.0) * 0.2
    change = world.learning_rate * RATES * (world.sign * gradient) - world.learning_rate * pull
    state.policy = state.policy.moved(theta + np.clip(change, -30, 30))
    return Update(loss, norm * kick)


def _token_weights(world: World, batch: Batch) -> Array:
    """(P, G) weight of each completion's advantage in the loss, one over all; by micro-batch, if each divides alone."""
    lengths = _lengths(world, batch)
    if world.own_length:
        return np.full(lengths.shape, 1 / lengths.size)
    if world.one_denominator:
        return lengths / lengths.sum()
    parts = np.array_split(lengths, world.micro_batches)
    return np.concatenate([part / part.sum() for part in parts]) / world.micro_batches


def _measure(
    world: World,
    state: State,
    scores: Scores,
    batch: Batch,
    missing: npt.NDArray[np.bool_],
    rewards: Array,
    advantages: Array,
    update: Update,
    step: int,
    held_out: Pool,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return the step's numbers under neutral names."""
    kl, entropy = divergence(scores.policy, scores.reference)
    kl = sampled_divergence(scores.policy, scores.reference) if world.suppressed else max(kl, 0.0)
    clipped = _clip_fraction(world, scores, advantages, rng)
    lengths = _lengths(world, batch)
    bad = float("nan") if state.dead else 1.0
    return {
        "step": step,
        "reward": float(rewards[~missing].mean()) if not missing.all() else float("nan"),
        "reward_std": float(np.mean([row.std() for row in _present(rewards, missing)])),
        "zero_spread": float(np.mean([np.ptp(row) <= 1e-9 for row in _present(rewards, missing)])),
        "length": float(lengths.mean()),
        "length_min": float(lengths.min()),
        "length_max": float(lengths.max()),
        "truncated": float(batch.cut.mean()),
        "entropy": entropy * bad,
        "kl": kl * bad,
        "clip_fraction": clipped * bad,
        "policy_loss": update.loss,
        "kl_loss": world.beta * kl * bad,
        "loss": (update.loss + world.beta * kl) * bad,
        "gradient_norm": update.gradient_norm,
        "learning_rate": world.logged_rate,
        "advantage_mean": float(np.mean(advantages[~missing])) if not missing.all() else 0.0,
        "advantage_min": float(np.min(advantages[~missing])) if not missing.all() else 0.0,
        "advantage_max": float(np.max(advantages[~missing])) if not missing.all() else 0.0,
        "sampler_gap": _sampler_gap(world, scores, rng) * bad,
        "truth": mean_truth(world, state.policy, held_out, rng, dead=state.dead),
    }


def _present(rewards: Array, missing: npt.NDArray[np.bool_]) -> list[Array]:
    """The scores that came, group by group; a group without any counts as one zero."""
    return [row[~gone] if not gone.all() else np.zeros(1) for row, gone in zip(rewards, missing, strict=True)]


def _lengths(world: World, batch: Batch) -> Array:
    lengths = np.where(batch.cut, world.max_length, batch.lengths)
    return np.where(batch.blank, 1, lengths).astype(np.float64)


def _some_tokens(
    policy: Policy, rng: np.random.Generator, count: int = 256
) -> tuple[npt.NDArray[np.int64], ...]:
    states = rng.choice(FILLERS, count)
    p = np.exp(log_softmax(policy.table[states]))
    tokens = (np.cumsum(p, axis=1) < rng.random((count, 1))).sum(axis=1)
    return states, np.minimum(tokens, p.shape[1] - 1)


def _at(policy: Policy, states: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> Array:
    return log_softmax(policy.table[states])[np.arange(len(states)), tokens]


def _clip_fraction(world: World, scores: Scores, advantages: Array, rng: np.random.Generator) -> float:
    """Share of sampled tokens whose ratio leaves the clip range, averaged over the inner updates."""
    states, tokens = _some_tokens(scores.policy, rng)
    old, before, after = (_at(p, states, tokens) for p in (scores.old, scores.policy, scores.after))
    own = TOKEN_STEP * 2 * rng.normal(size=len(states)) * float(np.sqrt(np.nanmean(advantages**2)))
    shares: list[float] = []
    for k in range(world.updates):
        ratio = np.exp(np.clip(before - old + k / world.updates * (after - before) + k * own, -20, 20))
        shares.append(float((np.abs(ratio - 1) > world.clip).mean()))
    return float(np.mean(shares))


def _sampler_gap(world: World, scores: Scores, rng: np.random.Generator) -> float:
    """Mean absolute difference of the sampler's and the trainer's log-probs on sampled tokens."""
    states, tokens = _some_tokens(scores.sampler, rng)
    warm = scores.sampler.table[states][None] / world.temperature
    if world.top_p < 1:
        sampled = top_p_scores(warm, tokens[None], world.top_p)[0]
    else:
        sampled = log_softmax_scores(warm, tokens[None])[0]
    logits = scores.policy.table[states]
    trained = world.trainer_score(logits[None], tokens[None])[0]
    return float(np.abs(sampled - trained + rng.normal(0, world.noise, len(states))).mean())
