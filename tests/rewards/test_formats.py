"""Format, JSON, length and repetition: structure without content is not paid."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.rewards.formats import JsonFormat, TagFormat
from assay.rewards.lengths import CosineLength, LengthWithin, OverlongPenalty, RepetitionPenalty

WORK = TagFormat(("work",), tail="required")
THINK = TagFormat(("think", "answer"))


@pytest.mark.parametrize(
    ("reward", "completion", "value"),
    [
        (WORK, "<work>6*7 = 42</work> The answer is 42.", 1.0),
        (WORK, "<work></work>q", 0.0),
        (WORK, "<work> \n </work> The answer is 0.", 0.0),
        (WORK, "<work>...</work> yes", 0.0),
        (WORK, "<work>x</work><work>y</work>z", 0.0),
        (WORK, "garbage <work>x</work> garbage", 0.0),
        (WORK, "<work>x</work>", 0.0),
        (WORK, "<work>x</work> ...", 0.0),
        (WORK, "</work>x<work> y", 0.0),
        (WORK, "", 0.0),
        (THINK, "<think>a</think>\n<answer>b</answer>\n", 1.0),
        (THINK, "<answer>b</answer><think>a</think>", 0.0),
        (THINK, "<think>a<answer>b</answer></think>", 0.0),
        (THINK, "<think>a</think> so <answer>b</answer>", 0.0),
        (THINK, "<think>a</think><answer>b</answer> and more", 0.0),
        (TagFormat(tail="allowed"), "<think>a</think><answer>b</answer> and more", 1.0),
        (THINK, "<think>a</think><answer></answer>", 0.0),
        (THINK, "<think>a<think>b</think></think><answer>c</answer>", 0.0),
    ],
)  # fmt: skip
def test_tags(reward, completion, value):
    score = reward(completion, {})
    assert score.value == value
    assert (score.reason is None) == (value == 1.0)


def test_a_tag_that_the_template_wrote_counts_as_written():
    reward = TagFormat(("think",), tail="required")
    task = {"prompt": "<user>3+4?<assistant><think>\n"}
    completions = [
        "Add.\n</think>\n7",
        "So.\n</think>\n8",
        "never closed 7",
        "<think>x</think>7",
        "</think>7",
    ]
    assert [reward(c, task).value for c in completions] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert reward("Add.\n</think>\n7", {"prompt": "<user>3+4?"}).value == 0.0


def test_tag_names_are_checked():
    for tags in ((), ("a b",), ("<think>",)):
        with pytest.raises(BadInput, match="tag names"):
            TagFormat(tags)


@given(st.text(alphabet="<>/think answer x\n", max_size=120))
def test_a_paid_text_has_one_block_of_each_with_content(text):
    if THINK(text, {}).value == 1.0:
        assert text.strip().startswith("<think>")
        assert text.strip().endswith("</answer>")
        assert all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))


SCHEMA = (
    '{"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}, '
    '"additionalProperties": false}'
)


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ('{"x": 1}', 1.0), (' {"x": 1}\n', 1.0), ('```json\n{"x": 1}\n```', 1.0), ('```\n{"x": 1}\n```', 1.0),
        ('{"x": "1"}', 0.0), ('{"x": 1, "y": 2}', 0.0), ("{}", 0.0), ("[1]", 0.0), ('{"x": 1', 0.0), ("", 0.0),
        ('Here: {"x": 1}', 0.0), ('{"x": 1}{"x": 1}', 0.0), ('{"x": 1, "x": 2}', 0.0), ('{"x": NaN}', 0.0),
        ("[" * 100_000, 0.0), ('{"x": true}', 0.0), (" " * 1_000_001, 0.0),
    ],
)  # fmt: skip
def test_json(completion, value):
    score = JsonFormat(SCHEMA)(completion, {})
    assert score.value == value
    assert (score.reason is None) == (value == 1.0)


def test_json_without_a_schema_and_with_a_bad_one():
    assert JsonFormat()("[1, 2]", {}).value == 1.0
    assert JsonFormat()("NaN", {}).value == 0.0
    for schema in ("{", '{"type": "no such type"}'):
        with pytest.raises(BadInput, match="JSON Schema"):
            JsonFormat(schema)


def words(count):
    return " ".join(f"w{i}" for i in range(count))


def test_length_within():
    reward = LengthWithin(2, 4)
    assert [reward(words(n), {}) for n in range(7)] == [0, 0, 1, 1, 1, 0, 0]
    assert LengthWithin(1, 3, unit="characters")("abc", {}) == 1.0
    with pytest.raises(BadInput, match="low <= high"):
        LengthWithin(3, 2)


def test_overlong_is_a_straight_line_between_the_two_lengths():
    reward = OverlongPenalty(limit=20, buffer=10)
    lengths = [0, 10, 11, 15, 20, 21, 500]
    assert [reward(words(n), {}) for n in lengths] == pytest.approx([0, 0, -0.1, -0.5, -1, -1, -1])
    with pytest.raises(BadInput, match="buffer <= limit"):
        OverlongPenalty(limit=5, buffer=6)


def test_repetition_is_the_share_of_repeated_ngrams():
    assert RepetitionPenalty(3)(words(10), {}) == 0.0
    assert RepetitionPenalty(3)("a b", {}) == 0.0
    assert RepetitionPenalty(1)("a A a b", {}) == -0.5
    assert RepetitionPenalty(2, largest=2.0)("go " * 11, {}) == pytest.approx(-2 * 0.9)
    with pytest.raises(BadInput, match="n >= 1"):
        RepetitionPenalty(0)


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(min_value=1, max_value=4))
def test_repetition_stays_in_its_range_and_grows_with_a_copy(items, n):
    text = " ".join(items)
    once = RepetitionPenalty(n)(text, {})
    assert -1.0 < once <= 0.0
    if len(items) >= n:
        assert RepetitionPenalty(n)(f"{text} {text}", {}) < once or once == RepetitionPenalty(n)(
            f"{text} {text}", {}
        )


def is_right(completion, task):
    return float("right" in completion)


def test_cosine_length_pays_short_right_answers_and_long_wrong_ones():
    reward = CosineLength(is_right, limit=100)
    right = [reward("right " + words(n), {}) for n in (0, 49, 99)]
    wrong = [reward("wrong " + words(n), {}) for n in (0, 49, 99)]
    assert right == sorted(right, reverse=True)
    assert wrong == sorted(wrong)
    assert right[1] == pytest.approx(0.75)
    assert right[2] == pytest.approx(0.5)
    assert wrong[0] == pytest.approx(-0.5 - 0.25 * (1 + math.cos(math.pi / 100)))
    assert reward("right " + words(100), {}) == -1.0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TagFormat("think"), "different tag names"),
        (lambda: TagFormat(("a", "a")), "different tag names"),
        (lambda: TagFormat(tail="non"), "tail as one of none, required, allowed, got 'non'"),
        (lambda: JsonFormat({"type": "object"}), "json.dumps"),
        (lambda: JsonFormat('{"$ref": "#/$defs/x"}'), "does not exist"),
        (lambda: JsonFormat('{"items": [{"$ref": "https://nowhere.invalid/x.json"}]}'), "JSON Schema"),
        (lambda: LengthWithin(unit="word"), "unit as one of words, characters"),
        (lambda: OverlongPenalty(9, 3, unit="tokens"), "unit as one of"),
        (lambda: RepetitionPenalty(3, math.nan), "largest >= 0"),
        (lambda: CosineLength(JsonFormat(), 0), "at least 1"),
        (lambda: CosineLength(JsonFormat(), 9, unit="x"), "unit as one of"),
    ],
)
def test_options_are_checked_when_a_reward_is_made(make, said):
    with pytest.raises(BadInput) as caught:
        make()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_that_no_float_holds_is_none_and_a_deep_document_never_crashes_a_schema():
    nested = JsonFormat(
        '{"$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}}}, "$ref": "#/$defs/x"}'
    )
    assert JsonFormat()("1e999", {}).value == 0
    assert JsonFormat()("1e99", {}).value == 1
    assert nested("[[[]]]", {}).value == 1
    assert nested("[[[1]]]", {}).value == 0
    deep = nested("[" * 500 + "]" * 500, {})
    assert (deep.state, deep.value, deep.reason) == ("scored", 0.0, "nested too deeply")


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref": "https://json-schema.org/draft/2020-12/schema"}',
        '{"$id": "https://a.example/b", "$defs": {"x": {"$anchor": "here"}}, "items": {"$ref": "#here"}}',
        '{"$defs": {"x": {"$id": "https://a.example/x", "$ref": "#/$defs/y", "$defs": {"y": true}}}}',
        '{"const": {"$ref": "#/nothing"}}',
    ],
)
def test_references_that_a_schema_holds_are_found(schema):
    assert JsonFormat(schema)("{}", {}).state == "scored"
