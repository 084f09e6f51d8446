"""One run as the doctor sees it, whoever wrote the log: configuration, metrics, rollouts, evaluations, logits.

Every column has one name whatever the trainer calls it (:mod:`assay.records.readers.aliases`). A column that
was not logged is absent, a cell that was not logged is null, and NaN is what the log itself calls NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROLLOUT_SCHEMA: dict[str, Any] = {
    "step": pl.Int64,
    "prompt_id": pl.String,
    "sample": pl.Int64,
    "prompt": pl.String,
    "answer": pl.String,
    "completion": pl.String,
    "reward_text": pl.String,
    "reward": pl.Float64,
    "shaped_reward": pl.Float64,
    "reward_state": pl.String,
    "truth": pl.Float64,
    "advantage": pl.Float64,
    "length": pl.Float64,
    "prompt_length": pl.Float64,
    "max_length": pl.Float64,
    "finished": pl.Boolean,
    "finish_reason": pl.String,
    "policy_version": pl.Int64,
    "split": pl.String,
    "token_ids": pl.List(pl.Int64),
    "prompt_ids": pl.List(pl.Int64),
    "logprobs": pl.List(pl.Float64),
    "old_logprobs": pl.List(pl.Float64),
    "sampler_logprobs": pl.List(pl.Float64),
    "ref_logprobs": pl.List(pl.Float64),
    "mask": pl.List(pl.Float64),
    "token_rewards": pl.List(pl.Float64),
    "reward_shape": pl.String,
}
"""Columns of ``rollouts``. ``reward_shape`` names the type of a reward that is not one number (``list``, ``str``).
Parts of a composed reward are further Float64 columns ``part:<name>``."""

HEAVY = (
    "prompt", "completion", "reward_text", "token_ids", "prompt_ids", "logprobs", "old_logprobs",
    "sampler_logprobs", "ref_logprobs", "mask", "token_rewards",
)  # fmt: skip
"""Columns kept for whole groups up to a budget only; beyond it they are null (the numbers are all kept)."""


@dataclass(frozen=True, slots=True)
class Logits:
    """A logged excerpt of logits with the log-probs that the trainer made of them.

    Attributes:
        logits: (B, T, V), the logits that predict ``token_ids``; NaN where a row is shorter.
        token_ids: (B, T). logged: (B, T) log-probabilities in nats; NaN where a row is shorter.
    """

    logits: NDArray[np.float64]
    token_ids: NDArray[np.int64]
    logged: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Note:
    """What a reader wants a person to know: a dropped line, an unknown name, a file left out."""

    kind: str
    text: str


def empty_rollouts() -> pl.DataFrame:
    """A frame without rows or columns."""
    return pl.DataFrame()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run.

    Attributes:
        source: the trainer that made the log (``assay``, ``trl``, ``verl``, ``openrlhf``, ``verifiers``,
            ``prime-rl``, ``open-instruct``, ``skyrl``, ``nemo-rl``, ``areal``, ``tinker``) or ``generic``.
        config: settings under this project's names; ``raw_config``: as logged, flattened with dots.
        metrics: ``step`` and Float64 columns, sorted by step, one row a step.
        rollouts: columns of :data:`ROLLOUT_SCHEMA` that were logged, one row per completion, in file order.
        evaluations: held-out rows (``step, prompt_id, sample, prompt, completion, reward, truth, length,
            entropy, kl``), one row per completion.
        logits: an excerpt, where one was logged.
        notes: what was dropped or not understood.
        origin: the path, for messages.
        prompts_by_step: prompt ids of each step as a metrics line logged them.
        step_order: the steps in the order of the metrics file (a resume shows as a step back).
    """

    source: str = "generic"
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    raw_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metrics: pl.DataFrame = field(default_factory=empty_rollouts)
    rollouts: pl.DataFrame = field(default_factory=empty_rollouts)
    evaluations: pl.DataFrame = field(default_factory=empty_rollouts)
    logits: Logits | None = None
    notes: tuple[Note, ...] = ()
    origin: str = ""
    prompts_by_step: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    step_order: tuple[int, ...] = ()
