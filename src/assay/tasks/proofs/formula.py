"""Propositional formulas: one immutable tree, a parser and a renderer for ASCII and Unicode.

Binding, from tight to loose: ``!``, ``&``, ``|``, ``->``, ``<->``. ``&`` and ``|`` group to the left, ``->``
and ``<->`` to the right. The renderer puts parentheses around every binary operand of a binary connective, so
that its text never relies on these rules; the parser needs them only where they matter.

===========  ======  ==========================
kind         ASCII   also read
===========  ======  ==========================
not          !       ~  ¬
and          &       ∧  /\\
or           |       ∨  \\/
implies      ->      →  =>  ⇒
iff          <->     ↔  <=>  ⇔
falsum       _|_     ⊥
===========  ======  ==========================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from assay.errors import BadInput

Kind = Literal["atom", "falsum", "not", "and", "or", "implies", "iff"]

MAX_DEPTH = 64
"""Deepest nesting of a formula: far above any sane proof, far below Python's recursion limit."""
MAX_CHARACTERS = 4_000
"""Longest text of one formula."""

ASCII: dict[str, str] = {
    "not": "!", "and": "&", "or": "|", "implies": "->", "iff": "<->", "falsum": "_|_",
}  # fmt: skip
UNICODE: dict[str, str] = {
    "not": "¬", "and": "∧", "or": "∨", "implies": "→", "iff": "↔", "falsum": "⊥",
}  # fmt: skip
_ALSO = {"~": "not", "/\\": "and", "\\/": "or", "=>": "implies", "⇒": "implies", "<=>": "iff", "⇔": "iff"}
SYMBOL_KIND: dict[str, str] = {
    **_ALSO,
    **{symbol: kind for table in (ASCII, UNICODE) for kind, symbol in table.items()},
}
_PRECEDENCE = {"iff": 1, "implies": 2, "or": 3, "and": 4}
_RIGHT_ASSOCIATIVE = frozenset({"implies", "iff"})
_SYMBOLS = "|".join(re.escape(symbol) for symbol in sorted(SYMBOL_KIND, key=len, reverse=True))
_TOKEN = re.compile(rf"[ \t]*(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)|(?P<symbol>{_SYMBOLS})|(?P<bracket>[()]))")
_ARITY = {"atom": 0, "falsum": 0, "not": 1}


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula: its connective, its atom's name (atoms only) and its parts.

    Raises:
        BadInput: deeper than ``MAX_DEPTH``, or a wrong number of parts.
    """

    kind: Kind
    parts: tuple[Formula, ...] = ()
    name: str = ""
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.parts) != _ARITY.get(self.kind, 2):
            raise BadInput(f"{self.kind} takes {_ARITY.get(self.kind, 2)} parts, got {len(self.parts)}")
        depth = 1
        for part in self.parts:
            depth = max(depth, part.depth + 1)
        if depth > MAX_DEPTH:
            raise BadInput(f"expected a formula at most {MAX_DEPTH} levels deep; split it into smaller lines")
        object.__setattr__(self, "depth", depth)

    def __str__(self) -> str:
        return render_formula(self)

    def evaluate(self, assignment: Mapping[str, bool]) -> bool:
        """The truth value under ``assignment`` (atom name to bool); a missing atom is BadInput."""
        match self.kind:
            case "atom":
                return _value(assignment, self.name)
            case "falsum":
                return False
            case "not":
                return not self.parts[0].evaluate(assignment)
            case _:
                left, right = (part.evaluate(assignment) for part in self.parts)
                return _connect(self.kind, left, right)

    def atoms(self) -> frozenset[str]:
        """The names of its atoms."""
        return frozenset(node.name for node in self.walk() if node.kind == "atom")

    def walk(self) -> Iterator[Formula]:
        """Every subformula occurrence, this one first, left to right."""
        stack: list[Formula] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.parts))


def _value(assignment: Mapping[str, bool], name: str) -> bool:
    if name not in assignment:
        raise BadInput(f"expected a truth value for atom {name!r}; the assignment has {sorted(assignment)}")
    return bool(assignment[name])


def _connect(kind: str, left: bool, right: bool) -> bool:
    if kind == "and":
        return left and right
    if kind == "or":
        return left or right
    if kind == "implies":
        return (not left) or right
    return left == right


def atom(name: str) -> Formula:
    """The atom called ``name`` (a letter, then letters, digits and underscores); BadInput otherwise."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise BadInput(f"expected an atom's name such as P or rain_1, got {name!r}")
    return Formula("atom", name=name)


