"""The embedded model as a policy: made from texts, saved and loaded in Hugging Face format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from assay.errors import BadInput
from assay.models.llama_weights import LlamaWeights, tiny_weights
from assay.models.packed import completion_hidden
from assay.models.policy import Policy
from assay.models.tiny import TinyConfig, TinyDecoder
from assay.models.tokenizer import BOS, EOS, PAD, train_tokenizer


class TinyPolicy(Policy):
    """The tiny decoder with its byte-level tokenizer."""

    module: TinyDecoder

    def __init__(self, module: TinyDecoder, tokenizer: Tokenizer) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.bos_id, self.eos_id, self.pad_id = (_token_id(tokenizer, name) for name in (BOS, EOS, PAD))
        self.eos_ids = frozenset({self.eos_id})
        self.max_positions = module.config.max_positions

    @classmethod
    def create(
        cls, texts: Iterable[str], *, seed: int = 0, vocab_size: int = 512, **sizes: int
    ) -> TinyPolicy:
        """Make an untrained policy whose tokenizer is learnt on ``texts``; ``sizes`` as in TinyConfig."""
        tokenizer = train_tokenizer(texts, vocab_size=vocab_size)
        config = TinyConfig(vocab_size=tokenizer.get_vocab_size(), **sizes)
        return cls(TinyDecoder(config, seed=seed), tokenizer)

    def encode_prompt(self, prompt: str) -> list[int]:
        """BOS and the prompt's ids."""
        return self.tokenizer.encode(prompt).ids

    def encode_completion(self, completion: str) -> list[int]:
        """The completion's ids and EOS."""
        return [*self.tokenizer.encode(completion, add_special_tokens=False).ids, self.eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids without the end token."""
        kept = [token for token in ids if token != self.eos_id]
        return self.tokenizer.decode(kept, skip_special_tokens=False)

    def completion_hidden(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Tensor:
        """Hidden states that predict each completion token (B, T, H); equal prompts are run once."""
        place: dict[tuple[int, ...], int] = {}
        which_B = torch.tensor([place.setdefault(tuple(prompt), len(place)) for prompt in prompt_ids])
        prompts_PL, lengths_P = pad_right(list(place), self.pad_id)
        completions_BT, counts_B = pad_right(completion_ids, self.pad_id)
        return completion_hidden(
            tiny_weights(self.module), prompts_PL, lengths_P, which_B, completions_BT, counts_B
        )

    def llama_weights(self, positions: int) -> LlamaWeights:
        """The module's tensors; its tables reach as far as its positions."""
        del positions
        return tiny_weights(self.module)

    def head(self) -> tuple[Tensor, Tensor | None]:
        """The tied head over every id but padding."""
        return self.module.head_weight_VH, None

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer's files."""
        config = self.module.config
        ids = {"bos_id": self.bos_id, "eos_id": self.eos_id, "pad_id": self.pad_id}
        _dump(folder / "config.json", config.to_huggingface(**ids))
        _dump(
            folder / "generation_config.json",
            {"bos_token_id": self.bos_id, "eos_token_id": self.eos_id, "pad_token_id": self.pad_id},
        )
        _dump(
            folder / "tokenizer_config.json",
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": BOS,
                "eos_token": EOS,
                "pad_token": PAD,
                "padding_side": "left",
                "model_max_length": config.max_positions,
                "clean_up_tokenization_spaces": False,
            },
        )
        self.tokenizer.save(str(folder / "tokenizer.json"))
        weights = {name: value.contiguous() for name, value in self.module.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def load(cls, folder: Path) -> TinyPolicy:
        """Read a folder written by :meth:`save`."""
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if "assay_tiny" not in config:
            raise BadInput(f"{folder} does not hold a tiny model; expected 'assay_tiny' in config.json")
        module = TinyDecoder(TinyConfig(**config["assay_tiny"]))
        module.load_state_dict(load_file(folder / "model.safetensors"))
        return cls(module, Tokenizer.from_file(str(folder / "tokenizer.json")))


def _token_id(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    if found is None:
        raise BadInput(f"the tokenizer has no {token!r}; expected one written by this package")
    return found


def is_tiny(folder: Path) -> bool:
    """Whether a folder holds a tiny model (and not another Hugging Face one)."""
    path = folder / "config.json"
    return path.is_file() and "assay_tiny" in json.loads(path.read_text("utf-8"))


def _dump(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def pad_right(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Stack id lists into (B, T) int64 with padding on the right; also their lengths (B,)."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad_id, dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row, dtype=torch.long)
    return ids, lengths
