"""A toy tokenizer with real properties: greedy longest match, special tokens, two ways to write one text."""

from __future__ import annotations

from collections.abc import Sequence

PAD, END, START, THINK, UNTHINK = "<|pad|>", "<|im_end|>", "<|im_start|>", "<think>", "</think>"
ANS, UNANS = "<ans>", "</ans>"
SPECIAL = (PAD, END, START, THINK, UNTHINK, ANS, UNANS)
_WORDS = (
    "check carry units tens digits left right line first next add pair sum total count group note move",
    "write step slowly again under over both half twice place keep then so now see rest value column",
    "begin part each",
)
WORDS = tuple(" " + word for line in _WORDS for word in line.split())
"""What fills a completion; the language model's own choice."""
SPLIT = (" che", "ck", " car", "ry", " un", "its", " di", "gits")
"""Pieces that spell some of the words: the same text in more tokens."""
_PLAIN = (
    *"0123456789",
    *(" The answer is ", "\\boxed{", "}", ".", " ", "\n", "-", "user", "assistant"),
    *("What is ", " plus ", "?", " OK verified.", " So it is ", "Final: "),
)
PIECES = (*SPECIAL, *WORDS, *SPLIT, *_PLAIN)
ID = {piece: number for number, piece in enumerate(PIECES)}
FILLERS = tuple(ID[word] for word in WORDS)
_BY_START = {p[0]: sorted((q for q in PIECES if q[0] == p[0]), key=len, reverse=True) for p in PIECES}
"""Pieces by their first character, the longest first."""
UNKNOWN = ID[" "]


def encode(text: str) -> list[int]:
    """Encode by the longest piece at each place; a character without a piece becomes a space."""
    ids: list[int] = []
    place = 0
    while place < len(text):
        piece = next((p for p in _BY_START.get(text[place], ()) if text.startswith(p, place)), None)
        ids.append(UNKNOWN if piece is None else ID[piece])
        place += 1 if piece is None else len(piece)
    return ids


def decode(ids: Sequence[int], *, skip_special: bool = False) -> str:
    """Join the pieces; ``skip_special`` drops every special token, as trainers do by default."""
    first = len(SPECIAL) if skip_special else 0
    return "".join(PIECES[i] for i in ids if i >= first)


def split_words(ids: Sequence[int]) -> list[int]:
    """Spell each word that has pieces by its pieces: other ids, the same text."""
    pairs = {" check": SPLIT[0:2], " carry": SPLIT[2:4], " units": SPLIT[4:6], " digits": SPLIT[6:8]}
    table = {ID[word]: [ID[p] for p in pieces] for word, pieces in pairs.items()}
    return [piece for i in ids for piece in table.get(i, [i])]
