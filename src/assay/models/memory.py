"""How much memory a run needs, counted before it starts.

Counted: weights (of the trained and of the start policy), gradients, AdamW's two moments, the activations and
logits of one micro-batch, and the sampler's cache. Not counted: the interpreter and its libraries, about
0.4 GiB, and the reward's own workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from assay.config import RunConfig

if TYPE_CHECKING:
    from assay.models.policy import Policy

GIB = 2.0**30
LIVE_LOGITS = 5  # copies of a micro-batch's logits at the peak: logits, log-probs, p log p and two gradients
LIVE_HIDDEN = 24  # hidden-sized tensors that one layer keeps for the backward pass: an estimate, not measured
SAMPLER_BYTES = 1 << 30  # the sampler's own limit on cache and logits


class Estimate(NamedTuple):
    """Bytes by part; ``total`` is their sum."""

    weights: int
    gradients: int
    optimiser: int
    activations: int
    logits: int
    cache: int

    @property
    def total(self) -> int:
        """The largest sum at any time: the sampler's cache and the update's tensors are never alive together."""
        update = self.gradients + self.activations + self.logits
        return self.weights + self.optimiser + max(update, self.cache)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value / GIB:.2f}" for name, value in self._asdict().items())
        return f"this will need about {self.total / GIB:.1f} GiB: {parts} (sampling and updating take turns)"


def estimate_memory(policy: Policy, config: RunConfig, *, prompt_tokens: int) -> Estimate:
    """Estimate the peak of a run.

    Args:
        policy: the start policy. config: sizes of batch, group and micro-batch, and the adapter.
        prompt_tokens: length of a long prompt.
    """
    module: Any = policy.module
    head = module.get_output_embeddings().weight
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    trained = policy.parameters_count if config.lora is None else lora_parameters(module, config.lora.rank)
    rows = min(config.micro_batch_size, config.batch_size)
    tokens = rows * (config.max_new_tokens + prompt_tokens / config.group_size)
    kept_layers = 1 if config.gradient_checkpointing else _layers(module)
    a_row = (prompt_tokens + config.max_new_tokens) * cache_bytes_a_token(policy)
    return Estimate(
        weights=weights + (4 * trained),
        gradients=4 * trained,
        optimiser=8 * trained,
        activations=int(4 * tokens * head.shape[1] * (LIVE_HIDDEN * kept_layers + _layers(module))),
        logits=int(LIVE_LOGITS * 4 * rows * config.max_new_tokens * head.shape[0]),
        cache=int(min(2 * config.batch_size * a_row, SAMPLER_BYTES)),
    )


def lora_parameters(module: Any, rank: int) -> int:
    """Parameters of adapters on every linear layer but the head."""
    head = module.get_output_embeddings()
    return sum(
        rank * sum(part.weight.shape)
        for part in module.modules()
        if part is not head and type(part).__name__ in ("Linear", "Conv1D")
    )


def cache_bytes_a_token(policy: Policy) -> int:
    """Bytes of keys and values of one token in all layers."""
    config: Any = policy.module.config
    config = config.get_text_config()
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    return 2 * _layers(policy.module) * kept * size * (2 if policy.dtype == "bfloat16" else 4)


def _layers(module: Any) -> int:
    return int(module.config.get_text_config().num_hidden_layers)
