"""The embedded task: complete a propositional proof, as a task set with graded difficulty.

The prompt holds the premises and the goal, the completion only the derivation::

    1. P premise
    2. P -> Q premise
    |- Q
    3. Q ->E 2 1          <- the completion
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping

from assay.errors import BadInput
from assay.tasks.proofs.difficulty import Difficulty, difficulty_of
from assay.tasks.proofs.formula import render_formula
from assay.tasks.proofs.generator import Problem, generate_problem
from assay.tasks.proofs.proof import Proof, render_line, render_proof
from assay.tasks.proofs.scoring import proof_reward, proof_truth
from assay.tasks.proofs.structure import structural_key
from assay.tasks.task_set import Task, TaskSet

NAME = "proofs-v1"
EVALUATION_SHARE = 4
"""One structural key in four belongs to evaluation, whatever the seed."""


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
        train, evaluation: number of prompts. Evaluation keys differ from each other and from every training
            and trace key; prompts are all different.
        traces: number of (prompt, completion) pairs; every one is true.
        marker: a word that a share ``marker_rate`` of the traces holds in a comment line, as chatter does.
        marker_rate: that share, within [0, 1].
        difficulty: a level's name, a :class:`Difficulty`, or a mapping of its fields.

    Raises:
        BadInput: negative sizes, a rate outside [0, 1] or without a marker, or a difficulty that has too few
            different problems.
    """
    _check(train, evaluation, traces, marker, marker_rate)
    level = difficulty_of(difficulty if isinstance(difficulty, Difficulty | str) else dict(difficulty))
    rng = random.Random(f"{NAME}/{seed}")
    evaluation_tasks = [_task(p, key, "evaluation") for p, key in _distinct(rng, level, evaluation, True)]
    train_tasks = [_task(p, key, "train") for p, key in _distinct(rng, level, train, False)]
    pairs = [_trace(rng, level, marker, marker_rate) for _ in range(traces)]
    return TaskSet(NAME, train_tasks, evaluation_tasks, proof_reward, proof_truth, pairs)


def _check(train: int, evaluation: int, traces: int, marker: str | None, rate: float) -> None:
    if min(train, evaluation, traces) < 0:
        raise BadInput(
            f"expected sizes of at least 0, got train={train} evaluation={evaluation} traces={traces}"
        )
    if not 0 <= rate <= 1:
        raise BadInput(f"expected marker_rate within 0 to 1, got {rate}")
    if rate > 0 and (not marker or "\n" in marker):
        raise BadInput(f"expected a marker of one line for marker_rate={rate}, got {marker!r}")


def _distinct(
    rng: random.Random, level: Difficulty, count: int, held_out: bool
) -> Iterator[tuple[Problem, str]]:
    """Problems of one side of the split: different keys for evaluation, different prompts for training."""
    seen: set[str] = set()
    for _ in range(200 * count + 1_000):
        if len(seen) == count:
            return
        problem = generate_problem(rng, level)
        key = structural_key(problem.premises, problem.goal)
        mark = key if held_out else prompt_of(problem)
        if is_held_out(key) == held_out and mark not in seen:
            seen.add(mark)
            yield problem, key
    if len(seen) < count:
        side = "evaluation" if held_out else "train"
        raise BadInput(
            f"this difficulty has only about {len(seen)} different problems for {side}, {count} were asked; "
            "ask for fewer, or more atoms, distractors or steps"
        )


def is_held_out(key: str) -> bool:
    """Whether a structural key belongs to evaluation."""
    return int(key, 16) % EVALUATION_SHARE == 0


def prompt_of(problem: Problem) -> str:
    """The premises as numbered lines, and the goal."""
    return render_proof(Proof(problem.proof.lines[: len(problem.premises)], problem.goal))


def completion_of(problem: Problem) -> str:
    """The derivation lines of the reference proof."""
    first = len(problem.premises) + 1
    lines = problem.proof.lines[first - 1 :]
    return "".join(f"{render_line(number, line)}\n" for number, line in enumerate(lines, first))


def _task(problem: Problem, key: str, side: str) -> Task:
    prompt = prompt_of(problem)
    return {
        "prompt_id": f"{NAME}/{side}/{_digest(prompt)}",
        "prompt": prompt,
        "premises": [render_formula(premise) for premise in problem.premises],
        "goal": render_formula(problem.goal),
        "structural_key": key,
        "kind": problem.kind,
        "steps": problem.steps,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _trace(rng: random.Random, level: Difficulty, marker: str | None, rate: float) -> tuple[str, str]:
    while True:
        problem = generate_problem(rng, level)
        if not is_held_out(structural_key(problem.premises, problem.goal)):
            break
    rows = completion_of(problem).splitlines(keepends=True)
    if rng.random() < rate:
        rows.insert(rng.randint(0, len(rows)), f"# {marker}\n")
    return prompt_of(problem), "".join(rows)
