"""Read an answer once: its cleaned text, what it can mean, or why it means nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from assay.rewards.mathematics.algebra import Algebra, TooLarge, Undefined, children, root_order
from assay.rewards.mathematics.lexer import LARGEST_DIGITS, Unreadable
from assay.rewards.mathematics.normalise import CONTROL, LARGEST_TEXT, normalise
from assay.rewards.mathematics.parse import parse
from assay.rewards.mathematics.tree import (
    INFINITY,
    Bracket,
    Call,
    Collection,
    Matrix,
    Number,
    Power,
    Product,
    Relation,
    Sum,
    Symbol,
    Tree,
    Union,
)

SIMPLE = re.compile(r"\s*([-+]?)\s*(\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.(\d*))?\s*")
"""A plain decimal number, read without any parser."""
_FRACTION = re.compile(r"\s*([-+]?\d{1,300})\s*/\s*(\d{1,300})\s*")
_SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_LISTED = re.compile(r"[-+]?\d{1,3}(?:,[1-9]\d{2})+")
_NOT_A_NUMBER = re.compile(r"(?<![A-Za-z])(?:nan|n/a)(?![A-Za-z])", re.IGNORECASE)
_NEEDLESS_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_MATHEMATICS = re.compile(r"[\d=<>^_+*/]|\\(?!text)[A-Za-z]")
_PROSE = re.compile(r"(?<![A-Za-z'-])(?:[A-Za-z'-]{2,}[ ,.]+){2,}[A-Za-z'-]{2,}")
_CACHE = 8192
ARITHMETIC = (Number, Symbol, Sum, Product, Power, Call)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text means.

    Attributes:
        text: cleaned, without spaces; two defined texts that are the same here are equal.
        trees: the possible meanings (``100,200`` is a number and a list); empty: only ``text`` counts.
        problem: why the text cannot be used at all; None when it can.
    """

    text: str
    trees: tuple[Tree, ...] = ()
    problem: str | None = None


def simple_number(text: str) -> Fraction | None:
    """The value of a plain decimal or fraction of integers, or None for everything else."""
    if len(text) > LARGEST_DIGITS:
        return None
    match = SIMPLE.fullmatch(text)
    if match is not None:
        sign, whole, decimals = match.groups()
        digits = whole.replace(",", "") + (decimals or "")
        value = Fraction(int(digits or "0"), 10 ** len(decimals or "")) if digits else None
        return -value if value is not None and sign == "-" else value
    match = _FRACTION.fullmatch(text)
    if match is None or not int(match.group(2)):
        return None
    return Fraction(int(match.group(1)), int(match.group(2)))


@lru_cache(maxsize=_CACHE)
def read(text: str) -> Reading:
    """Read a text (cached; never raises)."""
    if len(text) > LARGEST_TEXT:
        return Reading("", problem=f"longer than {LARGEST_TEXT} characters")
    control = CONTROL.search(text.strip(" \n\r\t"))
    if control is not None:
        return Reading("", problem=f"control character in gold or answer (0x{ord(control.group()):02X}): "
                                   "a string written without raw-string escaping?")  # fmt: skip
    clean = normalise(text)
    squeezed = _NEEDLESS_SPACE.sub("", clean)
    if not squeezed:
        return Reading("", problem="empty")
    if _NOT_A_NUMBER.search(clean):
        return Reading(squeezed, problem="not a number")
    if _SPACED.fullmatch(clean):
        clean = squeezed = clean.replace(" ", "")
    try:
        tree = parse(clean)
        _require_defined(tree)
    except Undefined as error:
        return Reading(squeezed, problem=f"undefined: {error}")
    except (Unreadable, RecursionError) as error:
        return _literal(clean, squeezed, str(error))
    return Reading(squeezed, (tree, *_other_meanings(clean)))


def _literal(clean: str, squeezed: str, error: str) -> Reading:
    """A text outside the grammar still equals itself, unless it is prose or nothing mathematical."""
    if _PROSE.search(re.sub(r"\\[A-Za-z]+", " ", clean)) or not _MATHEMATICS.search(clean):
        return Reading(squeezed, problem=f"not a mathematical answer ({error})")
    return Reading(squeezed)


def _other_meanings(clean: str) -> tuple[Tree, ...]:
    if not _LISTED.fullmatch(clean):
        return ()
    return (Collection(tuple(Number(Fraction(int(part))) for part in clean.split(","))),)


def _require_defined(tree: Tree) -> None:
    for part in parts(tree):
        if not isinstance(part, Number | Symbol):
            _require_defined(part)
    if isinstance(tree, Sum) and sum(_mentions_infinity(term) for term in tree.terms) > 1:
        raise Undefined("arithmetic with infinities")
    if isinstance(tree, Power) and _may_divide(tree.exponent) and _is_zero(tree.base):
        raise Undefined("a division by zero")


def _may_divide(exponent: Tree) -> bool:
    return not (isinstance(exponent, Number) and exponent.value > 0) and not isinstance(exponent, Symbol)


def _is_zero(tree: Tree) -> bool:
    if isinstance(tree, Number):
        return not tree.value
    if isinstance(tree, Symbol):
        return False
    try:
        return Algebra(root_order(tree)).evaluate(tree).is_zero
    except TooLarge:
        return False


def _mentions_infinity(tree: Tree) -> bool:
    return tree == INFINITY or any(_mentions_infinity(part) for part in _arithmetic_parts(tree))


def _arithmetic_parts(tree: Tree) -> tuple[Tree, ...]:
    if isinstance(tree, Sum):
        return tree.terms
    if isinstance(tree, Product):
        return tree.factors
    return ()


def parts(tree: Tree) -> tuple[Tree, ...]:
    """The direct parts of any node."""
    if isinstance(tree, Bracket | Collection | Union):
        return tree.items
    if isinstance(tree, Relation):
        return tree.sides
    if isinstance(tree, Matrix):
        return tuple(entry for row in tree.rows for entry in row)
    return children(tree)
