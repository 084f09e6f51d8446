"""Tokenizers without torch: a tokenizers file, or a small vocabulary written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from assay.errors import BadInput, require


@runtime_checkable
class Tokenizer(Protocol):
    """What the doctor needs of a tokenizer."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without added tokens."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether an id is a special token."""
        ...


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as a table of texts; encoding takes the longest match first."""

    texts: dict[int, str]
    special: frozenset[int] = frozenset()

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids; unknown ids are left out."""
        return "".join(self.texts.get(i, "") for i in ids if not (skip_special_tokens and i in self.special))

    def encode(self, text: str) -> list[int]:
        """Ids by longest match; a character outside the vocabulary is left out."""
        by_length = sorted(((t, i) for i, t in self.texts.items() if t), key=lambda pair: -len(pair[0]))
        ids: list[int] = []
        place = 0
        while place < len(text):
            match = next(((t, i) for t, i in by_length if text.startswith(t, place)), None)
            place += len(match[0]) if match else 1
            ids += [match[1]] if match else []
        return ids

    def is_special(self, token: int) -> bool:
        """Whether an id is a special token."""
        return token in self.special


class FileTokenizer:
    """A ``tokenizer.json`` of the tokenizers library."""

    def __init__(self, path: Path) -> None:
        module: Any = require("tokenizers", "train")
        try:
            self._own = module.Tokenizer.from_file(str(path))
            added = json.loads(path.read_text("utf-8")).get("added_tokens", [])
        except (ValueError, OSError, TypeError) as error:
            raise BadInput(f"{path} is no tokenizer file ({str(error)[:80]})") from error
        self._special = {entry["id"] for entry in added if entry.get("special")}

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids."""
        return self._own.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without added tokens."""
        return list(self._own.encode(text, add_special_tokens=False).ids)

    def is_special(self, token: int) -> bool:
        """Whether an id is a special token."""
        return token in self._special


def load_tokenizer(where: str | Path | Tokenizer) -> Tokenizer:
    """Load a tokenizer: a folder with ``tokenizer.json`` (or ``vocab.json``), or one of these files.

    Raises:
        BadInput: nothing there can be read as a tokenizer.
    """
    if isinstance(where, Tokenizer):
        return where
    path = Path(where)
    if path.is_dir():
        path = next(
            (path / n for n in ("tokenizer.json", "vocab.json") if (path / n).is_file()),
            path / "tokenizer.json",
        )
    if not path.is_file():
        raise BadInput(f"expected a tokenizer's folder, tokenizer.json or vocab.json, {where} holds none")
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({str(error)[:80]})") from error
    if isinstance(document, dict) and "model" in document:
        return FileTokenizer(path)
    return _vocabulary(document, path)


def _vocabulary(document: Any, path: Path) -> Vocabulary:
    if isinstance(document, list) and all(isinstance(text, str) for text in document):
        return Vocabulary(dict(enumerate(document)))
    texts: dict[int, str] = {}
    special: set[int] = set()
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, int):
            texts[value] = key
        elif isinstance(value, str) and key.isdecimal():
            texts[int(key)] = value
        elif isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and key.isdecimal():
            texts[int(key)] = value[0]
            special |= {int(key)} if value[1] else set()
    if not texts:
        raise BadInput(f"{path}: expected a list of texts, text to id, or id to [text, special]")
    return Vocabulary(texts, frozenset(special))
