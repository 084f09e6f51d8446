r"""Whether two answers are equal: cheap and exact first, sympy in a killable child last.

Policies (kept stable, pinned by tests; each holds in both directions):

- values are compared exactly: ``0.333`` is not ``1/3``; ``50%`` is ``0.5`` and not ``50``;
- a unit on one side only is ignored; two units must agree or convert (``1 m`` is ``100 cm``);
- ``x = 5`` equals ``5``, ``D = (2,7)`` equals ``(2,7)``, ``x \in S`` equals ``S``; names must agree when
  both sides give one;
- a bare list and a set in braces are unordered, and one element is itself (``\{5\}`` equals ``5``);
  brackets are ordered, and part of the value: ``(2,7)`` is not ``[2,7]``;
- an inequality is not an interval (it could be copied from the question);
- what cannot be decided is not equal, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.rewards.mathematics.algebra import Algebra, TooLarge, Undefined, root_order
from assay.rewards.mathematics.numeric import agree
from assay.rewards.mathematics.reading import ARITHMETIC, Reading, read, simple_number
from assay.rewards.mathematics.relations import match_relations, value_of
from assay.rewards.mathematics.sets import expand_choices, merge_intervals
from assay.rewards.mathematics.symbolic import has_structure, prove_equal
from assay.rewards.mathematics.tree import (
    INFINITY,
    Bracket,
    Collection,
    Matrix,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    Symbol,
    Tree,
    Union,
    negated,
)
from assay.rewards.mathematics.units import conversion, unit_name

State = Literal["equal", "different", "undecided", "unreadable_gold", "unreadable_answer"]
_LARGEST_COLLECTION = 64
_LONGEST_BARE_UNIT = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether gold and answer are equal, and why not."""

    state: State
    reason: str | None = None

    @property
    def is_equal(self) -> bool:
        """Whether they are equal for certain."""
        return self.state == "equal"


_EQUAL = Verdict("equal")
_DIFFERENT = Verdict("different")


def check(gold: str, answer: str) -> Verdict:
    """Compare two answers. Symmetric but for which of the two an unreadable text is blamed on."""
    left, right = simple_number(gold), simple_number(answer)
    if left is not None and right is not None:
        if left == right:
            return _EQUAL
        if "," not in gold + answer:
            return _DIFFERENT
    return compare(read(gold), read(answer))


def compare(gold: Reading, answer: Reading) -> Verdict:
    """Compare two readings."""
    if gold.problem is not None:
        return Verdict("unreadable_gold", gold.problem)
    if answer.problem is not None:
        return Verdict("unreadable_answer", answer.problem)
    if gold.text == answer.text:
        return _EQUAL
    decisions = [same(left, right) for left in gold.trees for right in answer.trees]
    if True in decisions:
        return _EQUAL
    if None in decisions:
        return Verdict("undecided", "neither equal nor different could be proved in time")
    return _DIFFERENT


def same(left: Tree, right: Tree) -> bool | None:
    """Whether two trees are equal; None when it cannot be decided."""
    if left == right:
        return True
    left, right = _plain(left), _plain(right)
    if isinstance(left, Relation) or isinstance(right, Relation):
        return _same_relation(left, right)
    if isinstance(left, Quantity) or isinstance(right, Quantity):
        return _same_quantity(left, right)
    if isinstance(left, Collection) and isinstance(right, Collection):
        return _same_members(left.items, right.items)
    if isinstance(left, Union) and isinstance(right, Union):
        return _same_members(left.items, right.items)
    if isinstance(left, Bracket) and isinstance(right, Bracket):
        if (left.left, left.right) != (right.left, right.right):
            return False
        return _same_sequence(left.items, right.items)
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        if [len(row) for row in left.rows] != [len(row) for row in right.rows]:
            return False
        return _all([_same_sequence(a, b) for a, b in zip(left.rows, right.rows, strict=True)])
    if isinstance(left, ARITHMETIC) and isinstance(right, ARITHMETIC):
        return same_value(left, right)
    return left == right


def same_value(left: Tree, right: Tree) -> bool | None:
    """Whether two arithmetic trees have the same value: exactly, else by points, else by proof."""
    if left == right:
        return True
    if _is_infinite(left) or _is_infinite(right):
        return _sign_of_infinity(left) == _sign_of_infinity(right)
    algebra = Algebra(root_order(left, right))
    try:
        difference = algebra.difference(algebra.evaluate(left), algebra.evaluate(right))
        if difference.is_zero:
            return True
        if difference.is_complete:
            return False
    except TooLarge:
        pass
    except Undefined:
        return False
    close = agree(left, right)
    if close is None and not (has_structure(left) or has_structure(right)):
        return None  # too large or undefined everywhere: a proof would only burn its time
    return prove_equal(left, right) if close is not False else False


