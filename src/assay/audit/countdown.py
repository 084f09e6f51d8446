"""Tasks whose answer is an expression: reach a target with given numbers. The gold has to be worked out."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

NUMBER_COLUMNS = ("nums", "numbers")
MOST = 5
"""Numbers up to which all expressions are tried."""


def solved_expression(row: Mapping[str, Any]) -> str | None:
    """An expression that uses every number once and equals the target; None for tasks of another kind."""
    nested = row.get("reward_model")
    truth = nested.get("ground_truth") if isinstance(nested, Mapping) else row.get("ground_truth")
    source = truth if isinstance(truth, Mapping) else row
    numbers = next((source[name] for name in NUMBER_COLUMNS if isinstance(source.get(name), list)), None)
    target = source.get("target")
    if numbers is None or not isinstance(target, int | str) or not 1 <= len(numbers) <= MOST:
        return None
    try:
        terms = [(Fraction(number), str(number)) for number in numbers]
        return _search(terms, Fraction(target))
    except (ValueError, TypeError):
        return None


def _search(terms: list[tuple[Fraction, str]], target: Fraction) -> str | None:
    if len(terms) == 1:
        value, text = terms[0]
        return text if value == target else None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            rest = [term for k, term in enumerate(terms) if k not in (i, j)]
            for joined in _joined(terms[i], terms[j]):
                found = _search([*rest, joined], target)
                if found is not None:
                    return found
    return None


def _joined(first: tuple[Fraction, str], second: tuple[Fraction, str]) -> list[tuple[Fraction, str]]:
    (a, x), (b, y) = first, second
    found = [
        (a + b, f"({x} + {y})"),
        (a - b, f"({x} - {y})"),
        (b - a, f"({y} - {x})"),
        (a * b, f"({x} * {y})"),
    ]
    found += [(a / b, f"({x} / {y})")] if b else []
    return [*found, (b / a, f"({y} / {x})")] if a else found
