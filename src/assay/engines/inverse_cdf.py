"""Sampling a token from logits by inverting the CDF at a given uniform number, in two levels.

Blocks are summed first, one block is chosen, and only that block is searched: no sort, no full-vocabulary
exponential race, one uniform number per token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


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
        logits_BV: finite or -inf, shape (B, V); float32 arithmetic whatever the dtype.
        uniform_B: in [0, 1), shape (B,).
        block: width of a first-level block; about the square root of V by default.
    """
    shifted_BV = logits_BV.float() - logits_BV.amax(-1, keepdim=True)
    mass_BV = shifted_BV.exp()
    total_B = mass_BV.sum(-1)
    token_B = _invert(mass_BV, uniform_B, block or max(16, math.isqrt(mass_BV.shape[1])))
    picked = shifted_BV.gather(1, token_B[:, None]).squeeze(1) - total_B.log()
    with torch.autocast(mass_BV.device.type, enabled=False):  # which would round this product to bfloat16
        surprise_B = torch.linalg.vecdot(mass_BV, shifted_BV)
        if not bool(surprise_B.isfinite().all()):  # 0 times -inf
            surprise_B = torch.linalg.vecdot(mass_BV, shifted_BV.clamp_min(-1e4))
    return Drawn(token_B, picked, total_B.log() - surprise_B / total_B)


def _invert(mass_BV: Tensor, uniform_B: Tensor, block: int) -> Tensor:
    """Tokens at the uniform numbers; the masses need not add up to 1."""
    vocabulary = mass_BV.shape[1]
    if vocabulary <= 2 * block:
        return _search(mass_BV, uniform_B)
    whole = vocabulary // block * block
    mass = mass_BV[:, :whole].unflatten(1, (-1, block)).sum(-1)
    if whole < vocabulary:
        mass = torch.cat([mass, mass_BV[:, whole:].sum(-1, keepdim=True)], dim=1)
    chosen = _search(mass, uniform_B)
    total = mass.cumsum(-1, dtype=torch.float64)
    before = (total.gather(1, chosen[:, None]) - mass.gather(1, chosen[:, None])).squeeze(1)
    places = chosen[:, None] * block + torch.arange(block, device=chosen.device)
    # A short block has the last token again in its place; what lies behind the block's mass is never reached.
    inside = mass_BV.gather(1, places.clamp_max(vocabulary - 1))
    within = ((uniform_B.double() * total[:, -1] - before) / inside.sum(-1).double()).clamp(0, 1 - 1e-9)
    return (chosen * block + _search(inside, within)).clamp_max(vocabulary - 1)


def _search(p_BK: Tensor, uniform_B: Tensor) -> Tensor:
    """Index of the first cumulative sum above uniform * total; never an entry of probability 0."""
    cumulative = p_BK.cumsum(-1, dtype=torch.float64)
    target = uniform_B.double()[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    last = p_BK.shape[1] - 1 - (p_BK.flip(-1) > 0).to(torch.int8).argmax(-1)
    return torch.minimum(index, last)
