r"""Read cleaned text as a tree: a recursive descent over a closed grammar of LaTeX and plain notation.

Policies, kept stable and pinned by tests: ``1\frac{1}{2}`` is a mixed number; a comma between groups of
three digits outside brackets is a thousands separator; a bare list is unordered like a set, a bracketed
one is ordered; ``\sqrt[3]{-8}`` is -2.
"""

from __future__ import annotations

import re

from assay.rewards.mathematics.arithmetic import DEEPEST, RELATIONS, Arithmetic
from assay.rewards.mathematics.lexer import FUNCTIONS, Unreadable, tokenise
from assay.rewards.mathematics.tree import (
    Call,
    Collection,
    Number,
    Quantity,
    Relation,
    Symbol,
    Tree,
    Union,
    Words,
)
from assay.rewards.mathematics.units import unit_name

_WORDS = re.compile(r"[A-Za-z][A-Za-z'-]{2,}(?: [A-Za-z][A-Za-z'-]*)?|[A-Za-z]{2,} [A-Za-z'-]{2,}")
_REFERS = re.compile(r"(?:see|refer|omitted|todo|tbd|null|nan|unknown|given|proof)\b", re.IGNORECASE)


def parse(text: str) -> Tree:
    """Read cleaned text (see :func:`normalise`).

    Raises:
        Unreadable: it is no mathematics of this grammar, or too deep, or too long.
    """
    stripped = text.strip()
    if _WORDS.fullmatch(stripped) and not _REFERS.match(stripped):
        known = stripped in FUNCTIONS or stripped.lower() in ("infinity", "inf")
        if not known:
            return Words(stripped.lower())
    parser = _Parser(tokenise(stripped))
    tree = parser.whole()
    if parser.more():
        raise Unreadable(f"unexpected {parser.peek().value!r}")
    return tree


class _Parser(Arithmetic):
    """Lists, relations, unions and quantities, around the arithmetic."""

    def whole(self) -> Tree:
        """Everything that can be read from here on."""
        if not self.more():
            raise Unreadable("nothing to read")
        items = self.items()
        return items[0] if len(items) == 1 else Collection(tuple(items))

    def items(self) -> list[Tree]:
        """One or more answers, separated by commas, semicolons, "and" or "or"."""
        items = [self._relation()]
        while self.is_operator(",", ";") or self._is_conjunction():
            self.at += 1
            while self.is_operator(",", ";") or self._is_conjunction():  # "1, 2, and 3"
                self.at += 1
            items.append(self._relation())
        return items

    def _is_conjunction(self) -> bool:
        return self.peek().kind == "text" and self.peek().value in ("and", "or")

    def _relation(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("nested too deeply")
        sides, operators = [self._union()], list[str]()
        while (operator := self._relation_operator()) is not None:
            operators.append(operator)
            sides.append(self._union())
        self.depth -= 1
        return Relation(tuple(sides), tuple(operators)) if operators else sides[0]

    def _relation_operator(self) -> str | None:
        token = self.peek()
        found = RELATIONS.get(token.value) if token.kind in ("operator", "command") else None
        if found is not None:
            self.at += 1
        return found

    def _union(self) -> Tree:
        items = [self._quantity()]
        while self.is_command("cup"):
            self.at += 1
            items.append(self._quantity())
        return items[0] if len(items) == 1 else Union(tuple(items))

    def _quantity(self) -> Tree:
        currency = self.take().value if self.is_operator("$", "€", "£") else ""
        if self.peek().kind == "text" and not currency:
            return self._words()
        value = self.sum()
        if self.accept(":"):
            value = Call("ratio", (value, self.sum()))
        unit = "dollar" if currency == "$" else currency
        if self.is_operator("$", "€", "£"):
            unit = unit_name(self.take().value)
        words: list[str] = []
        while self.peek().kind == "text" and self.peek().value not in ("and", "or"):
            words.append(self.take().value + self._unit_power())
        unit = unit or unit_name(" ".join(words))
        return Quantity(value, unit) if unit else value

    def _unit_power(self) -> str:
        if not self.accept("^"):
            return ""
        power = self.argument()
        return f"^{power.value}" if isinstance(power, Number) else ""

    def _words(self) -> Tree:
        text = self.take().value.strip(" .()")
        while self.peek().kind == "text":
            text += " " + self.take().value.strip(" .()")
        if len(text) == 1 and text.isalpha():
            return Symbol(text)
        if not text or _REFERS.match(text):
            raise Unreadable("text without content")
        return Words(" ".join(text.lower().split()))
