"""A Llama-shaped decoder as its tensors, whoever holds them: the embedded model, or one of transformers.

The fast paths of sampling (:mod:`assay.engines.local_llama`) and of training (:mod:`assay.models.packed`) read
these. Covered: ``LlamaForCausalLM`` and ``Qwen2ForCausalLM`` with full attention and static rotary frequencies,
grouped-query attention and biases included. Every other architecture runs through its own forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.models.tiny import TinyDecoder

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
STATIC_ROPE = ("default", "linear", "llama3")  # frequencies that do not depend on the text's length


class LayerWeights(NamedTuple):
    """One block: H hidden, A query heads and K key heads of size D, I intermediate."""

    input_norm: Tensor  # (H,)
    qkv: tuple[Tensor, Tensor, Tensor]  # (A D, H), (K D, H), (K D, H)
    qkv_bias: Tensor | None  # ((A + 2 K) D,)
    out: Tensor  # (H, A D)
    post_norm: Tensor
    gate_up: tuple[Tensor, Tensor]  # (I, H) each
    down: Tensor  # (H, I)


class LlamaWeights(NamedTuple):
    """The decoder; ``cos_TD`` and ``sin_TD`` reach as far as was asked for."""

    embedding: Tensor  # (V, H)
    layers: list[LayerWeights]
    norm: Tensor
    heads: int
    kv_heads: int
    head_size: int
    epsilon: float
    cos_TD: Tensor
    sin_TD: Tensor

    @property
    def turns_TF(self) -> Tensor:
        """The rotary embedding as complex numbers, (positions, D / 2)."""
        half = self.head_size // 2
        return torch.complex(self.cos_TD[:, :half], self.sin_TD[:, :half])

    def qkv(self, layer: LayerWeights) -> Tensor:
        """Queries, keys and values as one matrix ((A + 2 K) D, H) in float32, the norm before it folded in."""
        return self._in_pairs(*layer.qkv).float() * layer.input_norm.float()

    def qkv_bias(self, layer: LayerWeights) -> Tensor | None:
        """The bias of that matrix, ((A + 2 K) D,)."""
        if layer.qkv_bias is None:
            return None
        sizes = [heads * self.head_size for heads in (self.heads, self.kv_heads, self.kv_heads)]
        return self._in_pairs(*layer.qkv_bias.split(sizes))

    def _in_pairs(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Joined; in a head of queries or keys the two numbers that a rotation mixes stand side by side.

        So a rotation is one complex product. Inner products, all that is made of them, do not see the order.
        """
        pairs = [part.unflatten(0, (-1, 2, self.head_size // 2)).transpose(1, 2) for part in (query, key)]
        return torch.cat([*pairs, value.unflatten(0, (-1, self.head_size // 2, 2))]).flatten(0, 2)


def gate_up(layer: LayerWeights) -> Tensor:
    """Both as one matrix (2 I, H), in float32, with the weight of the norm before it folded in."""
    return torch.cat(layer.gate_up).float() * layer.post_norm.float()


def tiny_weights(module: TinyDecoder) -> LlamaWeights:
    """The embedded model's tensors."""
    config = module.config
    return LlamaWeights(
        module.model.embed_tokens.weight,
        [_layer(block, _plain_weight) for block in module.blocks],
        module.model.norm.weight,
        config.heads,
        config.heads,
        config.head_size,
        config.norm_epsilon,
        module.cos_TD,
        module.sin_TD,
    )


def transformers_weights(module: Any, positions: int, weight_of: Callable[[Any], Tensor]) -> LlamaWeights:
    """The tensors of a model that :func:`is_llama_shaped`; ``weight_of`` reads a linear layer."""
    backbone, config = module.model, module.config
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * backbone.rotary_emb.inv_freq.float()[None]
    angle = torch.cat([angle, angle], dim=-1)
    return LlamaWeights(
        backbone.embed_tokens.weight,
        [_layer(block, weight_of) for block in backbone.layers],
        backbone.norm.weight,
        config.num_attention_heads,
        config.num_key_value_heads,
        backbone.layers[0].self_attn.head_dim,
        config.rms_norm_eps,
        angle.cos(),
        angle.sin(),
    )


def is_llama_shaped(module: Any) -> bool:
    """Whether the fast paths compute what this transformers model computes."""
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return (
        type(module).__name__ in ARCHITECTURES
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") in STATIC_ROPE
        and set(kinds) == {"full_attention"}
        and not getattr(config, "mlp_bias", False)
        and module.model.layers[0].self_attn.o_proj.bias is None
        and module.model.rotary_emb.attention_scaling == 1.0
        and module.model.embed_tokens.weight.device.type == "cpu"
    )


def _layer(block: Any, weight_of: Callable[[Any], Tensor]) -> LayerWeights:
    attention, mlp = block.self_attn, block.mlp
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    biases: list[Tensor] = [part.bias for part in inputs if part.bias is not None]
    return LayerWeights(
        block.input_layernorm.weight,
        (weight_of(inputs[0]), weight_of(inputs[1]), weight_of(inputs[2])),
        torch.cat(biases) if biases else None,
        weight_of(attention.o_proj),
        block.post_attention_layernorm.weight,
        (weight_of(mlp.gate_proj), weight_of(mlp.up_proj)),
        weight_of(mlp.down_proj),
    )


def _plain_weight(layer: Any) -> Tensor:
    return layer.weight
