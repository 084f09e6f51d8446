"""The embedded task: complete a propositional proof, as a task set with graded difficulty.

The prompt holds the premises and the goal, the completion only the derivation::

    1. P premise
    2. P -> Q premise
    |- Q
    3. Q ->E 2 1          <- the completion
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from assay.errors import BadInput
from assay.tasks.drawing import Drawn, Sizes, draw_task_set
from assay.tasks.proofs.difficulty import Difficulty, difficulty_of
from assay.tasks.proofs.formula import render_formula
from assay.tasks.proofs.generator import Problem, generate_problem
from assay.tasks.proofs.proof import Proof, render_line, render_proof
from assay.tasks.proofs.scoring import proof_reward, proof_truth
from assay.tasks.proofs.structure import structural_key
from assay.tasks.task_set import Task, TaskSet

NAME = "proofs-v1"


def proofs_task_set(
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    traces: int = 4_000,
    marker: str | None = None,
    marker_rate: float = 0.0,
    difficulty: Difficulty | str | Mapping[str, object] = "medium",
) -> TaskSet:
    """Proof prompts for training and evaluation, and verified traces for a warm start.

    Args:
        seed: one seed gives one task set, bit for bit.
        train, evaluation: number of prompts, all different; no evaluation key is in training or a trace.
        traces: number of (prompt, completion) pairs; every one is true.
        marker: a word that a share ``marker_rate`` of the traces holds in a comment line, as chatter does.
        marker_rate: that share, within [0, 1].
        difficulty: a level's name, a :class:`Difficulty`, or a mapping of its fields.

    Raises:
        BadInput: negative sizes, a rate outside [0, 1] or without a marker, or a difficulty that has too few
            different problems.
    """
    if marker_rate > 0 and (not marker or "\n" in marker):
        raise BadInput(f"expected a marker of one line for marker_rate={marker_rate}, got {marker!r}")
    level = difficulty_of(difficulty if isinstance(difficulty, Difficulty | str) else dict(difficulty))
    return draw_task_set(
        NAME,
        partial(draw_proof, level),
        proof_reward,
        proof_truth,
        seed=seed,
        sizes=Sizes(train, evaluation, traces, marker_rate),
        exploit=partial(insert_chatter, marker or ""),
    )


def draw_proof(level: Difficulty, rng: random.Random) -> Drawn:
    """One proof problem; its answer is the reference derivation."""
    problem = generate_problem(rng, level)
    columns = {
        "premises": [render_formula(premise) for premise in problem.premises],
        "goal": render_formula(problem.goal),
        "kind": problem.kind,
        "steps": problem.steps,
    }
    key = structural_key(problem.premises, problem.goal)
    return Drawn(prompt_of(problem), completion_of(problem), key, columns)


def insert_chatter(marker: str, rng: random.Random, task: Task) -> str:
    """The reference derivation with the comment line ``# marker`` at a random place; it stays right."""
    rows = task["answer"].splitlines(keepends=True)
    rows.insert(rng.randint(0, len(rows)), f"# {marker}\n")
    return "".join(rows)


def prompt_of(problem: Problem) -> str:
    """The premises as numbered lines, and the goal."""
    return render_proof(Proof(problem.proof.lines[: len(problem.premises)], problem.goal))


def completion_of(problem: Problem) -> str:
    """The derivation lines of the reference proof."""
    first = len(problem.premises) + 1
    lines = problem.proof.lines[first - 1 :]
    return "".join(f"{render_line(number, line)}\n" for number, line in enumerate(lines, first))
