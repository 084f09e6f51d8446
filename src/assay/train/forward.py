"""Log-probabilities of completions under a policy, with gradients; prompt and padding positions never counted.

A wide vocabulary's logits are never held for all tokens at once: they are taken in chunks. A narrow one's are,
which is faster.

Shapes: B completions, T completion tokens (padded on the right), L prompt plus completion, H hidden, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.maths.chunked import WIDE, chunked_kl, chunked_logprobs
from assay.models.policy import Policy
from assay.models.tiny_policy import pad_right


class TokenRows(NamedTuple):
    """Prompts and completions as ids: what one forward pass needs."""

    prompt_ids: Sequence[Sequence[int]]
    completion_ids: Sequence[Sequence[int]]

    def select(self, rows: Sequence[int]) -> TokenRows:
        """The given rows, in the given order."""
        return TokenRows([self.prompt_ids[i] for i in rows], [self.completion_ids[i] for i in rows])


class TokenScores(NamedTuple):
    """Log-probability and entropy of each completion token, (B, T), and the mask of real tokens; nats."""

    logp_BT: Tensor
    entropy_BT: Tensor
    mask_BT: Tensor


def token_scores(policy: Policy, rows: TokenRows, temperature: float = 1.0) -> TokenScores:
    """Score every completion token under ``policy`` at the sampling temperature; float32 log-probs."""
    tokens = _completion_tokens(policy, rows)
    if tokens.wide:
        picked_N, entropy_N = chunked_logprobs(
            tokens.hidden_NH,
            tokens.weight_VH,
            tokens.targets_N,
            bias_V=tokens.bias_V,
            temperature=temperature,
        )
    else:
        logp_NV = F.log_softmax(tokens.logits(temperature), dim=-1)
        picked_N = logp_NV.gather(1, tokens.targets_N[:, None]).squeeze(1)
        entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
    mask_BT = tokens.mask_BT
    return TokenScores(_unflatten(picked_N, mask_BT), _unflatten(entropy_N, mask_BT), mask_BT)


def supervised_loss(policy: Policy, rows: TokenRows, *, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy of completion tokens, nats; smoothing keeps a start policy exploring."""
    tokens = _completion_tokens(policy, rows)
    if not tokens.wide:
        return F.cross_entropy(tokens.logits(1.0), tokens.targets_N, label_smoothing=label_smoothing)
    logp_N = chunked_logprobs(tokens.hidden_NH, tokens.weight_VH, tokens.targets_N, bias_V=tokens.bias_V).logp
    if not label_smoothing:
        return -logp_N.mean()
    # The mean log-prob over the vocabulary is the target's plus the mean logit less the target's.
    weight_VH, bias_V = tokens.weight_VH, tokens.bias_V
    above_NH = weight_VH[tokens.targets_N] - weight_VH.mean(0)
    above_N = (tokens.hidden_NH * above_NH).sum(-1).float()
    if bias_V is not None:
        above_N = above_N + (bias_V[tokens.targets_N] - bias_V.mean())
    return (label_smoothing * above_N - logp_N).mean()


def exact_token_kl(policy: Policy, reference: Policy, rows: TokenRows, temperature: float = 1.0) -> Tensor:
    """KL(policy || reference) between the next-token distributions at each completion position, (B, T), nats."""
    own = _completion_tokens(policy, rows)
    with torch.no_grad():
        other = _completion_tokens(reference, rows)
    if own.wide:
        kl_N = chunked_kl(own.head, other.head, temperature=temperature)
    else:
        logp_NV = F.log_softmax(own.logits(temperature), -1)
        with torch.no_grad():
            ref_NV = F.log_softmax(other.logits(temperature), -1)
        kl_N = (logp_NV.exp() * (logp_NV - ref_NV)).sum(-1)
    return _unflatten(kl_N, own.mask_BT)


def pad_floats(rows: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    """Place lists of numbers into the true positions of a mask, (B, T) float32; 0 elsewhere."""
    flat = torch.tensor([value for row in rows for value in row], dtype=torch.float32)
    return _unflatten(flat, mask_BT)


class _Tokens(NamedTuple):
    """The N real completion tokens, the hidden states that predict them, the head, and the mask (B, T)."""

    hidden_NH: Tensor
    weight_VH: Tensor
    bias_V: Tensor | None
    targets_N: Tensor
    mask_BT: Tensor

    @property
    def wide(self) -> bool:
        return self.weight_VH.shape[0] >= WIDE

    @property
    def head(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.hidden_NH, self.weight_VH, self.bias_V

    def logits(self, temperature: float) -> Tensor:
        return F.linear(self.hidden_NH, self.weight_VH, self.bias_V).float() / temperature


def _completion_tokens(policy: Policy, rows: TokenRows) -> _Tokens:
    targets_BT, counts_B = pad_right(rows.completion_ids, policy.pad_id)
    mask_BT = torch.arange(targets_BT.shape[1])[None] < counts_B[:, None]
    hidden_BTH = policy.completion_hidden(rows.prompt_ids, rows.completion_ids)
    hidden_NH = hidden_BTH[mask_BT.to(hidden_BTH.device)]
    return _Tokens(hidden_NH, *policy.head(), targets_BT[mask_BT].to(hidden_NH.device), mask_BT)


def _unflatten(values_N: Tensor, mask_BT: Tensor) -> Tensor:
    values_N = values_N.to(mask_BT.device)  # one number a token: losses are worked out on the CPU
    return values_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, values_N)
