r"""Exact arithmetic on trees: fractions of polynomials over the rationals, in variables, constants and roots.

Every ``p ** (1/q)`` of a positive rational is a product of powers of ``prime ** (1/L)``, with one L for the
whole comparison. Those roots of different primes are linearly independent over the rationals (Besicovitch
1940), i has i^2 = -1, and variables and pi are free: so a polynomial that does not reduce to 0 is not 0, and
the answer is exact both ways. What lies outside (functions, other powers) becomes an opaque generator, equal
to itself; then only "equal" is exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from assay.rewards.mathematics.tree import (
    MINUS_ONE,
    Call,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
    Symbol,
    Tree,
)

Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, int]
"""Integer coefficients by monomial; fractions only appear as a :class:`Ratio`."""

LARGEST_TERMS = 400
LARGEST_WORK = 20_000
"""Products of monomials in one comparison: about 50 ms."""
LARGEST_DEGREE = 40
LARGEST_BITS = 20_000
LARGEST_RADICAND = 10**10
LARGEST_ROOT_ORDER = 12
LARGEST_FACTORIAL = 400
_ROOT, _OPAQUE = "root ", "opaque "


class TooLarge(Exception):
    """The exact form would be too large; the caller falls back or gives up."""


class Undefined(Exception):
    """A division by zero, or a form such as infinity minus infinity."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A fraction of two polynomials; the lower one is not 0."""

    above: Polynomial
    below: Polynomial

    @property
    def is_zero(self) -> bool:
        """Whether the value is exactly 0."""
        return not self.above

    def rational(self) -> Fraction | None:
        """The value when it is a rational number."""
        if not self.above:
            return Fraction(0)
        if self.above.keys() == self.below.keys() == {()}:
            return Fraction(self.above[()], self.below[()])
        return None

    def generators(self) -> set[str]:
        """Names of the variables, constants, roots and opaque parts in it."""
        return {name for part in (self.above, self.below) for monomial in part for name, _ in monomial}

    @property
    def is_complete(self) -> bool:
        """Whether a form that is not 0 is a value that is not 0."""
        names = self.generators()
        return not any(name.startswith(_OPAQUE) or name == "oo" for name in names) and not (
            "e" in names and "pi" in names  # nobody knows whether these two are independent
        )


