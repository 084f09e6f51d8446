"""Weighted sums, gates and observers: every part logged, and no part without a score taken for a 0."""

import math
import pickle
import statistics

import pytest

from assay.errors import BadInput
from assay.records.score import invalid_task, missing, scored
from assay.rewards.composition import Gate, Part, WeightedSum
from assay.rewards.formats import TagFormat
from assay.rewards.mathematics.reward import math_reward
from assay.rewards.running import RewardRunner

TASK = {"prompt_id": "p", "prompt": "q", "answer": "42"}


def right(completion, task):
    return float("42" in completion)


def always(completion, task):
    return 1.0


def never_scored(completion, task):
    return None


def raises(completion, task):
    raise RuntimeError("broken")


def trl_length(completions, **kwargs):
    return [float(len(c)) for c in completions]


async def slow(completion, task):
    return 0.5


def by_table(column):
    return TableReward(column)


class TableReward:
    """Returns what the task's column holds for this reward."""

    def __init__(self, column):
        self.column = column

    def __call__(self, completion, task):
        return task[self.column]


def test_parts_are_weighted_and_logged():
    reward = WeightedSum(
        (Part("right", right, 1.0), Part("length", trl_length, -0.1), Part("slow", slow, 2.0))
    )
    score = reward("42", TASK)
    assert score.value == pytest.approx(1.0 - 0.2 + 1.0)
    assert score.parts == {"right": 1.0, "length": 2.0, "slow": 0.5}


def test_a_part_of_weight_zero_only_observes():
    reward = WeightedSum((Part("right", right), Part("watch", trl_length, 0.0), Part("bad", raises, 0.0)))
    score = reward("no", TASK)
    assert (score.state, score.value) == ("scored", 0.0)
    assert score.parts == {"right": 0.0, "watch": 2.0}
    assert "bad: crashed" in str(score.reason)
    assert "RuntimeError: broken" in str(score.reason)


def test_missing_parts_leave_the_sum_and_are_never_zero():
    """A group of four, one of which nobody scored: three totals, and their mean is over three."""
    rows = [
        {"math": 1.0, "code": None}, {"math": 0.0, "code": None}, {"math": None, "code": None},
        {"math": 1.0, "code": math.nan},
    ]  # fmt: skip
    reward = WeightedSum((Part("math", by_table("math")), Part("code", by_table("code"))))
    scores = [reward("x", {"prompt_id": "p", **row}) for row in rows]
    assert [s.value if s.is_scored else s.state for s in scores] == [1.0, 0.0, "missing", 1.0]
    known = [s.value for s in scores if s.is_scored]
    assert statistics.mean(known) == pytest.approx(2 / 3)
    assert statistics.stdev(known) == pytest.approx(0.57735, abs=1e-5)
    assert "code: crashed" in str(scores[3].reason)
    assert [s.parts.get("math") for s in scores] == [1.0, 0.0, None, 1.0]
    assert all("code" not in s.parts for s in scores)


def test_missing_parts_can_make_the_sample_missing():
    parts = (Part("a", always), Part("b", never_scored))
    assert WeightedSum(parts, when_missing="missing")("x", TASK).state == "missing"
    assert WeightedSum((Part("a", never_scored), Part("b", raises)))("x", TASK).state == "crashed"


def test_an_unusable_gold_makes_the_task_unusable():
    def unusable(completion, task):
        return invalid_task("no gold")

    score = WeightedSum((Part("a", always), Part("b", unusable)))("x", TASK)
    assert score.state == "invalid_task"
    assert "no gold" in str(score.reason)


def test_sums_are_checked():
    with pytest.raises(BadInput, match="not 0"):
        WeightedSum((Part("a", always, 0.0),))
    with pytest.raises(BadInput, match="different names"):
        WeightedSum((Part("a", always), Part("a", right)))


def test_format_counts_only_behind_a_right_answer():
    tags = TagFormat(("work",), tail="required")
    reward = WeightedSum((Part("right", math_reward, 1.0), Part("format", Gate(math_reward, tags), 0.2)))
    good = reward(r"<work>6*7</work> \boxed{42}", TASK)
    wrong = reward(r"<work>6*7</work> \boxed{41}", TASK)
    bare = reward(r"\boxed{42}", TASK)
    assert [good.value, wrong.value, bare.value] == pytest.approx([1.2, 0.0, 1.0])
    assert wrong.parts == {"right": 0.0, "format": 0.0, "format/condition": 0.0, "format/reward": 1.0}


def test_a_gate_without_a_score_has_none():
    assert Gate(never_scored, always)("x", TASK).state == "missing"
    assert Gate(raises, always)("x", TASK).state == "crashed"
    assert Gate(always, never_scored)("x", TASK).state == "missing"
    assert Gate(right, never_scored)("x", TASK).value == 0.0


def test_scores_of_parts_keep_their_reasons_apart():
    def zero(completion, task):
        return scored(0.0, "too long", {"words": 900.0})

    score = WeightedSum((Part("length", zero), Part("none", lambda completion, task: missing("slow"))))(
        "x", TASK
    )
    assert score.parts == {"length": 0.0, "length/words": 900.0}
    assert "none: missing (slow)" in str(score.reason)


def test_a_composed_reward_travels_to_a_worker():
    reward = WeightedSum((Part("right", right), Part("format", Gate(right, TagFormat(("work",))), 0.5)))
    assert pickle.loads(pickle.dumps(reward)) == reward
    with RewardRunner(reward) as runner:
        scores = runner.score(["42", "<work>42</work>"], [TASK] * 2)
    assert [score.value for score in scores] == [1.0, 1.5]
    assert scores[1].parts["format/reward"] == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Part("a", math_reward, math.nan),
        lambda: Part("a", math_reward, "2"),
        lambda: Part("a", 5),
        lambda: WeightedSum([math_reward]),
        lambda: WeightedSum([Part("a", math_reward)], when_missing="skp"),
        lambda: Gate(3, math_reward),
        lambda: Gate(math_reward, math_reward, math.nan),
    ],
)
def test_options_are_checked_when_a_reward_is_made(make):
    with pytest.raises(BadInput) as caught:
        make()
    assert "\n" not in str(caught.value)
