"""Is what came back equal to what was expected? Plain data, compared here, with types.

The defaults are strict: True is not 1, 1 is not 1.0, a tuple is not a list, floats are equal or not. Every
relaxation is an explicit field of :class:`Comparison`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.rewards.code.plain import DictOf, NotPlain, SetOf, canonical


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an expected and a returned value are compared.

    Attributes:
        rel_tol, abs_tol: floats are equal within these (``math.isclose``); 0 means exactly. Inside sets and
            as keys of dictionaries floats are always exact.
        nan_equal: NaN equals NaN.
        int_is_float: 2 and 2.0 are compared by value (a bool never equals a number).
        tuple_is_list: tuples and lists are compared item by item, whichever they are (data files know
            lists only).
    """

    rel_tol: float = 0.0
    abs_tol: float = 0.0
    nan_equal: bool = True
    int_is_float: bool = False
    tuple_is_list: bool = False


EXACT = Comparison()


def same(expected: Any, got: Any, rule: Comparison = EXACT) -> bool:
    """Whether a received value (``plain.decode``) equals the expected one (plain Python).

    Raises:
        NotPlain: ``expected`` is not plain data.
    """
    kind = type(expected)
    if expected is None or kind in (bool, str, bytes):
        return type(got) is kind and got == expected
    if kind in (int, float, complex):
        return _same_number(expected, got, rule)
    if kind in (list, tuple):
        kinds = (list, tuple) if rule.tuple_is_list else (kind,)
        if type(got) not in kinds or len(got) != len(expected):
            return False
        return all(same(left, right, rule) for left, right in zip(expected, got, strict=True))
    if kind in (set, frozenset):
        return _same_set(expected, got, kind is frozenset)
    if kind is dict:
        return isinstance(got, DictOf) and _same_dict(expected, got, rule)
    raise NotPlain(f"{kind.__name__} is not plain data")


def _same_number(expected: complex, got: Any, rule: Comparison) -> bool:
    kinds = {type(expected), type(got)}
    relaxed = rule.int_is_float and kinds == {int, float}
    if len(kinds) != 1 and not relaxed:
        return False
    if isinstance(expected, complex):
        return _same_number(expected.real, got.real, rule) and _same_number(expected.imag, got.imag, rule)
    if kinds == {int}:
        return bool(expected == got)
    is_nan = [value != value for value in (expected, got)]  # math.isnan fails on integers beyond floats
    if any(is_nan):
        return rule.nan_equal and all(is_nan)
    # comparing first keeps integers beyond the range of floats exact
    if expected == got or not (rule.rel_tol or rule.abs_tol):
        return bool(expected == got)
    try:
        return math.isclose(expected, got, rel_tol=rule.rel_tol, abs_tol=rule.abs_tol)
    except OverflowError:
        return False


def _same_set(expected: Any, got: Any, frozen: bool) -> bool:
    if not isinstance(got, SetOf) or got.frozen is not frozen or len(got.items) != len(expected):
        return False
    return {canonical(item) for item in expected} == {canonical(item) for item in got.items}


def _same_dict(expected: dict[Any, Any], got: DictOf, rule: Comparison) -> bool:
    if len(got.pairs) != len(expected):
        return False
    received = {canonical(key): value for key, value in got.pairs}
    for key, value in expected.items():
        spelt = canonical(key)
        if spelt not in received or not same(value, received[spelt], rule):
            return False
    return True
