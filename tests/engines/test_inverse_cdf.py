"""Inverting the CDF draws from the softmax, in one level or two, and never a token of probability 0."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.engines.inverse_cdf import draw
from assay.errors import ContractBroken


@given(st.integers(1, 700), st.integers(1, 40), st.integers(0, 10_000))
def test_two_levels_agree_with_one(vocabulary, block, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(16, vocabulary, generator=generator) * 3
    uniforms = torch.rand(16, generator=generator)
    one = draw(logits, uniforms, block=vocabulary).token_B
    two = draw(logits, uniforms, block=block).token_B
    cumulative = logits.double().softmax(-1).cumsum(-1)
    edge = (cumulative - uniforms[:, None].double()).abs().min(-1).values
    assert bool(((one == two) | (edge < 1e-5)).all())


@given(st.integers(2, 300), st.integers(0, 10_000))
def test_never_a_forbidden_token(vocabulary, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, vocabulary, generator=generator)
    forbidden = torch.rand(8, vocabulary, generator=generator) < 0.6
    forbidden[:, seed % vocabulary] = False
    logits[forbidden] = float("-inf")
    for uniform in (0.0, 0.5, 1 - 2**-24):
        token = draw(logits, torch.full((8,), uniform)).token_B
        assert not bool(forbidden.gather(1, token[:, None]).any())


def test_frequencies_are_the_softmax():
    logits = torch.tensor([0.5, 0.0, -0.5, 1.0, float("-inf")]).expand(40_000, -1)
    uniforms = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    drawn = draw(logits, uniforms, block=2)
    share = torch.bincount(drawn.token_B, minlength=5) / 40_000
    torch.testing.assert_close(share, logits[0].softmax(-1), atol=0.01, rtol=0)


def test_log_probs_and_entropy_are_those_of_the_distribution():
    logits = torch.randn(50, 90, generator=torch.Generator().manual_seed(1))
    drawn = draw(logits, torch.rand(50, generator=torch.Generator().manual_seed(2)))
    distribution = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(drawn.logp_B, distribution.log_prob(drawn.token_B))
    torch.testing.assert_close(drawn.entropy_B, distribution.entropy())


def test_the_last_block_may_be_shorter_than_the_others():
    logits = torch.full((1, 21), -30.0)
    logits[0, 16:] = torch.tensor([0.0, 1.0, 0.5, -0.5, 0.2])
    uniforms = (torch.arange(2000) + 0.5) / 2000
    drawn = draw(logits.expand(2000, -1), uniforms, block=8)
    share = torch.bincount(drawn.token_B, minlength=21) / 2000
    torch.testing.assert_close(share, logits[0].softmax(-1), atol=1e-3, rtol=0)


def test_two_levels_by_default_over_a_wide_vocabulary():
    logits = torch.randn(64, 5000, generator=torch.Generator().manual_seed(4)) * 2
    uniforms = torch.rand(64, generator=torch.Generator().manual_seed(5))
    drawn = draw(logits, uniforms)
    before = logits.double().softmax(-1).cumsum(-1).gather(1, drawn.token_B[:, None]).squeeze(1)
    mass = drawn.logp_B.double().exp()
    assert bool(((before - mass - 1e-5 <= uniforms) & (uniforms <= before + 1e-5)).all())


def test_entropy_leaves_out_what_cannot_be_drawn():
    logits = torch.randn(9, 40, generator=torch.Generator().manual_seed(6))
    closed = logits.clone()
    closed[:, 20:] = float("-inf")
    uniforms = torch.rand(9, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(draw(closed, uniforms).entropy_B, draw(logits[:, :20], uniforms).entropy_B)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("vocabulary", [5, 2000])
def test_logits_that_are_not_numbers_are_refused(bad, vocabulary):
    logits = torch.zeros(3, vocabulary)
    logits[1, 2] = bad
    with pytest.raises(ContractBroken, match="not finite"):
        draw(logits, torch.rand(3))
