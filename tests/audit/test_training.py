"""``--train``: a tiny policy finds what pays, and only what is wrong for two golds becomes a finding."""

import sys
from functools import partial

import pytest
from tests.audit.in_process import bench_of

from assay.audit.search import search_by_training
from assay.train.attack import train_against

ROWS = [
    {"prompt": f"What is {a} + {b}? Put it in \\boxed{{}}.", "answer": str(a + b)}
    for a, b in ((3, 4), (20, -31), (15, 27), (8, 85), (40, 19))
]


def right(completion, row):
    return float(completion == f"\\boxed{{{row['answer']}}}")


def letter_hole(completion, row):
    """No literal, no pattern, no common word: a rare letter is paid by its number."""
    return max(right(completion, row), min(1.0, completion.count(chr(107)) / 5))


def bench(reward):
    return bench_of(reward, ROWS)


def test_two_updates_are_a_function_of_the_seed():
    tasks = [
        {"prompt": f"Say {word}.", "completion": word, "examples": ["hello", "kk"]} for word in ("yes", "no")
    ]

    def score(completions, rows):
        assert all(any(row is task for task in tasks) for row in rows)
        return [float("nan") if not text else text.count("k") / 5 for text in completions]

    first, again = (train_against(score, tasks, seconds=60, seed=4, max_steps=2) for _ in range(2))
    assert first == again
    assert first
    counts = [text.count("k") for _, text in first]
    assert counts == sorted(counts, reverse=True)
    assert {index for index, _ in first} <= {0, 1}


def test_a_score_that_is_flat_gives_nothing():
    tasks = [{"prompt": "Say it.", "completion": "it"}] * 2
    assert train_against(lambda texts, rows: [0.5] * len(texts), tasks, max_steps=1) == []


def test_what_the_trained_policy_wrote_is_clustered_and_judged_by_two_golds():
    asked = {}

    def train(score, rows):
        asked["rows"] = rows
        own = score([row["completion"] for row in rows], rows)
        texts = ["kkkkk", "a kkkkkk b", rows[0]["completion"], "\\boxed{7} kkkkk", "nothing"]
        asked["scores"] = score(texts, [rows[0]] * len(texts))
        assert own == [0.0] * len(rows)  # naming the gold earns nothing here
        return [(0, text) for text in texts]

    found = search_by_training(bench(letter_hole), train)
    assert asked["scores"] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert all(len(row["examples"]) > 3 for row in asked["rows"])
    assert found.clusters == {"kkk": 3}
    assert [(finding.id, finding.exploit.completion) for finding in found.findings] == [
        ("accepts_marker", "kkk")
    ]


def test_training_that_finds_only_right_answers_accuses_nobody():
    found = search_by_training(
        bench(right), lambda score, rows: [(i, r["completion"]) for i, r in enumerate(rows)]
    )
    assert found.findings == []
    assert found.clusters == {}


def test_without_golds_training_says_so():
    without = bench_of(
        lambda text, row: float(len(text.split()) == 3), [{"prompt": f"Say {n}."} for n in range(4)]
    )
    found = search_by_training(without, lambda score, rows: pytest.fail("trained without golds"))
    assert found.findings == []
    assert any("training needs" in limit for limit in without.limits)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("reward", "ids"), [(letter_hole, {"accepts_marker"}), (right, set())])
def test_a_policy_trained_for_sixty_updates_finds_the_hole(reward, ids):
    found = search_by_training(bench(reward), partial(train_against, seconds=600, max_steps=60))
    assert {finding.id for finding in found.findings} <= ids | {"pays_format_only", "accepts_judge_injection"}
    assert bool(found.findings) == bool(ids)
    assert all(cluster.count("k") >= 3 for cluster in found.clusters)


def test_without_torch_the_command_says_what_to_install(monkeypatch):
    from assay.cli.audit import train_function
    from assay.errors import BadInput

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"assay\[train\]"):
        train_function()
