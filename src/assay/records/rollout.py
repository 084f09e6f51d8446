"""One rollout: everything that is known about one completion, and the group it belongs to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from assay.records.score import ScoreState

FinishReason = Literal["eos", "length", "stop"]


@dataclass(slots=True)
class Rollout:
    """One completion of one prompt. Token ids are the truth about it: text is never re-encoded.

    ``reward``, ``shaped_reward``, ``advantage`` and ``truth`` are different fields; none overwrites another,
    and training code never fills ``truth``.

    Attributes:
        step: the update this rollout was sampled for.
        prompt_id: the group; a group is found by this id, never by position.
        sample: index within the group.
        prompt, completion: texts; ``reward_text`` is what the reward was called on.
        token_ids: completion ids, the sampled EOS included; prompt and pad ids excluded. Length T.
        sampler_logprobs: log-probabilities at sampling, nats, length T.
        finish_reason: ``eos`` (a sampled end token), ``length`` (cut at the cap), ``stop``.
        reward: the proxy as scored (NaN when not scored); ``reward_state``, ``reward_reason``,
            ``reward_parts``: how.
        shaped_reward: after penalties. advantage: what the update uses.
        policy_version: updates the sampling policy had seen.
        entropy: mean token entropy under the sampler, nats.
    """

    step: int
    prompt_id: str
    sample: int
    prompt: str
    completion: str
    token_ids: Sequence[int]
    sampler_logprobs: Sequence[float]
    finish_reason: FinishReason
    reward_text: str = ""
    reward: float = math.nan
    reward_state: ScoreState = "missing"
    reward_reason: str | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    shaped_reward: float = math.nan
    advantage: float = math.nan
    policy_version: int = 0
    entropy: float = math.nan
