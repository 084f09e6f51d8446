"""Scoring completions: a wide vocabulary is taken in chunks, with the values and gradients of the plain way."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assay.maths.chunked import CHUNK_BYTES
from assay.models.policy import Policy
from assay.models.tiny_policy import TinyPolicy
from assay.train import forward
from assay.train.forward import TokenRows, exact_token_kl, supervised_loss, token_scores

SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 24, "max_positions": 64}


def tiny(seed: int) -> TinyPolicy:
    return TinyPolicy.create(["sort 1 2\n", "12 34"], seed=seed, vocab_size=300, **SIZES)


class HeadOnly(Policy):
    """A policy that is its head: hidden states are rows of a table by token id."""

    pad_id = 0

    def __init__(self, vocabulary: int, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(8, size, generator=generator).requires_grad_()
        self.weight = torch.randn(vocabulary, size, generator=generator).requires_grad_()
        self.bias = torch.randn(vocabulary, generator=generator).requires_grad_()

    def completion_hidden(self, prompt_ids: Any, completion_ids: Any) -> Tensor:
        width = max(map(len, completion_ids))
        return torch.stack(
            [self.table[torch.arange(width) % 8] * (1 + 0.01 * i) for i in range(len(prompt_ids))]
        )

    def head(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias

    encode_prompt = encode_completion = decode = save = None  # pyright: ignore


ROWS = TokenRows([[5, 6], [7], [5, 6]], [[11, 12, 1], [13, 1], [14, 15, 16]])

FUNCTIONS = {
    "scores": lambda p, q: torch.stack([s[:, :2] for s in token_scores(p, ROWS, temperature=0.7)[:2]]),
    "supervised": lambda p, q: supervised_loss(p, ROWS),
    "smoothed": lambda p, q: supervised_loss(p, ROWS, label_smoothing=0.2),
    "exact KL": lambda p, q: exact_token_kl(p, q, ROWS, 0.7),
}


def value_and_gradients(name: str, policy: Policy, other: Policy, inputs: list[Tensor]):
    value = FUNCTIONS[name](policy, other)
    grads = torch.autograd.grad(value.square().sum(), inputs, allow_unused=True)
    return value.detach(), [torch.zeros(1) if g is None else g for g in grads]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["tiny", "with a bias"])
def test_chunks_have_the_values_and_gradients_of_the_plain_way(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    if kind == "tiny":
        policy, other = tiny(0), tiny(1)
        inputs = list(policy.module.parameters())
    else:
        policy, other = HeadOnly(40, 6, 0), HeadOnly(40, 6, 1)
        inputs = [policy.table, policy.weight, policy.bias]
    plain, plain_gradients = value_and_gradients(name, policy, other, inputs)
    monkeypatch.setattr(forward, "WIDE", 1)
    found, gradients = value_and_gradients(name, policy, other, inputs)
    torch.testing.assert_close(found, plain, atol=2e-6, rtol=2e-5)
    for one, two in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(one, two, atol=2e-5, rtol=2e-4)


def test_a_narrow_vocabulary_is_not_chunked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forward, "chunked_logprobs", None)
    monkeypatch.setattr(forward, "chunked_kl", None)
    for function in FUNCTIONS.values():
        function(tiny(0), tiny(1))


class Largest(TorchDispatchMode):
    """Remembers the most numbers that one result held."""

    most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, Tensor)]
        self.most = max([self.most, *sizes])
        return result


@pytest.mark.parametrize("what", ["log-probs", "exact KL", "supervised"])
def test_no_tensor_holds_all_logits_of_a_wide_vocabulary(what: str):
    policy, other = HeadOnly(20_000, 4, 0), HeadOnly(20_000, 4, 1)
    rows = TokenRows([[5]] * 4, [list(range(128))] * 4)  # 512 tokens x 20,000 logits are 41 MB, a block 17
    with Largest() as seen:
        if what == "log-probs":
            scores = token_scores(policy, rows)
            loss = scores.logp_BT.sum() + scores.entropy_BT.sum()
        elif what == "supervised":
            loss = supervised_loss(policy, rows, label_smoothing=0.1)
        else:
            loss = exact_token_kl(policy, other, rows).sum()
        loss.backward()
    assert 2 * CHUNK_BYTES < 512 * 20_000 * 4
    assert 0 < seen.most <= CHUNK_BYTES
    assert policy.weight.grad is not None


def test_a_kl_to_itself_is_0_and_pads_count_nowhere():
    policy = tiny(0)
    kl = exact_token_kl(policy, policy.frozen_copy(), ROWS)
    assert kl.abs().max() == 0.0
    scores = token_scores(policy, ROWS)
    assert scores.mask_BT.tolist() == [[True] * 3, [True, True, False], [True] * 3]
    assert float(scores.logp_BT[1, 2].detach()) == 0.0
