"""The second proof checker, used by the truth: rule schemas by matching, and assumptions by a backward pass.

Where the verifier walks forwards and collects what each line rests on, this one starts at the conclusion and
works out which assumptions are available to each line along every way of using it. The rules are data: one
schema a way of applying a rule, in which ``[A]`` is an assumption that the next item may use and the rule
discharges. Nothing is shared with the verifier but the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from assay.tasks.proofs.formula import Formula, parse_formula
from assay.tasks.proofs.proof import Proof

SCHEMAS: dict[str, tuple[str, ...]] = {
    "R": ("A |- A",),
    "&I": ("A, B |- A & B",),
    "&E": ("A & B |- A", "A & B |- B"),
    "|I": ("A |- A | B", "B |- A | B"),
    "|E": ("A | B, [A], C, [B], C |- C",),
    "->I": ("[A], B |- A -> B",),
    "->E": ("A -> B, A |- B", "A, A -> B |- B"),
    "<->I": ("A -> B, B -> A |- A <-> B", "B -> A, A -> B |- A <-> B"),
    "<->E": ("A <-> B |- A -> B", "A <-> B |- B -> A"),
    "!I": ("[A], _|_ |- !A",),
    "!E": ("A, !A |- _|_", "!A, A |- _|_"),
    "!!I": ("A |- !!A",),
    "!!E": ("!!A |- A",),
    "_|_E": ("_|_ |- A",),
    "RAA": ("[!A], _|_ |- A",),
    "MT": ("A -> B, !B |- !A", "!B, A -> B |- !A"),
    "DS": ("A | B, !A |- B", "!A, A | B |- B", "A | B, !B |- A", "!B, A | B |- A"),
}
"""Every derivation rule, each way of applying it; A, B, C stand for any formula."""


@dataclass(frozen=True, slots=True)
class _Schema:
    uses: tuple[Formula, ...]
    discharged: tuple[bool, ...]
    claim: Formula


def check_proof(
    proof: Proof, *, premises: Sequence[Formula] | None = None, goal: Formula | None = None
) -> bool:
    """Whether the proof is valid: same question as ``verify_proof``, answered another way."""
    if not proof.lines or not all(_fits(proof, number) for number in range(1, len(proof.lines) + 1)):
        return False
    leading = _leading_premises(proof)
    if any(line.rule == "premise" for line in proof.lines[leading:]):
        return False
    if premises is not None and [line.formula for line in proof.lines[:leading]] != list(premises):
        return False
    conclusion = proof.lines[-1].formula
    if any(wanted is not None and wanted != conclusion for wanted in (goal, proof.goal)):
        return False
    return _assumptions_available(proof)


def _leading_premises(proof: Proof) -> int:
    count = 0
    while count < len(proof.lines) and proof.lines[count].rule == "premise":
        count += 1
    return count


def _fits(proof: Proof, number: int) -> bool:
    """Whether the line is a premise, an assumption, or an instance of a schema of its rule."""
    line = proof.lines[number - 1]
    if line.rule in ("premise", "assume"):
        return not line.uses
    if not all(0 < used < number for used in line.uses):
        return False
    given = [proof.lines[used - 1] for used in line.uses]
    for schema in _schemas(line.rule):
        if len(schema.uses) != len(given):
            continue
        if any(
            away and source.rule != "assume" for away, source in zip(schema.discharged, given, strict=True)
        ):
            continue
        patterns = (*schema.uses, schema.claim)
        if _instance(patterns, (*(source.formula for source in given), line.formula)):
            return True
    return False


def _assumptions_available(proof: Proof) -> bool:
    """Backwards: what every use of a line offers it; an assumption must be available to itself."""
    everything = (1 << (len(proof.lines) + 1)) - 1
    available = [everything] * len(proof.lines) + [0]
    for number in range(len(proof.lines), 0, -1):
        line = proof.lines[number - 1]
        if line.rule == "assume" and not available[number] >> number & 1:
            return False
        for used, opened in _uses_with_assumption(line.rule, line.uses):
            available[used] &= available[number] | (1 << opened if opened else 0)
    return True


def _uses_with_assumption(rule: str, uses: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Each line used (discharged assumptions apart) and the assumption it may rest on, or 0."""
    if not uses:
        return
    opened = 0
    for used, away in zip(uses, _schemas(rule)[0].discharged, strict=True):
        if away:
            opened = used
        else:
            yield used, opened
            opened = 0


@cache
def _schemas(rule: str) -> tuple[_Schema, ...]:
    return tuple(_read_schema(text) for text in SCHEMAS.get(rule, ()))


def _read_schema(text: str) -> _Schema:
    left, _, claim = text.partition(" |- ")
    items = left.split(", ")
    uses = tuple(parse_formula(item.strip("[]")) for item in items)
    return _Schema(uses, tuple(item.startswith("[") for item in items), parse_formula(claim))


def _instance(patterns: Sequence[Formula], formulas: Sequence[Formula]) -> bool:
    """Whether one substitution for A, B, C turns every pattern into its formula."""
    bound: dict[str, Formula] = {}
    pending = list(zip(patterns, formulas, strict=True))
    while pending:
        pattern, formula = pending.pop()
        if pattern.kind == "atom":
            if bound.setdefault(pattern.name, formula) != formula:
                return False
        elif pattern.kind != formula.kind:
            return False
        else:
            pending.extend(zip(pattern.parts, formula.parts, strict=True))
    return True