class Algebra:
    """Arithmetic with one common root order L (``root_order(left, right)``)."""

    def __init__(self, order: int) -> None:
        self._order = order
        self._budget = LARGEST_WORK

    def evaluate(self, tree: Tree) -> Ratio:
        """The canonical fraction of a tree.

        Raises:
            TooLarge: more than the limits of this module.
            Undefined: a division by exactly 0.
        """
        if isinstance(tree, Number):
            _check_size(tree.value)
            return _constant(tree.value)
        if isinstance(tree, Symbol):
            return _generator(tree.name)
        if isinstance(tree, Sum):
            return self._fold(tree.terms, self.add)
        if isinstance(tree, Product):
            return self._fold(tree.factors, self.multiply)
        if isinstance(tree, Power):
            return self._power(tree)
        if isinstance(tree, Quantity):
            return self.evaluate(tree.value)
        if isinstance(tree, Call):
            return self._call(tree)
        return _opaque(repr(tree))

    def _fold(self, trees: tuple[Tree, ...], combine: Callable[[Ratio, Ratio], Ratio]) -> Ratio:
        result = self.evaluate(trees[0])
        for tree in trees[1:]:
            result = combine(result, self.evaluate(tree))
        return result

    def add(self, left: Ratio, right: Ratio) -> Ratio:
        """Their sum."""
        if left.below == right.below:
            return Ratio(_plus(left.above, right.above), left.below)
        above = _plus(self._times(left.above, right.below), self._times(right.above, left.below))
        return Ratio(above, self._times(left.below, right.below))

    def multiply(self, left: Ratio, right: Ratio) -> Ratio:
        """Their product."""
        return Ratio(self._times(left.above, right.above), self._times(left.below, right.below))

    def invert(self, value: Ratio) -> Ratio:
        """``1 / value``."""
        if value.is_zero:
            raise Undefined("a division by zero")
        return Ratio(value.below, value.above)

    def difference(self, left: Ratio, right: Ratio) -> Ratio:
        """``left - right``."""
        return self.add(left, self.multiply(right, _whole(-1)))

    def proportional(self, left: Polynomial, right: Polynomial) -> Fraction | None:
        """The rational c with ``left == c * right``; None when there is none."""
        if not left or left.keys() != right.keys():
            return None
        first = next(iter(left))
        if any(value * right[first] != right[monomial] * left[first] for monomial, value in left.items()):
            return None
        return Fraction(left[first], right[first])

    def _times(self, left: Polynomial, right: Polynomial) -> Polynomial:
        for one, other in ((left, right), (right, left)):
            if one.keys() == _UNIT.keys():
                return _scaled(other, one[()])
        self._budget -= len(left) * len(right)
        if self._budget < 0:
            raise TooLarge("too much work")
        result: Polynomial = {}
        for a, x in left.items():
            for b, y in right.items():
                monomial, factor = self._join(a, b)
                total = result.get(monomial, 0) + x * y * factor
                if total:
                    result[monomial] = total
                else:
                    result.pop(monomial, None)
        if len(result) > LARGEST_TERMS:
            raise TooLarge("too many terms")
        return result

    def _join(self, left: Monomial, right: Monomial) -> tuple[Monomial, int]:
        if not left or not right:
            return left or right, 1
        powers = dict(left)
        factor = 1
        for name, exponent in right:
            powers[name] = powers.get(name, 0) + exponent
        for name in [name for name in powers if name == "i" or name.startswith(_ROOT)]:
            factor *= self._reduce(powers, name)
        if sum(powers.values()) > LARGEST_DEGREE * self._order:
            raise TooLarge("too high a degree")
        return tuple(sorted((n, e) for n, e in powers.items() if e)), factor

    def _reduce(self, powers: dict[str, int], name: str) -> int:
        if name == "i":
            turns, powers[name] = divmod(powers[name], 2)
            return -1 if turns % 2 else 1
        whole, powers[name] = divmod(powers[name], self._order)
        return int(name.removeprefix(_ROOT)) ** whole

    def _power(self, tree: Power) -> Ratio:
        base = self.evaluate(tree.base)
        written = self.evaluate(tree.exponent)
        exponent = written.rational()
        if exponent is None:
            return self._opaque_power(base, written)
        if exponent.denominator == 1:
            return self._whole_power(base, int(exponent))
        value = base.rational()
        if value is None or self._order % exponent.denominator:
            return self._opaque_power(base, _constant(exponent))
        if value == 0:
            if exponent < 0:
                raise Undefined("a division by zero")
            return _whole(0)
        return self._root(value, exponent, tree)

    def _opaque_power(self, base: Ratio, exponent: Ratio) -> Ratio:
        return _opaque(f"({_canonical(base)})^({_canonical(exponent)})")

    def _root(self, value: Fraction, exponent: Fraction, tree: Power) -> Ratio:
        sign = _whole(1)
        if value < 0:
            if exponent.denominator == 2:
                sign = self._whole_power(_generator("i"), exponent.numerator)
            elif tree.is_root and exponent.denominator % 2:
                sign = _whole(-1 if exponent.numerator % 2 else 1)
            else:
                return _opaque(repr(tree))
        above, below = _factors(abs(value.numerator)), _factors(value.denominator)
        result = sign
        for prime, count in {**above, **{p: -c for p, c in below.items()}}.items():
            root = _generator(f"{_ROOT}{prime}")
            result = self.multiply(result, self._whole_power(root, int(count * exponent * self._order)))
        return result

    def _whole_power(self, base: Ratio, exponent: int) -> Ratio:
        value = base.rational()
        if value is not None:
            if exponent < 0 and not value:
                raise Undefined("a division by zero")
            if abs(exponent) * _bits(value) > LARGEST_BITS:
                raise TooLarge("too large a power")
            return _constant(value**exponent) if exponent or value else _undefined("0^0")
        if exponent < 0:
            return self._whole_power(self.invert(base), -exponent)
        if exponent > LARGEST_DEGREE * self._order:
            raise TooLarge("too high a degree")
        result = _whole(1)
        while exponent:
            if exponent % 2:
                result = self.multiply(result, base)
            exponent //= 2
            base = self.multiply(base, base) if exponent else base
        return result

    def _call(self, tree: Call) -> Ratio:
        values = [self.evaluate(argument) for argument in tree.arguments]
        numbers = [value.rational() for value in values]
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers):
            exact = _exact_call(tree.name, known)
            if exact is not None:
                return _constant(exact)
        inner = ", ".join(_canonical(value) for value in values)
        return _opaque(f"{tree.name}({inner})")


