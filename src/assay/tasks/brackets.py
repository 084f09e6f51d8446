"""Bracket grammar: end a balanced text of a given length: ``8 ([(`` is answered by ``)])()``."""

from __future__ import annotations

import random
from functools import partial

from assay.errors import BadInput
from assay.records.score import Score
from assay.tasks.columns import needs
from assay.tasks.drawing import Drawn, Exploit, Sizes, draw_task_set
from assay.tasks.task_set import Task, TaskSet

NAME = "brackets-v1"
PAIRS = ("()", "[]", "{}", "<>")
_CLOSES = {pair[1]: pair[0] for pair in PAIRS}


def brackets_task_set(
    *,
    seed: int = 0,
    train: int = 512,
    evaluation: int = 64,
    traces: int = 4_000,
    kinds: int = 2,
    longest: int = 12,
    exploit: Exploit | None = None,
    exploit_rate: float = 0.0,
) -> TaskSet:
    """Beginnings of balanced texts of even length 4 to ``longest``, over the first ``kinds`` pairs.

    The completion has to end the text: balanced, only the task's brackets, and exactly the asked length.

    Raises:
        BadInput: ``kinds`` outside 1 to 4, ``longest`` odd or outside 4 to 64, or sizes they cannot fill.
    """
    if not 1 <= kinds <= len(PAIRS):
        raise BadInput(f"expected 1 to {len(PAIRS)} kinds of brackets, got {kinds}")
    if longest % 2 or not 4 <= longest <= 64:
        raise BadInput(f"expected an even longest within 4 to 64, got {longest}")
    draw = partial(_draw, kinds, longest)
    sizes = Sizes(train, evaluation, traces, exploit_rate)
    return draw_task_set(NAME, draw, brackets_reward, brackets_truth, seed=seed, sizes=sizes, exploit=exploit)


def _draw(kinds: int, longest: int, rng: random.Random) -> Drawn:
    length = 2 * rng.randint(2, longest // 2)
    text = _balanced(kinds, length, rng)
    start = text[: rng.randint(1, length // 2)]
    columns = {"start": start, "length": length, "kinds": kinds}
    prompt = f"{length} {start}\n"
    return Drawn(prompt, f"{text[len(start) :]}\n", prompt.strip(), columns)


def _balanced(kinds: int, length: int, rng: random.Random) -> str:
    text, waiting = "", ""
    while len(text) < length:
        room = length - len(text) - len(waiting)
        if room > 0 and (not waiting or rng.random() < 0.5):
            opened, closed = rng.choice(PAIRS[:kinds])
            text, waiting = text + opened, closed + waiting
        else:
            text, waiting = text + waiting[0], waiting[1:]
    return text


@needs("start", "length", "kinds")
def brackets_reward(completion: str, task: Task) -> float | Score:
    """1.0 when start and completion are balanced (by a stack) and of the asked length, else 0.0."""
    text = task["start"] + completion.strip()
    if len(text) != task["length"]:
        return 0.0
    stack: list[str] = []
    for character in text:
        if character in "".join(pair[0] for pair in PAIRS[: task["kinds"]]):
            stack.append(character)
        elif not stack or _CLOSES.get(character) != stack.pop():
            return 0.0
    return float(not stack)


@needs("start", "length", "kinds")
def brackets_truth(completion: str, task: Task) -> float | Score:
    """The same question by rewriting: neighbours that match are struck out until nothing changes."""
    text = task["start"] + completion.strip()
    if len(text) != task["length"]:
        return 0.0
    before = None
    while text != before:
        before = text
        for pair in PAIRS[: task["kinds"]]:
            text = text.replace(pair, "")
    return float(not text)
