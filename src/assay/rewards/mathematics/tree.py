"""What mathematical text reads as: a small tree of plain data (it can be hashed, pickled and walked)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, with its subscript; ``pi``, ``e``, ``i`` and ``oo`` are the constants."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms added up."""

    terms: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Factors multiplied."""

    factors: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Power:
    """``base ** exponent``; a root has a rational exponent, ``is_root`` says that it was written as one."""

    base: Tree
    exponent: Tree
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function: sin, log, factorial, abs, sum, binomial, pm (plus or minus), base, ratio, ..."""

    name: str
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Bracket:
    """A tuple, point or interval: its brackets are part of it. ``(a,b)`` is both a point and an interval."""

    left: str
    items: tuple[Tree, ...]
    right: str


@dataclass(frozen=True, slots=True)
class Collection:
    """An unordered collection: a set in braces, or a bare list of answers."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """A union of intervals or sets."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Tree, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """``sides[0] operators[0] sides[1] ...`` with the operators = < > <= >= != in."""

    sides: tuple[Tree, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Text, in lower case with single spaces."""

    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with its unit."""

    value: Tree
    unit: str


Tree = (
    Number | Symbol | Sum | Product | Power | Call | Bracket | Collection | Union | Matrix | Relation | Words
    | Quantity
)  # fmt: skip

PI, EULER, IMAGINARY, INFINITY = Symbol("pi"), Symbol("e"), Symbol("i"), Symbol("oo")
CONSTANTS = frozenset({"pi", "e", "i", "oo"})
MINUS_ONE = Number(Fraction(-1))


def negated(tree: Tree) -> Tree:
    """``-tree``."""
    if isinstance(tree, Number):
        return Number(-tree.value)
    return Product((MINUS_ONE, tree))


def inverse(tree: Tree) -> Tree:
    """``1 / tree``."""
    return Power(tree, MINUS_ONE)
