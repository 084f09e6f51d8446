"""Sampling a token from logits by inverting the CDF at a given uniform number, in two levels.

Blocks are summed first, one block is chosen, and only that block is searched: no sort, no full-vocabulary
exponential race, one uniform number per token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Drawn(NamedTuple):
    """Chosen tokens, their log-probabilities and the entropy of the distribution, each (B,); nats."""

    token_B: Tensor
    logp_B: Tensor
    entropy_B: Tensor


def draw(logits_BV: Tensor, uniform_B: Tensor, *, block: int | None = None) -> Drawn:
    """Draw one token a row from softmax(logits) at the given uniform numbers.

    Args:
        logits_BV: finite or -inf, shape (B, V); float32 arithmetic whatever the dtype.
        uniform_B: in [0, 1), shape (B,).
        block: width of a first-level block; about the square root of V by default.
    """
    logp_BV = F.log_softmax(logits_BV.float(), dim=-1)
    p_BV = logp_BV.exp()
    token_B = _invert(p_BV, uniform_B, block or max(16, math.isqrt(p_BV.shape[1])))
    picked = logp_BV.gather(1, token_B[:, None]).squeeze(1)
    entropy = -(p_BV * logp_BV.clamp_min(-1e4)).sum(-1)
    return Drawn(token_B, picked, entropy)


def _invert(p_BV: Tensor, uniform_B: Tensor, block: int) -> Tensor:
    vocabulary = p_BV.shape[1]
    if vocabulary <= 2 * block:
        return _search(p_BV, uniform_B)
    blocks = -(-vocabulary // block)
    padded = F.pad(p_BV, (0, blocks * block - vocabulary)).unflatten(1, (blocks, block))
    mass = padded.sum(-1)
    chosen = _search(mass, uniform_B)
    total = mass.double().cumsum(-1)
    before = (total.gather(1, chosen[:, None]) - mass.gather(1, chosen[:, None])).squeeze(1)
    inside = padded[torch.arange(len(chosen), device=chosen.device), chosen]
    within = ((uniform_B.double() * total[:, -1] - before) / inside.sum(-1).double()).clamp(0, 1 - 1e-9)
    return (chosen * block + _search(inside, within)).clamp_max(vocabulary - 1)


def _search(p_BK: Tensor, uniform_B: Tensor) -> Tensor:
    """Index of the first cumulative sum above uniform * total; never an entry of probability 0."""
    cumulative = p_BK.double().cumsum(-1)
    target = uniform_B.double()[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    last = p_BK.shape[1] - 1 - (p_BK.flip(-1) > 0).to(torch.int8).argmax(-1)
    return torch.minimum(index, last)
