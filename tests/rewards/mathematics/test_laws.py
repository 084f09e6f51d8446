"""Laws over generated pairs: equal by construction, unequal by construction, symmetric, never failing."""

import os
import random
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.rewards.mathematics import symbolic
from assay.rewards.mathematics.equality import check
from assay.rewards.mathematics.normalise import normalise
from assay.rewards.mathematics.reading import read
from assay.rewards.mathematics.reward import math_reward

rationals = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=999)
decimals = st.decimals(min_value=-99_999, max_value=99_999, places=3, allow_nan=False, allow_infinity=False)
small = st.integers(min_value=-30, max_value=30)
primes = st.sampled_from([2, 3, 5, 7, 11, 13])


def fraction_forms(value, multiple):
    """Ways to write one rational."""
    n, d = value.numerator, value.denominator
    sign, n = ("-", -n) if n < 0 else ("", n)
    return [
        f"{sign}{n}/{d}", rf"{sign}\frac{{{n}}}{{{d}}}", rf"{sign}\dfrac{{{n * multiple}}}{{{d * multiple}}}",
        rf"\frac{{{sign}{n}}}{{{d}}}", rf"${sign}\frac{{{n}}}{{{d}}}$", f"({sign}{n})/{d}", f"x = {sign}{n}/{d}",
        rf"{sign}\tfrac {{{n}}}{{{d}}}.", f"{sign}{n}*1/{d}", f"{sign}({n}/{d})",
    ]  # fmt: skip


@given(rationals, st.integers(min_value=2, max_value=50), st.randoms(use_true_random=False))
def test_one_rational_in_two_forms_is_equal(value, multiple, rng):
    left, right = rng.sample(fraction_forms(value, multiple), 2)
    assert check(left, right).is_equal
    assert check(right, left).is_equal


@given(rationals, rationals, st.randoms(use_true_random=False))
def test_two_rationals_are_different_in_every_form(one, other, rng):
    assume(one != other)
    left, right = rng.choice(fraction_forms(one, 3)), rng.choice(fraction_forms(other, 2))
    assert not check(left, right).is_equal
    assert not check(right, left).is_equal


@given(decimals)
def test_a_decimal_equals_its_fraction_its_grouping_and_its_percentage(value):
    exact = Fraction(value)
    grouped = f"{value:,.3f}"
    fraction = rf"\frac{{{exact.numerator}}}{{{exact.denominator}}}"
    percent = f"{value * 100:.1f}\\%"
    for form in (grouped, fraction, percent, f"{value:.5f}", grouped.replace(",", "{,}")):
        assert check(f"{value:f}", form).is_equal, form


@given(decimals, st.sampled_from([Fraction(1, 1000), Fraction(10), Fraction(-1), Fraction(1, 100)]))
def test_a_decimal_differs_from_its_neighbours(value, change):
    assume(value)
    exact = Fraction(value)
    other = exact + change if change == Fraction(1, 1000) else exact * change
    assert not check(f"{value:f}", f"{other.numerator}/{other.denominator}").is_equal


@given(small, small, primes, primes)
def test_roots_multiply_and_conjugates_differ(a, b, p, q):
    assume(a and b)
    left = rf"{a}\sqrt{{{p}}} \cdot \sqrt{{{q}}} + {abs(b)}"
    right = rf"{abs(b)} + {a}\sqrt{{{p * q}}}"
    assert check(left, right).is_equal
    if p != q:
        assert not check(left, rf"{abs(b)} - {a}\sqrt{{{p * q}}}").is_equal


@given(small, small, small)
def test_factored_and_expanded_polynomials_are_equal(a, b, c):
    assume(c)
    factored = f"{c}(x - {a})(x - {b})".replace("- -", "+ ")
    expanded = f"{c}x^2 + {-c * (a + b)}x + {c * a * b}".replace("+ -", "- ")
    assert check(factored, expanded).is_equal
    assert not check(factored, expanded + " + 1").is_equal


@given(small, small, small, st.integers(min_value=2, max_value=9))
def test_a_line_times_a_number_is_the_same_line(a, b, c, k):
    assume(a and b)
    line = f"{a}x + {b}y = {c}".replace("+ -", "- ")
    scaled = f"{a * k}x + {b * k}y - {c * k} = 0".replace("+ -", "- ").replace("- -", "+ ")
    assert check(line, scaled).is_equal
    assert not check(line, f"{a}x + {b}y = {c + 1}".replace("+ -", "- ")).is_equal


