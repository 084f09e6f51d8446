"""The structural key of a problem: the same for every renaming of atoms and every order of premises."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice, permutations, product

from assay.tasks.proofs.formula import Formula

MAX_RENAMINGS = 5_040


def structural_key(premises: Sequence[Formula], goal: Formula) -> str:
    """A short hash of the problem up to the names of its atoms and the order of its premises.

    Atoms are told apart by where they occur; the ties that are left are broken by trying every renaming, and
    taking the smallest text. Above ``MAX_RENAMINGS`` ties (no generated problem has them) keys may split.
    """
    texts = min(_renamed(premises, goal, names) for names in _renamings(premises, goal))
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _renamed(premises: Sequence[Formula], goal: Formula, names: dict[str, str]) -> str:
    rows = sorted(_shape(premise, names) for premise in premises)
    return "; ".join([*rows, _shape(goal, names)])


def _renamings(premises: Sequence[Formula], goal: Formula):
    colours = _colours(premises, goal)
    groups: dict[str, list[str]] = {}
    for name in sorted(colours, key=lambda name: (colours[name], name)):
        groups.setdefault(colours[name], []).append(name)
    for choice in islice(product(*(permutations(group) for group in groups.values())), MAX_RENAMINGS):
        order = [name for group in choice for name in group]
        yield {name: f"x{position}" for position, name in enumerate(order)}


def _colours(premises: Sequence[Formula], goal: Formula) -> dict[str, str]:
    """Atom to a colour that depends only on where it, and its neighbours, occur."""
    formulas = [*premises, goal]
    names = sorted(set[str]().union(*(formula.atoms() for formula in formulas)))
    colours = dict.fromkeys(names, "")
    for _ in range(3):
        fresh: dict[str, str] = {}
        for name in names:
            marked = colours | {name: f"*{colours[name]}"}
            rows = sorted(_shape(premise, marked) for premise in premises)
            text = "; ".join([*rows, _shape(goal, marked)])
            fresh[name] = hashlib.sha256(text.encode()).hexdigest()[:8]
        colours = fresh
    return colours


def _shape(formula: Formula, names: dict[str, str]) -> str:
    if formula.kind == "atom":
        return names[formula.name]
    return f"({formula.kind} {' '.join(_shape(part, names) for part in formula.parts)})"
