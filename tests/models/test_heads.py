"""A scalar head: read at the last real token, whatever is padded beside it; saved and loaded exactly."""

import pytest
import torch

from assay.errors import BadInput
from assay.models.heads import ScalarHead, ScalarModel
from assay.models.tiny_policy import TinyPolicy

TEXTS = ["sort 3 1 2\n1 2 3. well so\n", "sort 9 8\n8 9.\n"]


@pytest.fixture(scope="module")
def policy():
    return TinyPolicy.create(
        TEXTS, vocab_size=300, hidden_size=16, layers=1, heads=2, intermediate_size=24, max_positions=48
    )


@pytest.fixture
def model(policy):
    made = ScalarModel(policy, heads=3)
    torch.nn.init.normal_(made.head.linear.weight, generator=torch.Generator().manual_seed(0))
    return made


@pytest.fixture(scope="module")
def rows(policy):
    prompts = [policy.encode_prompt(text.split("\n")[0] + "\n") for text in TEXTS]
    return prompts, [policy.encode_completion(text.split("\n")[1]) for text in TEXTS]


def test_the_last_real_token_is_read_and_never_a_pad(model, policy, rows):
    """A short row gets the same score alone and beside a longer one, and that of the plain forward pass."""
    prompts, completions = rows
    together_BK = model.last_token(prompts, completions)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        alone_1K = model.last_token([prompt], [completion])
        torch.testing.assert_close(together_BK[row : row + 1], alone_1K, atol=1e-5, rtol=1e-5)
        hidden_1TH = policy.module.hidden(torch.tensor([[*prompt, *completion]]))
        torch.testing.assert_close(alone_1K[0], model.head(hidden_1TH[0, -1]), atol=1e-5, rtol=1e-5)
    assert together_BK.shape == (2, 3)


def test_values_stand_before_their_token(model, policy, rows):
    prompts, completions = rows
    values_BT = model.values(prompts, completions)
    hidden_1TH = policy.module.hidden(torch.tensor([[*prompts[0], *completions[0]]]))
    first = len(prompts[0]) - 1
    expected_T = model.head(hidden_1TH[0, first:-1])[:, 0]
    torch.testing.assert_close(values_BT[0, : len(completions[0])], expected_T, atol=1e-5, rtol=1e-5)


def test_an_untrained_head_says_nothing(policy, rows):
    assert bool((ScalarModel(policy).last_token(*rows) == 0).all())


def test_training_the_model_leaves_the_policy_alone(model, policy, rows):
    before = {name: value.clone() for name, value in policy.module.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model.last_token(*rows).square().sum().backward()
    optimiser.step()
    assert all(torch.equal(value, before[name]) for name, value in policy.module.state_dict().items())
    own = model.backbone.state_dict()
    assert not torch.equal(own["model.embed_tokens.weight"], before["model.embed_tokens.weight"])


def test_saved_and_loaded_exactly(model, rows, tmp_path):
    model.head.mean_K.copy_(torch.tensor([1.0, 2.0, 3.0]))
    model.save(tmp_path)
    loaded = ScalarModel.load(tmp_path)
    assert torch.equal(loaded.last_token(*rows), model.last_token(*rows))
    assert loaded.heads == 3


def test_refusals(tmp_path):
    with pytest.raises(BadInput, match="scalar_head"):
        ScalarModel.load(tmp_path)
    with pytest.raises(BadInput, match="at least one head"):
        ScalarHead(4, heads=0)
