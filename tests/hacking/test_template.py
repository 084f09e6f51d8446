"""What counts as the same template."""

import math

import pytest

from assay.hacking.template import commonest_template, distinct_share, template


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1. P -> Q premise", "7. (A & !B) -> C premise"),
        ("1. P → Q ∧ ¬R premise", "2. A premise"),
        ("answer: 12.5", "answer: 3"),
        ("1  P\n", "1 Q"),
    ],
)
def test_texts_that_differ_in_numbers_and_formulas_share_a_template(left, right):
    assert template(left) == template(right)


@pytest.mark.parametrize(
    ("left", "right"), [("OK", "NO"), ("therefore P", "hence P"), ("1. P premise", "1. P assumption")]
)
def test_texts_that_differ_in_words_do_not(left, right):
    assert template(left) != template(right)


def test_words_are_not_read_as_atoms():
    assert template("OK The Answer") == "OK The Answer"


def test_commonest_template_and_distinct_share():
    groups = [["OK 1", "OK 2"], ["OK 3", "no"]]
    assert commonest_template(groups) == ("OK #", 0.75)
    assert distinct_share(groups) == 1.0
    assert distinct_share([["a", "a", "a", "a"]]) == 0.25
    assert math.isnan(distinct_share([]))


def test_a_flood_is_read_in_bounded_time():
    assert len(template("P -> (" * 100_000)) <= 4000
