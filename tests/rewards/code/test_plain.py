"""Plain data survives the trip exactly; nothing else gets through; comparing is strict in types."""

import math
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.rewards.code.compare import EXACT, Comparison, same
from assay.rewards.code.plain import DictOf, NotPlain, SetOf, canonical, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=6)
    | st.binary(max_size=6)
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2), max_leaves=3
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=6,
)


@given(PLAIN)
def test_what_is_encoded_comes_back(value):
    back = decode(encode(value), hashed=True)
    assert type(back) is type(value)
    assert back == value


@given(PLAIN)
def test_a_value_is_the_same_as_itself_after_the_trip(value):
    assert same(value, decode(encode(value)))


@given(PLAIN, PLAIN)
def test_values_are_the_same_only_when_their_spelling_is(left, right):
    assert same(left, decode(encode(right))) == (canonical(left) == canonical(right)) or has_zero(left)


def has_zero(value):
    """0.0 and -0.0 are equal and spelt differently."""
    return "0.0" in repr(value) or "0j" in repr(value) or "-0" in repr(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data):
    try:
        value = decode(data)
    except NotPlain:
        return
    assert decode(encode(value)) is not None or value is None


@given(PLAIN, st.integers(0, 300), st.binary(max_size=3))
def test_damaged_records_are_a_value_or_refused(value, at, junk):
    data = encode(value)
    at %= len(data)
    with suppress(NotPlain):
        decode(data[:at] + junk + data[at + len(junk) :])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"i",
        b"ixyz;",
        b"l99999999:",
        b"l-1:",
        b"s5:abc",
        b"s1:\xff",
        b"q1:",
        b"NN",
        b"f;",
        b"f0x1p99999;",
        b"c1;",
        b"d1:N",
        b"l1:" * 5000 + b"N",
        b"l" + b"9" * 50 + b":",
    ],
)
def test_what_spells_nothing_is_refused(data):
    with pytest.raises(NotPlain):
        decode(data)


def test_items_that_cannot_be_hashed_are_refused_on_our_side():
    with pytest.raises(NotPlain):
        decode(b"e1:l0:", hashed=True)


def test_huge_integers_are_exact_and_fast():
    huge = 7**60_000  # far beyond the interpreter's limit for decimal digits
    assert same(huge, decode(encode(huge)))
    assert not same(huge + 1, decode(encode(huge)))


class Lying(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "value", [Lying(3), object(), lambda: 1, [Lying(1)], {1: Lying(1)}, bytearray(b"x"), range(3)]
)
def test_subclasses_and_objects_are_not_plain(value):
    with pytest.raises(NotPlain):
        encode(value)


def test_the_dictionaries_of_collections_travel_as_dictionaries():
    made = defaultdict(list, {"a": [1]})
    for value in (made, OrderedDict(a=[1])):
        assert same({"a": [1]}, decode(encode(value)))
    assert same({"x": 2}, decode(encode(Counter("xx"))))


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="deep"):
        encode(loop)


DIFFERENT = [
    (1, True),
    (True, 1),
    (0, False),
    (1, 1.0),
    (1.0, 1),
    ("1", 1),
    ("a", b"a"),
    ([1], (1,)),
    ((1,), [1]),
    ({1}, [1]),
    ({1}, frozenset({1})),
    (None, 0),
    (None, False),
    ({}, []),
    ({1: 2}, {True: 2}),
    ({1: 2}, {1: 2, 3: 4}),
    ({1}, {True}),
    ({1}, {1, 2}),
    ([1, 2], [2, 1]),
    (0.1 + 0.2, 0.3),
    (math.nan, 0.0),
    (1 + 0j, 1.0),
    ("é", "e\u0301"),
]


@pytest.mark.parametrize(("expected", "got"), DIFFERENT)
def test_different_values_and_types_are_different(expected, got):
    assert not same(expected, decode(encode(got)))


def test_nan_is_nan_unless_told_otherwise():
    got = decode(encode([math.nan, 1]))
    assert same([math.nan, 1], got)
    assert not same([math.nan, 1], got, Comparison(nan_equal=False))
    assert same(math.inf, decode(encode(math.inf)))
    assert not same(math.inf, decode(encode(-math.inf)))


def test_tolerances_are_explicit():
    got = decode(encode([0.1 + 0.2, {"a": 1e-12}, 1 + 1e-12j]))
    expected = [0.3, {"a": 0.0}, 1 + 0j]
    assert not same(expected, got)
    assert not same(expected, got, Comparison(rel_tol=1e-9))
    assert same(expected, got, Comparison(rel_tol=1e-9, abs_tol=1e-9))
    assert not same(1, decode(encode(2)), Comparison(abs_tol=5.0)), "integers are exact"
    assert not same(0.5, decode(encode(math.nan)), Comparison(abs_tol=5.0))
    assert not same(1.0, decode(encode(math.inf)), Comparison(abs_tol=5.0))


def test_integers_and_floats_by_value_only_when_asked():
    rule = Comparison(int_is_float=True)
    assert same(2.0, decode(encode(2)), rule)
    assert same(2, decode(encode(2.0)), rule)
    assert not same(1, decode(encode(True)), rule)
    assert not same(10**400, decode(encode(1e308)), Comparison(int_is_float=True, rel_tol=0.1))


def test_tuples_as_lists_only_when_asked():
    rule = Comparison(tuple_is_list=True)
    assert same([[1, 2], [3]], decode(encode([(1, 2), [3]])), rule)
    assert not same([1], decode(encode({1})), rule)


def test_a_set_with_duplicates_is_not_a_set():
    assert not same({1}, SetOf([1, 1], False))
    assert not same({1, 2}, SetOf([1, 1], False))
    assert not same({1: 2, 3: 4}, DictOf([(1, 2), (1, 2)]))
    assert not same({1: 2}, DictOf([(1, 2), (1, 3)]))


def test_an_expected_value_that_is_not_plain_is_an_error():
    with pytest.raises(NotPlain):
        same(object(), 1, EXACT)


def test_received_values_print_like_the_originals():
    value = {"a": {1}, "b": frozenset({2}), "c": [(1,)]}
    assert repr(decode(encode(value))) == "{'a': set(1), 'b': frozenset(2), 'c': [(1,)]}"
