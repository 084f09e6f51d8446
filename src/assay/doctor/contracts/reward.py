"""Contract of a reward: one finite number per completion, always the same, higher for the right answer."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.doctor.contracts.calling import Function, literals_of, name_of, parameters, shown
from assay.doctor.contracts.pairs import Pair, findings
from assay.records.finding import Finding
from assay.records.score import Score
from assay.rewards.call import BoundReward, resolve

Task = Mapping[str, Any]
TASKS: tuple[tuple[str, str, str], ...] = (
    ("How much is 17 plus 25?", "42", "43"),
    ("How much is 8 times 7?", "56", "65"),
    ("How much is 90 minus 83?", "7", "9"),
)
FORMATS: tuple[str, ...] = (
    "{a}",
    "The answer is {a}.",
    "The answer is {a}",
    "\\boxed{{{a}}}",
    "I add them. The answer is \\boxed{{{a}}}.",
    "<answer>{a}</answer>",
    "<think>I add them.</think><answer>{a}</answer>",
    "<think>\nI add them.\n</think>\n<answer>\n{a}\n</answer>",
    "<think>I add them.</think>{a}",
    "I add them.\n#### {a}",
    "Answer: {a}",
    "Final answer: {a}",
    "**{a}**",
    '{{"answer": "{a}"}}',
)
"""Ways to write an answer; the reward's own markers add more."""
ALONE = 16  # completions that are also scored alone
JUNK = ("", " \n", "I do not know.", "\\boxed{}", "<answer></answer>", "é½ ٣ 🙂", "42 " * 200)
_ANSWER_NAMES = frozenset(
    ("answer", "answers", "ground_truth", "ground_truths", "solution", "label", "labels", "gold", "target",
     "reference", "task", "expected", "truth")
)  # fmt: skip


def check_reward(
    fn: Function, *, adapt: Function | None = None, tasks: Sequence[Task] | None = None
) -> list[Finding]:
    """Run a user's reward against the contract.

    Args:
        fn: a reward in any accepted signature (the parameter names decide), sync or async.
        adapt: for any other shape: called as ``adapt(fn, completion, task)``, returns the score.
        tasks: mappings with ``prompt`` and ``answer``, optionally ``good`` and ``bad`` completions; without
            them, small sums whose answers are written in the usual forms and in the reward's own markers.

    Returns:
        What fails or warns, so that ``assert not check_reward(fn)`` is a test. A reward that takes no answer
        (a format or length reward) is not asked to know right from wrong.

    Raises:
        BadInput: a parameter that no column of the tasks fills.
    """
    return findings(observe_reward(fn, adapt, tasks=tasks), fn, "check_reward")


def observe_reward(
    fn: Function,
    adapt: Function | None = None,
    literals: Sequence[str] = (),
    tasks: Sequence[Task] | None = None,
) -> list[Pair]:
    """Every completion tried with its score and the id it breaks, if any."""
    bound = resolve(_adapted(fn, adapt) if adapt else fn)
    cases = _cases(tasks, [*literals, *literals_of(fn)])
    texts, rows = [c.text for c in cases], [c.task for c in cases]
    before = copy.deepcopy(rows)
    scores = bound.score(texts, rows)
    again = bound.score(texts, copy.deepcopy(before))
    pairs = [_pair(c, s) for c, s in zip(cases, scores, strict=True)]
    extra = [*_counts(bound, cases), *_side_effects(rows, before), *_repeat(cases, scores, again)]
    if not any(s.is_scored for s in scores):
        return [*pairs, *extra]
    extra += _state(bound, cases, scores, again)
    uses_answer = adapt is not None or bool(_ANSWER_NAMES & set(parameters(fn)))
    judged = judge_scores(cases, scores, uses_answer)
    root = "reward.missing" if any(p.broken == "reward.missing" for p in pairs) else None
    return [*pairs, *extra, *(replace(p, root=root) for p in judged)]


class Case:
    """One completion of one task; ``right`` is None for junk."""

    def __init__(self, text: str, task: Task, right: bool | None, form: str) -> None:
        self.text, self.task, self.right, self.form = text, task, right, form


def _adapted(fn: Function, adapt: Function) -> Function:
    def reward(completion: str, task: Task) -> Any:
        return adapt(fn, completion, task)

    reward.__name__ = name_of(fn)
    return reward