def negation(part: Formula) -> Formula:
    """``!part``."""
    return Formula("not", (part,))


def conjunction(left: Formula, right: Formula) -> Formula:
    """``left & right``."""
    return Formula("and", (left, right))


def disjunction(left: Formula, right: Formula) -> Formula:
    """``left | right``."""
    return Formula("or", (left, right))


def implication(left: Formula, right: Formula) -> Formula:
    """``left -> right``."""
    return Formula("implies", (left, right))


def biconditional(left: Formula, right: Formula) -> Formula:
    """``left <-> right``."""
    return Formula("iff", (left, right))


FALSUM = Formula("falsum")
"""The formula that is never true."""


def render_formula(formula: Formula, *, unicode: bool = False) -> str:
    """The text of ``formula``; ``parse_formula`` gives the same formula back."""
    symbols = UNICODE if unicode else ASCII
    if formula.kind == "atom":
        return formula.name
    if formula.kind == "falsum":
        return symbols["falsum"]
    texts = [_operand(part, unicode) for part in formula.parts]
    symbol = symbols[formula.kind]
    return symbol + texts[0] if formula.kind == "not" else f"{texts[0]} {symbol} {texts[1]}"


def _operand(part: Formula, unicode: bool) -> str:
    text = render_formula(part, unicode=unicode)
    return f"({text})" if part.kind in _PRECEDENCE else text


def parse_formula(text: str) -> Formula:
    """Read a formula, ASCII or Unicode, in time linear in its length.

    Raises:
        BadInput: unreadable, longer than ``MAX_CHARACTERS`` or deeper than ``MAX_DEPTH``.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadInput(f"expected a formula of at most {MAX_CHARACTERS} characters, got {len(text)}")
    parser = _Parser(_tokens(text))
    formula = parser.expression(1, 1)
    if parser.peek():
        raise BadInput(f"expected the formula to end, got {parser.peek()!r} in {text[:80]!r}")
    return formula


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip(" \t"))
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadInput(
                f"expected a formula such as P -> (Q & !R), got {text[position : position + 40]!r}"
            )
        tokens.append(found.group(found.lastgroup or 0))
        position = found.end()
    return tokens


class _Parser:
    """Precedence climbing; the depth is bounded before Python's own recursion limit is."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def expression(self, loosest: int, depth: int) -> Formula:
        if depth > MAX_DEPTH:
            raise BadInput(f"expected a formula at most {MAX_DEPTH} levels deep")
        left = self.unary(depth)
        while (kind := SYMBOL_KIND.get(self.peek(), "")) in _PRECEDENCE and _PRECEDENCE[kind] >= loosest:
            self.position += 1
            tighter = _PRECEDENCE[kind] + (kind not in _RIGHT_ASSOCIATIVE)
            left = Formula(kind, (left, self.expression(tighter, depth + 1)))  # pyright: ignore[reportArgumentType]
        return left

    def unary(self, depth: int) -> Formula:
        negations = 0
        while SYMBOL_KIND.get(self.peek()) == "not":
            self.position += 1
            negations += 1
        formula = self.operand(depth)
        for _ in range(negations):
            formula = negation(formula)
        return formula

    def operand(self, depth: int) -> Formula:
        token = self.peek()
        self.position += 1
        if token == "(":
            formula = self.expression(1, depth + 1)
            if self.peek() != ")":
                raise BadInput(f"expected a closing parenthesis, got {self.peek() or 'the end'!r}")
            self.position += 1
            return formula
        if SYMBOL_KIND.get(token) == "falsum":
            return FALSUM
        if token[:1].isalpha() and token.isascii():
            return Formula("atom", name=token)
        raise BadInput(f"expected an atom, a negation or '(', got {token or 'the end'!r}")
