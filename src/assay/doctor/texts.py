"""What was generated against what the reward saw, row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPECIAL = re.compile(
    r"<\|[^<>|\n]{1,48}\|>|<｜[^<>｜\n]{1,48}｜>|</?s>|<(?:pad|bos|eos|unk|end_of_turn|start_of_turn|mask)>"
    r"|\[(?:PAD|CLS|SEP|UNK|BOS|EOS)\]",
    re.IGNORECASE,
)
"""Special tokens as the common tokenizers spell them."""

_CONTENT = re.compile(r"think|thought|ans|solution|reason|tool|code", re.IGNORECASE)
"""Names of special tokens that a reward may read; the others only frame a text."""

TAG = re.compile(r"</?[A-Za-z_][\w-]{0,30}>")
PAD = re.compile(r"<\|[^<>|\n]*pad[^<>|\n]*\|>|<pad>|\[PAD\]|<｜[^<>｜\n]*pad[^<>｜\n]*｜>", re.IGNORECASE)
REPEATED_END = re.compile(r"(<\|[^<>|\n]{1,48}\|>|</s>|<eos>|<[a-z_]+>)\s*(?:\1\s*){1,}$")
_ANSWER_BORDER = re.compile(r"[>}\]):=#*\n]\s*$")


@dataclass(frozen=True, slots=True)
class Compared:
    """One row. Each flag says what is wrong with the reward's text, ``clean`` that nothing is."""

    prompt: bool = False
    padding: bool = False
    special_removed: bool = False
    special_kept: bool = False
    stripped: bool = False
    other_text: bool = False

    @property
    def clean(self) -> bool:
        """Whether the reward saw the completion."""
        return not (self.prompt or self.padding or self.special_removed or self.stripped or self.other_text)


def squeezed(text: str) -> str:
    """White space collapsed."""
    return " ".join(text.split())


def bare(text: str, extra: re.Pattern[str] | None = None) -> str:
    """Special tokens out, white space collapsed."""
    text = SPECIAL.sub(" ", text)
    return squeezed(extra.sub(" ", text) if extra else text)


def configured_specials(config: Mapping[str, Any]) -> re.Pattern[str] | None:
    """A pattern of the special tokens that the configuration names."""
    words: list[str] = []
    for name in ("eos_token", "pad_token", "special_tokens"):
        value = config.get(name)
        words += (
            [value]
            if isinstance(value, str)
            else [w for w in value if isinstance(w, str)]
            if isinstance(value, list)
            else []
        )
    kept = [re.escape(word) for word in words if word.strip()]
    return re.compile("|".join(kept)) if kept else None


def compare(
    prompt: str | None, completion: str, seen: str, answer: str | None, extra: re.Pattern[str] | None = None
) -> Compared:
    """Compare one completion with the text that the reward was called on."""
    own, got = bare(completion, extra), bare(seen, extra)
    asked = bare(prompt, extra) if prompt else ""
    has_prompt = len(asked) >= 8 and asked in got and asked not in own
    padding = _pads(seen) > _pads(_trimmed(completion)) or (
        bool(REPEATED_END.search(seen)) and not REPEATED_END.search(completion)
    )
    kept = bool(SPECIAL.search(_tail(seen))) and not padding
    if has_prompt or padding:
        return Compared(has_prompt, padding, special_kept=kept)
    lost_tags = (
        _inner_marks(completion) - _inner_marks(seen)
        if own != got or SPECIAL.search(_without_ends(completion))
        else set[str]()
    )
    if own == got and not lost_tags:
        return Compared(special_kept=kept)
    if lost_tags and squeezed(TAG.sub(" ", own)).replace(" ", "") == squeezed(TAG.sub(" ", got)).replace(
        " ", ""
    ):
        return Compared(special_removed=True)
    if own and (own in got):
        return Compared(
            special_kept=kept
        )  # a prefix or suffix that is not the prompt: scored with more context
    if _loses(own, got, answer):
        return Compared(stripped=True, special_kept=kept)
    return Compared(other_text=not _part_of(got, own), special_kept=kept)


def _trimmed(text: str) -> str:
    return PAD.sub("", text) if text.rstrip().endswith(("|>", "]", ">")) else text


def _pads(text: str) -> int:
    return len(PAD.findall(text))


def _tail(text: str) -> str:
    return (
        text.rstrip()[-48:]
        if SPECIAL.search(text.rstrip()[-48:])
        and SPECIAL.sub("", text.rstrip()[-48:]) != text.rstrip()[-48:]
        and _ends_special(text)
        else ""
    )


def _ends_special(text: str) -> bool:
    matches = list(SPECIAL.finditer(text.rstrip()))
    return bool(matches) and matches[-1].end() == len(text.rstrip())


def frames(mark: str, *, last: bool) -> bool:
    """Whether a special token only starts, pads or (last of a text) ends it, and is no tag that a reward reads."""
    shape = SPECIAL.fullmatch(mark) or (last and not mark.startswith("</"))
    return bool(shape) and not _CONTENT.search(mark)


def _without_ends(text: str) -> str:
    """The text without special tokens at its two ends."""
    text = text.strip()
    while True:
        matches = list(SPECIAL.finditer(text))
        if matches and matches[-1].end() == len(text):
            text = text[: matches[-1].start()].rstrip()
        elif matches and matches[0].start() == 0:
            text = text[matches[0].end() :].lstrip()
        else:
            return text


def _inner_marks(text: str) -> set[str]:
    """Tags, and special tokens that are more than frame: a start, end or pad mark in the middle is no content."""
    inner = _without_ends(text)
    special = set(SPECIAL.findall(inner))
    return (set(TAG.findall(inner)) - special) | {mark for mark in special if _CONTENT.search(mark)}


def _part_of(got: str, own: str) -> bool:
    """Whether the text is the completion's with characters left out."""
    if not got:
        return True
    rest = iter(own.casefold())
    return all(letter in rest for letter in got.casefold() if not letter.isspace())


def _loses(own: str, got: str, answer: str | None) -> bool:
    """Whether the reward's text is the completion with content lost that a reader would have kept.

    The part after a closed thinking block, or an answer cut out at a border, is no loss as long as it is there.
    """
    if not own or not _part_of(got, own):
        return False
    if not got:
        return len(own) >= 2
    if answer and len(answer.strip()) and squeezed(answer) in own and squeezed(answer) not in got:
        return True
    if "</think>" in own and got == squeezed(own.rsplit("</think>", 1)[1]):
        return False
    place = own.find(got)
    if place < 0:
        return True
    return not (place > 0 and _ANSWER_BORDER.search(own[:place]))