def _cases(tasks: Sequence[Task] | None, literals: Sequence[str]) -> list[Case]:
    found: list[Case] = []
    forms = [*FORMATS, *_own_forms(literals)]
    rows = [_task(*t) for t in TASKS] if tasks is None else [dict(t) for t in tasks]
    for task in rows:
        gold = str(task.get("answer", ""))
        wrong = next(
            (w for _, a, w in TASKS if a == gold), f"{gold}1" if gold[:1].isdigit() else f"not {gold}"
        )
        for form in forms:
            found.append(Case(form.format(a=gold), task, True, form))
            found.append(Case(form.format(a=wrong), task, False, form))
        found += [Case(str(t), task, True, f"good {i}") for i, t in enumerate(task.get("good", ()))]
        found += [Case(str(t), task, False, f"bad {i}") for i, t in enumerate(task.get("bad", ()))]
        found += [Case(text, task, None, shown(text, 30)) for text in JUNK]
    return found


def _task(prompt: str, answer: str, _wrong: str) -> dict[str, Any]:
    names = (
        "answer",
        "solution",
        "ground_truth",
        "label",
        "target",
        "gold",
        "reference",
        "expected",
        "truth",
    )
    extra = {"question": prompt, "data_source": "sums", "extra_info": {}, "info": {}, "tests": ""}
    return {"prompt_id": answer, "prompt": prompt, **dict.fromkeys(names, answer), **extra}


def _own_forms(literals: Sequence[str]) -> list[str]:
    """Forms from the reward's markers: its tags around the answer, its labels before it."""
    texts = [re.sub(r"\\([^\w\s])", r"\1", text) for text in literals]
    tags = dict.fromkeys(m for text in texts for m in re.findall(r"<([A-Za-z][\w-]*)>", text))
    forms = [f"<{tag}>{{a}}</{tag}>" for tag in tags if tag != "answer"]
    labels = [m for text in texts for m in re.findall(r"[A-Za-z#][A-Za-z# ]{0,30}[:=]", text)]
    forms += [f"{label} {{a}}" for label in dict.fromkeys(labels)]
    both = "".join(f"<{tag}>x</{tag}>" for tag in tags if tag not in ("answer", "ans"))
    lines = "".join(f"<{tag}>\nx\n</{tag}>\n" for tag in tags if tag not in ("answer", "ans"))
    if both:
        forms += [f"{both}<{tag}>{{a}}</{tag}>" for tag in ("answer", "ans")]
        forms += [f"{lines}<answer>\n{{a}}\n</answer>{end}" for end in ("", "\n")]
    return forms


def _pair(case: Case, score: Score) -> Pair:
    given = f"{shown(case.text, 100)} for answer {case.task.get('answer')!r}"
    shape = {True: "right", False: "wrong", None: "junk"}[case.right] + f": {case.form}"
    if score.is_scored:
        return Pair(shape, given, f"{score.value:.6g}")
    reason = score.reason or score.state
    if score.state == "missing":
        broken = "reward.missing" if case.right is not None else None
        return Pair(shape, given, "None", broken, "no score for a readable completion", warn=False)
    if "finite" in reason:
        return Pair(shape, given, reason, "reward.non_finite", reason)
    if "expected" in reason and "number" in reason:
        return Pair(shape, given, reason, "reward.wrong_shape", reason)
    return Pair(shape, given, reason, "reward.missing", f"it raised: {reason}")


def _counts(bound: BoundReward, cases: Sequence[Case]) -> list[Pair]:
    """Batches of one and of five must give one and five numbers."""
    if not bound.is_batch:
        return []
    pairs: list[Pair] = []
    for count in (1, 5):
        scores = bound.score([c.text for c in cases[:count]], [c.task for c in cases[:count]])
        bad = [s for s in scores if s.state == "crashed" and "numbers" in (s.reason or "")]
        broken = "reward.wrong_shape" if bad else None
        why = (bad[0].reason or "") if bad else ""
        pairs.append(Pair(f"a batch of {count}", f"{count} completions", shown(why or "ok"), broken, why))
    return pairs


