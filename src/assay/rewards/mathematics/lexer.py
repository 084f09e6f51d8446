r"""Cut cleaned mathematical text into tokens. A character outside the grammar makes the text unreadable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.rewards.mathematics.units import UNIT_WORDS

LARGEST_TOKENS = 4_000
LARGEST_DIGITS = 2_000
"""Limits of what is read: longer input is unreadable, in constant time."""

_FUNCTION_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp abs gcd lcm max min"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell"
)
GREEK = frozenset(_GREEK_NAMES.split())
_WORD_COMMANDS = FUNCTIONS | {"sqrt", "pi", "infinity", "inf", "oo"}
_LONGEST_PRODUCT = 3

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<text>\\text\{(?P<words>[^{}]*)\})
    | \\(?P<edge>begin|end)\{(?P<matrix>[pbvVB]?matrix|array)\*?\}(?:\{[lcr|]*\})?
    | (?P<repeating>\d*\.\d*\\overline\{\d+\}|\d*\.\d*\(\d+\))
    | (?P<scientific>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d{1,4}(?![A-Za-z0-9]))
    | (?P<grouped>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?)
    | (?P<number>\d+(?:\.\d+)?|\.\d+)
    | (?P<newrow>\\\\)
    | \\(?P<command>[A-Za-z]+)
    | (?P<brace>\\[{}|])
    | (?P<letters>[A-Za-z]+)
    | (?P<operator><=|>=|!=|==|\*\*|[-+*/^_()\[\]{}|!,;=<>:&%'$€£])
    """,
    re.VERBOSE,
)
_DEPTH = {"(": 1, "[": 1, r"\{": 1, ")": -1, "]": -1, r"\}": -1}


class Unreadable(Exception):
    """The text is no mathematics of our grammar; the message says where it stops being so."""


@dataclass(slots=True)
class Token:
    """One token; ``kind`` is number, symbol, command, text, begin, end, newrow or operator."""

    kind: str
    value: str


def tokenise(text: str) -> list[Token]:
    """Cut ``text``; raises :class:`Unreadable` at the first character that does not belong."""
    tokens: list[Token] = []
    position, depth = 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > LARGEST_TOKENS:
            raise Unreadable(f"unexpected {text[position : position + 12]!r}")
        kind, value = str(match.lastgroup), match.group()
        if match.group("grouped") and depth > 0:  # in brackets a comma separates
            match = re.compile(r"\d+").match(text, position)
            assert match is not None
            kind, value = "number", match.group()
        position = match.end()
        if kind != "space":
            _append(tokens, kind, value, match)
            depth += _DEPTH.get(value, 0)
    return tokens


def _append(tokens: list[Token], kind: str, value: str, match: re.Match[str]) -> None:
    if kind in ("number", "grouped", "repeating", "scientific"):
        if len(value) > LARGEST_DIGITS:
            raise Unreadable("a number with too many digits")
        tokens.append(Token("number", value.replace(",", "")))
    elif kind in ("text", "words"):
        tokens.append(Token("text", match.group("words").strip()))
    elif kind == "matrix":
        tokens.append(Token(match.group("edge"), match.group("matrix")))
    elif kind == "letters":
        tokens.extend(_letters(value))
    elif kind == "command":
        tokens.append(Token("command", match.group("command")))
    elif kind == "brace":
        tokens.append(Token("operator", "|" if value == r"\|" else value))
    elif kind == "newrow":
        tokens.append(Token("newrow", value))
    else:
        tokens.append(Token("operator", {"==": "=", "**": "^"}.get(value, value)))


def _letters(word: str) -> list[Token]:
    lowered = word.lower()
    if len(word) == 1:
        return [Token("symbol", word)]
    if lowered in ("or", "and"):
        return [Token("operator", ",")]
    if word in _WORD_COMMANDS:
        return [Token("command", {"infinity": "infty", "inf": "infty", "oo": "infty"}.get(word, word))]
    if lowered in ("percent", "pct", "percentage"):
        return [Token("operator", "%")]
    if lowered in UNIT_WORDS:
        return [Token("text", word)]
    if len(word) > _LONGEST_PRODUCT and not word.isupper():
        raise Unreadable(f"unexpected word {word[:20]!r}")
    return [Token("symbol", letter) for letter in word]
