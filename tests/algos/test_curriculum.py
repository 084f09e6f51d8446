"""The curriculum: what it prefers, that it forgets nothing for good, that it is reproducible."""

import collections
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.algos.curriculum import Curriculum, difficulty_histogram, pass_rate
from assay.errors import BadInput

PROMPTS = ["easy", "hard", "edge", "new"]


def seen() -> dict[str, tuple[float, float]]:
    rewards = {"easy": [1.0] * 8, "hard": [0.0] * 8, "edge": [1.0, 0.0] * 4}
    ids = [prompt for prompt, values in rewards.items() for _ in values]
    return Curriculum().update({}, ids, [r for values in rewards.values() for r in values])


def test_weights_prefer_the_edge_and_the_unseen():
    assert Curriculum(floor=0.05).weights(seen(), PROMPTS) == [0.05, 0.05, 1.0, 1.0]
    quarter = {"p": (2.0, 8.0)}
    assert Curriculum().weights(quarter, ["p"]) == [0.75]
    assert Curriculum(low=0.3).weights(quarter, ["p"]) == [0.05]


def test_counts_are_discounted_and_missing_scores_left_out():
    curriculum = Curriculum(decay=0.5)
    state = curriculum.update({}, ["p", "p"], [1.0, math.nan])
    assert state == {"p": (1.0, 1.0)}
    state = curriculum.update(state, ["p", "p", "q"], [0.0, 0.4, 0.9])
    assert state == {"p": (0.5, 2.5), "q": (1.0, 1.0)}
    assert pass_rate(state, "p") == 0.2
    assert math.isnan(pass_rate(state, "never"))
    with pytest.raises(BadInput, match="a reward per prompt id"):
        curriculum.update({}, ["p"], [])


def test_choice_follows_the_weights():
    curriculum, counts = Curriculum(floor=0.1), collections.Counter[str]()
    for step in range(2000):
        counts.update(curriculum.choose(seen(), PROMPTS, 1, seed=0, step=step))
    shares = [counts[p] / 2000 for p in PROMPTS]
    assert shares == pytest.approx([0.1 / 2.2, 0.1 / 2.2, 1 / 2.2, 1 / 2.2], abs=0.03)


def test_state_survives_json_and_the_choice_depends_only_on_it():
    state = seen()
    again = json.loads(json.dumps(state))
    curriculum = Curriculum()
    chosen = curriculum.choose(state, PROMPTS, 3, seed=5, step=9)
    assert chosen == curriculum.choose(again, PROMPTS, 3, seed=5, step=9)
    assert curriculum.update(again, ["easy"], [0.0]) == curriculum.update(state, ["easy"], [0.0])
    assert any(curriculum.choose(state, PROMPTS, 3, seed=5, step=s) != chosen for s in range(10, 30))


def test_update_leaves_the_old_state_alone():
    state = {"p": (1.0, 2.0)}
    Curriculum().update(state, ["p"], [1.0])
    assert state == {"p": (1.0, 2.0)}


def test_histogram_keeps_never_and_always_apart():
    state = {"a": (0.0, 8.0), "b": (8.0, 8.0), "c": (0.4, 8.0), "d": (4.0, 8.0), "e": (7.9, 8.0)}
    found = difficulty_histogram(state, [*"abcde", "unseen"], bins=10)
    assert found.counts == [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1]
    assert len(found.edges) == len(found.counts) + 1
    assert found.unseen == 1


@pytest.mark.parametrize("bad", [{"decay": 0.0}, {"low": 0.9, "high": 0.1}, {"floor": 0.0}])
def test_bad_settings(bad: dict[str, float]):
    with pytest.raises(BadInput, match="expected decay and floor"):
        Curriculum(**bad)


@pytest.mark.parametrize("n", [0, 5])
def test_bad_number_of_prompts(n: int):
    with pytest.raises(BadInput, match="between 1 and 4 prompts"):
        Curriculum().choose({}, PROMPTS, n, seed=0, step=0)


@given(
    counts=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=9),
    n=st.integers(1, 9),
)
def test_laws(counts: list[tuple[int, int]], n: int):
    state = {str(i): (float(min(c)), float(max(c))) for i, c in enumerate(counts)}
    prompts = list(state)
    curriculum = Curriculum()
    assert all(curriculum.floor <= w <= 1 for w in curriculum.weights(state, prompts))
    chosen = curriculum.choose(state, prompts, min(n, len(prompts)), seed=1, step=2)
    assert len(set(chosen)) == len(chosen) == min(n, len(prompts))
    assert sum(difficulty_histogram(state, prompts).counts) + difficulty_histogram(
        state, prompts
    ).unseen == len(prompts)
