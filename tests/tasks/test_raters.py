"""Raters: each habit by itself, symmetry, noise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.raters import Answer, Raters

RIGHT, WRONG = Answer("a", 1.0, 10.0), Answer("b", 0.0, 30.0)
SHORT, LONG = Answer("a", 1.0, 10.0), Answer("b", 1.0, 30.0)


def test_correctness_is_always_spotted_and_length_decides_the_rest():
    raters = Raters(longer_wins=0.75)
    assert raters.probability(RIGHT, WRONG) == 1.0
    assert raters.probability(WRONG, RIGHT) == 0.0
    assert raters.probability(LONG, SHORT) == pytest.approx(0.75)
    assert raters.probability(SHORT, SHORT) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("raters", "first", "second", "odds"),
    [
        (Raters(correctness=2.0), RIGHT, Answer("c", 0.0, 10.0), 2.0),
        (Raters(length=0.5, length_unit=10.0), LONG, SHORT, 1.0),
        (Raters(marker=1.5), Answer("m", 1.0, 10.0, marker=True), SHORT, 1.5),
        (Raters(agreement=0.7), Answer("y", 1.0, 10.0, agrees=True), SHORT, 0.7),
    ],
)
def test_each_habit_is_a_log_odds(raters, first, second, odds):
    chance = raters.probability(first, second)
    assert math.log(chance / (1 - chance)) == pytest.approx(odds)


def test_noise_turns_a_share_round():
    assert Raters(noise=0.1).probability(RIGHT, WRONG) == pytest.approx(0.9)


answers = st.builds(
    Answer, st.just("x"), st.floats(0, 1), st.floats(0, 200), marker=st.booleans(), agrees=st.booleans()
)


@given(answers, answers, st.floats(0, 0.4), st.floats(-3, 3), st.sampled_from([2.0, math.inf]))
def test_swapping_the_answers_turns_the_choice(first, second, noise, length, correctness):
    raters = Raters(correctness=correctness, noise=noise, length=length, marker=0.5, agreement=-0.5)
    assert raters.probability(first, second) + raters.probability(second, first) == pytest.approx(1.0)


def test_choices_depend_on_seed_and_key_alone_and_follow_the_chance():
    raters = Raters(longer_wins=0.75)
    drawn = [raters.prefers_first(LONG, SHORT, seed=1, key=str(i)) for i in range(2000)]
    assert drawn == [raters.prefers_first(LONG, SHORT, seed=1, key=str(i)) for i in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.75, abs=0.04)


def test_refusals():
    for bad in ({"noise": 0.5}, {"longer_wins": 1.0}, {"length_unit": 0.0}):
        with pytest.raises(BadInput):
            Raters(**bad)
