"""What a gold answer is, which other texts are equal to it by construction, and which must be wrong."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

GoldKind = Literal["integer", "decimal", "fraction", "choice", "text", "code", "expression", "unusable"]
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_FRACTION = re.compile(r"([+-]?\d+)\s*/\s*(\d+)")
_LATEX_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_QUANTITY = re.compile(r"([^\W\d_]{0,3}|[^\w\s])(-?\d+(?:\.\d+)?)(\s?[^\s\d]{0,12})")
_UNIT = re.compile(r"(?<=\d)\s?(km|cm|mm|m|kg|mg|g|hours?|minutes?|seconds?|h|min|s)")
_OTHER_UNIT = {
    "km": "m", "m": "km", "cm": "m", "mm": "m", "kg": "g", "mg": "kg", "g": "kg", "h": "min", "min": "h", "s": "h",
    "hour": "minutes", "hours": "minutes", "minute": "hours", "minutes": "hours", "second": "hours",
    "seconds": "hours",
}  # fmt: skip
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
    elif _object(text):
        turned = dict(reversed(_object(text).items()))
        found.append(Variant("layout of the JSON", json.dumps(_object(text), ensure_ascii=False, indent=2)))
        found.append(Variant("order of the keys", json.dumps(turned, ensure_ascii=False)))
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
    found = [*_wrong_quantities(text), Variant("far", "zebra crossing"), Variant("negated", f"not {text}")]
    if len(text) >= 4 and text.isalpha():
        found += [Variant("shorter", text[: len(text) // 2]), Variant("longer", f"{text}qx")]
        found += [Variant("letters turned round", text[::-1])]
    if len(text) >= 3 and text.isalpha():
        found += [Variant("inside", f"un{text.lower()}ish")]
    words, items = text.split(), list_items(gold)
    if len(words) > 1 and all(word.isalpha() for word in words):
        found.append(Variant("its first words", " ".join(words[: len(words) // 2])))
    found += [Variant("an entry less", v) for v in _json_texts(text, dict(list(_object(text).items())[:-1]))]
    found += [Variant("an entry changed", v) for v in _json_texts(text, _changed(_object(text)))]
    if len(items) > 2 or (len(items) == 2 and all(as_number(item) is not None for item in items)):
        found.append(Variant("an item less", ", ".join(items[:-1])))
    return found


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a gold is; empty when it is none."""
    try:
        found = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _changed(found: dict[str, Any]) -> dict[str, Any]:
    """The object with its last value changed, inside of it where that is an object."""
    if not found:
        return {}
    name = list(found)[-1]
    value: Any = found[name]
    if isinstance(value, dict) and value:
        return {**found, name: _changed(value)}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {**found, name: value + 1}
    return {**found, name: "zebra crossing"}


def _json_texts(text: str, found: dict[str, Any]) -> list[str]:
    return [json.dumps(found, ensure_ascii=False)] if _object(text) else []


def _wrong_quantities(text: str) -> list[Variant]:
    """For a gold in words that holds digits (``350 m``, ``9:35``, ``25%``): other digits, another unit."""
    digits = list(re.finditer(r"\d+", text))
    if not digits or len(text) > 60:
        return []
    last = digits[-1]
    other = f"{(int(last[0]) + 1) % 10 ** len(last[0]):0{len(last[0])}d}"
    found = [Variant("another digit", text[: last.start()] + other + text[last.end() :])]
    one = _QUANTITY.fullmatch(text)
    if one is None:
        return found
    found.append(Variant("far", f"{one[1]}1234577{one[3]}"))
    if float(one[2]):
        found.append(Variant("ten times", f"{one[1]}{float(one[2]) * 10:.10g}{one[3]}"))
    unit = _UNIT.fullmatch(text, one.end(2))
    if unit is not None:
        found.append(Variant("another unit", text[: unit.start(1)] + _OTHER_UNIT[unit[1]]))
    return found


def quantity(text: str) -> Fraction | None:
    """The value of a number, also of one with a sign or unit around it (``350 m``, ``25%``)."""
    found = _QUANTITY.fullmatch(text.strip())
    return as_number(text) if found is None else as_number(found[2])


def list_items(gold: Gold) -> list[str]:
    """The items of a gold that is a list in words (``blue, white, red``); empty when it is none."""
    if gold.kind != "text" or re.search(r"[()\[\]{}\"'.!?]", gold.text):
        return []
    items = [item.strip() for item in re.split(r"[,;]", gold.text)]
    return items if len(items) > 1 and all(items) and max(map(len, items)) <= 30 else []


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
