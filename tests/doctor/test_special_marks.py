"""Special tokens that a reward reads, called with the reward itself, on ids and on texts."""

import json

import pytest

from assay.doctor.diagnosis import diagnose

END, PAD, START = 1, 0, 2
VOCABULARY = {
    "0": ["<pad>", True], "1": ["<|end|>", True], "2": ["<s>", True], "3": ["42", False], "4": ["\n", False],
    "5": ["<|endoftext|>", True], "6": ["<FINIS>", True],
    "7": ["<ans>", True], "8": ["</ans>", True], "9": ["<note>", True], "10": ["</note>", True],
    "11": ["</turn>", True],
}  # fmt: skip
REWARD = """
import re

def reward(prompts, completions, **kw):
    return [1.0 if re.match(r"^<(ans|note)>.*</(ans|note)>$", c, re.S) else 0.0 for c in completions]

def number(prompts, completions, **kw):
    return [1.0 if "42" in c else 0.0 for c in completions]
"""


@pytest.fixture
def special(tmp_path):
    """The finding about special tokens for some rows, with a reward and a vocabulary."""

    def of(rows, name="reward", **config):
        (tmp_path / "r.py").write_text(REWARD)
        (tmp_path / "vocab.json").write_text(json.dumps(VOCABULARY))
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps({"id": n} | r) + "\n" for n, r in rows))
        run = tmp_path if config else tmp_path / "rollouts.jsonl"
        reward = name and f"{tmp_path / 'r.py'}:{name}"
        diagnosis = diagnose(run, reward=reward, tokenizer=tmp_path / "vocab.json")
        return next(found for found in diagnosis.findings if found.id == "decode.special_tokens")

    return lambda row, *more, count=4, **config: of([(n, row) for n in range(count)], *more, **config)


@pytest.mark.parametrize(
    "ids",
    [
        [7, 3, 8, END],
        [7, 3, 8, END, PAD, PAD],
        [7, 3, 8],
        [7, 3, 8, PAD],
        [7, 3, 8, END, 4, 5],
        [7, 3, 8, 6, PAD],
        [PAD, PAD, START, 7, 3, 8, END],
        [9, 3, 10, END, PAD],
    ],
)
def test_tags_are_not_taken_for_end_marks_nor_end_marks_for_tags(special, ids):
    found = special({"token_ids": ids})
    assert found.status == "fail"
    assert "paid with them and not without" in found.summary


def test_a_configured_end_token_is_one_whatever_its_name(special):
    row = {"step": 0, "token_ids": [7, 3, 8, 11]}
    assert special(row).status != "fail"
    assert special(row, eos_token_id=11).status == "fail"


@pytest.mark.parametrize("ids", [[7, 3, 8, END, PAD], [7, 3, 8], [3, END, PAD, PAD], [END], []])
def test_a_reward_that_reads_no_tags_is_not_accused(special, ids):
    assert special({"token_ids": ids}, "number").status != "fail"


@pytest.mark.parametrize("name", ["reward", None])
def test_lost_tags_are_named_with_the_reward_and_without(special, name):
    row = {"step": 0, "completion": "<ans>42</ans><|end|>", "reward_text": "42", "reward": 0.0}
    found = special(row, name, count=8)
    assert found.status == "fail"
    assert found.summary.startswith("tags of the completion are missing")


def test_end_marks_that_reach_the_reward_spoil_it(special):
    text = "<ans>42</ans><|end|>"
    found = special({"step": 0, "completion": text, "reward_text": text, "reward": 0.0}, count=8)
    assert found.status == "fail"
    assert found.summary.startswith("end marks spoil the score")
    row = {"step": 0, "completion": text, "reward_text": "<ans>42</ans>", "reward": 1.0}
    assert special(row, count=8).status == "pass"