def _plain(tree: Tree) -> Tree:
    """Alternatives spelled out, intervals merged, a collection of one replaced by its element."""
    tree = expand_choices(tree)
    if isinstance(tree, Union):
        tree = merge_intervals(tree)
    while isinstance(tree, Collection) and len(tree.items) == 1:
        tree = tree.items[0]
    return tree


def _same_relation(left: Tree, right: Tree) -> bool | None:
    if isinstance(left, Relation) and isinstance(right, Relation):
        return match_relations(left, right, same)
    relation, other = (left, right) if isinstance(left, Relation) else (right, left)
    if isinstance(other, Collection):
        return False
    value = value_of(relation, same) if isinstance(relation, Relation) else None
    return False if value is None else same(value, other)


def _same_quantity(left: Tree, right: Tree) -> bool | None:
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        factor = conversion(left.unit, right.unit)
        if factor is None:
            return False
        return same(Product((left.value, Number(factor))) if factor != 1 else left.value, right.value)
    quantity, other = (left, right) if isinstance(left, Quantity) else (right, left)
    spelled = _with_bare_unit(other, quantity.unit) if isinstance(quantity, Quantity) else None
    if spelled is not None:
        return _same_quantity(quantity, spelled)
    bare = left.value if isinstance(left, Quantity) else left
    return same(bare, right.value if isinstance(right, Quantity) else right)


def _with_bare_unit(tree: Tree, unit: str) -> Quantity | None:
    """``1000 m`` beside ``1 km``: letters that end a product are its unit where the other side's converts."""
    factors = _factors(tree)
    for count in range(1, min(_LONGEST_BARE_UNIT, len(factors) - 1) + 1):
        letters, power = factors[-count:], ""
        if count == 1 and isinstance(letters[0], Power) and isinstance(letters[0].exponent, Number):
            letters, power = (letters[0].base,), f"^{letters[0].exponent.value}"
        name = "".join(letter.name if isinstance(letter, Symbol) else "?" for letter in letters)
        name = unit_name(name) + power
        if conversion(name, unit) is not None:
            return Quantity(Product(factors[:-count]), name)
    return None


def _factors(tree: Tree) -> tuple[Tree, ...]:
    if not isinstance(tree, Product):
        return (tree,)
    return tuple(factor for each in tree.factors for factor in _factors(each))


def _same_sequence(left: tuple[Tree, ...], right: tuple[Tree, ...]) -> bool | None:
    if len(left) != len(right):
        return False
    return _all([same(a, b) for a, b in zip(left, right, strict=True)])


def _same_members(left: tuple[Tree, ...], right: tuple[Tree, ...]) -> bool | None:
    """As sets: every member has an equal one on the other side."""
    if len(left) > _LARGEST_COLLECTION or len(right) > _LARGEST_COLLECTION:
        return None
    left, right = _without_common_name(left, right), _without_common_name(right, left)
    if any(isinstance(item, Relation) for item in left) != any(isinstance(item, Relation) for item in right):
        return _same_sequence(left, right)  # names on one side only: then their order is that of the values
    table = [[same(a, b) for b in right] for a in left]
    rows = [_any(row) for row in table]
    columns = [_any([row[i] for row in table]) for i in range(len(right))]
    return _all([*rows, *columns])


def _without_common_name(items: tuple[Tree, ...], others: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """``x=1, x=2`` and ``x=1, 2`` beside a list without names are ``1, 2``."""
    if any(isinstance(other, Relation) for other in others):
        return items
    relations = [item for item in items if isinstance(item, Relation)]
    if len(relations) == 1 and relations[0] is items[0]:
        value = value_of(relations[0], same)
        return items if value is None else (value, *items[1:])
    if len(relations) != len(items) or len({relation.sides[0] for relation in relations}) != 1:
        return items
    values = [value_of(relation, same) for relation in relations]
    return tuple(value for value in values if value is not None) if None not in values else items


def _is_infinite(tree: Tree) -> bool:
    return _sign_of_infinity(tree) != 0


def _sign_of_infinity(tree: Tree) -> int:
    return 1 if tree == INFINITY else -1 if tree == negated(INFINITY) else 0


def _all(decisions: list[bool | None]) -> bool | None:
    if False in decisions:
        return False
    return None if None in decisions else True


def _any(decisions: list[bool | None]) -> bool | None:
    if True in decisions:
        return True
    return None if None in decisions else False
