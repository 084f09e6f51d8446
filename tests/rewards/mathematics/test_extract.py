"""One extractor: the last complete box outside the thinking, then tags, ####, phrases, the last line."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.rewards.mathematics.extract import boxes, extract_answer, without_thinking

LONG = " + ".join(["1"] * 200)


@pytest.mark.parametrize(
    ("text", "answer", "source"),
    [
        (r"first \boxed{7}, no: \boxed{8}.", "8", "box"),
        (r"one of \boxed{1}, \boxed{2}, \boxed{3}", "3", "box"),
        (r"\boxed{\frac{\sqrt{5}}{3}}", r"\frac{\sqrt{5}}{3}", "box"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", "box"),
        (r"\boxed{\text{a } b}", r"\text{a } b", "box"),
        (r"\fbox{11}", "11", "box"),
        (r"\boxed  {11}", "11", "box"),
        (r"\boxed{}", "", "box"),
        (r"good \boxed{5} cut \boxed{6", "5", "box"),
        (r"\boxed{\boxed{4}}", "4", "box"),
        (r"\boxed{\\boxed{4}}", "4", "box"),
        (r"We get \(x \( y\) or \(7\)", "7", "line"),
        (rf"\boxed{{{LONG}}}", LONG, "box"),
        (r"<think>\boxed{1}</think> So \boxed{2}", "2", "box"),
        (r"so it starts \boxed{1}</think> So \boxed{2}", "2", "box"),
        (r"<answer>12</answer>", "12", "tag"),
        (r"<answer>3</answer> no <answer> 4 </answer>", "4", "tag"),
        (r"<Answer>\boxed{6}</Answer>", "6", "box"),
        ("12 * 5 = 60\n#### 60", "60", "hash"),
        ("#### 1\nwait\n#### 2", "2", "hash"),
        ("#### 60\n" + "This is checked. " * 60, "60", "hash"),
        ("  ####   -3.5  ", "-3.5", "hash"),
        (r"#### \boxed{9}", "9", "box"),
        ("The answer is 12.", "12", "phrase"),
        ("The answer is $\\frac{1}{2}$ because of symmetry", r"\frac{1}{2}", "phrase"),
        ("**Answer:** 3", "3", "phrase"),
        ("Final answer: x = 4. Done.", "x = 4", "phrase"),
        ("Final Answer: The final answer is $7/3$. I hope it is correct.", "7/3", "phrase"),
        ("Final Answer: The largest $n$ is 61.", "61", "phrase"),
        ("Answer: the area of $ABC$ is $12$ percent", r"12\%", "phrase"),
        ("It fell by $12$ %", r"12\%", "line"),
        (r"escaped twice: \\boxed{\\frac{1}{2}}", r"\\frac{1}{2}", "box"),
        ("Let me think.\n42", "42", "line"),
        ("We conclude that $x$ is $5$.", "5", "line"),
        ("So\n\\[\n x = 3 \n\\]", "\\[\n x = 3 \n\\]", "line"),
    ],
)  # fmt: skip
def test_where_the_answer_stands(text, answer, source):
    found = extract_answer(text)
    assert found is not None
    assert (found.text, found.source) == (answer, source)


@pytest.mark.parametrize("text", ["", "   \n ", r"<think>\boxed{3}", "<think>a</think>", "x" * 500])
def test_no_answer(text):
    assert extract_answer(text) is None


def test_first_is_a_policy_that_must_be_asked_for():
    text = r"\boxed{7} then \boxed{8}"
    first = extract_answer(text, which="first")
    assert first is not None
    assert first.text == "7"


def test_the_last_number_is_off_by_default_because_counting_games_it():
    text = "I count 1 2 3 4 5 6 7 8 and stop at about 9 or so"
    found = extract_answer(text)
    assert found is None or found.source == "line"
    number = extract_answer(text, last_number=True)
    assert number is not None
    assert (number.text, number.source) == ("9", "number")
    money = extract_answer("it costs $1,234.50 in all", last_number=True)
    assert money is not None
    assert money.text == "$1,234.50"


def test_nested_thinking_counts_levels():
    assert without_thinking("a<think>b<think>c</think>d</think>e") == "ae"
    assert without_thinking("no tags") == "no tags"
    assert without_thinking("a<think>b</think>c</think>d") == "d"


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 30_000, "{" * 100_000, "<think>" * 30_000, "<answer>" * 30_000, "#### \n" * 30_000,
     "answer is " * 20_000, "\\boxed{1}" * 30_000, "1," * 100_000, " " * 200_000, "\\" * 100_000,
     "\\(" * 100_000, "$" * 100_001, "answer: \\(" + "\\(" * 50_000,
     "\\boxed{1}" + "and " * 200 + "x\\boxed{2}", "\\boxed{1}" + "\\text{  or  }  " * 200 + "x\\boxed{2}"],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_time_is_linear_in_hostile_text(text):
    started = time.process_time()
    extract_answer(text)
    extract_answer(text, last_number=True, several=True)
    assert time.process_time() - started < 3


@given(st.text(alphabet="\\boxed{}<think>/answer# 12\n", max_size=200))
def test_it_never_fails_and_a_box_added_at_the_end_wins(text):
    extract_answer(text)
    closed = text.replace("{", "").replace("}", "").replace("<", "").replace("\\", "")
    found = extract_answer(closed + r" \boxed{97}")
    assert found is not None
    assert found.text == "97"
    assert list(boxes(closed + r" \boxed{97}"))[-1] == "97"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1} and \boxed{2}", "1, 2"),
        (r"first \boxed{9}. So $\boxed{1}$, $\boxed{2}$ or \[\boxed{3}\]", "1, 2, 3"),
        (r"\boxed{-2} \quad \text{and} \quad \boxed{1}.", "-2, 1"),
        (r"\boxed{5} is wrong, \boxed{6}", "6"),
        (r"no box, the answer is 3", "3"),
    ],
)
def test_neighbouring_boxes_are_one_answer_on_request(text, answer):
    found = extract_answer(text, several=True)
    assert found is not None
    assert found.text == answer
