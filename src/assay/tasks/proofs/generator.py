"""Random proof problems of a given length, grown backwards from the goal.

A goal is derived by a random rule from smaller goals until the number of lines is spent; what is left over
becomes a premise. The result is a tree, so every line of the reference proof is needed. This module knows the
rules only as ways to build; it calls no checker, and every problem is checked by its callers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from assay.errors import BadInput
from assay.tasks.proofs.difficulty import Difficulty
from assay.tasks.proofs.formula import (
    FALSUM,
    Formula,
    atom,
    conjunction,
    disjunction,
    implication,
    negation,
)
from assay.tasks.proofs.proof import Line, Proof
from assay.tasks.proofs.semantics import satisfiable

ATOM_NAMES = "PQRSTUVW"
KINDS: dict[str, str] = {
    "->E": "modus_ponens", "&E": "simplification", "&I": "conjunction", "|I": "addition",
    "->I": "conditional", "|E": "cases", "MT": "modus_tollens", "DS": "disjunctive_syllogism",
    "!!E": "double_negation", "!I": "refutation",
}  # fmt: skip
"""The name of a problem, by the rule of its last line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Premises, a goal and one proof (premises included)."""

    premises: tuple[Formula, ...]
    goal: Formula
    proof: Proof
    kind: str

    @property
    def steps(self) -> int:
        """Lines of the reference proof, premises apart."""
        return len(self.proof.lines) - len(self.premises)


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    formula: Formula
    rule: str
    uses: tuple[_Node, ...] = ()


def generate_problem(rng: random.Random, difficulty: Difficulty) -> Problem:
    """One random problem; its premises are satisfiable and none of them is the goal.

    Raises:
        BadInput: the difficulty leaves no such problem.
    """
    lengths = range(1, len(difficulty.steps) + 1)
    for _ in range(1_000):
        (length,) = rng.choices(lengths, difficulty.steps)
        grower = _Grower(rng, difficulty)
        root = grower.grow(grower.goal(length), length)
        distractors = grower.distractors(root)
        if _sane(root, distractors, length) and _allowed(root, difficulty):
            return _problem(root, distractors, rng)
    raise BadInput(f"no problem in 1,000 draws from {difficulty}; allow more rules, steps or atoms")


def _sane(root: _Node, distractors: list[Formula], length: int) -> bool:
    nodes = list(_post_order(root))
    premises = [node.formula for node in nodes if node.rule == "premise"]
    derived = [node.formula for node in nodes if node.rule not in ("premise", "assume")]
    return (
        sum(node.rule != "premise" for node in nodes) == length
        and len(set(premises)) == len(premises)
        and len(set(derived)) + ("|E" in {node.rule for node in nodes}) * 2 >= len(derived)
        and not set(premises) & set(derived)
        and satisfiable([*premises, *distractors])
    )


def _allowed(root: _Node, difficulty: Difficulty) -> bool:
    used = {node.rule for node in _post_order(root)} - {"premise", "assume"}
    return not difficulty.rules or used <= set(difficulty.rules)


def _problem(root: _Node, distractors: list[Formula], rng: random.Random) -> Problem:
    nodes = list(_post_order(root))
    given = [node for node in nodes if node.rule == "premise"]
    given += [_Node(formula, "premise") for formula in distractors]
    rng.shuffle(given)
    order = [*given, *(node for node in nodes if node.rule != "premise")]
    number = {id(node): position for position, node in enumerate(order, 1)}
    lines = tuple(
        Line(node.formula, node.rule, tuple(number[id(used)] for used in node.uses)) for node in order
    )
    premises = tuple(node.formula for node in given)
    return Problem(premises, root.formula, Proof(lines, root.formula), KINDS[root.rule])


def _post_order(node: _Node, seen: set[int] | None = None) -> Iterator[_Node]:
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    for used in node.uses:
        yield from _post_order(used, seen)
    yield node


@dataclass
class _Grower:
    """Grows one derivation. ``anchor`` is an assumption that the derivation has to rest on."""

    rng: random.Random
    difficulty: Difficulty
    fresh: list[Formula] = field(init=False)

    def __post_init__(self) -> None:
        self.atoms = [atom(name) for name in ATOM_NAMES[: self.difficulty.atoms]]
        self.fresh = self.rng.sample(self.atoms, len(self.atoms))

    def goal(self, length: int) -> Formula:
        """A formula whose shape some rule can derive in ``length`` lines."""
        shapes = ["atom", "atom", "atom", "and", "or", "not"] + ["implies"] * 2 * (length >= 3)
        match self.rng.choice(shapes):
            case "and":
                return conjunction(self.pick(), self.pick())
            case "or":
                return disjunction(self.pick(), self.pick())
            case "not":
                return negation(self.pick())
            case "implies":
                return implication(self.pick(), self.pick())
            case _:
                return self.pick()

    def pick(self, other_than: Formula | None = None) -> Formula:
        """An atom, unused ones first, or now and then a compound formula."""
        if self.rng.random() < self.difficulty.compound:
            return self.compound()
        while self.fresh:
            chosen = self.fresh.pop()
            if chosen != other_than:
                return chosen
        return self.rng.choice([name for name in self.atoms if name != other_than])

    def compound(self) -> Formula:
        """A random formula of one connective over atoms."""
        left, right = self.rng.sample(self.atoms, 2)
        make = self.rng.choice([conjunction, disjunction, implication, lambda a, _: negation(a)])
        return make(left, right)

    def distractors(self, root: _Node) -> list[Formula]:
        """Premises that no line uses, different from every formula of the derivation."""
        wanted = self.rng.randint(*self.difficulty.distractors)
        taken = {node.formula for node in _post_order(root)}
        found: list[Formula] = []
        for _ in range(20 * wanted):
            candidate = self.compound() if self.rng.random() < 0.7 else self.rng.choice(self.atoms)
            if len(found) < wanted and candidate not in taken:
                found.append(candidate)
                taken.add(candidate)
        return found

    def grow(self, goal: Formula, length: int, anchor: _Node | None = None) -> _Node:
        """A derivation of ``goal`` in ``length`` lines, assumptions counted, resting on ``anchor``."""
        if length == 0:
            return anchor if anchor is not None and anchor.formula == goal else _Node(goal, "premise")
        if anchor is not None and length == 1:
            return self.detach(goal, 0, anchor)
        return self.rng.choice(self.ways(goal, length))(goal, length - 1, anchor)

    def ways(self, goal: Formula, length: int) -> list[Callable[[Formula, int, _Node | None], _Node]]:
        """The rules that can derive ``goal`` in ``length`` lines."""
        found = [self.detach, self.detach, self.exclude]
        if goal.kind != "and":
            found += [self.simplify] * (1 + (length == 1))
        if goal.kind == "and":
            found += [self.join] * 4
        elif goal.kind == "or":
            found += [self.add] * 3
        elif goal.kind == "not":
            found += [self.deny] * 2 + [self.refute] * 2 * (length >= 4)
        elif goal.kind == "implies" and length >= 3:
            found += [self.suppose] * 8
        elif length == 1:
            found.append(self.undouble)
        if length >= 5 and goal.kind == "atom":
            found += [self.cases] * 3
        return found

    def detach(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        if anchor is not None and left == 0:
            antecedent = anchor
        else:
            antecedent = self.grow(self.pick(goal), left, anchor)
        return _Node(goal, "->E", (_Node(implication(antecedent.formula, goal), "premise"), antecedent))

    def exclude(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        denial = self.grow(negation(self.pick(goal)), left, anchor)
        gone = denial.formula.parts[0]
        parts = (goal, gone) if self.rng.random() < 0.5 else (gone, goal)
        return _Node(goal, "DS", (_Node(disjunction(*parts), "premise"), denial))

    def simplify(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        other = self.pick(goal)
        both = conjunction(goal, other) if self.rng.random() < 0.5 else conjunction(other, goal)
        source = _Node(both, "premise") if left == 0 else self.detach(both, left - 1, anchor)
        return _Node(goal, "&E", (source,))

    def join(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        first = self.rng.randint(0, left) if anchor is None else left
        one, other = self.grow(goal.parts[0], first, anchor), self.grow(goal.parts[1], left - first)
        return _Node(goal, "&I", (one, other))

    def add(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        return _Node(goal, "|I", (self.grow(self.rng.choice(goal.parts), left, anchor),))

    def deny(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        denial = self.grow(negation(self.pick(goal.parts[0])), left, anchor)
        rule = implication(goal.parts[0], denial.formula.parts[0])
        return _Node(goal, "MT", (_Node(rule, "premise"), denial))

    def undouble(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        return _Node(goal, "!!E", (self.grow(negation(negation(goal)), left, anchor),))

    def suppose(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        assumption = _Node(goal.parts[0], "assume")
        return _Node(goal, "->I", (assumption, self.grow(goal.parts[1], left - 1, assumption)))

    def refute(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        assumption = _Node(goal.parts[0], "assume")
        reached = self.grow(self.pick(goal.parts[0]), left - 2, assumption)
        clash = _Node(FALSUM, "!E", (reached, _Node(negation(reached.formula), "premise")))
        return _Node(goal, "!I", (assumption, clash))

    def cases(self, goal: Formula, left: int, anchor: _Node | None) -> _Node:
        first, second = self.pick(goal), self.pick(goal)
        one, other = _Node(first, "assume"), _Node(second, "assume")
        extra = self.rng.randint(0, left - 4)
        results = self.grow(goal, 1 + extra, one), self.grow(goal, left - 3 - extra, other)
        either = _Node(disjunction(first, second), "premise")
        return _Node(goal, "|E", (either, one, results[0], other, results[1]))