@given(st.lists(small, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_sets_are_unordered_and_tuples_are_not(items, rng):
    shuffled = items[:]
    rng.shuffle(shuffled)
    one, other = ", ".join(map(str, items)), ", ".join(map(str, shuffled))
    assert check(rf"\{{{one}\}}", rf"\{{{other}\}}").is_equal
    assert check(one, other).is_equal
    assert check(f"({one})", f"({other})").is_equal == (items == shuffled)
    assert not check(rf"\{{{one}\}}", rf"\{{{one}, 31\}}").is_equal


@given(small, small, st.sampled_from("(["), st.sampled_from(")]"))
def test_intervals_are_their_ends_and_their_brackets(a, b, left, right):
    assume(a != b)
    interval = f"{left}{a},{b}{right}"
    assert check(interval, rf"\left{left}{a} , {b}.0\right{right}").is_equal
    assert not check(interval, f"{'[' if left == '(' else '('}{a},{b}{right}").is_equal
    assert not check(interval, f"{left}{b},{a}{right}").is_equal


TEXT = st.text(alphabet="0123456789xyab+-*/^_(){}[]\\,.|!%$= fracsqtpi<>&", max_size=40)


@given(TEXT)
def test_cleaning_twice_is_cleaning_once(text):
    once = normalise(text)
    assert normalise(once) == once


@settings(max_examples=300)
@given(TEXT, TEXT)
def test_it_is_symmetric_and_never_fails(left, right):
    forward, backward = check(left, right), check(right, left)
    assert forward.is_equal == backward.is_equal
    reading = read(left)
    assert check(left, left).is_equal == (reading.problem is None)


def hostile_text(rng):
    """Random text of one of several kinds, some of it made to blow up."""
    pieces = [
        r"\frac{", "}", "{", "(", ")", "^", "^{", "_", r"\sqrt", r"\sqrt[", "]", "[", r"\{", r"\}", "10", "9",
        "999999999", "!", "x", "y", "+", "-", "*", "/", ",", r"\sum_{k=1}^{", r"\pi", r"\infty", r"\text{", "|",
        r"\begin{pmatrix}", r"\end{pmatrix}", "&", r"\\", "%", "$", "=", "<", r"\cup", r"\pm", "e", "i", ".", " ",
        r"\binom{", r"\log_", r"\sin", r"\left", r"\overline{3}", "0", "__import__('os')", "\x00", "é", "𝟙",
    ]  # fmt: skip
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 60)))
    if kind == 1:
        return "".join(chr(rng.randrange(1, 0x3000)) for _ in range(rng.randrange(1, 80)))
    if kind == 2:  # towers and long sums
        depth = rng.randrange(1, 30)
        return "^{".join(rng.choice(["9", "10", "x", "2", "e"]) for _ in range(depth)) + "}" * (depth - 1)
    return rng.choice(["+", "*", "^", "!", "-", ",", "/"]).join(str(rng.randrange(10**rng.randrange(1, 9)))
                                                                for _ in range(rng.randrange(1, 40)))  # fmt: skip


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def run_hostile(count, seed):
    rng = random.Random(seed)
    slowest = 0.0
    for _ in range(count):
        text, gold = hostile_text(rng), rng.choice(["3", r"\frac12", "x^2", "(1,2)", r"\sqrt{x}+\sin(x)"])
        started = time.process_time()
        score = math_reward(rf"so \boxed{{{text}}}", {"answer": gold, "prompt_id": "p"})
        check(text, gold)
        slowest = max(slowest, time.process_time() - started)
        assert score.state == "scored", (text, score)
    return slowest


def test_hostile_text_neither_hangs_nor_crashes():
    assert run_hostile(400, seed=0) < 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_hostile_texts_leave_no_process():
    before = len(children_of(os.getpid()))
    slowest = run_hostile(10_000, seed=1)
    symbolic._PROVER.close()
    assert slowest < 1.0
    assert len(children_of(os.getpid())) <= before
