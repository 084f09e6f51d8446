"""Evaluate a tree at fixed points in double precision: cheap, and enough to tell most unequal pairs apart."""

from __future__ import annotations

import cmath
import hashlib
import math
from collections.abc import Callable

from assay.rewards.mathematics.tree import Call, Number, Power, Product, Quantity, Sum, Symbol, Tree

POINTS = 3
TOLERANCE = 1e-9
_LARGEST_FACTORIAL = 170


class NotNumeric(Exception):
    """No number at this point: infinite, undefined, overflowing, or a node without a value."""


def agree(left: Tree, right: Tree) -> bool | None:
    """Whether two trees have the same values at the points; None when that cannot be computed."""
    compared = 0
    for point in range(POINTS):
        try:
            a, b = evaluate(left, point), evaluate(right, point)
        except NotNumeric:
            continue
        compared += 1
        if abs(a - b) > TOLERANCE * max(1e-3, abs(a), abs(b)):
            return False
    return True if compared else None


def evaluate(tree: Tree, point: int = 0) -> complex:
    """The value of a tree, its variables standing at fixed positive irrational-looking numbers.

    Raises:
        NotNumeric: there is none.
    """
    try:
        value = _evaluate(tree, point)
    except (ArithmeticError, ValueError, RecursionError) as error:
        raise NotNumeric(str(error)) from error
    if not cmath.isfinite(value):
        raise NotNumeric("not finite")
    return value


def _evaluate(tree: Tree, point: int) -> complex:
    if isinstance(tree, Number):
        return complex(float(tree.value))
    if isinstance(tree, Symbol):
        return _symbol(tree.name, point)
    if isinstance(tree, Sum):
        return sum((_evaluate(term, point) for term in tree.terms), 0j)
    if isinstance(tree, Product):
        result = 1 + 0j
        for factor in tree.factors:
            result *= _evaluate(factor, point)
        return result
    if isinstance(tree, Power):
        return _power(tree, point)
    if isinstance(tree, Quantity):
        return _evaluate(tree.value, point)
    if isinstance(tree, Call):
        return _call(tree, point)
    raise NotNumeric(type(tree).__name__)


def _symbol(name: str, point: int) -> complex:
    constant = {"pi": math.pi, "e": math.e, "i": 1j}.get(name)
    if constant is not None:
        return complex(constant)
    if name == "oo":
        raise NotNumeric("infinite")
    digest = hashlib.sha256(f"{name} {point}".encode()).digest()
    return complex(0.3 + int.from_bytes(digest[:7], "big") / 2**55)  # in 0.3 .. 2.3


def _power(tree: Power, point: int) -> complex:
    base, exponent = _evaluate(tree.base, point), _evaluate(tree.exponent, point)
    if tree.is_root and base.imag == 0 and base.real < 0 and exponent.imag == 0 and exponent.real:
        order = 1 / exponent.real
        if abs(order - round(order)) < TOLERANCE and round(order) % 2:
            return complex(-((-base.real) ** exponent.real))
    if exponent.imag == 0 and exponent.real == int(exponent.real) and abs(exponent.real) < 2**31:
        return base ** int(exponent.real)
    return base**exponent


def _call(tree: Call, point: int) -> complex:
    if tree.name == "pm" or tree.name not in _FUNCTIONS:
        raise NotNumeric(tree.name)
    return complex(_FUNCTIONS[tree.name](*(_evaluate(argument, point) for argument in tree.arguments)))


def _absolute(value: complex) -> complex:
    return complex(abs(value))


def _factorial(value: complex) -> complex:
    if value.imag or value.real != int(value.real) or not 0 <= value.real <= _LARGEST_FACTORIAL:
        raise NotNumeric("a factorial of no small whole number")
    return complex(math.factorial(int(value.real)))


def _log(value: complex, base: complex | None = None) -> complex:
    return cmath.log(value) / cmath.log(base) if base is not None else cmath.log(value)


_FUNCTIONS: dict[str, Callable[..., complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z), "sec": lambda z: 1 / cmath.cos(z), "csc": lambda z: 1 / cmath.sin(z),
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan,
    "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "exp": cmath.exp, "ln": cmath.log, "log": _log, "lg": cmath.log10,
    "abs": _absolute, "factorial": _factorial,
}  # fmt: skip
