"""Controls: before the first step the gold must be paid and junk must not, in the workers training uses.

One check that finds most silent faults of a reward: an unreadable gold that pays, an exception that was
swallowed, a function that works in a notebook and not in a worker, a format that cannot be produced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from assay.errors import BadInput, RunStopped
from assay.records.finding import Exploit, Finding
from assay.records.score import Score
from assay.rewards.running import RewardRunner
from assay.rewards.signatures import Task

JUNK = "zq xj vk wq"
"""Words that answer nothing."""
_LARGEST_LOW_SHARE = 0.5
_SHOWN = 200

Role = Literal["gold", "junk", "empty"]


@dataclass(frozen=True, slots=True)
class Control:
    """One control: which completion was scored for which task, and what it got."""

    role: Role
    task: Task
    completion: str
    score: Score


@dataclass(frozen=True, slots=True)
class Controls:
    """All controls, and those that failed."""

    checked: Sequence[Control]
    failed: Sequence[Control]
    findings: Sequence[Finding] = field(default_factory=tuple[Finding, ...])


def controls_check(
    runner: RewardRunner,
    tasks: Sequence[Task],
    gold_completion: Callable[[Task], str] | None = None,
    *,
    gold_score: float = 1.0,
    stop: bool = True,
) -> Controls:
    """Score the gold, junk and the empty text for each task, in the very workers that training uses.

    Args:
        runner: the runner of the run.
        tasks: a few tasks (8 to 64 are enough).
        gold_completion: a completion that deserves full pay; None: only junk and empty are checked.
        gold_score: what the gold is paid; junk and empty must stay below half of it.
        stop: raise on the first failure; otherwise return all.

    Raises:
        BadInput: a control failed; the message shows the sample, its score and what was expected.
    """
    plan: list[tuple[Role, Task, str]] = [
        (role, task, text) for task in tasks for role, text in _texts(task, gold_completion)
    ]
    scores = runner.score([text for _, _, text in plan], [task for _, task, _ in plan])
    checked = [Control(*row, score) for row, score in zip(plan, scores, strict=True)]
    failed = [control for control in checked if not _is_right(control, gold_score)]
    if failed and stop:
        raise BadInput(f"{runner.name}: {_explain(failed[0], gold_score)} ({len(failed)} of {len(checked)} "
                       "controls fail); mend the reward or the task before training")  # fmt: skip
    return Controls(checked, failed, tuple(_finding(control, gold_score) for control in failed))


def require_scores(scores: Sequence[Score], *, most_without: float = 0.5) -> None:
    """Stop a run in which more than ``most_without`` of a batch has no score.

    Raises:
        RunStopped: with the counts and one reason.
    """
    lost = [score for score in scores if not score.is_scored]
    if len(lost) > most_without * len(scores):
        states = {state: sum(s.state == state for s in lost) for state in sorted({s.state for s in lost})}
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        raise RunStopped(
            f"{len(lost)} of {len(scores)} samples have no score ({counts}); the first: {lost[0].reason}; "
            "mend the reward, then resume"
        )


def _texts(task: Task, gold: Callable[[Task], str] | None) -> list[tuple[Role, str]]:
    golds: list[tuple[Role, str]] = [("gold", gold(task))] if gold is not None else []
    return [*golds, ("junk", JUNK), ("empty", "")]


def _is_right(control: Control, gold_score: float) -> bool:
    if control.score.state == "invalid_task":
        return False
    if control.role == "gold":
        return control.score.is_scored and control.score.value >= gold_score - 1e-9
    if not control.score.is_scored:
        return control.score.state == "missing"  # nothing was paid
    return control.score.value < _LARGEST_LOW_SHARE * gold_score


def _explain(control: Control, gold_score: float) -> str:
    wanted = f"{gold_score:g}" if control.role == "gold" else f"less than {_LARGEST_LOW_SHARE * gold_score:g}"
    score = control.score
    came = f"{score.value:g}" if score.is_scored else f"{score.state} ({score.reason})"
    if score.is_scored and score.reason:
        came += f" ({score.reason})"
    text = control.completion if len(control.completion) <= _SHOWN else control.completion[:_SHOWN] + "..."
    return (
        f"the {control.role} completion {text!r} of prompt_id {control.task.get('prompt_id')!r} "
        f"should score {wanted}, got {came}"
    )


def _finding(control: Control, gold_score: float) -> Finding:
    state = control.score.state
    ids = {"gold": "rejects_gold", "junk": "accepts_unreadable", "empty": "accepts_empty"}
    name = "crashes" if state == "crashed" else ids[control.role]
    value = control.score.value if control.score.is_scored else None
    wanted = f"{gold_score:g}" if control.role == "gold" else f"below {_LARGEST_LOW_SHARE * gold_score:g}"
    return Finding(
        id=name,
        stage="audit",
        status="fail",
        summary=_explain(control, gold_score),
        evidence={"role": control.role, "state": state, "score": value, "reason": control.score.reason},
        fix="mend the reward or the task before training",
        exploit=Exploit(control.task, control.completion, value, wanted),
    )
