"""How hard the generated proofs are."""

from __future__ import annotations

from dataclasses import dataclass, fields

from assay.errors import BadInput, nearest
from assay.tasks.proofs.proof import CITATIONS


@dataclass(frozen=True, slots=True)
class Difficulty:
    """What the generator draws from.

    Attributes:
        steps: weight of each number of derivation lines, from 1 upwards: ``(2, 1)`` draws one line twice as
            often as two.
        atoms: number of atoms (P, Q, R, ...) in use, 2 to 8.
        distractors: smallest and largest number of premises that the proof does not need.
        compound: probability that a formula that could be an atom is a compound one.
        rules: the only rules a reference proof uses, such as ``("->E", "&E", "&I")``; empty for all.
    """

    steps: tuple[float, ...] = (3.0, 3.0, 2.0, 1.0, 1.0)
    atoms: int = 4
    distractors: tuple[int, int] = (0, 2)
    compound: float = 0.1
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= 12 or min(self.steps) < 0 or sum(self.steps) <= 0:
            raise BadInput(f"expected 1 to 12 weights in steps, none negative and one positive: {self.steps}")
        if not 2 <= self.atoms <= 8:
            raise BadInput(f"expected 2 to 8 atoms, got {self.atoms}")
        if not 0 <= self.distractors[0] <= self.distractors[1] <= 8:
            raise BadInput(
                f"expected distractors as (smallest, largest) within 0 to 8, got {self.distractors}"
            )
        if not 0 <= self.compound <= 1:
            raise BadInput(f"expected compound as a probability, got {self.compound}")
        if unknown := set(self.rules) - set(CITATIONS):
            raise BadInput(f"unknown rule {min(unknown)!r} in rules{nearest(min(unknown), CITATIONS)}")


LEVELS: dict[str, Difficulty] = {
    "easy": Difficulty(steps=(3.0, 1.0), atoms=3, distractors=(0, 1), compound=0.0),
    "medium": Difficulty(),
    "hard": Difficulty(steps=(0.0, 1.0, 2.0, 2.0, 2.0, 1.0), atoms=5, distractors=(1, 3), compound=0.3),
}
"""Named difficulties."""


def difficulty_of(value: Difficulty | str | dict[str, object]) -> Difficulty:
    """A difficulty from a level's name, a mapping of fields, or itself; BadInput otherwise."""
    if isinstance(value, Difficulty):
        return value
    if isinstance(value, str):
        if value not in LEVELS:
            raise BadInput(f"unknown difficulty {value!r}{nearest(value, LEVELS)}")
        return LEVELS[value]
    known = {field.name for field in fields(Difficulty)}
    for name in value:
        if name not in known:
            raise BadInput(f"unknown difficulty setting {name!r}{nearest(name, known)}")
    pairs = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
    return Difficulty(**pairs)  # pyright: ignore[reportArgumentType]
