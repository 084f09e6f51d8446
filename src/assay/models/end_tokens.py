"""Which ids begin a prompt, which end a completion, and which must never be sampled.

A model folder says this in up to four places (tokenizer, model configuration, generation configuration, chat
template) that often disagree; a completion that ends by an id nobody listed runs to the cap.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile
from typing import Any

FORBIDDEN = -1e9
"""Bias of an id that must not be sampled: probability exactly 0 in float32, and finite, so that p log p is 0."""


def end_ids(tokenizer: Any, *configs: Any) -> frozenset[int]:
    """Every id that ends a turn: of the tokenizer, of ``eos_token_id`` in each config, of the chat template."""
    found: set[int] = set()
    for source in (tokenizer, *configs):
        value = getattr(source, "eos_token_id", None)
        found |= {value} if isinstance(value, int) else set(value or ())
    turn = turn_end_id(tokenizer)
    return frozenset(found if turn is None else found | {turn})


def turn_end_id(tokenizer: Any) -> int | None:
    """The special token that the chat template writes right after an assistant's text; None without one."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    mark = "qzx"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": mark}]
    text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    after = text[text.rfind(mark) + len(mark) :].lstrip()
    ids = tokenizer.encode(after, add_special_tokens=False) if mark in text and after else []
    return int(ids[0]) if ids and ids[0] in _special_ids(tokenizer) else None


def _special_ids(tokenizer: Any) -> set[int]:
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def bos_id(tokenizer: Any) -> int | None:
    """The begin token, where the tokenizer itself puts one before a text; None where the model uses none."""
    begin = tokenizer.bos_token_id
    ids = tokenizer.encode("a")
    return begin if begin is not None and ids[:1] == [begin] else None


def with_one_bos(ids: Iterable[int], begin: int | None, *, needed: bool = True) -> list[int]:
    """The ids with one begin token in front, however many were there; none if none was and none is ``needed``."""
    found = list(ids)
    if begin is None:
        return found
    rest = list(dropwhile(lambda token: token == begin, found))
    return [begin, *rest] if needed or len(rest) < len(found) else rest


def forbidden_ids(tokenizer: Any, vocabulary: int, ends: frozenset[int]) -> list[int]:
    """Ids with probability 0: padding that is no end token, and rows of the head that no token has."""
    pad = tokenizer.pad_token_id
    unknown = range(len(tokenizer), vocabulary)
    return [*({pad} if pad is not None and pad not in ends and pad < vocabulary else ()), *unknown]
