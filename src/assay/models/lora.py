"""Low-rank adapters through peft: trained weights beside frozen ones.

Hu et al. 2021 (arXiv 2106.09685). The second matrix starts at 0, so an adapted model starts as its base.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.config import LoraOptions
from assay.errors import BadInput, require

ADAPTER_FILE = "adapter_model.safetensors"
NAME = "default"  # peft's name of an only adapter: in its parameter names, not in its files
LINEAR = ("Linear", "Conv1D")  # the second is GPT-2's
PREFIX = "base_model.model."  # of every name in peft's files


def add_lora(module: Any, options: LoraOptions) -> None:
    """Put adapters into ``module`` in place; only they require gradients, in float32.

    Raises:
        BadInput: ``targets`` names no layer, or one that is not linear, or the head.
    """
    peft = require("peft", "train")
    asked = f"lora.targets={options.targets!r}"
    try:
        peft.inject_adapter_in_model(_config(module, options, None), module, NAME)
    except ValueError as error:
        hint = f"; one word is a pattern for the whole name: write [{options.targets}]"
        raise BadInput(
            f"{asked}: {str(error).splitlines()[0]}{hint if isinstance(options.targets, str) else ''}"
        ) from None
    if type(module.get_output_embeddings()) is not nn.Linear:
        raise BadInput(f"{asked} names the output head, which must stay as it is; leave it out")
    others = [name for name, part in module.named_modules() if _adapts_no_linear(part)]
    if others:
        raise BadInput(
            f"{asked}: only linear layers can have an adapter here, and {others[0]} is none; leave it out"
        )
    train_lora(module)


def _adapts_no_linear(part: Any) -> bool:
    return hasattr(part, "get_delta_weight") and type(part.get_base_layer()).__name__ not in LINEAR


def train_lora(module: nn.Module) -> None:
    """Let the adapters of a module, and nothing else of it, take gradients, in float32."""
    module.requires_grad_(False)
    for _, parameter in adapter_parameters(module):
        parameter.data = parameter.data.float()
        parameter.requires_grad_(True)


def _config(module: nn.Module, options: LoraOptions, base: str | None) -> Any:
    targets = options.targets if isinstance(options.targets, str) else list(options.targets)
    transposed = any(type(part).__name__ == "Conv1D" for part in module.modules())  # as GPT-2 stores them
    return require("peft", "train").LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=targets,
        task_type="CAUSAL_LM",
        fan_in_fan_out=transposed,
        base_model_name_or_path=base,
    )


def adapter_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Names and parameters of the adapters in a module."""
    return ((name, value) for name, value in module.named_parameters() if f".{NAME}." in name)


def merged_weight(layer: Any) -> Tensor:
    """A linear layer's weight, its adapter's change added where there is one, in float32; gradients pass."""
    change = getattr(layer, "get_delta_weight", None)
    return layer.weight if change is None else layer.weight.float() + change(NAME).float()


def save_lora(folder: Path, module: nn.Module, options: LoraOptions, base: str) -> None:
    """Write the adapter in peft's format, referring to its base."""
    _config(module, options, base).save_pretrained(folder)
    weights: dict[str, Tensor] = {
        PREFIX + name.replace(f".{NAME}.", "."): value.detach().cpu().contiguous()
        for name, value in adapter_parameters(module)
    }
    save_file(weights, folder / ADAPTER_FILE, metadata={"format": "pt"})


def load_lora(folder: Path, module: nn.Module) -> None:
    """Fill the adapters of a module from a folder in peft's format."""
    weights = load_file(folder / ADAPTER_FILE)
    for name, value in adapter_parameters(module):
        value.data.copy_(weights[PREFIX + name.replace(f".{NAME}.", ".")])
