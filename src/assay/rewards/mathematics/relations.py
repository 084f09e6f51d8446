"""Equations and inequalities: the same one written in two ways, or a name and its value."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from assay.rewards.mathematics.algebra import Algebra, Polynomial, Ratio, TooLarge, Undefined, root_order
from assay.rewards.mathematics.reading import ARITHMETIC
from assay.rewards.mathematics.tree import (
    CONSTANTS,
    MINUS_ONE,
    Bracket,
    Call,
    Power,
    Product,
    Relation,
    Sum,
    Symbol,
    Tree,
    Words,
)

Same = Callable[[Tree, Tree], bool | None]
_MIRROR = {">": "<", ">=": "<="}


def is_name(tree: Tree) -> bool:
    """Whether a left-hand side only names what stands on the right.

    A name is ``x``, ``f(x)``, ``(p,q)``, a word, or letters put together without a number: ``x + y``,
    ``AB/CD``, ``|AB|``.
    """
    if isinstance(tree, Symbol):
        return tree.name not in CONSTANTS
    if isinstance(tree, Call):
        return tree.name in ("prime", "ratio", "abs") and all(map(is_name, tree.arguments))
    if isinstance(tree, Bracket):
        return all(isinstance(item, Symbol) for item in tree.items)
    if isinstance(tree, Sum):
        return all(map(is_name, tree.terms))
    if isinstance(tree, Product):
        return all(map(is_name, tree.factors))
    if isinstance(tree, Power):
        return tree.exponent == MINUS_ONE and is_name(tree.base)
    return isinstance(tree, Words)


def value_of(relation: Relation, same: Same) -> Tree | None:
    """What a chain such as ``x = 2 + 3 = 5`` gives: its last side, if all its values are equal.

    A membership ``x \\in S`` gives S. None when the relation names no value.
    """
    *before, last = relation.sides
    if relation.operators == ("in",):
        return last if is_name(before[0]) else None
    if set(relation.operators) != {"="}:
        return None
    values = before[1:] if is_name(before[0]) else before
    return last if all(same(value, last) is True for value in values) else None


def match_relations(left: Relation, right: Relation, same: Same) -> bool | None:
    """Whether two relations say the same."""
    left, right = _ascending(left), _ascending(right)
    if len(left.operators) == len(right.operators) == 1 and left.operators == right.operators:
        decision = _match_single(left, right, same)
        if decision is not None:
            return decision
    if set(left.operators) | set(right.operators) == {"="}:
        return _match_named(left, right, same)
    if left.operators != right.operators:
        return False
    return _all_same(left.sides, right.sides, same)


def _match_named(left: Relation, right: Relation, same: Same) -> bool | None:
    """``S = 2 + 3 = 5`` and ``S = 5``: the same name, the same value."""
    if same(left.sides[0], right.sides[0]) is not True:
        return _all_same(left.sides, right.sides, same) if len(left.sides) == len(right.sides) else False
    a, b = value_of(left, same), value_of(right, same)
    return False if a is None or b is None else same(a, b)


def _ascending(relation: Relation) -> Relation:
    """``b > a`` as ``a < b``, also chains."""
    if not all(operator in _MIRROR for operator in relation.operators):
        return relation
    operators = tuple(_MIRROR[operator] for operator in reversed(relation.operators))
    return Relation(tuple(reversed(relation.sides)), operators)


def _match_single(left: Relation, right: Relation, same: Same) -> bool | None:
    operator = left.operators[0]
    if operator == "in" or not all(isinstance(s, ARITHMETIC) for s in (*left.sides, *right.sides)):
        return _all_same(left.sides, right.sides, same)
    if _all_same(left.sides, right.sides, same) is True:
        return True
    algebra = Algebra(root_order(*left.sides, *right.sides))
    try:
        first = _difference(algebra, left)
        second = _difference(algebra, right)
        factor = _factor(algebra, first, second)
    except TooLarge:
        return None
    except Undefined:
        return False
    if factor is not None:
        return factor > 0 if operator in ("<", "<=") else True
    return False if first.is_complete and second.is_complete else None


def _difference(algebra: Algebra, relation: Relation) -> Ratio:
    left, right = relation.sides
    return algebra.difference(algebra.evaluate(left), algebra.evaluate(right))


def _factor(algebra: Algebra, left: Ratio, right: Ratio) -> Fraction | None:
    """The rational c with ``left == c * right``."""
    one: Polynomial = {(): 1}
    above = algebra.multiply(Ratio(left.above, one), Ratio(right.below, one)).above
    below = algebra.multiply(Ratio(right.above, one), Ratio(left.below, one)).above
    return algebra.proportional(above, below)


def _all_same(left: tuple[Tree, ...], right: tuple[Tree, ...], same: Same) -> bool | None:
    if len(left) != len(right):
        return False
    decisions = [same(a, b) for a, b in zip(left, right, strict=True)]
    if False in decisions:
        return False
    return None if None in decisions else True
