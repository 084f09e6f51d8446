"""A policy's weights as one plain Hugging Face file, adapters merged: what another engine reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from assay.models.lora import NAME

WEIGHTS_FILE = "model.safetensors"
BASE = ".base_layer"  # where peft keeps the layer that an adapter is laid over


@torch.no_grad()
def merged_weights(module: Any) -> dict[str, Tensor]:
    """Weights by the names of the plain architecture; an adapter's product is added, a tied head left out."""
    weights = {
        name.replace(BASE, ""): value
        for name, value in module.state_dict().items()
        if f".{NAME}." not in name
    }
    for name, part in module.named_modules():
        if hasattr(part, "get_delta_weight"):
            key = f"{name}.weight"
            weights[key] = (weights[key].float() + part.get_delta_weight(NAME)).to(weights[key].dtype)
    if module.get_output_embeddings().weight is module.get_input_embeddings().weight:
        head = next(n for n, part in module.named_modules() if part is module.get_output_embeddings())
        weights.pop(f"{head}.weight", None)
    return {name: value.detach().cpu().contiguous() for name, value in weights.items()}


def replace_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    """Put a new weights file into a model folder; a reader sees the old one or the new one, never a part."""
    temporary = folder / f".{WEIGHTS_FILE}.{os.getpid()}.tmp"
    save_file(weights, temporary, metadata={"format": "pt"})
    temporary.chmod((folder / WEIGHTS_FILE).stat().st_mode)  # the server may be another user
    temporary.replace(folder / WEIGHTS_FILE)
