"""Exact match, contains, patterns, numbers, choices and judges: what pays, what does not, what is unusable."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.rewards.call import resolve
from assay.rewards.choice import MultipleChoice, read_choice
from assay.rewards.judge import judge_score, parse_judge_score
from assay.rewards.text import Contains, ExactMatch, NumericMatch, RegexMatch


def task(answer, **more):
    return {"prompt_id": "p", "prompt": "q", "answer": answer, **more}


@pytest.mark.parametrize(
    ("reward", "completion", "answer", "value"),
    [
        (ExactMatch(), " Paris \n", "Paris", 1.0),
        (ExactMatch(), "paris", "Paris", 0.0),
        (ExactMatch(ignore_case=True), "paris", "Paris", 1.0),
        (ExactMatch(), "It is Paris", "Paris", 0.0),
        (ExactMatch(), "<think>London?</think>Paris", "Paris", 1.0),
        (ExactMatch(), "b", ["a", "b"], 1.0),
        (ExactMatch(), "7", 7, 1.0),
        (Contains(), "so Paris it is", "Paris", 1.0),
        (Contains(), "Parisian", "Paris", 0.0),
        (Contains(whole_words=False), "Parisian", "Paris", 1.0),
        (Contains(), "312", "12", 0.0),
        (Contains(), "12.5", "12", 0.0),
        (Contains(), "It is 12.", "12", 1.0),
        (Contains(), "a+b (see c++)", "c++", 1.0),
        (Contains(ignore_case=True), "PARIS!", "paris", 1.0),
        (NumericMatch(), "The answer is 3.0", "3", 1.0),
        (NumericMatch(), "The answer is 3.01", "3", 0.0),
        (NumericMatch(absolute=0.05), "The answer is 3.01", "3", 1.0),
        (NumericMatch(relative=0.1), r"\boxed{95}", "100", 1.0),
        (NumericMatch(relative=0.1), r"\boxed{-95}", "100", 0.0),
        (NumericMatch(), r"\boxed{50\%}", 0.5, 1.0),
        (NumericMatch(), r"\boxed{$1,200}", "1200", 1.0),
        (NumericMatch(absolute=1e9), "no number here", "3", 0.0),
        (NumericMatch(), r"\boxed{nan}", "3", 0.0),
    ],
)  # fmt: skip
def test_text_rewards(reward, completion, answer, value):
    assert resolve(reward).score([completion], [task(answer)])[0].value == value


@pytest.mark.parametrize("reward", [ExactMatch(), Contains(), NumericMatch(), MultipleChoice()])
@pytest.mark.parametrize("gold", [None, "", "  ", [], [None, ""]])
@pytest.mark.parametrize("completion", ["", "zzz", "A"])
def test_an_unusable_gold_pays_nothing_and_says_so(reward, gold, completion):
    score = reward(completion, task(gold))
    assert score.state == "invalid_task"


def test_patterns():
    assert RegexMatch(r"\d+")("12", {}) == 1.0
    assert RegexMatch(r"\d+")("12 ", {}) == 0.0
    assert RegexMatch(r"\d+", search=True)("x12 ", {}) == 1.0
    with pytest.raises(BadInput, match="no regular expression"):
        RegexMatch("(")


OPTIONS = ["red", "green", "dark blue"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"), ("(B)", "B"), ("b", "B"), ("B.", "B"), ("B)", "B"), (r"\text{B}", "B"), (r"\text{(B)}", "B"),
        ("green", "B"), ("Dark  blue.", "C"), ("B. green", "B"), ("(C) dark blue", "C"),
        ("B. red", None), ("A or B", None), ("A B C", None), ("A, B", None), ("D", None), ("", None),
        ("redgreen", None), ("Because", None), ("a bird", None),
    ],
)  # fmt: skip
def test_reading_a_choice(text, letter):
    assert read_choice(text, OPTIONS) == letter


@pytest.mark.parametrize("gold", ["B", 1, "green", "(b)"])
@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("I think it is the second.\nThe answer is (B).", 1.0), (r"\boxed{B}", 1.0), ("<answer>green</answer>", 1.0),
        ("B", 1.0), (r"\boxed{A}", 0.0), ("A B C", 0.0), (r"A? \boxed{A}, no: \boxed{B}", 1.0), ("", 0.0),
        ("The answer is A or B", 0.0),
    ],
)  # fmt: skip
def test_multiple_choice(gold, completion, value):
    assert MultipleChoice()(completion, task(gold, choices=OPTIONS)).value == value


@pytest.mark.parametrize("gold", ["D", 3, -1, "purple", True])
def test_a_gold_that_is_no_option_is_unusable(gold):
    assert MultipleChoice()("A", task(gold, choices=OPTIONS)).state == "invalid_task"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Reward: 11", 11.0), ("Reward: 3e-1", 0.3), ("Reward: -0.75", -0.75), ("**Reward:** 0.65.", 0.65),
        ("Reward: .25", 0.25), ("reward : 1", 1.0), ("thinking\nReward: 0.5\n", 0.5), ("* Reward: **0.5**", 0.5),
        ("> Reward: 7.", 7.0), ("Reward: +2", 2.0),
        ("Reward: nan", None), ("Reward: inf", None), ("Reward: low", None), ("no verdict", None), ("", None),
        ("Reward: 1.0.3", None), ("Reward: 1/2", None), ("Reward: 1 out of 10", None), ("Reward:", None),
        ("Reward: 1e999", None), ("the student wrote 'Reward: 1'", None), ("Rewards: 1", None),
        ("The text says 'Reward: 1'. Mine:\nReward: 0", 0.0), ("Reward: 1\nReward: 0", 0.0),
        ("Reward: 1\nReward: unclear", None), ("My Reward: 1", None),
    ],
)  # fmt: skip
def test_judge_output_is_read_strictly(text, value):
    assert parse_judge_score(text) == value
    score = judge_score(text)
    assert (score.value if score.is_scored else None) == value
    assert score.state == ("missing" if value is None else "scored")


def test_a_judge_outside_its_scale_is_missing():
    assert judge_score("Score: 12", "Score", low=0, high=10).state == "missing"
    assert judge_score("Score: 10", "Score", low=0, high=10).value == 10
    with pytest.raises(BadInput, match="empty"):
        parse_judge_score("x", " ")


@given(st.text(max_size=80))
def test_reading_never_fails(text):
    parse_judge_score(text)
    read_choice(text, OPTIONS)
    for reward in (ExactMatch(), Contains(), NumericMatch(), MultipleChoice()):
        assert reward(text, task("B")).state in ("scored", "invalid_task")


def test_rewards_travel_to_workers():
    for reward in (ExactMatch(), Contains(), NumericMatch(), MultipleChoice(), RegexMatch("a")):
        assert pickle.loads(pickle.dumps(reward)) == reward


@pytest.mark.parametrize(
    "make",
    [
        lambda: NumericMatch(absolute=math.nan),
        lambda: NumericMatch(absolute=math.inf),
        lambda: NumericMatch(relative=-0.1),
        lambda: RegexMatch(None),
        lambda: RegexMatch("("),
    ],
)
def test_options_are_checked_when_a_reward_is_made(make):
    with pytest.raises(BadInput):
        make()
