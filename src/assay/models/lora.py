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
PREFIX = "base_model.model."  # of every name in peft's files


def add_lora(module: Any, options: LoraOptions) -> None:
    """Put adapters into ``module`` in place; only they require gradients, in float32.

    Raises:
        BadInput: no layer has one of the target names, or the head is among them.
    """
    peft = require("peft", "train")
    try:
        peft.inject_adapter_in_model(_config(module, options, None), module, NAME)
    except ValueError as error:
        raise BadInput(f"lora.targets={options.targets!r}: {str(error).splitlines()[0]}") from None
    if type(module.get_output_embeddings()) is not nn.Linear:
        raise BadInput("lora.targets names the output head, which must stay as it is; leave it out")
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
