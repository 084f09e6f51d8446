"""What a step measures beside its loss: sums over micro-batches, and the metrics made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from assay.algos.batch import TokenBatch
from assay.algos.parts import Surrogate
from assay.maths.kl import kl_estimate
from assay.maths.policy import clipped_tokens


class Weights(NamedTuple):
    """Importance weights (B, T): as they multiply the loss, and before their bounds."""

    used_BT: Tensor
    free_BT: Tensor


def step_metrics(
    b: TokenBatch, log_ratio_BT: Tensor, surrogate: Surrogate, weights: Weights | None
) -> dict[str, float]:
    """Sums over one micro-batch's trained tokens; the keys end in ``tokens``, ``sum``, ``max`` or ``min``."""
    mask_BT = b.mask_BT
    log_ratio = log_ratio_BT.detach()[mask_BT]
    clips = clipped_tokens(
        log_ratio_BT, b.advantages_B, mask_BT, clip_low=surrogate.clip_low, clip_high=surrogate.clip_high
    )
    bounded = log_ratio.abs() >= surrogate.bound
    used = surrogate.kind != "reinforce"
    sums = {
        "tokens": float(mask_BT.sum()),
        "sequences": float(mask_BT.any(-1).sum()),
        "clip_low_tokens": float(clips.low_BT.sum()) if used else 0.0,
        "clip_high_tokens": float(clips.high_BT.sum()) if used else 0.0,
        "bounded_tokens": float(bounded.sum()),
        "ratio_sum": float(log_ratio.exp().sum()),
        "old_kl_sum": float((log_ratio.expm1() - log_ratio).sum()),
        "surprise_sum": float(-b.logp_BT.detach()[mask_BT].sum()),
    }
    if log_ratio.numel():
        sums["ratio_max"] = float(log_ratio.max().exp())
        sums["ratio_min"] = float(log_ratio.min().exp())
    if b.entropy_BT is not None:
        sums["entropy_sum"] = float(b.entropy_BT.detach()[mask_BT].sum())
    if b.ref_logp_BT is not None:
        logp, ref = b.logp_BT.detach()[mask_BT], b.ref_logp_BT[mask_BT]
        for name in ("k1", "k3"):
            sums[f"kl_{name}_sum"] = float(kl_estimate(logp, ref, name).sum())
    if b.kl_BT is not None:
        sums["kl_exact_sum"] = float(b.kl_BT.detach()[mask_BT].sum())
    if weights is not None:
        weight, free = weights.used_BT[mask_BT], weights.free_BT[mask_BT]
        if free.numel():
            sums["weight_max"] = float(free.max())
        sums |= {
            "clipped_weight_tokens": float((weight != free).sum()),
            "weight_sum": float(weight.sum()),
            "weight_square_sum": float(weight.square().sum()),
            "dropped_tokens": float((weight == 0).sum()),
        }
    return sums


def combine_metrics(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of one optimiser step from the sums of its micro-batches; NaN where nothing was trained.

    Keys: ``tokens``, ``sequences`` trained. ``clip_fraction`` (with ``clip_fraction_low`` and ``_high``):
    share of trained tokens whose gradient the clip removed (CISPO: whose weight it capped, on the same side).
    ``ratio_mean``, ``ratio_max``, ``ratio_min``: the policy ratio; ``ratio_bounded``: share of tokens whose
    log ratio was cut at its bound before ``exp``. ``old_kl``: KL to the proximal policy,
    nats a token (k3 form, never below 0). ``surprise``: mean -log p. With an entropy: ``entropy``, nats a
    token. With a reference: ``kl`` (k3) and ``kl_k1``, nats a token, and ``kl_sequence``, the k1 sum a
    sequence; with an exact KL: ``kl_exact``. With a correction: ``weight_mean`` as used, ``weight_max`` before
    the bounds, ``weight_clipped`` (share of tokens whose weight a bound changed), ``weight_effective``
    (effective sample size, as a share) and ``weight_dropped`` (share of tokens).
    """
    total: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            merge = max if key.endswith("_max") else min if key.endswith("_min") else float.__add__
            total[key] = merge(total[key], float(value)) if key in total else float(value)
    tokens, sequences = total.get("tokens", 0.0), total.get("sequences", 0.0)

    def share(key: str, of: float = tokens) -> float:
        return total[key] / of if of else math.nan

    metrics = {"tokens": tokens, "sequences": sequences}
    named = {
        "clip_fraction_low": "clip_low_tokens",
        "clip_fraction_high": "clip_high_tokens",
        "ratio_bounded": "bounded_tokens",
        "ratio_mean": "ratio_sum",
        "old_kl": "old_kl_sum",
        "surprise": "surprise_sum",
        "entropy": "entropy_sum",
        "kl": "kl_k3_sum",
        "kl_k1": "kl_k1_sum",
        "kl_exact": "kl_exact_sum",
        "weight_mean": "weight_sum",
        "weight_dropped": "dropped_tokens",
        "weight_clipped": "clipped_weight_tokens",
    }
    metrics |= {name: share(key) for name, key in named.items() if key in total}
    if "clip_low_tokens" in total:
        metrics["clip_fraction"] = metrics["clip_fraction_low"] + metrics["clip_fraction_high"]
        metrics["ratio_max"] = total.get("ratio_max", math.nan)
        metrics["ratio_min"] = total.get("ratio_min", math.nan)
    if "kl_k1_sum" in total:
        metrics["kl_sequence"] = share("kl_k1_sum", sequences)
    if "clipped_weight_tokens" in total:
        metrics["weight_max"] = total.get("weight_max", math.nan)
    if total.get("weight_square_sum"):
        metrics["weight_effective"] = total["weight_sum"] ** 2 / (tokens * total["weight_square_sum"])
    return metrics
