"""Checkpoints: a folder in Hugging Face format, plus what resume needs, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from assay.config import ModelOptions
from assay.errors import BadInput, require
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy, is_tiny

STATE_FILE = "training_state.pt"


def save_checkpoint(folder: Path, policy: Policy, state: Mapping[str, Any] | None = None) -> None:
    """Write model and tokenizer, and ``state`` (tensors, numbers, strings) for resume.

    Everything is written into a temporary folder beside ``folder``, synced, and renamed, so a reader never
    sees half a checkpoint.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process of the same number
    temporary.mkdir()
    try:
        policy.save(temporary)
        if state is not None:
            torch.save(dict(state), temporary / STATE_FILE)
        for path in temporary.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load_state(folder: Path) -> dict[str, Any]:
    """Read what resume needs; nothing but tensors and plain values is ever unpickled."""
    path = folder / STATE_FILE
    if not path.is_file():
        raise BadInput(f"{folder} cannot be resumed: expected {STATE_FILE} in it")
    return torch.load(path, weights_only=True, map_location="cpu")


def load_policy(folder: str | Path, options: ModelOptions | None = None) -> Policy:
    """Read a policy from a folder in Hugging Face format (or with a GGUF file), tiny or not.

    Args:
        options: of a Hugging Face model; None for those a checkpoint was saved with.
    """
    path = Path(folder)
    if not (path / "config.json").is_file() and not list(path.glob("*.gguf")):
        raise BadInput(f"expected a model folder with config.json or a .gguf file, got {folder}")
    if is_tiny(path):
        return TinyPolicy.load(path)
    require("transformers", "train")
    from assay.models.huggingface import HuggingFacePolicy

    return HuggingFacePolicy.load(path, options)