def _side_effects(rows: Sequence[Task], before: Sequence[Task]) -> list[Pair]:
    changed = next((i for i, (a, b) in enumerate(zip(rows, before, strict=True)) if a != b), None)
    if changed is None:
        return [Pair("the task after scoring", "task", "unchanged")]
    why = "the task it was given is changed after the call"
    return [Pair("the task after scoring", shown(before[changed]), shown(rows[changed]), "side_effects", why)]


def _same(a: Score, b: Score) -> bool:
    return a.state == b.state and (a.value == b.value or not a.is_scored)


def _repeat(cases: Sequence[Case], first: Sequence[Score], again: Sequence[Score]) -> list[Pair]:
    moved = [i for i, (a, b) in enumerate(zip(first, again, strict=True)) if not _same(a, b)]
    if not moved:
        return [Pair("the same batch again", "all completions", "the same scores")]
    i = moved[0]
    why = f"{len(moved)} of {len(first)} scores change when the same texts are scored again"
    given = f"{shown(cases[i].text, 60)} twice"
    came = f"{first[i].value:g}, then {again[i].value:g}"
    return [Pair("the same batch again", given, came, "not_deterministic", why)]


def _state(
    bound: BoundReward, cases: Sequence[Case], first: Sequence[Score], again: Sequence[Score]
) -> list[Pair]:
    """The same completions in the opposite order, and a few of them alone, must keep their scores."""
    if any(not _same(a, b) for a, b in zip(first, again, strict=True)):
        return []
    back = bound.score([c.text for c in cases][::-1], [c.task for c in cases][::-1])[::-1]
    moved = [i for i, (a, b) in enumerate(zip(first, back, strict=True)) if not _same(a, b)]
    few = range(0, len(cases), max(1, len(cases) // ALONE))
    alone = {i: bound.score([cases[i].text], [cases[i].task])[0] for i in few}
    apart = [
        i
        for i, score in alone.items()
        if not _same(first[i], score) and score.is_scored and first[i].is_scored
    ]
    if apart and not moved:
        i = apart[0]
        why = f"{len(apart)} of {len(alone)} scores change when the completion is scored alone"
        came = f"{first[i].value:g} in the batch, {alone[i].value:g} alone"
        return [Pair("one completion alone", shown(cases[i].text, 60), came, "state_leak", why)]
    if not moved:
        return [Pair("the opposite order", "all completions", "the same scores")]
    i = moved[0]
    why = f"{len(moved)} scores depend on what was scored before"
    came = f"{first[i].value:g}, then {back[i].value:g}"
    return [Pair("the opposite order", shown(cases[i].text, 60), came, "state_leak", why)]


def judge_scores(cases: Sequence[Case], scores: Sequence[Score], uses_answer: bool) -> list[Pair]:
    """Compare right with wrong answers in the same form: constant, inverted or unrelated.

    Args:
        cases, scores: equally long. uses_answer: whether the reward is given the answer.
    """
    values = [s.value for s in scores if s.is_scored]
    shape, given = "right against wrong answers", f"{len(values)} scored completions"
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(1.0, abs(high)):
        why = f"every completion scores {high:g}: right, wrong and junk"
        return [Pair(shape, given, f"{high:g}", "reward.constant", why)]
    if not uses_answer:
        return []
    gaps = _gaps(cases, scores)
    better, worse = sum(g > 0 for g in gaps), sum(g < 0 for g in gaps)
    came = f"right above wrong in {better} forms, below in {worse}, equal in {len(gaps) - better - worse}"
    if worse > better:
        return [Pair(shape, given, came, "reward.inverted", "a wrong answer scores above the right one")]
    if better == 0 or better < 2 * worse:
        why = "the score varies, but not with the answer being right"
        return [Pair(shape, given, came, "reward.unrelated_to_truth", why)]
    return [Pair(shape, given, came)]


def _gaps(cases: Sequence[Case], scores: Sequence[Score]) -> list[float]:
    """Mean score of right minus wrong, per form that has both."""
    table: dict[str, dict[bool, list[float]]] = {}
    for case, score in zip(cases, scores, strict=True):
        if case.right is not None and score.is_scored:
            form = "given" if case.form.startswith(("good", "bad")) else case.form
            table.setdefault(form, {}).setdefault(case.right, []).append(score.value)
    both = [t for t in table.values() if len(t) == 2]
    return [sum(t[True]) / len(t[True]) - sum(t[False]) / len(t[False]) for t in both]
