"""Sampling a token from logits by inverting the CDF at a given uniform number, in two levels.

Blocks are summed first, one block is chosen, and only that block is searched: no sort, no full-vocabulary
exponential race, one uniform number per token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from assay.errors import ContractBroken


class Drawn(NamedTuple):
    """Chosen tokens, their log-probabilities and the entropy of the distribution, each (B,); nats."""

    token_B: Tensor
    logp_B: Tensor
    entropy_B: Tensor


def scaled(logits_BV: Tensor, temperature: float) -> Tensor:
    """Logits over the temperature; at 1 the same tensor, for a pass over the vocabulary costs."""
    return logits_BV if temperature == 1 else logits_BV / temperature


def draw(logits_BV: Tensor, uniform_B: Tensor, *, block: int | None = None) -> Drawn:
    """Draw one token a row from softmax(logits) at the given uniform numbers.

    Args:
        logits_BV: finite or -inf, shape (B, V); float32 arithmetic whatever the dtype, outside of autocast.
        uniform_B: in [0, 1), shape (B,).
        block: width of a first-level block; about the square root of V, and at least 256, by default.

    Raises:
        ContractBroken: logits that are not numbers.
    """
    logp_BV = logits_BV.log_softmax(-1, dtype=torch.float32)
    p_BV = logp_BV.exp()
    token_B = _invert(p_BV, uniform_B, block or max(256, math.isqrt(p_BV.shape[1])))
    entropy_B = -torch.linalg.vecdot(p_BV, logp_BV)
    if not math.isfinite(float(entropy_B.sum())):  # 0 times -inf
        entropy_B = -torch.linalg.vecdot(p_BV, logp_BV.clamp_min(-1e4))
        if not math.isfinite(float(entropy_B.sum())):
            raise ContractBroken(
                "the model's logits are not finite numbers, so nothing can be sampled: its weights hold NaN or "
                "infinity. Start from an earlier checkpoint, with a lower learning_rate"
            )
    return Drawn(token_B, logp_BV.gather(1, token_B[:, None]).squeeze(1), entropy_B)


def _invert(p_BV: Tensor, uniform_B: Tensor, block: int) -> Tensor:
    """Tokens at the uniform numbers; the masses need not add up to 1."""
    vocabulary = p_BV.shape[1]
    if vocabulary <= 2 * block:  # small enough to search at once
        return _search(p_BV, uniform_B)
    whole = vocabulary // block * block
    mass = p_BV[:, :whole].unflatten(1, (-1, block)).sum(-1)
    if whole < vocabulary:
        mass = torch.cat([mass, p_BV[:, whole:].sum(-1, keepdim=True)], dim=1)
    chosen = _search(mass, uniform_B)
    total = mass.cumsum(-1, dtype=torch.float64)
    before = (total.gather(1, chosen[:, None]) - mass.gather(1, chosen[:, None])).squeeze(1)
    places = chosen[:, None] * block + torch.arange(block, device=chosen.device)
    # A short block has the last token again in its place; what lies behind the block's mass is never reached.
    inside = p_BV.gather(1, places.clamp_max(vocabulary - 1))
    within = ((uniform_B.double() * total[:, -1] - before) / inside.sum(-1).double()).clamp(0, 1 - 1e-9)
    return (chosen * block + _search(inside, within)).clamp_max(vocabulary - 1)


def _search(p_BK: Tensor, uniform_B: Tensor) -> Tensor:
    """Index of the first cumulative sum above uniform * total: below 1 there is one, and it never has probability 0."""
    cumulative = p_BK.cumsum(-1, dtype=torch.float64)
    target = uniform_B.double() * cumulative[:, -1]
    index = torch.searchsorted(cumulative, target[:, None], right=True).squeeze(1)
    return index.clamp_max(p_BK.shape[1] - 1)  # among NaN there is none
