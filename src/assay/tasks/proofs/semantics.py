"""What formulas mean: truth tables, entailment, countermodels.

A truth table is one Python integer whose bit ``i`` is the value in row ``i``; bit ``k`` of ``i`` is the value
of the ``k``-th atom. Twenty atoms are a million rows, and still a handful of machine operations a connective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.errors import BadInput
from assay.tasks.proofs.formula import Formula

MAX_ATOMS = 20
"""Most atoms of a truth table (2**20 rows)."""


def entails(premises: Iterable[Formula], goal: Formula) -> bool:
    """Whether every assignment that makes all premises true makes the goal true.

    Raises:
        BadInput: more than ``MAX_ATOMS`` different atoms.
    """
    return find_countermodel(premises, goal) is None


def find_countermodel(premises: Iterable[Formula], goal: Formula) -> dict[str, bool] | None:
    """An assignment (by atom name) with all premises true and the goal false; None when there is none."""
    premises = tuple(premises)
    atoms = atoms_of((*premises, goal))
    rows = _all_rows(len(atoms)) & ~truth_table(goal, atoms)
    for premise in premises:
        rows &= truth_table(premise, atoms)
    if rows == 0:
        return None
    row = (rows & -rows).bit_length() - 1
    return {name: bool(row >> position & 1) for position, name in enumerate(atoms)}


def satisfiable(formulas: Iterable[Formula]) -> bool:
    """Whether some assignment makes all formulas true."""
    formulas = tuple(formulas)
    atoms = atoms_of(formulas)
    rows = _all_rows(len(atoms))
    for formula in formulas:
        rows &= truth_table(formula, atoms)
    return rows != 0


def atoms_of(formulas: Iterable[Formula]) -> tuple[str, ...]:
    """The sorted names of all atoms; BadInput above ``MAX_ATOMS``."""
    names: set[str] = set()
    for formula in formulas:
        names |= formula.atoms()
        if len(names) > MAX_ATOMS:
            raise BadInput(f"expected at most {MAX_ATOMS} different atoms for a truth table; use fewer")
    return tuple(sorted(names))


def truth_table(formula: Formula, atoms: Sequence[str]) -> int:
    """The column of ``formula`` over all ``2**len(atoms)`` rows, as an integer's bits."""
    everything = _all_rows(len(atoms))
    columns = {name: _atom_column(position, len(atoms)) for position, name in enumerate(atoms)}
    return _column(formula, columns, everything)


def _column(formula: Formula, columns: dict[str, int], everything: int) -> int:
    if formula.kind == "atom":
        return columns[formula.name]
    if formula.kind == "falsum":
        return 0
    values = [_column(part, columns, everything) for part in formula.parts]
    match formula.kind:
        case "not":
            return everything ^ values[0]
        case "and":
            return values[0] & values[1]
        case "or":
            return values[0] | values[1]
        case "implies":
            return (everything ^ values[0]) | values[1]
        case _:
            return everything ^ values[0] ^ values[1]


def _all_rows(atoms: int) -> int:
    return (1 << (1 << atoms)) - 1


def _atom_column(position: int, atoms: int) -> int:
    """Blocks of ``2**position`` zeros and ones in turn, over ``2**atoms`` rows."""
    block = 1 << position
    pattern = ((1 << block) - 1) << block
    width = 2 * block
    while width < 1 << atoms:
        pattern |= pattern << width
        width *= 2
    return pattern
