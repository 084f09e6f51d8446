"""Supervised warm start of the embedded model: verified traces only, stopped where the reward has signal.

Training on a reward can only raise what is sampled now and then, and a group teaches nothing when all of it
is right or all wrong. So pass@1 and pass@G are measured as the model learns, and learning stops inside their
windows. Loss on the completion only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from assay.config import WarmStart
from assay.engines.uniforms import keyed_integer
from assay.errors import ContractBroken
from assay.models.policy import Policy
from assay.train.forward import TokenRows, supervised_loss


class PassRates(NamedTuple):
    """Share of samples that are true, and share of prompts with at least one true sample."""

    at_1: float
    at_group: float


class WarmStarted(NamedTuple):
    """What the warm start ended with; ``updates`` supervised steps."""

    updates: int
    rates: PassRates
    loss: float


def warm_start(
    policy: Policy,
    traces: Sequence[tuple[str, str]],
    settings: WarmStart,
    *,
    measure: Callable[[], PassRates],
    seed: int,
    progress: Callable[[int, PassRates, float], None] = lambda step, rates, loss: None,
) -> WarmStarted:
    """Train ``policy`` on traces until pass@1 reaches the target inside the windows.

    Raises:
        ContractBroken: the windows were never met within ``max_steps``; the message has the last rates.
    """
    rows = TokenRows(
        [policy.encode_prompt(prompt) for prompt, _ in traces],
        [policy.encode_completion(completion) for _, completion in traces],
    )
    optimiser = torch.optim.AdamW(
        policy.module.parameters(), lr=settings.learning_rate, weight_decay=0.01, fused=True
    )
    rates, loss, update = PassRates(0.0, 0.0), float("nan"), 0
    for update in range(1, settings.max_steps + 1):
        _decay(optimiser, settings.learning_rate, update / settings.max_steps)
        loss = _supervised_update(
            policy, rows.select(_pick(seed, update, len(traces), settings)), optimiser, settings
        )
        if update % settings.check_every == 0:
            rates = measure()
            progress(update, rates, loss)
            if rates.at_1 >= settings.target:
                break
    if not _inside(rates.at_1, settings.pass_at_1) or not _inside(rates.at_group, settings.pass_at_group):
        easy = rates.at_1 > settings.pass_at_1[1] or rates.at_group > settings.pass_at_group[1]
        change = (
            f"they are easy for it: measure earlier (warm_start.check_every={max(1, update // 8)}), make them "
            "harder, or widen warm_start.pass_at_1 and warm_start.pass_at_group"
            if easy
            else "raise warm_start.max_steps, or make the tasks easier"
        )
        raise ContractBroken(
            f"warm start: expected pass@1 in {settings.pass_at_1} and pass@G in {settings.pass_at_group} on training "
            f"tasks, got {rates.at_1:.3f} and {rates.at_group:.3f} after {update} updates; {change}"
        )
    return WarmStarted(update, rates, loss)


def _inside(value: float, window: tuple[float, float]) -> bool:
    return window[0] <= value <= window[1]


def _pick(seed: int, update: int, traces: int, settings: WarmStart) -> list[int]:
    generator = np.random.default_rng(keyed_integer(seed, "warm-start", update))
    return generator.choice(traces, size=min(settings.batch_size, traces), replace=False).tolist()


def _decay(optimiser: torch.optim.Optimizer, rate: float, done: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * min(1.0, done * 20 + 0.05) * (1 - 0.9 * done)


def _supervised_update(
    policy: Policy, rows: TokenRows, optimiser: torch.optim.Optimizer, settings: WarmStart
) -> float:
    loss = supervised_loss(policy, rows, label_smoothing=settings.label_smoothing)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.module.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())