def root_order(*trees: Tree) -> int:
    """The least common multiple of the root orders in the trees (1 without roots), within the limit."""
    order = 1
    stack: list[Tree] = list(trees)
    while stack:
        tree = stack.pop()
        stack.extend(children(tree))
        if isinstance(tree, Power):
            exponent = _plain_rational(tree.exponent)
            if exponent is not None:
                joined = math.lcm(order, exponent.denominator)
                order = joined if joined <= LARGEST_ROOT_ORDER else order
    return order


def children(tree: Tree) -> tuple[Tree, ...]:
    """The direct parts of an arithmetic node."""
    if isinstance(tree, Sum):
        return tree.terms
    if isinstance(tree, Product):
        return tree.factors
    if isinstance(tree, Power):
        return (tree.base, tree.exponent)
    if isinstance(tree, Call):
        return tree.arguments
    return (tree.value,) if isinstance(tree, Quantity) else ()


def _plain_rational(tree: Tree) -> Fraction | None:
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Power) and tree.exponent == MINUS_ONE and isinstance(tree.base, Number):
        return 1 / tree.base.value if tree.base.value else None
    try:
        return Algebra(1).evaluate(tree).rational()
    except (TooLarge, Undefined):
        return None


def _exact_call(name: str, values: list[Fraction]) -> Fraction | None:
    if name == "abs":
        return abs(values[0])
    whole = [int(value) for value in values if value.denominator == 1 and 0 <= value <= LARGEST_FACTORIAL]
    if len(whole) == len(values):
        if name == "factorial":
            return Fraction(math.factorial(whole[0]))
        if name == "binomial":
            return Fraction(math.comb(whole[0], whole[1]))
        if name in ("gcd", "lcm"):
            return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
    if name in ("max", "min"):
        return max(values) if name == "max" else min(values)
    return None


_UNIT: Polynomial = {(): 1}


def _constant(value: Fraction) -> Ratio:
    return Ratio({(): value.numerator} if value else {}, {(): value.denominator})


def _whole(value: int) -> Ratio:
    return Ratio({(): value} if value else {}, _UNIT)


def _generator(name: str) -> Ratio:
    return Ratio({((name, 1),): 1}, _UNIT)


def _scaled(polynomial: Polynomial, factor: int) -> Polynomial:
    if factor == 1 or not polynomial:
        return polynomial
    if factor.bit_length() + next(iter(polynomial.values())).bit_length() > LARGEST_BITS:
        raise TooLarge("too large a number")
    return {monomial: value * factor for monomial, value in polynomial.items()}


def _opaque(text: str) -> Ratio:
    return _generator(_OPAQUE + hashlib.sha256(text.encode()).hexdigest())  # one size, however deep


def _undefined(what: str) -> Ratio:
    raise Undefined(what)


def _canonical(value: Ratio) -> str:
    rational = value.rational()
    return (
        str(rational)
        if rational is not None
        else f"{sorted(value.above.items())}/{sorted(value.below.items())}"
    )


def _plus(left: Polynomial, right: Polynomial) -> Polynomial:
    result = dict(left)
    for monomial, value in right.items():
        total = result.get(monomial, 0) + value
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _check_size(value: Fraction) -> None:
    if _bits(value) > LARGEST_BITS:
        raise TooLarge("too large a number")


def _factors(number: int) -> dict[int, int]:
    if number > LARGEST_RADICAND:
        raise TooLarge("too large a radicand")
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found
