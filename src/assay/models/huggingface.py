"""Any causal language model of transformers as a policy, with its own tokenizer and chat template.

Rows are run with an attention mask and explicit positions, each distinct prompt once. What the model class may
do after its head (a constant scale is kept, soft-capping is refused) is measured when it is loaded, not looked
up by name. Shapes: B rows, T completion tokens, L prompt tokens, P distinct prompts, H hidden, V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.config import ModelOptions
from assay.errors import BadInput
from assay.models.end_tokens import (
    FORBIDDEN,
    bos_id,
    end_ids,
    forbidden_ids,
    turn_end_id,
    with_one_bos,
)
from assay.models.hub_folder import clear_generation_config, read_folder, write_folder
from assay.models.llama_weights import LlamaWeights, is_llama_shaped, transformers_weights
from assay.models.lora import adapter_parameters, add_lora, merged_weight, train_lora
from assay.models.packed import completion_hidden
from assay.models.policy import Policy
from assay.models.tiny_policy import pad_right

UNLIMITED = 1 << 30  # positions of an architecture that has no table of them


class HuggingFacePolicy(Policy):
    """A transformers causal language model with its tokenizer.

    Attributes:
        options: dtype, adapter, checkpointing, chat template. base: the folder the weights came from, which
            an adapter's checkpoint refers to. forbidden: ids that are never sampled.
        shares_prompts: equal prompts are run once in training.
    """

    shares_prompts = True

    def __init__(self, module: Any, tokenizer: Any, options: ModelOptions, base: str) -> None:
        self.module, self.tokenizer, self.options, self.base = module, tokenizer, options, base
        self.dtype = options.dtype
        config: Any = module.config
        self.eos_ids = end_ids(tokenizer, config, module.generation_config)
        if not self.eos_ids:
            raise BadInput(f"{base}: no end token; set eos_token_id in its generation_config.json")
        turn = turn_end_id(tokenizer) if options.chat_template else None
        own = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else min(self.eos_ids)
        self.end_id = own if turn is None else turn
        self.pad_id = self.end_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.bos_id = bos_id(tokenizer)
        text_config = config.get_text_config()
        self.max_positions = getattr(text_config, "max_position_embeddings", None) or UNLIMITED
        vocabulary = module.get_output_embeddings().weight.shape[0]
        self.forbidden = forbidden_ids(tokenizer, vocabulary, self.eos_ids)
        clear_generation_config(module, self.bos_id, sorted(self.eos_ids), self.pad_id)
        self._takes = inspect.signature(self._backbone.forward).parameters
        self._is_llama_shaped = is_llama_shaped(module)
        self._scale = _logit_scale(self)

    @property
    def _backbone(self) -> Any:
        module: Any = self.module
        return module.base_model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in bfloat16 where asked for; nothing otherwise."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16")

    def encode_prompt(self, prompt: str | Sequence[Mapping[str, str]]) -> list[int]:
        """Ids of a text, or of chat turns (``role``, ``content``), with exactly one begin token.

        A text is a user's turn under ``chat_template``, after the system's and the examples, and taken as it is
        otherwise.
        """
        if isinstance(prompt, str) and self.options.chat_template:
            prompt = _turns(self.options, prompt)
        text = prompt if isinstance(prompt, str) else self._render(prompt)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids = with_one_bos(ids, self.tokenizer.bos_token_id, needed=self.bos_id is not None)
        if not ids:
            raise BadInput("the prompt has no tokens and the model no begin token; give a prompt with text")
        return ids

    def _render(self, turns: Sequence[Mapping[str, str]]) -> str:
        if not self.tokenizer.chat_template:
            raise BadInput(
                f"{self.base}: expected a tokenizer with a chat template, got none; give prompts as text and "
                "leave chat_template out"
            )
        begin = self.tokenizer.bos_token or ""
        said = [turn | {"content": turn["content"].removeprefix(begin)} for turn in map(dict, turns)]
        return self.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)

    def encode_completion(self, completion: str) -> list[int]:
        """The completion's ids and the end token."""
        return [*self.tokenizer.encode(completion, add_special_tokens=False), self.end_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, other special tokens included; only the end token is left out.

        Decoded after one letter, which is cut off again: some tokenizers drop the space of a first word.
        """
        anchor = self.tokenizer.encode("x", add_special_tokens=False)
        kept = [token for token in ids if token not in self.eos_ids]
        before, whole = (self._text([*anchor, *rest]) for rest in ([], kept))
        return whole[len(before) :] if whole.startswith(before) else self._text(kept)

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def states(self, ids_BT: Tensor, mask_BL: Tensor, positions_BT: Tensor, cache: Any = None) -> Tensor:
        """Final hidden states (B, T, H), float32, of T tokens after what ``cache`` holds; it is extended.

        Args:
            mask_BL: 1 for real tokens, of the cached columns too. positions_BT: of the T tokens.
        """
        given: dict[str, Any] = {
            "input_ids": ids_BT,
            "attention_mask": mask_BL,
            "use_cache": cache is not None,
        }
        if "position_ids" in self._takes:
            given["position_ids"] = positions_BT.clamp(0, self.max_positions - 1)
        if cache is not None:
            given["cache" if "cache" in self._takes else "past_key_values"] = cache
        with self.autocast():
            return self._backbone(**given).last_hidden_state.float() * self._scale

    def completion_hidden(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        """Hidden states that predict each completion token (B, T, H), float32; equal prompts are run once."""
        place: dict[tuple[int, ...], int] = {}
        which = [place.setdefault(tuple(prompt), len(place)) for prompt in prompt_ids]
        checkpointing = self.options.gradient_checkpointing and torch.is_grad_enabled()
        if self.shares_prompts and not checkpointing and self._is_llama_shaped:
            return self._packed_hidden(list(place), torch.tensor(which), completion_ids)
        if checkpointing or len(place) == len(which) or not self.shares_prompts:
            with _training_layers(self.module, checkpointing):
                return self.joined_hidden(prompt_ids, completion_ids)
        return self._shared_hidden(list(place), torch.tensor(which), completion_ids)

    def _packed_hidden(
        self, prompts: Sequence[Sequence[int]], which_B: Tensor, completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        prompts_PL, lengths_P = pad_right(prompts, self.pad_id)
        completions_BT, counts_B = pad_right(completion_ids, self.pad_id)
        weights = self.llama_weights(prompts_PL.shape[1] + completions_BT.shape[1])
        assert weights is not None
        with self.autocast():
            hidden = completion_hidden(weights, prompts_PL, lengths_P, which_B, completions_BT, counts_B)
        return hidden.float()

    def llama_weights(self, positions: int) -> LlamaWeights | None:
        """The module's tensors, an adapter merged; None when it is not Llama-shaped."""
        return transformers_weights(self.module, positions, merged_weight) if self._is_llama_shaped else None

    def joined_hidden(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        """The same by running every row whole, padded on the right: the plain reference."""
        rows = [[*prompt, *ids[:-1]] for prompt, ids in zip(prompt_ids, completion_ids, strict=True)]
        ids_BT, lengths_B = pad_right(rows, self.pad_id)
        steps = torch.arange(ids_BT.shape[1])
        mask_BT = (steps[None] < lengths_B[:, None]).long()
        positions_BT = steps.expand(len(rows), -1)
        hidden = self.states(*(part.to(self.device) for part in (ids_BT, mask_BT, positions_BT)))
        first_B = torch.tensor([len(prompt) - 1 for prompt in prompt_ids])
        width = max(len(ids) for ids in completion_ids)
        take_BT = (first_B[:, None] + torch.arange(width)).clamp_max(hidden.shape[1] - 1).to(self.device)
        return hidden.gather(1, take_BT[..., None].expand(-1, -1, hidden.shape[-1]))

    def _shared_hidden(
        self, prompts: Sequence[Sequence[int]], which_B: Tensor, completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        from transformers.cache_utils import Cache, DynamicLayer

        cache = Cache(layer_class_to_replicate=DynamicLayer)  # grows by concatenation: gradients pass
        which_B = which_B.to(self.device)
        last_PH, mask_PL, lengths_P = self.prefill(prompts, cache)
        ids_BT, counts_B = (part.to(self.device) for part in pad_right(completion_ids, self.pad_id))
        steps = ids_BT.shape[1] - 1
        first = last_PH[which_B][:, None]
        if not steps:
            return first
        cache.batch_select_indices(which_B)
        column = torch.arange(steps, device=self.device)
        own_BT = (column[None] < counts_B[:, None] - 1).long()
        mask_BL = torch.cat([mask_PL[which_B], own_BT], dim=1)
        rest = self.states(ids_BT[:, :-1], mask_BL, lengths_P[which_B][:, None] + column, cache)
        return torch.cat([first, rest], dim=1)

    def prefill(self, prompts: Sequence[Sequence[int]], cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run distinct prompts into ``cache``, padded on the left, so that what follows stands beside them.

        Returns:
            The last hidden states (P, H), the mask (P, L) and the lengths (P,).
        """
        ids_PL, lengths_P = pad_right([prompt[::-1] for prompt in prompts], self.pad_id)
        ids_PL, lengths_P = ids_PL.flip(1).to(self.device), lengths_P.to(self.device)
        width = ids_PL.shape[1]
        positions_PL = torch.arange(width, device=self.device) - (width - lengths_P)[:, None]
        mask_PL = (positions_PL >= 0).long()
        return self.states(ids_PL, mask_PL, positions_PL, cache)[:, -1], mask_PL, lengths_P

    def head(self) -> tuple[Tensor, Tensor | None]:
        """Head weight (V, H) and bias (V,) in float32; ids that cannot be sampled have a bias of -1e9."""
        module: Any = self.module
        layer = module.get_output_embeddings()
        bias = getattr(layer, "bias", None)
        bias_V = None if bias is None else bias.float() * self._scale
        if self.forbidden:
            start = layer.weight.new_zeros(layer.weight.shape[0], dtype=torch.float32)
            ids = torch.tensor(self.forbidden, device=self.device)
            bias_V = (start if bias_V is None else bias_V).index_fill(0, ids, FORBIDDEN)
        return layer.weight.float(), bias_V

    def frozen_copy(self) -> HuggingFacePolicy:
        """A copy without gradients; base weights under an adapter, which never change, are shared."""
        memo = {id(p): p for p in self.module.parameters() if self.options.lora and not p.requires_grad}
        return self._with(copy.deepcopy(self.module, memo).requires_grad_(False).eval())

    def trainable_copy(self) -> HuggingFacePolicy:
        """What is trained from here: a copy of all weights, or an adapter over these same weights."""
        if self.options.lora is None:
            twin = self._with(copy.deepcopy(self.module).requires_grad_(True).eval())
        else:
            own = {id(value) for _, value in adapter_parameters(self.module)}
            shared = {id(p): p for p in self.module.parameters() if id(p) not in own}
            twin = self._with(copy.deepcopy(self.module, shared).eval())
            if own:  # the adapter that a checkpoint came with goes on
                train_lora(twin.module)
            else:
                add_lora(twin.module, self.options.lora)
        if self.options.gradient_checkpointing:
            _enable_checkpointing(twin.module)
        return twin

    def sharding_copy(self) -> HuggingFacePolicy:
        """A copy of everything, whose layers run once a row batch: processes that split it stay in step."""
        return self._with(copy.deepcopy(self.module)).with_rows_whole()

    def with_rows_whole(self) -> HuggingFacePolicy:
        """The same weights, run as :meth:`sharding_copy` runs its own: equal weights give equal log-probs."""
        twin = self._with(self.module)
        twin.shares_prompts = False
        return twin

    def _with(self, module: nn.Module) -> HuggingFacePolicy:
        twin = copy.copy(self)
        twin.module = module
        return twin

    def save(self, folder: Path) -> None:
        """Write model (or adapter), configuration, tokenizer and options."""
        write_folder(folder, self.module, self.tokenizer, self.options, self.base)

    @classmethod
    def load(cls, folder: str | Path, options: ModelOptions | None = None) -> HuggingFacePolicy:
        """Read a folder in Hugging Face format, an adapter's checkpoint, or a folder with one GGUF file.

        Args:
            options: None for those the folder was saved with, else the defaults.

        Raises:
            BadInput: no decoder-only language model, no tokenizer, or one whose logits are not those of a
                linear head.
        """
        module, tokenizer, options, base = read_folder(Path(folder), options)
        return cls(module.to(default_device()), tokenizer, options, base)


def _turns(options: ModelOptions, prompt: str) -> list[dict[str, str]]:
    said = [] if options.system_prompt is None else [("system", options.system_prompt)]
    for question, answer in options.examples:
        said += [("user", question), ("assistant", answer)]
    plain = options.question == "{prompt}"
    said.append(("user", prompt if plain else options.question.replace("{prompt}", prompt.strip())))
    return [{"role": role, "content": content} for role, content in said]


def default_device() -> torch.device:
    """This process's GPU where there is one; hide it (``CUDA_VISIBLE_DEVICES=``) to stay on the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


class _training_layers(AbstractContextManager[None]):
    """Checkpointed layers recompute only in training mode; their dropout, one level down, stays off."""

    def __init__(self, module: nn.Module, on: bool) -> None:
        self.layers = [m for m in module.modules() if on and getattr(m, "gradient_checkpointing", False)]

    def __enter__(self) -> None:
        for layer in self.layers:
            layer.training = True

    def __exit__(self, *_: object) -> None:
        for layer in self.layers:
            layer.training = False


def _enable_checkpointing(module: Any) -> None:
    enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
    enable({"use_reentrant": False})


@torch.no_grad()
def _logit_scale(policy: HuggingFacePolicy) -> float:
    """The constant between the model's logits and its bare head, measured on a few ids.

    Raises:
        BadInput: there is no such constant (soft-capping, or a state before the last norm).
    """
    kept = policy.forbidden
    policy._scale = 1.0  # pyright: ignore[reportPrivateUsage]
    vocabulary = len(policy.tokenizer)
    ids = torch.tensor([[index % vocabulary for index in (3, 17, 101, 29, 5)]], device=policy.device)
    module: Any = policy.module
    with policy.autocast():
        whole = module(input_ids=ids).logits[0].float()
    steps = torch.arange(ids.shape[1], device=policy.device)[None]
    policy.forbidden = []
    weight, bias = policy.head()
    policy.forbidden = kept
    bare = torch.nn.functional.linear(policy.states(ids, torch.ones_like(ids), steps)[0], weight, bias)
    scale = float((whole * bare).sum() / bare.square().sum().clamp_min(1e-20))
    size = float(whole.abs().max())
    slack = 0.05 if policy.options.dtype == "bfloat16" else 1e-3
    if float((whole - scale * bare).abs().max()) > slack * size:
        raise BadInput(
            f"{policy.base}: {type(policy.module).__name__} does more after its head than scale the logits "
            "(soft-capping?); such architectures are not supported"
        )
    return 1.0 if abs(scale - 1) < slack else scale
