"""How much memory a run needs, counted before it starts.

Counted: the libraries, weights (of the trained and of the start policy), gradients, AdamW's two moments, the
activations and logits of one micro-batch, and what the sampler holds: a copy of the weights, and the cache and
logits of one wave. Not counted: the reward's own workers.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.config import LoraOptions, RunConfig
from assay.engines.request import WAVE_BYTES, row_bytes
from assay.maths.chunked import CHUNK_BYTES, WIDE
from assay.models.lora import LINEAR
from assay.models.memory import cache_bytes_a_token, layers_of

if TYPE_CHECKING:
    from assay.models.policy import Policy

GIB = 2.0**30
LIBRARIES = int(0.6 * GIB)  # the interpreter with torch and transformers
LIVE_LOGITS = 5  # copies of a micro-batch's logits at the peak: logits, log-probs, p log p and two gradients


class Estimate(NamedTuple):
    """Bytes by part."""

    libraries: int
    weights: int
    gradients: int
    optimiser: int
    activations: int
    logits: int
    cache: int
    together: bool = False

    @property
    def total(self) -> int:
        """The largest sum at any time: what sampling and updating hold, both only if they are alive ``together``."""
        update = self.gradients + self.activations + self.logits
        largest = update + self.cache if self.together else max(update, self.cache)
        return self.libraries + self.weights + self.optimiser + largest

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value / GIB:.2f}" for name, value in list(self._asdict().items())[:-1])
        how = "at once" if self.together else "take turns"
        return f"this will need about {self.total / GIB:.1f} GiB: {parts} (sampling and updating {how})"


def estimate_memory(policy: Policy, config: RunConfig, *, prompt_tokens: int) -> Estimate:
    """Estimate the peak of a run.

    Args:
        policy: the start policy. config: sizes of batch, group and micro-batch, and the adapter.
        prompt_tokens: length of a long prompt.
    """
    module: Any = policy.module
    head = module.get_output_embeddings().weight
    parameters = sum(p.numel() for p in module.parameters())
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    trained = policy.parameters_count if config.lora is None else lora_parameters(module, config.lora)
    if config.algorithm == "ppo":
        trained *= 2  # the critic
    rows = min(config.micro_batch_size, config.batch_size)
    sampled = max(config.batch_size, config.eval_prompts * config.eval_samples)
    columns = prompt_tokens + config.max_new_tokens
    wave = min(sampled * row_bytes(columns, len(head), cache_bytes_a_token(policy)), WAVE_BYTES)
    copy = parameters * (2 if policy.dtype == "bfloat16" else 4) + 4 * head.numel()
    if len(head) < WIDE:
        logits = LIVE_LOGITS * 4 * rows * config.max_new_tokens * len(head)
    else:  # a few blocks, and the head's gradient
        logits = LIVE_LOGITS * CHUNK_BYTES + 4 * head.numel() * (config.lora is None)
    return Estimate(
        libraries=LIBRARIES,
        weights=weights + (4 * trained),
        gradients=4 * trained,
        optimiser=8 * trained,
        activations=_activations(policy, config, rows, prompt_tokens),
        logits=logits,
        cache=copy + wave,
        together=config.overlap or (config.vllm is not None and config.vllm.colocated),
    )


def _activations(policy: Policy, config: RunConfig, rows: int, prompt_tokens: int) -> int:
    """Bytes kept for the backward pass: a layer's tensors, one a token, and the keys and values each row looks at."""
    text: Any = policy.module.config.get_text_config()
    hidden = text.hidden_size
    given = (getattr(text, name, None) for name in ("intermediate_size", "n_inner", "ffn_dim"))
    inner = next((size for size in given if size), 4 * hidden)
    pair = cache_bytes_a_token(policy) // (4 * layers_of(policy.module))
    prompts = rows if config.gradient_checkpointing else math.ceil(rows / config.group_size)
    tokens = rows * config.max_new_tokens + prompts * prompt_tokens
    layer = tokens * (6 * hidden + 3 * (hidden + pair) + 4 * inner)
    layer += rows * (prompt_tokens + config.max_new_tokens) * pair
    kept = 1 if config.gradient_checkpointing else layers_of(policy.module)
    return int(4 * (layer * kept + tokens * hidden * layers_of(policy.module))) + _made_matrices(
        policy, config
    )


def _made_matrices(policy: Policy, config: RunConfig) -> int:
    """Bytes of the joined and folded matrices that the fast path makes for a pass and keeps for its gradient."""
    weights = None if config.gradient_checkpointing else policy.llama_weights(1)
    if weights is None:
        return 0
    joined = sum(part.numel() for layer in weights.layers for part in (*layer.qkv, *layer.gate_up))
    others = sum(part.numel() for layer in weights.layers for part in (layer.out, layer.down))
    half = 2 * (joined + others) if policy.dtype == "bfloat16" else 0
    return 2 * 4 * joined + half + (4 * others if config.lora is not None else 0)


def lora_parameters(module: Any, options: LoraOptions) -> int:
    """Parameters of adapters on the linear layers that ``targets`` names, as peft reads it; never on the head."""
    head, targets = module.get_output_embeddings(), options.targets

    def named(name: str) -> bool:
        if isinstance(targets, str):
            return targets.lower() == "all-linear" or re.fullmatch(targets, name) is not None
        return any(name == target or name.endswith(f".{target}") for target in targets)

    return sum(
        options.rank * sum(part.weight.shape)
        for name, part in module.named_modules()
        if part is not head and type(part).__name__ in LINEAR and named(name)
    )
