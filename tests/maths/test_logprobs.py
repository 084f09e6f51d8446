"""Log-probs from logits and from hidden states in chunks: values, gradients, agreement of both."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.maths.chunked import chunked_kl, chunked_logprobs
from assay.maths.kl import exact_kl
from assay.maths.logprobs import logprobs_from_logits, sampling_support, sequence_logprobs


def test_temperature_divides_the_logits():
    logits, token = torch.tensor([2.0, 1.0, 0.0]).double(), torch.tensor(0)
    assert float(logprobs_from_logits(logits, token).logp) == pytest.approx(-0.4076059644443806)
    half = logprobs_from_logits(logits, token, temperature=0.5)
    assert float(half.logp) == pytest.approx(-0.14293162849990004)
    wrong = math.exp(-0.4076059644443806 - float(half.logp))
    assert wrong == pytest.approx(0.7674558420651706)
    with pytest.raises(BadInput, match="temperature above 0"):
        logprobs_from_logits(logits, token, temperature=0.0)


def test_top_p_keeps_the_mass_it_says():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05]).double()
    kept = sampling_support(probabilities, top_p=0.8)
    assert kept.tolist() == [True, True, False, False]
    sampler = logprobs_from_logits(probabilities.log(), torch.tensor(0), support=kept)
    assert float(sampler.logp) == pytest.approx(-0.4700036292457356)
    assert math.exp(math.log(0.5) - float(sampler.logp)) == pytest.approx(0.8)
    outside = logprobs_from_logits(probabilities.log(), torch.tensor(2), support=kept)
    assert float(outside.logp) == -math.inf
    assert math.isfinite(float(outside.entropy))
    assert sampling_support(probabilities, top_k=1).tolist() == [True, False, False, False]
    assert sampling_support(probabilities[[3, 0, 2, 1]], top_p=1.0).tolist() == [True] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("first", [13, 14, 15, 16])
def test_top_p_is_reached_in_every_precision(dtype, first):
    """Twentieths: as written, ``first`` of them hold ``first`` / 20, whatever rounding makes of both."""
    probabilities = torch.tensor([first / 20, (19 - first) / 20, 1 / 20], dtype=dtype)
    assert sampling_support(probabilities, top_p=first / 20).tolist() == [True, False, False]
    assert sampling_support(probabilities, top_p=19 / 20).tolist() == [True, True, False]


def test_logits_predict_the_next_token():
    three, four = math.log(3), math.log(4)
    logits = torch.tensor([[[0.0, 0.0], [three, 0.0], [0.0, four], [5.0, 5.0]]], dtype=torch.float64)
    ids = torch.tensor([[1, 0, 1, 0]])
    assert sequence_logprobs(logits, ids).logp[0].tolist() == pytest.approx(
        [-0.6931471805599453, -1.3862943611198906, -1.6094379124341003]
    )
    with pytest.raises(BadInput, match="tokens of shape"):
        logprobs_from_logits(logits, ids[:, 1:])


def inputs(rows: int, vocabulary: int, size: int, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = (
        torch.randn(vocabulary, size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    )
    bias = torch.randn(vocabulary, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(0, vocabulary, (rows,), generator=generator)


@pytest.mark.parametrize("chunk_bytes", [4, 4 * 11 * 3, 4 * 5 * 7, 1 << 20])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chunks_agree_with_the_plain_form(chunk_bytes: int, temperature: float):
    hidden, weight, bias, tokens = inputs(7, 11, 5)
    chunked = chunked_logprobs(
        hidden, weight, tokens, bias_V=bias, temperature=temperature, chunk_bytes=chunk_bytes
    )
    plain = logprobs_from_logits(hidden @ weight.T + bias, tokens, temperature=temperature)
    for got, expected in zip(chunked, plain, strict=True):
        assert torch.allclose(got, expected, atol=1e-12)
        ours = torch.autograd.grad(got.square().sum(), (hidden, weight, bias), retain_graph=True)
        theirs = torch.autograd.grad(expected.square().sum(), (hidden, weight, bias), retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a, b, atol=1e-11)


def test_gradcheck_of_both_outputs():
    hidden, weight, bias, tokens = inputs(4, 6, 3)
    function = lambda h, w, b: tuple(  # noqa: E731
        chunked_logprobs(h, w, tokens, bias_V=b, temperature=0.8, chunk_bytes=4 * 6)
    )
    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_many_rows_make_several_blocks_of_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.maths.chunked.MAX_ROWS", 3)
    hidden, weight, _, tokens = inputs(8, 5, 4)
    found = chunked_logprobs(hidden, weight, tokens, chunk_bytes=4 * 3 * 2)
    plain = logprobs_from_logits(hidden @ weight.T, tokens)
    assert torch.allclose(found.logp, plain.logp)
    ours = torch.autograd.grad(found.logp.sum(), weight)[0]
    assert torch.allclose(ours, torch.autograd.grad(plain.logp.sum(), weight)[0])


def test_shapes_are_kept_and_frozen_heads_cost_nothing():
    hidden, weight, _, tokens = inputs(6, 5, 4)
    found = chunked_logprobs(hidden.reshape(2, 3, 4), weight.detach(), tokens.reshape(2, 3))
    assert found.logp.shape == found.entropy.shape == (2, 3)
    (gradient,) = torch.autograd.grad(found.entropy.sum(), hidden)
    assert gradient.shape == hidden.shape
    with pytest.raises(BadInput, match=r"expected hidden"):
        chunked_logprobs(hidden, weight[:, :3], tokens)


def test_an_empty_batch():
    hidden, weight, _, tokens = inputs(6, 5, 4)
    assert chunked_logprobs(hidden[:0], weight, tokens[:0]).logp.shape == (0,)


def test_bfloat16_is_accumulated_in_float32():
    hidden, weight, _, tokens = inputs(64, 300, 32, torch.bfloat16)
    weight = (weight.detach() / 32**0.5).requires_grad_()
    found = chunked_logprobs(hidden, weight, tokens, chunk_bytes=4 * 64 * 50)
    exact = logprobs_from_logits(hidden.double() @ weight.double().T, tokens)
    assert found.logp.dtype == torch.float32
    assert float((found.logp - exact.logp).detach().abs().mean()) < 0.02
    gradient = torch.autograd.grad(found.logp.sum(), weight)[0]
    expected = torch.autograd.grad(exact.logp.sum(), weight)[0]
    assert gradient.dtype == torch.bfloat16
    assert float((gradient.double() - expected.double()).norm() / expected.double().norm()) < 0.01


def test_large_logits_do_not_overflow():
    hidden = torch.tensor([[1.0], [-1.0]])
    weight = torch.tensor([[500.0], [-500.0], [0.0]])
    found = chunked_logprobs(hidden, weight, torch.tensor([0, 0]), chunk_bytes=8)
    assert found.logp.tolist() == [0.0, -1000.0]
    assert found.entropy.tolist() == [0.0, 0.0]


@given(values=st.lists(st.floats(-40, 40), min_size=2, max_size=8), shift=st.floats(-100, 100))
def test_laws_of_a_distribution(values: list[float], shift: float):
    logits = torch.tensor(values, dtype=torch.float64)
    rows: Tensor = logits.expand(len(values), -1)
    every = logprobs_from_logits(rows, torch.arange(len(values)))
    assert float(every.logp.exp().sum()) == pytest.approx(1.0)
    assert bool((every.logp <= 0).all())
    assert -1e-12 <= float(every.entropy[0]) <= math.log(len(values)) + 1e-12
    moved = logprobs_from_logits(rows + shift, torch.arange(len(values)))
    assert torch.allclose(moved.logp, every.logp, atol=1e-9)
    chunked = chunked_logprobs(
        torch.ones(len(values), 1).double(), logits[:, None], torch.arange(len(values)), chunk_bytes=12
    )
    assert torch.allclose(chunked.logp, every.logp, atol=1e-9)
    assert torch.allclose(chunked.entropy, every.entropy, atol=1e-9)


@pytest.mark.parametrize("chunk_bytes", [4, 4 * 11 * 3, 1 << 20])
def test_the_kl_in_blocks_is_the_exact_one(chunk_bytes: int):
    hidden, weight, bias, _ = inputs(7, 11, 5)
    other = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    other_weight = torch.randn(11, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = chunked_kl(
        (hidden, weight, bias), (other, other_weight, None), temperature=0.7, chunk_bytes=chunk_bytes
    )
    plain = exact_kl((hidden @ weight.T + bias) / 0.7, other @ other_weight.T / 0.7)
    assert torch.allclose(found, plain, atol=1e-12)
    ours = torch.autograd.grad(found.square().sum(), (hidden, weight, bias))
    theirs = torch.autograd.grad(plain.square().sum(), (hidden, weight, bias))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-11)
    with pytest.raises(BadInput, match="as many rows and ids"):
        chunked_kl((hidden, weight, bias), (other[:3], other_weight, None))


def test_gradcheck_of_the_kl_in_blocks():
    hidden, weight, bias, _ = inputs(4, 6, 3)
    other = (hidden.detach() + 0.5, weight.detach() * 0.8, None)
    function = lambda h, w, b: chunked_kl((h, w, b), other, temperature=0.8, chunk_bytes=4 * 6)  # noqa: E731
    assert torch.autograd.gradcheck(function, (hidden, weight, bias))
