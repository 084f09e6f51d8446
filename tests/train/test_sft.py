"""Supervised fine-tuning: only responses are trained on, every row once an epoch, refusals."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.models.tiny_policy import TinyPolicy
from assay.train.forward import TokenRows, supervised_loss
from assay.train.sft import (
    Example,
    SFTSettings,
    encode_examples,
    examples_of_row,
    fine_tune,
    read_examples,
    token_batches,
)

CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "sort 2 1"},
    {"role": "assistant", "content": "1 2."},
    {"role": "user", "content": "sort 9 8"},
    {"role": "assistant", "content": "8 9."},
]
EXAMPLES = [Example("sort 2 1\n", "1 2."), Example("sort 9 8 7\n", "7 8 9. well"), Example("sort 4\n", "4.")]


def new_policy():
    return TinyPolicy.create(
        [example.prompt + example.completion for example in EXAMPLES],
        vocab_size=300, hidden_size=16, layers=1, heads=2, intermediate_size=24, max_positions=64,
    )  # fmt: skip


def test_only_the_response_is_in_the_loss():
    """The loss is the mean over response tokens and the end token, computed here from the full logits."""
    policy = new_policy()
    rows = encode_examples(policy, EXAMPLES)
    picked = []
    for prompt, completion in zip(rows.prompt_ids, rows.completion_ids, strict=True):
        logp = torch.log_softmax(policy.module(torch.tensor([[*prompt, *completion]]))[0, :, :-1], -1)
        picked += [logp[len(prompt) - 1 + i, token] for i, token in enumerate(completion)]
        assert completion[-1] == policy.eos_id
    torch.testing.assert_close(
        supervised_loss(policy, rows), -torch.stack(picked).mean(), atol=1e-5, rtol=1e-5
    )


def test_a_chat_becomes_one_example_an_assistant_turn():
    first, second = examples_of_row({"messages": CHAT}, "row 1")
    assert first == Example("system: be brief\nuser: sort 2 1\n", "1 2.")
    assert second.completion == "8 9."
    assert second.prompt == "system: be brief\nuser: sort 2 1\n1 2.\nuser: sort 9 8\n"


def test_files_of_both_kinds(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": "a", "completion": "b"}, {"messages": CHAT}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_examples(path)) == 3


def test_it_learns_and_one_seed_gives_one_result():
    settings = SFTSettings(epochs=30, tokens=64, learning_rate=1e-2)
    losses, weights = [], []
    for _ in range(2):
        policy = new_policy()
        losses.append(fine_tune(policy, EXAMPLES, settings))
        weights.append(policy.module.head_weight_VH.detach().clone())
    assert losses[0] == losses[1]
    assert torch.equal(*weights)
    assert losses[0][-1] < 0.3 * losses[0][0]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(50, 200), st.integers(0, 5))
def test_batches_hold_every_row_once_within_the_budget(lengths, tokens, epoch):
    batches = token_batches(lengths, tokens=tokens, seed=0, epoch=epoch)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[row] for row in batch) <= tokens for batch in batches)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "expected 'prompt' and 'completion'"),
        ({"messages": CHAT[:2]}, "no message of an assistant"),
        ({"messages": "hello"}, "expected a list of messages"),
    ],
)
def test_rows_without_a_response_are_refused(row, message):
    with pytest.raises(BadInput, match=message):
        examples_of_row(row, "row 3")


def test_other_refusals(tmp_path):
    policy = new_policy()
    with pytest.raises(BadInput, match="positions"):
        encode_examples(policy, [Example("sort 1\n", "1 " * 200)])
    with pytest.raises(BadInput, match="got none"):
        fine_tune(policy, [], SFTSettings())
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\nnot json\n')
    with pytest.raises(BadInput, match="line 2"):
        read_examples(path)


def test_padding_and_order_do_not_matter():
    policy = new_policy()
    rows = encode_examples(policy, EXAMPLES)
    turned = TokenRows(rows.prompt_ids[::-1], rows.completion_ids[::-1])
    torch.testing.assert_close(supervised_loss(policy, rows), supervised_loss(policy, turned))
