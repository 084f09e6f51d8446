"""Labelled proofs: valid ones first, then failures that were checked to be failures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.errors import BadInput
from assay.tasks.proofs.checker import check_proof
from assay.tasks.proofs.difficulty import Difficulty, difficulty_of
from assay.tasks.proofs.formula import negation
from assay.tasks.proofs.generator import Problem, generate_problem
from assay.tasks.proofs.proof import CITATIONS, Line, Proof, render_proof
from assay.tasks.proofs.semantics import entails, find_countermodel
from assay.tasks.proofs.structure import structural_key

FAILURES = ("missing_premise", "wrong_goal", "wrong_rule", "wrong_line")
"""How a failure was made: the first two come with a countermodel."""


@dataclass(frozen=True, slots=True)
class ProofExample:
    """One labelled proof.

    Attributes:
        example_id: unique within one call, stable for a seed.
        proof: the parsed proof, premises and goal included.
        proof_text: its ASCII text.
        kind: the kind of problem when valid, else one of ``FAILURES``.
        valid: the label, found by entailment and the second checker.
        structural_key: the problem up to renaming of atoms and order of premises.
        countermodel: for a goal that is not entailed, an assignment that shows it.
    """

    example_id: str
    proof: Proof
    kind: str
    valid: bool
    structural_key: str
    countermodel: dict[str, bool] | None = None

    @property
    def proof_text(self) -> str:
        """The proof as text."""
        return render_proof(self.proof)


def generate_examples(
    count: int, seed: int = 0, *, difficulty: Difficulty | str = "medium"
) -> list[ProofExample]:
    """``count`` valid proofs and, after them, ``count`` failures (the kinds of ``FAILURES`` in turn).

    Raises:
        BadInput: ``count`` below 0.
    """
    if count < 0:
        raise BadInput(f"expected a count of at least 0, got {count}")
    rng, level = random.Random(f"proof examples/{seed}"), difficulty_of(difficulty)
    positive = [_positive(generate_problem(rng, level), f"{seed}/valid/{index}") for index in range(count)]
    failures = [
        _failure(rng, level, FAILURES[index % len(FAILURES)], f"{seed}/failure/{index}")
        for index in range(count)
    ]
    return positive + failures


def _positive(problem: Problem, example_id: str) -> ProofExample:
    if not (entails(problem.premises, problem.goal) and check_proof(problem.proof, goal=problem.goal)):
        raise RuntimeError(f"the generator built a wrong proof: {render_proof(problem.proof)!r}")
    key = structural_key(problem.premises, problem.goal)
    return ProofExample(example_id, problem.proof, problem.kind, True, key)


def _failure(rng: random.Random, level: Difficulty, kind: str, example_id: str) -> ProofExample:
    spoil = {
        "missing_premise": _replace_premise,
        "wrong_goal": _wrong_goal,
        "wrong_rule": _wrong_rule,
        "wrong_line": _wrong_line,
    }[kind]
    while True:
        proof = spoil(rng, generate_problem(rng, level))
        if proof is None or check_proof(proof):
            continue
        premises, goal = proof.premises, proof.goal or proof.conclusion
        countermodel = find_countermodel(premises, goal)
        if (countermodel is None) == (kind in ("wrong_rule", "wrong_line")):
            return ProofExample(example_id, proof, kind, False, structural_key(premises, goal), countermodel)


def _replace_premise(rng: random.Random, problem: Problem) -> Proof | None:
    """Another premise stands where a needed one stood; the derivation still cites it."""
    position = rng.randrange(len(problem.premises))
    line = problem.proof.lines[position]
    return _with_line(problem.proof, position, replace(line, formula=negation(line.formula)))


def _wrong_goal(rng: random.Random, problem: Problem) -> Proof | None:
    """The goal is negated, and the last line claims it."""
    goal = negation(problem.goal)
    last = replace(problem.proof.lines[-1], formula=goal)
    return replace(_with_line(problem.proof, len(problem.proof.lines) - 1, last), goal=goal)


def _wrong_rule(rng: random.Random, problem: Problem) -> Proof | None:
    position = rng.randrange(len(problem.premises), len(problem.proof.lines))
    line = problem.proof.lines[position]
    same = [rule for rule, uses in CITATIONS.items() if uses == len(line.uses) and rule != line.rule]
    return _with_line(problem.proof, position, replace(line, rule=rng.choice(same))) if same else None


def _wrong_line(rng: random.Random, problem: Problem) -> Proof | None:
    position = rng.randrange(len(problem.premises), len(problem.proof.lines))
    line = problem.proof.lines[position]
    if not line.uses or position < 2:
        return None
    uses = list(line.uses)
    uses[rng.randrange(len(uses))] = rng.randint(1, position)
    return _with_line(problem.proof, position, replace(line, uses=tuple(uses)))


def _with_line(proof: Proof, position: int, line: Line) -> Proof:
    lines: Sequence[Line] = [*proof.lines[:position], line, *proof.lines[position + 1 :]]
    return replace(proof, lines=tuple(lines))
