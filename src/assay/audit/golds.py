"""What a gold answer is, which other texts are equal to it by construction, and which must be wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

GoldKind = Literal["integer", "decimal", "fraction", "choice", "text", "code", "expression", "unusable"]
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_FRACTION = re.compile(r"([+-]?\d+)\s*/\s*(\d+)")
_LATEX_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
NO_GOLD = frozenset({"none", "nan", "null", "n/a", "na", "tbd", "todo"})


@dataclass(frozen=True, slots=True)
class Gold:
    """One gold answer: ``text`` as it would be written, its kind, and its value where it is a number."""

    text: str
    kind: GoldKind
    number: Fraction | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """A text derived from a gold: how it was derived, and the text."""

    name: str
    text: str


def read_gold(raw: Any) -> Gold:
    """Read one value of the gold column; ``others`` are further accepted answers of a list."""
    if isinstance(raw, list) and raw and all(isinstance(item, str | int | float) for item in raw):
        first = read_gold(raw[0])
        return Gold(first.text, first.kind, first.number, tuple(str(item) for item in raw[1:]))
    if raw is None or isinstance(raw, dict | list):
        return Gold("", "unusable")
    text = _core(str(raw))
    if not any(c.isalnum() for c in text) or text.lower() in NO_GOLD:
        return Gold(text, "unusable")
    number = as_number(text)
    if number is not None:
        return Gold(text, _number_kind(text), number)
    if len(text) == 1 and text.isalpha() and text.isupper():
        return Gold(text, "choice")
    if _is_code(text):
        return Gold(str(raw), "code")
    return Gold(text, "expression" if re.search(r"[\\^={}]|\d\s*[+*/-]\s*\d", text) else "text")


def as_number(text: str) -> Fraction | None:
    """The exact value of a plain number: integer, decimal, a/b or a LaTeX fraction; None for all else."""
    plain = text.strip().replace("\u2212", "-").replace(",", "").replace("$", "").strip()
    latex = _LATEX_FRACTION.fullmatch(plain)
    if latex:
        plain = f"{latex[1]}{latex[2]}/{latex[3]}"
    if _NUMBER.fullmatch(plain):
        return Fraction(plain)
    fraction = _FRACTION.fullmatch(plain)
    if fraction and int(fraction[2]):
        return Fraction(int(fraction[1]), int(fraction[2]))
    return None


def equal_forms(gold: Gold) -> list[Variant]:
    """Texts that mean the same as a gold. The name says in which way they differ from it."""
    text = gold.text
    found = [Variant("spaces", f" {text} "), Variant("lines", f"\n{text}\n")]
    if gold.kind in ("integer", "decimal", "fraction"):
        found += _equal_numbers(gold)
    elif gold.kind in ("text", "choice"):
        found += [Variant("case", text.lower() if text != text.lower() else text.upper())]
        found += [Variant("full stop", f"{text}.")]
    return [v for v in found if v.text != text]


def _equal_numbers(gold: Gold) -> list[Variant]:
    text, number = gold.text.replace(",", ""), gold.number
    assert number is not None
    found = [Variant("dollar signs", f"${text}$")]
    if gold.kind == "integer":
        found += [Variant("decimal point", f"{text}.0"), Variant("leading zero", _padded(text))]
        if abs(number) >= 1000:
            found.append(Variant("thousands separator", f"{int(number):,}"))
    if gold.kind == "decimal":
        found += [Variant("trailing zero", f"{text}0")]
        found += [Variant("as a fraction", f"{number.numerator}/{number.denominator}")]
    if gold.kind == "fraction":
        sign = "-" if number < 0 else ""
        top, bottom = abs(number.numerator), number.denominator
        found += [Variant("latex fraction", f"{sign}\\frac{{{top}}}{{{bottom}}}")]
        if _terminates(bottom):
            found.append(Variant("as a decimal", f"{float(number):.12g}"))
    if number < 0:
        found.append(Variant("unicode minus", text.replace("-", "\u2212", 1)))
    elif number > 0 and not text.startswith("+"):
        found.append(Variant("plus sign", f"+{text}"))
    return found


def wrong_values(gold: Gold, other_golds: Sequence[str]) -> list[Variant]:
    """Texts that are certainly not the gold, named by how they are wrong; other tasks' golds included."""
    if gold.kind in ("integer", "decimal", "fraction"):
        found = _wrong_numbers(gold)
    elif gold.kind == "choice":
        found = [Variant("another letter", c) for c in "ABCD" if c != gold.text]
    elif gold.kind == "code":
        return []
    else:
        found = _wrong_texts(gold)
    found += [Variant("another gold", other) for other in other_golds[:3]]
    same = {_folded(t) for t in (gold.text, *gold.others)}
    return [v for v in found if _folded(v.text) not in same and not _equal(v.text, gold)]


