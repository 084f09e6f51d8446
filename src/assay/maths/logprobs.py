"""Log-probabilities of tokens from logits: the plain, readable reference.

The logit at position t predicts token t + 1. Everything is computed in float32 at least, whatever the logits
are. For a large vocabulary use :func:`assay.maths.chunked.chunked_logprobs`, which agrees with this.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput


class TokenLogprobs(NamedTuple):
    """Log-probs of the given tokens and the entropy of their distributions, nats, same shape."""

    logp: Tensor
    entropy: Tensor


def check_temperature(temperature: float) -> None:
    """Raise BadInput unless the temperature is positive."""
    if not temperature > 0:
        raise BadInput(f"expected a temperature above 0, got {temperature}; greedy sampling has no log-probs")


def logprobs_from_logits(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, support: Tensor | None = None
) -> TokenLogprobs:
    """Log-probs of ``tokens`` (...) under ``logits`` (..., V), and the entropy of each distribution.

    Args:
        logits: unnormalised; position by position with the tokens (already shifted).
        tokens: ids, the shape of the logits without the last axis.
        temperature: what the sampler divided the logits by; the trainer has to do the same.
        support: bool (..., V), the tokens the sampler kept (top-k, top-p); None for all. A token outside has
            log-prob minus infinity.
    """
    check_temperature(temperature)
    if tokens.shape != logits.shape[:-1]:
        raise BadInput(f"expected tokens of shape {tuple(logits.shape[:-1])}, got {tuple(tokens.shape)}")
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    if support is not None:
        scaled = scaled.masked_fill(~support, -torch.inf)
    logp = torch.log_softmax(scaled, -1)
    p_log_p = torch.where(logp > -torch.inf, logp, 0.0) * logp.exp()
    return TokenLogprobs(logp.gather(-1, tokens[..., None])[..., 0], -p_log_p.sum(-1))


def sequence_logprobs(logits_BTV: Tensor, ids_BT: Tensor, *, temperature: float = 1.0) -> TokenLogprobs:
    """Log-probs of tokens 1..T-1 of each row, shape (B, T - 1): logits are shifted here, once.

    The last logit has no target and the first token no prediction.
    """
    return logprobs_from_logits(logits_BTV[:, :-1], ids_BT[:, 1:], temperature=temperature)


def sampling_support(probabilities: Tensor, *, top_k: int | None = None, top_p: float = 1.0) -> Tensor:
    """Tell which tokens a sampler with top-k and top-p keeps, bool (..., V).

    The fewest most likely tokens that hold ``top_p``, within what their precision can tell and 1e-9 (0.5 + 0.3
    does hold 0.8); then at most ``top_k`` of them. Ties go to the lower id.
    """
    slack = max(1e-9, torch.finfo(probabilities.dtype).eps)
    ranked, order = probabilities.double().sort(stable=True, dim=-1, descending=True)
    before = ranked.cumsum(-1) - ranked
    kept = before < top_p - slack
    kept[..., 0] = True
    if top_k is not None:
        kept[..., top_k:] = False
    return torch.zeros_like(kept).scatter(-1, order, kept)
