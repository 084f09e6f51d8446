"""Alternatives and intervals: ``1 \\pm 2`` is two values, and intervals that touch are one."""

from __future__ import annotations

from assay.rewards.mathematics.algebra import children
from assay.rewards.mathematics.numeric import NotNumeric, evaluate
from assay.rewards.mathematics.tree import (
    INFINITY,
    Bracket,
    Call,
    Collection,
    Power,
    Product,
    Quantity,
    Sum,
    Tree,
    Union,
    negated,
)

_CLOSED_LEFT, _CLOSED_RIGHT = "[", "]"


def expand_choices(tree: Tree) -> Tree:
    """Replace plus-or-minus by the collection of both values (also inside a list)."""
    if isinstance(tree, Collection):
        members: list[Tree] = []
        for item in tree.items:
            expanded = expand_choices(item)
            members.extend(expanded.items if isinstance(expanded, Collection) else [expanded])
        return Collection(tuple(members)) if tuple(members) != tree.items else tree
    if not _has_choice(tree):
        return tree
    return Collection((_choose(tree, 1), _choose(tree, -1)))


def _has_choice(tree: Tree) -> bool:
    if isinstance(tree, Call) and tree.name == "pm":
        return True
    return any(_has_choice(part) for part in children(tree))


def _choose(tree: Tree, sign: int) -> Tree:
    if isinstance(tree, Call) and tree.name == "pm":
        return tree.arguments[0] if sign > 0 else negated(tree.arguments[0])
    if isinstance(tree, Sum):
        return Sum(tuple(_choose(term, sign) for term in tree.terms))
    if isinstance(tree, Product):
        return Product(tuple(_choose(factor, sign) for factor in tree.factors))
    if isinstance(tree, Power):
        return Power(_choose(tree.base, sign), _choose(tree.exponent, sign), tree.is_root)
    if isinstance(tree, Quantity):
        return Quantity(_choose(tree.value, sign), tree.unit)
    return tree


def merge_intervals(union: Union) -> Tree:
    """Join real intervals that overlap, or touch at an end that one of them contains."""
    intervals: list[tuple[float, float, Bracket]] = []
    for item in union.items:
        ends = _ends(item)
        if ends is None:
            return union
        intervals.append(ends)
    intervals.sort(key=lambda entry: (entry[0], entry[2].left != _CLOSED_LEFT))
    merged = [intervals[0]]
    for low, high, bracket in intervals[1:]:
        last_low, last_high, last = merged[-1]
        touching = low == last_high and (bracket.left == _CLOSED_LEFT or last.right == _CLOSED_RIGHT)
        if low < last_high or touching:
            further = (high, bracket.right == _CLOSED_RIGHT) > (last_high, last.right == _CLOSED_RIGHT)
            if further:
                joined = Bracket(last.left, (last.items[0], bracket.items[1]), bracket.right)
                merged[-1] = (last_low, high, joined)
        else:
            merged.append((low, high, bracket))
    if len(merged) == 1:
        return merged[0][2]
    return Union(tuple(bracket for _, _, bracket in merged))


def _ends(tree: Tree) -> tuple[float, float, Bracket] | None:
    if isinstance(tree, Collection) and len(tree.items) == 1:
        tree = Bracket("[", (tree.items[0], tree.items[0]), "]")  # a point is a closed interval
    if not (isinstance(tree, Bracket) and len(tree.items) == 2):
        return None
    low, high = (_real(item) for item in tree.items)
    if low is None or high is None:
        return None
    return low, high, tree


def _real(tree: Tree) -> float | None:
    if tree == INFINITY:
        return float("inf")
    if tree == negated(INFINITY):
        return float("-inf")
    try:
        value = evaluate(tree, 0)
        other = evaluate(tree, 1)
    except NotNumeric:
        return None
    return value.real if value == other and value.imag == 0 else None  # a variable has no place on the line