def _wrong_numbers(gold: Gold) -> list[Variant]:
    text, number = gold.text.replace(",", ""), gold.number
    assert number is not None
    flipped = text[1:] if text.startswith("-") else f"-{text.lstrip('+')}"
    found = [Variant("sign", flipped)] if number else []
    if gold.kind == "integer":
        value = int(number)
        found += [Variant("near", str(value + 1)), Variant("near", str(value - 1))]
        found += [Variant("fraction part", f"{text}.4"), Variant("far", str(value * 7 + 1234577))]
        found += [Variant("longer", f"{text}7"), Variant("longer", _before_digits(text, "3"))]
        found += [Variant("ten times", f"{value * 10}" if value else "10")]
        if len(text.lstrip("-")) > 1:
            found.append(Variant("shorter", text[:-1]))
    elif gold.kind == "decimal":
        last = str((int(text[-1]) + 1) % 10)
        found += [Variant("near", text[:-1] + last), Variant("far", "1234577.25")]
        found += [Variant("cut", text.split(".")[0]), Variant("longer", _before_digits(text, "3"))]
        found += [Variant("ten times", f"{float(number) * 10:.10g}")]
    else:
        top, bottom = number.numerator, number.denominator
        found += [Variant("upside down", f"{bottom if top > 0 else -bottom}/{abs(top)}")] if top else []
        found += [Variant("near", f"{top + 1}/{bottom}"), Variant("cut", str(top))]
        found += [Variant("far", f"1234577/{bottom}"), Variant("longer", f"{text}7")]
    return found


def _wrong_texts(gold: Gold) -> list[Variant]:
    text = gold.text
    found = [Variant("far", "zebra crossing"), Variant("negated", f"not {text}")]
    if len(text) >= 4 and text.isalpha():
        found += [Variant("shorter", text[: len(text) // 2]), Variant("longer", f"{text}qx")]
    if len(text) >= 3 and text.isalpha():
        found += [Variant("inside", f"un{text.lower()}ish")]
    return found


def far_value(gold: Gold, other_golds: Sequence[str]) -> str:
    """One text in the gold's shape that is far from right (the wrong value of the scale)."""
    for variant in wrong_values(gold, other_golds):
        if variant.name in ("far", "another letter"):
            return variant.text
    return "zebra crossing"


def _core(text: str) -> str:
    """The final value of a gold written as a whole solution (``#### 5``, ``\\boxed{5}``)."""
    if "####" in text:
        text = text.rsplit("####", 1)[1]
    boxed = re.search(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", text)
    return (boxed[1] if boxed else text).strip()


def _number_kind(text: str) -> GoldKind:
    if "/" in text or "frac" in text:
        return "fraction"
    return "decimal" if "." in text else "integer"


def _is_code(text: str) -> bool:
    if "\n" not in text and not text.startswith(("def ", "lambda", "print(", "import ")):
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.For, ast.While)
    return any(isinstance(node, kinds) for node in tree.body)


def _equal(text: str, gold: Gold) -> bool:
    number = as_number(text)
    return number is not None and number == gold.number


def _folded(text: str) -> str:
    return text.strip().casefold()


def _padded(text: str) -> str:
    return f"-0{text[1:]}" if text.startswith("-") else f"0{text}"


def _before_digits(text: str, digit: str) -> str:
    return f"-{digit}{text[1:]}" if text.startswith("-") else digit + text


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1
