"""The proof language: numbered lines, each a formula, a rule and the lines it uses.

::

    1. P -> Q premise
    2. Q -> R premise
    |- P -> R
    # a comment: ignored, anywhere
    3. P assume
    4. Q ->E 1 3
    5. R ->E 2 4
    6. P -> R ->I 3 5

Lines are numbered 1, 2, 3, ... and use earlier lines only. Premises come first. An assumption is used freely
until a rule discharges it by naming its line: ``->I 3 5`` reads "line 5 follows from the assumption of
line 3". The last line is the conclusion and may rest on premises only. The line ``|- goal``, at most one,
says what that conclusion has to be.

==============  =====================================================================================
rule            uses
==============  =====================================================================================
premise assume  nothing
R               the same formula again
&I  &E          both parts in order; the conjunction
|I  |E          one part; the disjunction, then assumption and result of each case (five lines)
->I ->E         assumption and result; the implication and its antecedent (in either order)
<->I <->E       both implications (either order); the biconditional, giving either implication
!I  !E          assumption and ``_|_``; a formula and its negation (either order), giving ``_|_``
!!I !!E         adds, removes a double negation
_|_E            anything from ``_|_``
RAA             the assumption ``!A`` and ``_|_``, giving ``A``
MT              ``A -> B`` and ``!B`` give ``!A`` (either order)
DS              ``A | B`` and the negation of one part give the other part (either order)
==============  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import BadInput, nearest
from assay.tasks.proofs.formula import Formula, parse_formula, render_formula

MAX_PROOF_CHARACTERS = 20_000
MAX_PROOF_LINES = 400

CITATIONS: dict[str, int] = {
    "premise": 0, "assume": 0, "R": 1, "&I": 2, "&E": 1, "|I": 1, "|E": 5, "->I": 2, "->E": 2, "<->I": 2,
    "<->E": 1, "!I": 2, "!E": 2, "!!I": 1, "!!E": 1, "_|_E": 1, "RAA": 2, "MT": 2, "DS": 2,
}  # fmt: skip
"""Every rule and the number of lines it uses."""

_UNICODE_RULE = {
    "&I": "∧I", "&E": "∧E", "|I": "∨I", "|E": "∨E", "->I": "→I", "->E": "→E", "<->I": "↔I", "<->E": "↔E",
    "!I": "¬I", "!E": "¬E", "!!I": "¬¬I", "!!E": "¬¬E", "_|_E": "⊥E",
}  # fmt: skip
_ASCII_RULE = {unicode: rule for rule, unicode in _UNICODE_RULE.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its formula, the rule that gives it, and the numbers of the lines used."""

    formula: Formula
    rule: str
    uses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """Lines numbered from 1, and the goal when the text declares one."""

    lines: tuple[Line, ...]
    goal: Formula | None = None

    @property
    def premises(self) -> tuple[Formula, ...]:
        """The formulas of the lines that are premises."""
        return tuple(line.formula for line in self.lines if line.rule == "premise")

    @property
    def conclusion(self) -> Formula:
        """The formula of the last line; BadInput when there is none."""
        if not self.lines:
            raise BadInput("expected a proof with at least one line, got none")
        return self.lines[-1].formula


def parse_proof(text: str) -> Proof:
    """Read a proof, ASCII or Unicode. Whether it is right is the verifier's question.

    Raises:
        BadInput: unreadable (the message names the line of the text), empty, or over the limits.
    """
    if len(text) > MAX_PROOF_CHARACTERS:
        raise BadInput(f"expected a proof of at most {MAX_PROOF_CHARACTERS} characters, got {len(text)}")
    lines: list[Line] = []
    goal: Formula | None = None
    for row, raw in enumerate(text.split("\n"), 1):
        content = raw.strip(" \t\r")
        if not content or content.startswith("#"):
            continue
        if content.startswith(("|-", "⊢")):
            goal = _parse_goal(content, goal, row)
        else:
            lines.append(_parse_line(content, len(lines) + 1, row))
    if not lines:
        raise BadInput("expected numbered lines such as '3. Q ->E 1 2', got none")
    if len(lines) > MAX_PROOF_LINES:
        raise BadInput(f"expected a proof of at most {MAX_PROOF_LINES} lines, got {len(lines)}")
    return Proof(tuple(lines), goal)


def _parse_goal(content: str, known: Formula | None, row: int) -> Formula:
    if known is not None:
        raise BadInput(f"row {row}: expected one goal line, got a second; keep one '|- goal'")
    return parse_formula(content.removeprefix("|-").removeprefix("⊢"))


def _parse_line(content: str, expected: int, row: int) -> Line:
    number, dot, rest = content.partition(".")
    if not dot or number.strip() != str(expected):
        raise BadInput(f"row {row}: expected line number {expected} and a dot, got {content[:40]!r}")
    words = rest.split()
    uses: list[int] = []
    while words and _is_number(words[-1]):
        uses.append(int(words.pop().rstrip(",")))
    if len(words) < 2:
        raise BadInput(f"row {row}: expected a formula, a rule and the lines used, got {content[:40]!r}")
    rule = _ASCII_RULE.get(words[-1], words[-1])
    if rule not in CITATIONS:
        raise BadInput(f"row {row}: unknown rule {rule[:20]!r}{nearest(rule[:20], CITATIONS)}")
    return Line(parse_formula(" ".join(words[:-1])), rule, tuple(reversed(uses)))


def _is_number(word: str) -> bool:
    digits = word.rstrip(",")
    return len(digits) <= 4 and digits.isascii() and digits.isdigit()


def render_line(number: int, line: Line, *, unicode: bool = False) -> str:
    """One line of text, without the newline."""
    rule = _UNICODE_RULE.get(line.rule, line.rule) if unicode else line.rule
    return " ".join([f"{number}.", render_formula(line.formula, unicode=unicode), rule, *map(str, line.uses)])


def render_proof(proof: Proof, *, unicode: bool = False) -> str:
    """The text of a proof; the goal, when there is one, stands after the leading premises."""
    rows = [render_line(number, line, unicode=unicode) for number, line in enumerate(proof.lines, 1)]
    if proof.goal is not None:
        leading = next((i for i, line in enumerate(proof.lines) if line.rule != "premise"), len(rows))
        rows.insert(leading, f"{'⊢' if unicode else '|-'} {render_formula(proof.goal, unicode=unicode)}")
    return "".join(f"{row}\n" for row in rows)
