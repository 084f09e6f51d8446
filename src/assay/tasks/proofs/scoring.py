"""The reward and the truth of the proofs task, by two instruments, and the reward of a whole proof text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from assay.errors import BadInput
from assay.records.score import Score, invalid_task
from assay.tasks.proofs.checker import check_proof
from assay.tasks.proofs.formula import Formula, parse_formula
from assay.tasks.proofs.proof import Proof, parse_proof
from assay.tasks.proofs.semantics import entails
from assay.tasks.proofs.verifier import verify_proof
from assay.tasks.task_set import Task


def proof_reward(completion: str, task: Task) -> float | Score:
    """1.0 when prompt and completion together are a valid proof of the task's goal from its own premises.

    Args:
        completion: the remaining lines of the proof, as sampled.
        task: with ``prompt``, ``premises`` (texts) and ``goal`` (text).

    Returns:
        1.0 or 0.0 (also for text that cannot be read); ``invalid_task`` when the task itself cannot be read.
    """
    try:
        premises, goal = _problem_of(task)
    except BadInput as error:
        return invalid_task(str(error))
    proof = _read(task["prompt"] + completion)
    return float(proof is not None and verify_proof(proof, premises=premises, goal=goal).valid)


def proof_truth(completion: str, task: Task) -> float | Score:
    """The held-out truth: the premises entail the goal by truth table, and the second checker accepts."""
    try:
        premises, goal = _problem_of(task)
        entailed = _entailed(premises, goal)
    except BadInput as error:
        return invalid_task(str(error))
    proof = _read(task["prompt"] + completion)
    return float(entailed and proof is not None and check_proof(proof, premises=premises, goal=goal))


def verifier_reward(proof_text: str) -> float:
    """1.0 when the text is a valid proof (of its own goal line, if it has one), else 0.0."""
    proof = _read(proof_text)
    return float(proof is not None and verify_proof(proof).valid)


def _read(text: str) -> Proof | None:
    try:
        return parse_proof(text)
    except BadInput:
        return None


def _problem_of(task: Task) -> tuple[tuple[Formula, ...], Formula]:
    for column in ("prompt", "premises", "goal"):
        if column not in task:
            raise BadInput(f"expected a proof task with prompt, premises and goal; {column!r} is missing")
    premises: Sequence[str] = task["premises"]
    return _parsed(tuple(premises), task["goal"])


@lru_cache(maxsize=4096)
def _parsed(premises: tuple[str, ...], goal: str) -> tuple[tuple[Formula, ...], Formula]:
    return tuple(parse_formula(text) for text in premises), parse_formula(goal)


@lru_cache(maxsize=4096)
def _entailed(premises: tuple[Formula, ...], goal: Formula) -> bool:
    return entails(premises, goal)
