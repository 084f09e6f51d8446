"""Multiple choice: one letter, or one option word for word; two of them are no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.records.score import Score, invalid_task, scored
from assay.rewards.mathematics.extract import extract_answer
from assay.rewards.mathematics.normalise import normalise

Task = Mapping[str, Any]
LETTERS = "ABCDEFGHIJ"
_LETTER = re.compile(r"\(?\s*([A-Ja-j])\s*(?:[).:]|$)\s*(.*)", re.DOTALL)
_WRAPPED = re.compile(r"\\text\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class MultipleChoice:
    r"""1 when the final answer names the right option.

    The answer is found as in mathematics (box, ``<answer>``, ``####``, "the answer is", the last line) and
    must be one letter (``B``, ``(B)``, ``B.``, ``\text{B}``), a letter with its own option's text, or one
    option's text. "A or B" is 0.

    Attributes:
        column: the gold: a letter, an index from 0 (an int), or an option's text.
        choices: the column with the options' texts; may be absent.
    """

    column: str = "answer"
    choices: str = "choices"

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion."""
        options = [str(option) for option in task.get(self.choices) or ()]
        gold = task.get(self.column)
        right = _gold_letter(gold, options)
        if right is None:
            return invalid_task(f"the gold {gold!r} names none of the {len(options) or len(LETTERS)} options")
        found = extract_answer(completion)
        if found is None:
            return scored(0.0, "no answer found")
        letter = read_choice(found.text, options)
        return scored(letter == right, None if letter else "not one option")


def read_choice(text: str, options: Sequence[str] = ()) -> str | None:
    """The letter that a text names, or None when it names none or several."""
    clean = _WRAPPED.sub(r"\1", normalise(text)).strip()
    by_text = [LETTERS[i] for i, option in enumerate(options[: len(LETTERS)]) if _key(option) == _key(clean)]
    if len(by_text) == 1:
        return by_text[0]
    match = _LETTER.fullmatch(clean)
    if match is None:
        return None
    letter, rest = match.group(1).upper(), match.group(2).strip()
    place = LETTERS.index(letter)
    if options and place >= len(options):
        return None
    if not rest:
        return letter
    return letter if options and _key(rest) == _key(options[place]) else None


def _gold_letter(gold: Any, options: Sequence[str]) -> str | None:
    if isinstance(gold, int) and not isinstance(gold, bool):
        return LETTERS[gold] if 0 <= gold < min(len(options) or len(LETTERS), len(LETTERS)) else None
    return read_choice(str(gold), options) if gold is not None else None


def _key(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")
