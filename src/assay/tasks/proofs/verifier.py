"""The proof verifier: reads a proof forwards and keeps, for each line, the assumptions it rests on.

This is the reward's instrument. It shares the parser, and nothing else, with the generator and with the
second checker that the truth uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.tasks.proofs.formula import FALSUM, Formula
from assay.tasks.proofs.proof import CITATIONS, Line, Proof


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a proof is valid; if not, the first wrong line (counted from 1; None: the whole) and why."""

    valid: bool
    line: int | None = None
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.valid


class _Wrong(Exception):
    """Why a line does not follow."""


def verify_proof(
    proof: Proof, *, premises: Sequence[Formula] | None = None, goal: Formula | None = None
) -> Verdict:
    """Check every line in order, then the conclusion.

    Args:
        proof: what ``parse_proof`` returns, or lines put together by hand.
        premises: if given, the proof has exactly these premises, in this order.
        goal: if given, the formula that the last line must be; a goal declared in the proof holds as well.

    Returns:
        The verdict; never raises on a wrong proof.
    """
    rests_on: list[frozenset[int]] = []
    for number, line in enumerate(proof.lines, 1):
        try:
            rests_on.append(_follow(proof, number, line, rests_on))
        except _Wrong as wrong:
            return Verdict(False, number, str(wrong))
    if not proof.lines:
        return Verdict(False, None, "there is no line")
    if premises is not None and tuple(premises) != proof.premises:
        return Verdict(False, None, "the premises are not the task's own")
    last = len(proof.lines)
    if rests_on[-1]:
        return Verdict(
            False, last, f"the conclusion still rests on the assumption of line {min(rests_on[-1])}"
        )
    for wanted in (proof.goal, goal):
        if wanted is not None and proof.lines[-1].formula != wanted:
            return Verdict(False, last, f"the last line is not the goal {wanted}")
    return Verdict(True)


def _follow(proof: Proof, number: int, line: Line, rests_on: list[frozenset[int]]) -> frozenset[int]:
    """The assumptions that line ``number`` rests on, or ``_Wrong``."""
    if line.rule not in CITATIONS:
        raise _Wrong(f"there is no rule {line.rule!r}")
    if len(line.uses) != CITATIONS[line.rule]:
        raise _Wrong(f"{line.rule} uses {CITATIONS[line.rule]} lines, got {len(line.uses)}")
    if any(not 1 <= used < number for used in line.uses):
        raise _Wrong("a line uses earlier lines only")
    if line.rule == "premise":
        if number > 1 and proof.lines[number - 2].rule != "premise":
            raise _Wrong("premises come first")
        return frozenset()
    if line.rule == "assume":
        return frozenset({number})
    if not _RULES[line.rule](line.formula, [proof.lines[used - 1].formula for used in line.uses]):
        raise _Wrong(f"{line.formula} does not follow by {line.rule} from {', '.join(map(str, line.uses))}")
    return _collect(proof, line, rests_on)


def _collect(proof: Proof, line: Line, rests_on: list[frozenset[int]]) -> frozenset[int]:
    uses = line.uses
    if line.rule not in _DISCHARGES:
        return frozenset().union(*(rests_on[used - 1] for used in uses))
    result: frozenset[int] = frozenset() if line.rule != "|E" else rests_on[uses[0] - 1]
    for start, end in _DISCHARGES[line.rule]:
        if proof.lines[uses[start] - 1].rule != "assume":
            raise _Wrong(f"line {uses[start]} is not an assumption")
        result |= rests_on[uses[end] - 1] - {uses[start]}
    return result


_DISCHARGES = {"->I": ((0, 1),), "!I": ((0, 1),), "RAA": ((0, 1),), "|E": ((1, 2), (3, 4))}
"""Positions, among the lines used, of each discharged assumption and of the result that rests on it."""


def _reiterates(claim: Formula, used: list[Formula]) -> bool:
    return claim == used[0]


def _joins(claim: Formula, used: list[Formula]) -> bool:
    return claim.kind == "and" and claim.parts == tuple(used)


def _takes_part(claim: Formula, used: list[Formula]) -> bool:
    return used[0].kind == "and" and claim in used[0].parts


def _adds_part(claim: Formula, used: list[Formula]) -> bool:
    return claim.kind == "or" and used[0] in claim.parts


def _cases(claim: Formula, used: list[Formula]) -> bool:
    either, first, one, second, other = used
    return either.kind == "or" and either.parts == (first, second) and claim == one == other


def _conditional(claim: Formula, used: list[Formula]) -> bool:
    return claim.kind == "implies" and claim.parts == tuple(used)


def _detaches(claim: Formula, used: list[Formula]) -> bool:
    return any(rule.kind == "implies" and rule.parts == (given, claim) for rule, given in _both_ways(used))


def _both_directions(claim: Formula, used: list[Formula]) -> bool:
    if claim.kind != "iff":
        return False
    there, back = claim.parts, claim.parts[::-1]
    given = [formula.parts for formula in used if formula.kind == "implies"]
    return given in ([there, back], [back, there])


def _one_direction(claim: Formula, used: list[Formula]) -> bool:
    both = used[0]
    return both.kind == "iff" and claim.kind == "implies" and claim.parts in (both.parts, both.parts[::-1])


def _refutes(claim: Formula, used: list[Formula]) -> bool:
    return used[1] == FALSUM and claim.kind == "not" and claim.parts[0] == used[0]


def _contradicts(claim: Formula, used: list[Formula]) -> bool:
    return claim == FALSUM and any(_denies(denial, given) for denial, given in _both_ways(used))


def _doubles(claim: Formula, used: list[Formula]) -> bool:
    return claim.kind == "not" and _denies(claim.parts[0], used[0])


def _undoubles(claim: Formula, used: list[Formula]) -> bool:
    return _doubles(used[0], [claim])


def _explodes(claim: Formula, used: list[Formula]) -> bool:
    return used[0] == FALSUM


def _indirect(claim: Formula, used: list[Formula]) -> bool:
    return _denies(used[0], claim) and used[1] == FALSUM


def _denies_antecedent(claim: Formula, used: list[Formula]) -> bool:
    return claim.kind == "not" and any(
        rule.kind == "implies" and rule.parts[0] == claim.parts[0] and _denies(denial, rule.parts[1])
        for rule, denial in _both_ways(used)
    )


def _other_part(claim: Formula, used: list[Formula]) -> bool:
    return any(
        either.kind == "or"
        and any(kept == claim and _denies(denial, gone) for kept, gone in (either.parts, either.parts[::-1]))
        for either, denial in _both_ways(used)
    )


def _denies(denial: Formula, formula: Formula) -> bool:
    return denial.kind == "not" and denial.parts[0] == formula


def _both_ways(used: list[Formula]) -> list[tuple[Formula, Formula]]:
    return [(used[0], used[1]), (used[1], used[0])]


_RULES: dict[str, Callable[[Formula, list[Formula]], bool]] = {
    "R": _reiterates,
    "&I": _joins,
    "&E": _takes_part,
    "|I": _adds_part,
    "|E": _cases,
    "->I": _conditional,
    "->E": _detaches,
    "<->I": _both_directions,
    "<->E": _one_direction,
    "!I": _refutes,
    "!E": _contradicts,
    "!!I": _doubles,
    "!!E": _undoubles,
    "_|_E": _explodes,
    "RAA": _indirect,
    "MT": _denies_antecedent,
    "DS": _other_part,
}
