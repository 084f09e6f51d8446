"""Reading and writing model folders with transformers, silently.

A checkpoint of an adapter holds the adapter and refers to its base, as peft writes it; a GGUF folder's weights
are copied into a clean model class, because the one that read them refuses to be saved.
"""

from __future__ import annotations

import io
import json
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from assay.config import ModelOptions
from assay.errors import BadInput, require
from assay.models.lora import adapter_parameters, add_lora, load_lora, save_lora

OPTIONS_FILE = "assay_model.json"


@contextmanager
def quiet_transformers() -> Generator[None]:
    """Without transformers' progress bars and advice, which would mix with our own output."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def read_folder(folder: Path, options: ModelOptions | None) -> tuple[Any, Any, ModelOptions, str]:
    """Model, tokenizer, options and base folder; see ``HuggingFacePolicy.load``."""
    require("transformers", "train")
    saved: dict[str, Any] = {}
    if (folder / OPTIONS_FILE).is_file():
        saved = json.loads((folder / OPTIONS_FILE).read_text("utf-8"))
    options = _options(options, saved)
    base = str(saved.get("base", folder))
    if not Path(base).is_dir():
        raise BadInput(f"{folder} is an adapter over {base}, which does not exist; put the base model there")
    with quiet_transformers():
        tokenizer = _tokenizer(folder, Path(base))
        module = _module(Path(base), options)
        if "base" in saved:
            _load_adapter(module, folder, options, saved)
    return module, tokenizer, options, base


def _options(given: ModelOptions | None, saved: dict[str, Any]) -> ModelOptions:
    if given is None:
        return ModelOptions.model_validate(saved.get("options", {}))
    return ModelOptions.model_validate({name: getattr(given, name) for name in ModelOptions.model_fields})


def gguf_file(folder: Path) -> str | None:
    """The one GGUF file of a folder without ``config.json``; None where there is none or a choice."""
    found = sorted(folder.glob("*.gguf")) if not (folder / "config.json").is_file() else []
    if len(found) > 1:
        raise BadInput(f"{folder}: expected one .gguf file, got {', '.join(path.name for path in found)}")
    return found[0].name if found else None


def _tokenizer(folder: Path, base: Path) -> Any:
    from transformers import AutoTokenizer

    file = gguf_file(base)
    try:
        if file is None:
            return AutoTokenizer.from_pretrained(folder)
        return AutoTokenizer.from_pretrained(base, gguf_file=file)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{folder}: no usable tokenizer ({_first_line(error)})") from None


def _module(base: Path, options: ModelOptions) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    file = gguf_file(base)
    frozen_half = options.dtype == "bfloat16" and options.lora is not None
    dtype = torch.bfloat16 if frozen_half else torch.float32
    try:
        if file is not None:
            return _from_gguf(base, file, dtype)
        config = AutoConfig.from_pretrained(base)
        if config.is_encoder_decoder:
            raise BadInput(f"{base}: expected a decoder-only language model, got {config.model_type}")
        module = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{base}: not a model transformers can read ({_first_line(error)})") from None
    if getattr(module, "_is_stateful", False):
        raise BadInput(f"{base}: {type(module).__name__} has a recurrent state; only attention is supported")
    return module.eval()


def _from_gguf(base: Path, file: str, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    require("gguf", "gguf")
    with redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
        read: Any = AutoModelForCausalLM.from_pretrained(base, gguf_file=file, dtype=torch.float32)
    config = type(read.config)(**{k: v for k, v in read.config.to_dict().items() if "quantization" not in k})
    clean: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    clean.load_state_dict(read.state_dict())
    clean.generation_config = read.generation_config
    return clean.eval()


def _load_adapter(module: Any, folder: Path, options: ModelOptions, saved: dict[str, Any]) -> None:
    own = ModelOptions.model_validate(saved["options"]).lora
    if own is None or options.lora != own:
        asked = "none" if options.lora is None else f"lora={options.lora.model_dump(mode='json')}"
        raise BadInput(
            f"{folder} holds an adapter, which goes on as it is: expected "
            f"lora={own and own.model_dump(mode='json')}, got {asked}"
        )
    add_lora(module, own)
    load_lora(folder, module)


def write_folder(folder: Path, module: Any, tokenizer: Any, options: ModelOptions, base: str) -> None:
    """Write what :func:`read_folder` reads; the folder loads with transformers' ``from_pretrained`` too."""
    document: dict[str, Any] = {"options": options.model_dump(mode="json")}
    with quiet_transformers():
        if options.lora is not None and any(adapter_parameters(module)):
            document["base"] = base
            save_lora(folder, module, options.lora, base)
            module.config.save_pretrained(folder)
            module.generation_config.save_pretrained(folder)
        else:
            module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    (folder / OPTIONS_FILE).write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def clear_generation_config(module: Any, begin: int | None, ends: list[int], pad: int) -> None:
    """Replace inherited sampling settings by neutral ones; checkpoints carry these."""
    from transformers import GenerationConfig

    module.generation_config = GenerationConfig(bos_token_id=begin, eos_token_id=ends, pad_token_id=pad)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
