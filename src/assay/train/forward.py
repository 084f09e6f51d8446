"""Log-probabilities of completions under a policy, with gradients; prompt and padding positions never counted.

Shapes: B completions, T completion tokens (padded on the right), L prompt plus completion, H hidden, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

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
    logits_NV, targets_N, mask_BT = _completion_logits(policy, rows, temperature)
    logp_NV = F.log_softmax(logits_NV, dim=-1)
    picked_N = logp_NV.gather(1, targets_N[:, None]).squeeze(1)
    entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
    return TokenScores(_unflatten(picked_N, mask_BT), _unflatten(entropy_N, mask_BT), mask_BT)


def supervised_loss(policy: Policy, rows: TokenRows, *, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy of completion tokens, nats; smoothing keeps a start policy exploring."""
    logits_NV, targets_N, _ = _completion_logits(policy, rows, 1.0)
    return F.cross_entropy(logits_NV, targets_N, label_smoothing=label_smoothing)


def exact_token_kl(policy: Policy, reference: Policy, rows: TokenRows, temperature: float = 1.0) -> Tensor:
    """KL(policy || reference) between the next-token distributions at each completion position, (B, T), nats."""
    logits_NV, _, mask_BT = _completion_logits(policy, rows, temperature)
    with torch.no_grad():
        reference_NV, _, _ = _completion_logits(reference, rows, temperature)
    logp_NV, ref_NV = F.log_softmax(logits_NV, -1), F.log_softmax(reference_NV, -1)
    return _unflatten((logp_NV.exp() * (logp_NV - ref_NV)).sum(-1), mask_BT)


def pad_floats(rows: Sequence[Sequence[float]], mask_BT: Tensor) -> Tensor:
    """Place lists of numbers into the true positions of a mask, (B, T) float32; 0 elsewhere."""
    flat = torch.tensor([value for row in rows for value in row], dtype=torch.float32)
    return _unflatten(flat, mask_BT)


def _completion_logits(policy: Policy, rows: TokenRows, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (N, V) that predict each real completion token, the tokens (N,), and the mask (B, T)."""
    targets_BT, counts_B = pad_right(rows.completion_ids, policy.pad_id)
    mask_BT = torch.arange(targets_BT.shape[1])[None] < counts_B[:, None]
    hidden_NH = policy.completion_hidden(rows.prompt_ids, rows.completion_ids)[mask_BT]
    weight_VH, bias_V = policy.head()
    return F.linear(hidden_NH, weight_VH, bias_V).float() / temperature, targets_BT[mask_BT], mask_BT


def _unflatten(values_N: Tensor, mask_BT: Tensor) -> Tensor:
    return values_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, values_N)
