r"""Find the final answer in a completion. One extractor, for training and for evaluation.

The rules, in this order:

1. What stands in a thinking block (``<think>...</think>``) is not an answer; one that never closes hides
   everything after it.
2. The last complete box: ``\boxed{...}`` or ``\fbox{...}``, braces counted.
3. The last ``<answer>...</answer>``.
4. The last line that starts with ``####``.
5. The last "the answer is ..." or "answer: ..."; in "Answer: the largest n is 34" what follows the "is".
6. Only with ``last_number=True``: the last number (off by default: it can be gamed by counting).
7. The last line: the last formula in it, or the whole line if it is short (it then has to be an answer
   and nothing else to be equal to anything).

Within a rule the last one wins (``which="first"``: the first one). With ``several=True``, for golds of several
parts, boxes with nothing between them but a comma, "and" or "or" are one answer. Every rule takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Which = Literal["last", "first"]
Source = Literal["box", "tag", "hash", "phrase", "number", "line"]

_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_BOX_PARTS = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_HASH = re.compile(r"^[ \t]*####(?!#)[ \t]*(.*)$", re.MULTILINE)
_PHRASE = re.compile(r"\banswer(?:\*\*)?[ \t]*(?:is|:|=)[ \t]*:?(?:\*\*)?[ \t]*([^\n]*)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\$?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?%?")
_BETWEEN_BOXES = re.compile(
    r"(?:[\s$,;~]|\\\\?[()\[\],;!: ]|\\q?quad\b|(?:\\text\{\s*)?\b(?:and|or)\b(?:\s*\})?)*"
)  # no text can be matched in two ways: a failure would try them all
_STATEMENT = re.compile(r"[A-Za-z][^=<>]*?\b(?:is|are|equals)\b:?\s+(?=\S)")
_UNIT_AFTER = re.compile(r"\s*(?:\\?%|percent\b|pct\b)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[,;](?=\s*(?:because|since|as|so)\b)")
_FORMULA = re.compile(r"\$([^$\n]+)\$|\\\(((?:(?!\\[()])[^\n])*)\\\)")

_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of an answer and the rule that found it."""

    text: str
    source: Source


def extract_answer(
    completion: str, *, which: Which = "last", last_number: bool = False, several: bool = False
) -> Extracted | None:
    """The final answer of a completion, or None when no rule finds one.

    Args:
        completion: the whole text.
        which: the last (default) or the first match of a rule.
        last_number: whether the last number of a text without any marker is its answer.
        several: whether neighbouring boxes are one answer (``\\boxed{1} and \\boxed{2}``: "1, 2").
    """
    text = without_thinking(completion)
    if several and "box" in text and (lists := list(_lists_of_boxes(text))):
        return Extracted(lists[-1] if which == "last" else lists[0], "box")
    for source, find in _RULES.items():
        if source == "number" and not last_number:
            continue
        found = find(text)
        if found:
            chosen = found[-1] if which == "last" else found[0]
            return Extracted(_unboxed(chosen, source).strip(), source)
    line = _last_line(text)
    return Extracted(line, "line") if line else None


def without_thinking(text: str) -> str:
    """The text outside its thinking blocks; text before a lone closing tag is thinking too."""
    kept: list[str] = []
    start, depth = 0, 0
    for match in _THINKING.finditer(text):
        if match.group(1):
            if depth == 0:
                kept.clear()  # the opening tag was written by the template
            depth = max(depth - 1, 0)
        else:
            if depth == 0:
                kept.append(text[start : match.start()])
            depth += 1
        start = match.end()
    if depth == 0:
        kept.append(text[start:])
    return "".join(kept)


def boxes(text: str) -> Iterator[str]:
    r"""Contents of the complete outermost boxes, in their order; ``\{`` and ``\}`` do not count."""
    return (content for _, _, content in _single_boxes(text))


def _lists_of_boxes(text: str) -> Iterator[str]:
    """The boxes' contents, neighbours joined by commas."""
    parts: list[str] = []
    last_end = 0
    for start, end, content in _single_boxes(text):
        if parts and not _BETWEEN_BOXES.fullmatch(text, last_end, start):
            yield ", ".join(parts)
            parts = []
        parts.append(content)
        last_end = end
    if parts:
        yield ", ".join(parts)


def _single_boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of each."""
    open_braces: list[tuple[bool, int]] = []
    inside = outermost = 0
    for match in _BOX_PARTS.finditer(text):
        part = match.group()
        if part == "}":
            if open_braces:
                is_box, start = open_braces.pop()
                inside -= is_box
                if is_box and not inside:
                    yield outermost, match.end(), text[start : match.start()]
        elif part == "{":
            open_braces.append((False, match.end()))
        elif part.endswith("{") and len(part) > 2:
            if not inside:
                outermost = match.start()
            open_braces.append((True, match.end()))
            inside += 1


def _tagged(text: str) -> Iterator[str]:
    start: int | None = None
    for match in _TAG.finditer(text):
        if not match.group(1):
            start = match.end()
        elif start is not None:
            yield text[start : match.start()]
            start = None


def _unboxed(text: str, source: Source) -> str:
    """A box inside another marker holds the answer; a box inside a box is decoration."""
    found = list(boxes(text))
    if not found or (source == "box" and text.strip() != _box_alone(text)):
        return text
    return found[-1]


def _last_line(text: str) -> str:
    text = text.strip()
    for left, right in ((r"\[", r"\]"), ("$$", "$$")):
        if text.endswith(right) and left in text[: -len(right)]:
            return text[text.rindex(left, 0, len(text) - len(right)) :]
    line = text.rpartition("\n")[2].strip()
    formulas = list(_FORMULA.finditer(line))
    if formulas:
        return _with_percent(formulas[-1])
    return line if len(line) <= _LONGEST_LINE else ""


def _box_alone(text: str) -> str | None:
    stripped = text.strip()
    return stripped if re.match(r"\\{1,2}(?:boxed|fbox)\s*\{", stripped) and stripped.endswith("}") else None


def _with_percent(formula: re.Match[str]) -> str:
    """A formula's content, with a percent sign or word that follows it."""
    content = formula.group(1) or formula.group(2)
    return content + r"\%" if _UNIT_AFTER.match(formula.string, formula.end()) else content


def _claim(clause: str) -> str:
    """What an "answer: ..." states: its first formula, or its first sentence without "the value is"."""
    phrases = _PHRASE.findall(clause)  # "Final Answer: the final answer is ..."
    text = (phrases[-1] if phrases else clause).strip().removeprefix("**").lstrip()
    statement = _STATEMENT.match(text)
    text = text[statement.end() :] if statement else text
    formula = _FORMULA.match(text)
    if formula:
        return _with_percent(formula)
    end = _SENTENCE_END.search(text)
    return (text[: end.start()] if end else text).strip().strip("*").strip()


def _numbers(text: str) -> list[str]:
    return [match.group() for match in _NUMBER.finditer(text) if any(map(str.isdigit, match.group()))]


_RULES: dict[Source, Callable[[str], list[str]]] = {
    "box": lambda text: list(boxes(text)) if "box" in text else [],
    "tag": lambda text: list(_tagged(text)),
    "hash": lambda text: _HASH.findall(text) if "####" in text else [],
    "phrase": lambda text: [_claim(clause) for clause in _PHRASE.findall(text)],
    "number": _numbers,
}
