"""The tiny decoder is a Llama: transformers gives the same logits, and padding or sharing changes nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.models.checkpoint import load_policy, load_state, save_checkpoint
from assay.models.packed import _Gate, _Normalise, _Pick, _Rotate
from assay.models.tiny_policy import TinyPolicy, pad_right

TEXTS = ["1. P -> Q premise\n2. P premise\n|- Q\n3. Q ->E 1 2\n", "sort 31524:\n12345\n"] * 20
SIZES = {"hidden_size": 32, "layers": 2, "heads": 4, "intermediate_size": 48, "max_positions": 128}


@pytest.fixture(scope="module")
def policy():
    return TinyPolicy.create(TEXTS, seed=3, vocab_size=300, **SIZES)


@pytest.fixture(scope="module")
def saved(policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_checkpoint(folder, policy, {"step": 7, "optimiser": {"x": torch.arange(3)}})
    return folder


def test_transformers_loads_it_with_the_same_logits_and_ids(policy, saved):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    ids = torch.tensor([policy.encode_prompt(TEXTS[0])])
    assert tokenizer(TEXTS[0]).input_ids == ids[0].tolist()
    torch.testing.assert_close(model(ids).logits, policy.module(ids), atol=1e-5, rtol=1e-5)
    assert model.generation_config.eos_token_id == policy.eos_id
    assert tokenizer.pad_token_id == policy.pad_id != policy.eos_id


def test_a_saved_policy_comes_back_exactly(policy, saved):
    again = load_policy(saved)
    for name, value in policy.module.state_dict().items():
        assert torch.equal(value, again.module.state_dict()[name]), name
    assert load_state(saved)["step"] == 7


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"config\.json"):
        load_policy(tmp_path)


def test_a_failed_save_leaves_the_old_checkpoint(policy, tmp_path, monkeypatch):
    folder = tmp_path / "step"
    save_checkpoint(folder, policy, {"step": 1})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("assay.models.checkpoint.torch.save", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(folder, policy, {"step": 2})
    assert load_state(folder)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


def test_right_padding_changes_nothing(policy):
    ids = torch.tensor([policy.encode_prompt(TEXTS[0])])
    padded = torch.nn.functional.pad(ids, (0, 9), value=policy.pad_id)
    torch.testing.assert_close(policy.module.hidden(padded)[:, : ids.shape[1]], policy.module.hidden(ids))


def joined_reference(policy, prompts, completions):
    ids, _ = pad_right([[*p, *c] for p, c in zip(prompts, completions, strict=True)], policy.pad_id)
    hidden = policy.module.hidden(ids)
    rows = enumerate(zip(prompts, completions, strict=True))
    return [hidden[i, len(p) - 1 : len(p) - 1 + len(c)] for i, (p, c) in rows]


@given(st.data())
def test_shared_prompts_give_the_numbers_of_joined_rows(policy, data):
    token = st.integers(0, policy.pad_id - 1)
    prompts = data.draw(st.lists(st.lists(token, min_size=1, max_size=9), min_size=1, max_size=3))
    rows = data.draw(
        st.lists(
            st.tuples(st.sampled_from(prompts), st.lists(token, min_size=1, max_size=7)),
            min_size=1,
            max_size=5,
        )
    )
    prompt_ids, completion_ids = [row[0] for row in rows], [row[1] for row in rows]
    shared = policy.completion_hidden(prompt_ids, completion_ids)
    joined = joined_reference(policy, prompt_ids, completion_ids)
    for got, want, ids in zip(shared, joined, completion_ids, strict=True):
        torch.testing.assert_close(got[: len(ids)], want, atol=2e-5, rtol=1e-4)


def test_gradients_are_those_of_joined_rows(policy):
    prompts = [policy.encode_prompt(TEXTS[0])] * 2 + [policy.encode_prompt(TEXTS[1])]
    completions = [policy.encode_completion(text) for text in ("a", "3. Q\n", "12345\n")]
    gradients = []
    for rows in (
        policy.completion_hidden(prompts, completions),
        joined_reference(policy, prompts, completions),
    ):
        policy.module.zero_grad()
        pairs = zip(rows, completions, strict=True)
        torch.stack([row[: len(ids)].square().sum() for row, ids in pairs]).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in policy.module.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("rows", "heads", "size"), [(3, 5, 6), (1, 3, 4)])
def test_the_parts_of_the_fast_path_have_their_derivatives(rows, heads, size):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, heads * size, generator=generator, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(rows, 1, size // 2, generator=generator, dtype=torch.float64)
    turns = torch.polar(torch.ones_like(angle), angle)
    assert torch.autograd.gradcheck(lambda x: _Rotate.apply(x * 1, turns, 2), x)
    assert torch.autograd.gradcheck(lambda x: _Normalise.apply(x, 1e-6), x)
    assert torch.autograd.gradcheck(_Gate.apply, x)
    assert torch.autograd.gradcheck(lambda x: _Pick.apply(x, torch.tensor([rows - 1])), x)


@given(st.text(max_size=60))
def test_every_text_round_trips(policy, text):
    if not any("\ud800" <= character <= "\udfff" for character in text):
        ids = policy.encode_completion(text)
        assert ids[-1] == policy.eos_id
        assert policy.decode(ids) == text


def test_one_bos_and_single_digits(policy):
    ids = policy.encode_prompt("12 345")
    assert ids.count(policy.bos_id) == 1
    assert ids[0] == policy.bos_id
    pieces = [policy.tokenizer.id_to_token(token) for token in ids[1:]]
    assert sum(piece.isdigit() for piece in pieces) == 5
    assert all(len(piece) == 1 for piece in pieces if piece.isdigit())


def test_padding_is_outside_the_sampled_vocabulary(policy):
    weight, bias = policy.head()
    assert bias is None
    assert len(weight) == policy.pad_id == policy.tokenizer.get_vocab_size() - 1
