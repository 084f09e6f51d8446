"""What another library computes under a method's name, as other values of the same parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assay.algos.algorithm import Algorithm


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A library's defaults for one method.

    Attributes:
        options: the recipe's options as that library has them; the user's own options win.
        parts: settings without an option of their own, by dotted path into :class:`Algorithm`.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm with the preset's parts."""
        for path, value in self.parts.items():
            part, _, attribute = path.partition(".")
            if attribute:
                value = replace(getattr(algorithm, part), **{attribute: value})
            algorithm = replace(algorithm, **{part: value})
        return algorithm


# OpenRLHF: k1 a token in the reward, clamped to 10; rewards after their baseline clipped to 10; token mean.
OPENRLHF_KL: Mapping[str, Any] = {"kl_coef": 0.01, "kl_estimator": "k1", "kl_where": "token_reward"}
OPENRLHF_PARTS: Mapping[str, Any] = {
    "aggregation": "token_mean",
    "credit.clip": 10.0,
    "kl.bound": 10.0,
    "surrogate.bound": 20.0,
}
# verl: token mean, dual clip at 3 for bad actions, k3 clamped to 10 where a KL is asked for.
VERL_PARTS: Mapping[str, Any] = {"aggregation": "token_mean", "surrogate.dual_clip": 3.0, "kl.bound": 10.0}
