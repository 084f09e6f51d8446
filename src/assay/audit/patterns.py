"""From a regular expression to texts: ones that match it, and ones that make a backtracking matcher slow."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

SLOT = "\x00"
"""Where the answer goes in a template."""

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")


def templates(pattern: str, filler: str = "Let me think.") -> list[str]:
    """Texts that match ``pattern``, with :data:`SLOT` in place of what its last group (or any one) captures.

    Sources are tried with the shortest and with a longer content; what cannot be written is left out.
    """
    try:
        parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return []
    groups = parsed.state.groups - 1
    choices = [{groups}] if groups else [set[int]()]
    if groups > 1:
        choices += [{1}, set(range(1, groups + 1))]
    found: list[str] = []
    for slots in choices:
        for spare in (filler, ""):
            text = _write(parsed, slots, spare)
            if text is not None and text not in found:
                found.append(text)
    return found


def matches(pattern: str, content: str) -> list[str]:
    """Texts that match, with ``content`` wherever free text is allowed."""
    return [t.replace(SLOT, content) for t in templates(pattern, content)]


def _write(items: Any, slots: set[int], filler: str) -> str | None:
    pieces: list[str] = []
    for kind, argument in items:
        piece = _piece(kind, argument, slots, filler)
        if piece is None:
            return None
        pieces.append(piece)
    return "".join(pieces)


def _piece(kind: Any, argument: Any, slots: set[int], filler: str) -> str | None:
    c = _constants
    if kind is c.LITERAL:
        return chr(argument)
    if kind is c.NOT_LITERAL:
        return "x" if argument != ord("x") else "y"
    if kind is c.ANY:
        return "x"
    if kind is c.IN:
        return _member(argument)
    if kind in (c.AT, c.ASSERT, c.ASSERT_NOT):
        return ""
    if kind is c.BRANCH:
        return next((t for b in argument[1] if (t := _write(b, slots, filler)) is not None), None)
    if kind is c.SUBPATTERN:
        return SLOT if argument[0] in slots else _write(argument[3], slots, filler)
    if kind in (c.MAX_REPEAT, c.MIN_REPEAT) or kind is getattr(c, "POSSESSIVE_REPEAT", None):
        return _repeat(argument, slots, filler)
    return "" if kind is c.GROUPREF_EXISTS else None


def _repeat(argument: Any, slots: set[int], filler: str) -> str | None:
    low, high, items = argument
    kinds = [kind for kind, _ in items]
    free = kinds == [_constants.ANY] or (
        (kinds == [_constants.IN] and _is_anything(items[0][1])) or kinds == [_constants.NOT_LITERAL]
    )
    if low == 0 and kinds == [_constants.IN] and _is_space(items[0][1]):
        return " " if filler else ""
    if free and high > 1:
        return filler if len(filler) >= low else "x" * low
    one = _write(items, slots, filler)
    if one is None:
        return "" if low == 0 else None
    wanted = max(low, 1) if SLOT in one else low
    return one * wanted


def _is_anything(members: Any) -> bool:
    """``[\\s\\S]`` and negated sets match (nearly) anything."""
    kinds = [(k, a) for k, a in members]
    classes = {a for k, a in kinds if k is _constants.CATEGORY}
    both = {_constants.CATEGORY_SPACE, _constants.CATEGORY_NOT_SPACE} <= classes
    return both or (bool(kinds) and kinds[0][0] is _constants.NEGATE)


def _is_space(members: Any) -> bool:
    return [(k, a) for k, a in members] == [(_constants.CATEGORY, _constants.CATEGORY_SPACE)]


def _member(members: Any) -> str | None:
    if members and members[0][0] is _constants.NEGATE:
        return "x"
    for kind, argument in members:
        if kind is _constants.LITERAL:
            return chr(argument)
        if kind is _constants.RANGE:
            return chr(argument[0])
        if kind is _constants.CATEGORY:
            return {
                _constants.CATEGORY_DIGIT: "1",
                _constants.CATEGORY_SPACE: " ",
                _constants.CATEGORY_WORD: "a",
            }.get(argument, "x")
    return None


def pumps(patterns: Sequence[str], length: int = 4000) -> list[str]:
    """Texts that make nested or adjacent repeats of these patterns backtrack: many times what a repeat takes,
    then a character that nothing takes.
    """
    found: list[str] = []
    for pattern in patterns:
        try:
            parsed = _parser.parse(pattern)
        except (re.error, RecursionError, OverflowError):
            continue
        for prefix, atom in _repeats(parsed, ""):
            if atom:
                short = (prefix + atom * 40)[:250] + "\x01"
                long = prefix + (atom * (length // len(atom)))[: length - len(prefix) - 2] + "\x01"
                found += [short, long]
    return list(dict.fromkeys(found))[:24]


def _repeats(items: Any, prefix: str) -> list[tuple[str, str]]:
    """(what must come before, what is repeated) for every unbounded repeat."""
    found: list[tuple[str, str]] = []
    for kind, argument in items:
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[1] > 9:
            atom = _write(argument[2], set(), "a")
            found.append((prefix, atom or "a"))
            found += _repeats(argument[2], prefix)
        elif kind is _constants.SUBPATTERN:
            found += _repeats(argument[3], prefix)
        elif kind is _constants.BRANCH:
            found += [r for branch in argument[1] for r in _repeats(branch, prefix)]
        prefix += _piece(kind, argument, set(), "") or ""
    return found
