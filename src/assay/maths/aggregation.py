"""From per-token losses to the loss of an optimiser step, with one denominator for the whole step.

The denominator is computed once over every micro-batch and rank; each micro-batch's sum divided by it adds up
to the step's loss, so that the loss does not change with micro-batches, ranks, padding or order. A sequence
without a trained token counts nowhere: what leaves the numerator leaves the denominator too.

| aggregation | loss | known from |
|---|---|---|
| ``token_mean`` | sum over tokens / tokens of the step | DAPO |
| ``sequence_mean_token_mean`` | mean over sequences of the mean over tokens | GRPO |
| ``sequence_mean_token_sum`` | mean over sequences of the sum over tokens | the policy gradient itself |
| ``constant`` | sum over tokens / (sequences x maximal length) | Dr. GRPO |
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from assay.errors import BadInput, nearest
from assay.maths.masking import check_mask, select, sequence_mean

Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


def check_aggregation(name: str) -> None:
    """Raise BadInput for an unknown aggregation, with the nearest known one."""
    if name not in AGGREGATIONS:
        raise BadInput(f"expected an aggregation, got {name!r}{nearest(name, AGGREGATIONS)}")


def denominator(mask_BT: Tensor, aggregation: Aggregation, *, max_length: int) -> float:
    """Denominator of one optimiser step from the mask of ALL its completions.

    Args:
        mask_BT: boolean mask of every completion of the step, over micro-batches; the values of several ranks
            add up.
        aggregation: which mean.
        max_length: the longest completion allowed, tokens; only ``constant`` uses it.

    Returns:
        Tokens, sequences with a trained token, or those times ``max_length``; 0 when nothing is trained.
    """
    check_aggregation(aggregation)
    if aggregation == "token_mean":
        return float(mask_BT.sum())
    sequences = float(mask_BT.any(-1).sum())
    return sequences * max_length if aggregation == "constant" else sequences


def aggregate(losses_BT: Tensor, mask_BT: Tensor, denominator: float, aggregation: Aggregation) -> Tensor:
    """Sum a micro-batch's share of the step's loss.

    Args:
        losses_BT: a loss a token.
        mask_BT: boolean; tokens that are trained.
        denominator: the step's, from :func:`denominator` with the same aggregation.
        aggregation: which mean.

    Returns:
        A scalar; the sum of the scalars of all micro-batches is the step's loss. 0 when nothing is trained.
    """
    check_aggregation(aggregation)
    check_mask(mask_BT, losses_BT)
    if denominator < 0 or (denominator == 0 and bool(mask_BT.any())):
        raise BadInput(
            f"expected the denominator of a step with trained tokens to be positive, got {denominator}"
        )
    if aggregation == "sequence_mean_token_mean":
        total = sequence_mean(losses_BT, mask_BT).sum()
    else:
        total = select(losses_BT, mask_BT).sum()
    return total / denominator if denominator else total
