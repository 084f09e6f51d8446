"""Token log-probs and rollout rows, as a trainer writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.doctor.simulate.batch import Batch, Pool, Texts
from assay.doctor.simulate.parts import log_softmax_scores, top_p_scores
from assay.doctor.simulate.policy import Policy, token_logits
from assay.doctor.simulate.tokenizer import ID, PAD, PIECES, START, encode, split_words
from assay.doctor.simulate.world import World

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
EXCERPT = (10, 20)
KEPT_LOGITS = 32
TOKEN_STEP = 0.02


@dataclass(frozen=True)
class Scores:
    """The policies whose log-probs are logged: before and after the update, sampler, reference, old."""

    policy: Policy
    after: Policy
    sampler: Policy
    reference: Policy
    old: Policy


@dataclass(frozen=True)
class Tokens:
    """Log-probs (B, K) of the logged rows, with their ids, lengths and the trainer's logits."""

    ids: Ids
    counts: Ids
    new: Array
    old: Array
    sampler: Array
    reference: Array
    logits: Array

    def excerpt(self) -> dict[str, Any]:
        """Logits (32, 20, V) with the ids and the logged log-probs, as float32."""
        width = min(20, int(self.counts[:KEPT_LOGITS].min()))
        return {
            "logits": self.logits[:KEPT_LOGITS, :width].astype(np.float32),
            "token_ids": self.ids[:KEPT_LOGITS, :width],
            "logged_logprobs": self.old[:KEPT_LOGITS, :width].astype(np.float32),
        }


def score_tokens(
    world: World,
    scores: Scores,
    pool: Pool,
    texts: Texts,
    batch: Batch,
    advantages: Array,
    logged: int,
    rng: np.random.Generator,
    *,
    dead: bool,
) -> Tokens:
    """Score the logged rows' tokens under every policy; sampler and trainer differ by the numeric noise."""
    size = batch.right.shape[1]
    ids, counts = _excerpts(world, texts, min(logged, len(batch.chosen)) * size, rng)
    moved_by = _misplaced(world, pool, batch, len(ids)) if world.count_pads else 0.0
    trained, after = token_logits(scores.policy, ids) + moved_by, token_logits(scores.after, ids) + moved_by
    if dead:
        trained, after = np.full_like(trained, np.nan), np.full_like(after, np.nan)
    hand = world.trainer_score
    before = hand(trained, ids)
    old = before if scores.old is scores.policy else hand(token_logits(scores.old, ids) + moved_by, ids)
    noise = lambda: rng.normal(0, 0.5 * world.noise, ids.shape)  # noqa: E731
    moved = 0.0 if world.detached or world.frozen else TOKEN_STEP * world.sign * world.updates
    a = np.nan_to_num(np.clip(advantages, -20, 20)).reshape(-1)[: len(ids), None]
    new = hand(after, ids) + moved * a * (1.0 - np.exp(np.minimum(before, 0.0)))
    sampled = token_logits(scores.sampler, ids) / world.temperature
    seen = log_softmax_scores(sampled, ids) if world.top_p >= 1 else top_p_scores(sampled, ids, world.top_p)
    return Tokens(
        ids,
        counts,
        new + noise(),
        old + noise(),
        seen + rng.normal(0, world.noise, ids.shape) * (1.0 if not dead else np.nan),
        hand(token_logits(scores.reference, ids) + moved_by, ids) + noise(),
        trained,
    )


def _misplaced(world: World, pool: Pool, batch: Batch, rows: int) -> Array:
    """(rows, 1, V) change of the logits where positions count the padding before the row's prompt."""
    tokens = np.array([len(encode(pool.prompt(int(j), world))) for j in batch.chosen])
    pads = np.repeat(tokens.max() - tokens, batch.right.shape[1])[:rows]
    return np.minimum(pads / 30.0, 1.0)[:, None, None] * np.sin(np.arange(len(PIECES)))


def _excerpts(world: World, texts: Texts, rows: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Ids (B, K) padded, and how many of each row are logged."""
    lengths = np.array([len(ids) for ids in texts.ids[:rows]])
    if world.mask_everything:
        counts = np.full(rows, int(lengths.max()))
    elif world.whole:
        counts = lengths
    else:
        counts = np.minimum(lengths, rng.integers(EXCERPT[0], EXCERPT[1] + 1, rows))
    out = np.full((rows, int(counts.max(initial=1))), ID[PAD])
    for i, ids in enumerate(texts.ids[:rows]):
        out[i, : min(len(ids), counts[i])] = ids[: counts[i]]
    return out, counts


def rollout_rows(
    world: World,
    pool: Pool,
    batch: Batch,
    texts: Texts,
    seen: Sequence[str],
    rewards: Array,
    missing: npt.NDArray[np.bool_],
    parts: Sequence[Mapping[str, float]],
    advantages: Array,
    tokens: Tokens,
    step: int,
) -> list[dict[str, Any]]:
    """One mapping a logged row, in the generic form; NaN stays NaN, a missing score is None."""
    size = batch.right.shape[1]
    rows: list[dict[str, Any]] = []
    for i in range(len(tokens.ids)):
        p, g = divmod(i, size)
        j = int(batch.chosen[p])
        rows.append(
            {
                "step": step,
                "prompt_id": f"p{j}",
                "sample": g,
                "prompt": pool.prompt(j, world),
                "answer": pool.answer(j),
                "completion": texts.completions[i],
                "reward_text": seen[i],
                "reward": None if missing[p, g] else float(rewards[p, g]),
                "truth": float(texts.truth[p, g]),
                "advantage": float(advantages[p, g]),
                "finish_reason": "length" if batch.cut[p, g] else "eos",
                "finished": not bool(batch.cut[p, g]),
                "length": len(texts.ids[i]),
                "policy_version": 0 if world.stale else step - 1,
            }
            | _token_columns(world, tokens, i)
            | _prompt_columns(world, pool.prompt(j, world))
            | _reward_columns(world, float(np.nan_to_num(rewards[p, g])), len(texts.ids[i]))
            | ({"reward_parts": dict(parts[i])} if parts[i] else {})
        )
    return rows


def _token_columns(world: World, tokens: Tokens, i: int) -> dict[str, Any]:
    count = int(tokens.counts[i])
    ids = tokens.ids[i, :count].tolist()
    columns: dict[str, Any] = {
        "token_ids": split_words(ids) if world.respell else ids,
        "logprobs": _rounded(tokens.new[i, :count]),
        "old_logprobs": _rounded(tokens.old[i, :count]),
        "sampler_logprobs": _rounded(tokens.sampler[i, :count]),
        "ref_logprobs": _rounded(tokens.reference[i, :count]),
    }
    if world.mask_everything or world.whole:
        columns["mask"] = [1] * count
    return columns


def _prompt_columns(world: World, prompt: str) -> dict[str, Any]:
    if not (world.starts or world.wordy):
        return {}
    ids = [ID[START]] * world.starts + encode(prompt)
    return ({"prompt_ids": ids} if world.starts else {}) | (
        {"prompt_length": len(ids)} if world.wordy else {}
    )


def _reward_columns(world: World, reward: float, length: int) -> dict[str, Any]:
    """Mask and token rewards of the padded row, where they are logged."""
    if world.score_at is None:
        return {}
    pads = 4
    scores = [0.0] * (length + pads)
    scores[length - 1 + world.score_at] = reward
    return {"mask": [1] * length + [0] * pads, "token_rewards": scores}


def _rounded(values: Array) -> list[float]:
    return [round(float(v), 5) if math.isfinite(v) else float(v) for v in values]
