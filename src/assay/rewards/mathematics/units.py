"""Units: the policy is that a unit on one side only is ignored, and two units must agree or convert."""

from __future__ import annotations

from fractions import Fraction

_LENGTH = {"mm": "1/1000", "cm": "1/100", "dm": "1/10", "m": "1", "km": "1000", "in": "127/5000",
           "ft": "381/1250", "yd": "1143/1250", "mi": "201168/125"}  # fmt: skip
_MASS = {"mg": "1/1000000", "g": "1/1000", "kg": "1", "oz": "45359237/1600000000", "lb": "45359237/100000000"}
_TIME = {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"}
_MONEY = {"dollar": "1", "cent": "1/100"}
_VOLUME = {"ml": "1/1000", "l": "1"}
_NAMES = {
    "millimeter": "mm", "millimetre": "mm", "centimeter": "cm", "centimetre": "cm", "meter": "m",
    "metre": "m", "kilometer": "km", "kilometre": "km", "inch": "in", "inches": "in", "foot": "ft",
    "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g", "kilogram": "kg",
    "ounce": "oz", "pound": "lb", "lbs": "lb", "millisecond": "ms", "second": "s", "sec": "s",
    "minute": "min", "hour": "h", "hr": "h", "days": "day", "weeks": "week", "usd": "dollar", "$": "dollar",
    "dollars": "dollar", "cents": "cent", "liter": "l", "litre": "l", "milliliter": "ml",
    "degree": "deg", "°": "deg", "unit": "unit", "euro": "€", "eur": "€",
}  # fmt: skip
_OTHERS = frozenset(
    [
        "month",
        "year",
        "people",
        "ton",
        "gallon",
        "mph",
        "degrees",
        "units",
        "square",
        "cubic",
        "sq",
        "cu",
        "radian",
    ]
)
_FACTORS: dict[str, tuple[str, Fraction]] = {
    unit: (kind, Fraction(factor))
    for kind, table in (("length", _LENGTH), ("mass", _MASS), ("time", _TIME), ("money", _MONEY),
                        ("volume", _VOLUME))
    for unit, factor in table.items()
}  # fmt: skip

UNIT_WORDS = frozenset(
    word
    for base in {*_NAMES, *_FACTORS, *_OTHERS}
    if len(base) > 1 and base.isalpha() and base not in ("in", "min", "ms", "mi")
    for word in (base, base + "s")
)
"""Words that are read as a unit without ``\\text``; one letter, and words with another meaning, are not."""


def unit_name(text: str) -> str:
    """One name for the spellings of a unit: ``Meters`` and ``m`` are ``m``; exponents stay."""
    words = text.lower().replace(".", " ").replace("sq ", "square ").split()
    names = [_NAMES.get(w) or _NAMES.get(w.removesuffix("s")) or _singular(w) for w in words]
    if len(names) == 2 and names[0] in ("square", "cubic"):
        return names[1] + ("^2" if names[0] == "square" else "^3")
    return " ".join(names)


def conversion(left: str, right: str) -> Fraction | None:
    """How many ``right`` one ``left`` is; None when they measure different things (or nothing known)."""
    if left == right:
        return Fraction(1)
    (left, left_power), (right, right_power) = _split(left), _split(right)
    if left not in _FACTORS or right not in _FACTORS or left_power != right_power:
        return None
    (left_kind, left_factor), (right_kind, right_factor) = _FACTORS[left], _FACTORS[right]
    return (left_factor / right_factor) ** left_power if left_kind == right_kind else None


def _split(unit: str) -> tuple[str, int]:
    base, _, power = unit.partition("^")
    return base, int(power) if power.isdigit() and len(power) == 1 else 1


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
