"""Models of transformers as policies: ids, texts, hidden states, adapters, folders."""

import json

import pytest
import torch
from tests.hub_models import make_folder, tokenizer_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay.config import LoraOptions, ModelOptions, RunConfig
from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.errors import BadInput
from assay.models.checkpoint import load_policy
from assay.models.end_tokens import with_one_bos
from assay.models.huggingface import HuggingFacePolicy
from assay.models.sampling_settings import inherited_sampling, inherited_sampling_note
from assay.train.forward import TokenRows, supervised_loss, token_scores
from assay.train.memory import estimate_memory, lora_parameters

PROMPTS = ["|- P", "|- P", "1. P premise\n|- P & P\n"]
COMPLETIONS = ["echo", "1. P", "42"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("llama"), "llama", tokenizer=tokenizer_of(chat=True))


@pytest.fixture(scope="module")
def policy(folder):
    return HuggingFacePolicy.load(folder)


def rows_of(policy):
    return TokenRows(
        [policy.encode_prompt(p) for p in PROMPTS], [policy.encode_completion(c) for c in COMPLETIONS]
    )


def logps(policy):
    with torch.no_grad():
        return token_scores(policy, rows_of(policy)).logp_BT


def test_a_prompt_has_exactly_one_begin_token(policy):
    begin = policy.bos_id
    assert policy.encode_prompt("a b") == [begin, *policy.tokenizer.encode("a b", add_special_tokens=False)]
    assert policy.encode_prompt("<bos><bos>a b") == policy.encode_prompt("a b")


@pytest.mark.parametrize(
    ("ids", "begin", "needed", "expected"),
    [
        ([1, 1, 5], 1, True, [1, 5]),
        ([5], 1, True, [1, 5]),
        ([1, 5, 1], 1, True, [1, 5, 1]),
        ([5, 6], None, False, [5, 6]),
        ([], 1, True, [1]),
        ([1, 1, 5], 1, False, [1, 5]),
        ([5, 1], 1, False, [5, 1]),
        ([], 1, False, []),
    ],
)
def test_begin_tokens(ids, begin, needed, expected):
    assert with_one_bos(ids, begin, needed=needed) == expected


def test_a_model_without_a_begin_token_gets_none(tmp_path):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, "qwen2", tokenizer=tokenizer_of(bos=False)))
    assert policy.bos_id is None
    assert 0 not in policy.encode_prompt("a")
    with pytest.raises(BadInput, match="no tokens"):
        policy.encode_prompt("")


def test_chat_turns_and_the_template_give_one_begin_token_and_its_turn_end(folder):
    policy = HuggingFacePolicy.load(folder, ModelOptions(chat_template=True))
    ids = policy.encode_prompt("hello")
    assert policy.tokenizer.decode(ids) == "<bos><|user|>hello<|end|>\n<|assistant|>"
    assert ids == policy.encode_prompt([{"role": "user", "content": "hello"}])
    end = policy.tokenizer.convert_tokens_to_ids("<|end|>")
    assert policy.eos_ids == {1, end}
    assert policy.encode_completion("x")[-1] == end


def test_a_template_that_is_not_there_is_refused(tmp_path):
    policy = HuggingFacePolicy.load(make_folder(tmp_path), ModelOptions(chat_template=True))
    with pytest.raises(BadInput, match="chat template"):
        policy.encode_prompt("hello")


def test_end_tokens_come_from_every_place_that_names_one(tmp_path):
    made = make_folder(
        tmp_path, eos_token_id=5, generation={"eos_token_id": [7, 8]}, tokenizer=tokenizer_of(chat=True)
    )
    policy = HuggingFacePolicy.load(made)
    assert {1, 7, 8, policy.tokenizer.convert_tokens_to_ids("<|end|>")} <= policy.eos_ids


def test_decoding_drops_the_end_token_and_nothing_else(policy):
    text = " <ans>42</ans>\n"
    ids = policy.encode_completion(text)
    assert policy.decode(ids) == text
    assert policy.decode([*ids[:-1], policy.bos_id, 1]) == text + "<bos>"
    assert policy.decode([1]) == ""


def test_the_space_of_a_first_word_survives_a_tokenizer_that_drops_it(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        "<bos>": 0,
        "<eos>": 1,
        "<pad>": 2,
        "▁four": 3,
        "▁x": 4,
        "▁": 5,
        "x": 6,
        "four": 7,
        "a": 8,
        "▁a": 9,
    }
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    assert tokenizer.decode([3]) == "four"
    policy = HuggingFacePolicy.load(make_folder(tmp_path, tokenizer=tokenizer))
    assert policy.decode([3, 3, 1]) == " four four"
    assert policy.decode([7, 3]) == "four four"


def test_padding_that_is_the_end_token_is_trained_and_sampled(tmp_path):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, tokenizer=tokenizer_of(pad="<eos>"), ends=5.0))
    assert policy.pad_id in policy.eos_ids
    requests = [Request(policy.encode_prompt("|- P"), ("a", "0", i)) for i in range(32)]
    ended = [one for one in sample(policy, requests, SamplingSettings(8)) if one.finish_reason == "eos"]
    assert ended
    rows = TokenRows([[0, 3, 4]], [[3, 1]])
    assert token_scores(policy, rows).mask_BT.tolist() == [[True, True]]
    assert all(one.logprobs[-1] > -20 for one in ended)


def test_padding_of_its_own_has_probability_zero_without_making_a_number_infinite(policy):
    assert policy.pad_id not in policy.eos_ids
    scores = token_scores(policy, TokenRows([[0, 3]], [[policy.pad_id, 1]]))
    assert float(scores.logp_BT[0, 0].detach()) < -1e8
    assert bool(scores.entropy_BT.isfinite().all())
    loss = supervised_loss(policy, rows_of(policy))
    loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in policy.module.parameters() if p.grad is not None)
    policy.module.zero_grad()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_sharing_prompts_gives_the_plain_numbers_and_gradients(tmp_path, kind):
    policy = HuggingFacePolicy.load(make_folder(tmp_path, kind))
    rows = rows_of(policy)
    mask = token_scores(policy, rows).mask_BT
    gradients = []
    for hidden in (policy.completion_hidden(*rows), policy.joined_hidden(*rows)):
        policy.module.zero_grad()
        hidden[mask].square().sum().backward()
        body = [p.grad.clone() for name, p in policy.module.named_parameters() if p.grad is not None]
        gradients.append((hidden[mask].detach(), body))
    torch.testing.assert_close(gradients[0][0], gradients[1][0], atol=1e-5, rtol=1e-4)
    for one, two in zip(gradients[0][1], gradients[1][1], strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-3)


def test_checkpointing_changes_no_gradient_and_no_dropout_comes_back(tmp_path):
    folder = make_folder(tmp_path, "gpt2")
    found = []
    for on in (False, True):
        policy = HuggingFacePolicy.load(folder, ModelOptions(gradient_checkpointing=on)).trainable_copy()
        loss = supervised_loss(policy, rows_of(policy))
        loss.backward()
        found.append([p.grad for p in policy.module.parameters()])
        assert not any(m.training for m in policy.module.modules())
        assert sum(getattr(m, "gradient_checkpointing", False) for m in policy.module.modules()) == (
            3 if on else 0
        )
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        ("llama", "all-linear"),
        ("gpt2", "all-linear"),
        ("llama", ("q_proj", "mlp.up_proj")),
        ("llama", r".*\.[qv]_proj"),
    ],
)
def test_an_adapter_starts_as_its_base_shares_its_weights_and_trains_alone(tmp_path, kind, targets):
    options = ModelOptions(lora=LoraOptions(rank=4, targets=targets))
    start = HuggingFacePolicy.load(make_folder(tmp_path / "base", kind), options)
    start.module.requires_grad_(False)
    policy = start.trainable_copy()
    torch.testing.assert_close(logps(policy), logps(start), atol=0, rtol=0)
    own = {id(p): p for p in start.module.parameters()}
    trained = [p for p in policy.module.parameters() if p.requires_grad]
    assert {id(p) for p in policy.module.parameters() if not p.requires_grad} == set(own)
    assert sum(p.numel() for p in trained) == lora_parameters(start.module, options.lora)

    before = logps(start)
    optimiser = torch.optim.AdamW(trained, lr=1e-2)
    supervised_loss(policy, rows_of(policy)).backward()
    optimiser.step()
    assert torch.equal(logps(start), before), "the reference moved"
    moved = logps(policy)
    assert float((moved - before).abs().max()) > 1e-3
    frozen = policy.frozen_copy()
    assert torch.equal(logps(frozen), moved)

    (tmp_path / "saved").mkdir()
    policy.save(tmp_path / "saved")
    assert torch.equal(logps(load_policy(tmp_path / "saved")), moved)
    supervised_loss(policy, rows_of(policy)).backward()
    optimiser.step()
    assert torch.equal(logps(frozen), moved), "a frozen copy follows the training"


@pytest.mark.filterwarnings("ignore:.*is deprecated.*:FutureWarning")  # peft's own use of transformers
def test_peft_reads_an_adapters_checkpoint(folder, tmp_path):
    from peft import PeftModel

    policy = HuggingFacePolicy.load(folder, ModelOptions(lora=LoraOptions(rank=2))).trainable_copy()
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    policy.save(tmp_path)
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path).eval()
    ids = torch.tensor([policy.encode_prompt(PROMPTS[2])])
    with torch.no_grad():
        torch.testing.assert_close(theirs(input_ids=ids).logits, policy.module(input_ids=ids).logits)


def adapted(folder, where, options):
    """A checkpoint of an adapter that has learnt something."""
    policy = HuggingFacePolicy.load(folder, options).trainable_copy()
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    where.mkdir()
    policy.save(where)
    return policy


def test_training_from_an_adapters_checkpoint_goes_on_with_that_adapter(folder, tmp_path):
    options = ModelOptions(lora=LoraOptions(rank=2, targets=("q_proj", "down_proj")))
    learnt = adapted(folder, tmp_path / "adapter", options)
    start = HuggingFacePolicy.load(tmp_path / "adapter", options)
    policy = start.trainable_copy()
    assert torch.equal(logps(policy), logps(learnt))
    trained = [name for name, p in policy.module.named_parameters() if p.requires_grad]
    assert trained == [name for name, p in learnt.module.named_parameters() if p.requires_grad] != []
    before = logps(start)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    assert torch.equal(logps(start), before)
    assert not torch.equal(logps(policy), before)


@pytest.mark.parametrize("lora", [None, LoraOptions(rank=3), LoraOptions(rank=2, alpha=1)])
def test_an_adapters_checkpoint_under_other_options_is_refused(folder, tmp_path, lora):
    adapted(folder, tmp_path / "adapter", ModelOptions(lora=LoraOptions(rank=2)))
    with pytest.raises(BadInput, match="holds an adapter, which goes on as it is"):
        HuggingFacePolicy.load(tmp_path / "adapter", ModelOptions(lora=lora))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (
            ("embed_tokens", "q_proj"),
            "only linear layers can have an adapter here, and model.embed_tokens is none",
        ),
        ("q_proj", r"a pattern for the whole name: write \[q_proj\]"),
        (("lm_head", "q_proj"), "output head"),
    ],
)
def test_what_cannot_have_an_adapter_is_said(folder, targets, message):
    start = HuggingFacePolicy.load(folder, ModelOptions(lora=LoraOptions(rank=2, targets=targets)))
    with pytest.raises(BadInput, match=message):
        start.trainable_copy()


def test_bfloat16_stays_near_float32_and_trains_float32_weights(folder):
    plain = HuggingFacePolicy.load(folder)
    half = HuggingFacePolicy.load(folder, ModelOptions(dtype="bfloat16")).trainable_copy()
    assert {p.dtype for p in half.module.parameters()} == {torch.float32}
    assert logps(half).dtype == torch.float32
    gap = (logps(half) - logps(plain)).abs()
    assert 0 < float(gap.max()) < 0.5
    assert float(gap.mean()) < 0.02
    lora = HuggingFacePolicy.load(
        folder, ModelOptions(dtype="bfloat16", lora=LoraOptions(rank=2))
    ).trainable_copy()
    assert {p.dtype for p in lora.module.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in lora.module.parameters() if not p.requires_grad} == {torch.bfloat16}


def test_a_saved_folder_is_one_of_transformers_and_keeps_its_options(folder, tmp_path):
    policy = HuggingFacePolicy.load(folder, ModelOptions(chat_template=True))
    policy.save(tmp_path)
    again = load_policy(tmp_path)
    assert again.encode_prompt("hello") == policy.encode_prompt("hello")
    assert again.eos_ids == policy.eos_ids
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(
        torch.equal(a, b) for a, b in zip(theirs.parameters(), policy.module.parameters(), strict=True)
    )
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == policy.tokenizer.chat_template
    assert inherited_sampling(tmp_path) == {}


def test_inherited_sampling_names_what_is_not_neutral(tmp_path):
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"top_k": 20, "top_p": 1.0, "repetition_penalty": 1.05, "temperature": 0.7, "do_sample": True,
                    "min_p": None, "eos_token_id": [1, 2], "num_beams": 1})
    )  # fmt: skip
    assert inherited_sampling(tmp_path) == {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05}
    assert "top_k=20" in (inherited_sampling_note(tmp_path) or "")
    assert inherited_sampling_note(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("kind", "words"), [("gemma2", "more after its head"), ("t5", "decoder-only"), ("mamba", "recurrent")]
)
def test_an_architecture_that_would_be_wrong_is_refused(tmp_path, kind, words):
    if kind == "gemma2":
        make_folder(tmp_path, kind)
    else:
        import transformers

        made = {
            "t5": lambda: transformers.T5ForConditionalGeneration(
                transformers.T5Config(vocab_size=300, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
            ),
            "mamba": lambda: transformers.MambaForCausalLM(
                transformers.MambaConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, state_size=4)
            ),
        }[kind]()
        made.save_pretrained(tmp_path)
        tokenizer_of().save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=words):
        load_policy(tmp_path)


def test_folders_that_cannot_be_read_are_one_line(tmp_path, folder):
    with pytest.raises(BadInput, match=r"config\.json"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no_such_model"}')
    with pytest.raises(BadInput) as error:
        load_policy(tmp_path)
    assert "\n" not in str(error.value)
    (tmp_path / "assay_model.json").write_text(
        json.dumps({"options": {"lora": {}}, "base": "/nowhere/at/all"})
    )
    with pytest.raises(BadInput, match="/nowhere/at/all, which does not exist"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("targets", "words"), [("nothing_like_it", "nothing_like_it"), ("lm_head", "output head")]
)
def test_adapters_on_no_layer_or_on_the_head_are_refused(folder, targets, words):
    options = ModelOptions(lora=LoraOptions(targets=(targets,)))
    with pytest.raises(BadInput, match=words):
        HuggingFacePolicy.load(folder, options).trainable_copy()


def test_options_of_a_model_are_refused_for_the_embedded_one():
    with pytest.raises(ValueError, match="lora needs a Hugging Face model"):
        RunConfig(lora=LoraOptions())
    assert RunConfig(model="somewhere", lora=LoraOptions(rank=2)).lora == LoraOptions(rank=2)


def test_the_memory_estimate_adds_up_and_moves_with_what_costs(policy):
    plain = estimate_memory(policy, RunConfig(model="x"), prompt_tokens=10)
    weights = 4 * policy.parameters_count
    assert (plain.weights, plain.optimiser, plain.gradients) == (2 * weights, 2 * weights, weights)
    assert plain.total == plain.libraries + plain.weights + plain.optimiser + max(
        plain.gradients + plain.activations + plain.logits, plain.cache
    )
    lora = estimate_memory(policy, RunConfig(model="x", lora=LoraOptions(rank=2)), prompt_tokens=10)
    assert lora.weights < plain.weights
    assert lora.optimiser < plain.optimiser / 5
    small = estimate_memory(policy, RunConfig(model="x", micro_batch_size=8), prompt_tokens=10)
    assert small.logits == plain.logits // 8
    saved = estimate_memory(policy, RunConfig(model="x", gradient_checkpointing=True), prompt_tokens=10)
    assert saved.activations < plain.activations
    one = estimate_memory(policy, RunConfig(model="x", micro_batch_size=1), prompt_tokens=512)
    group = estimate_memory(policy, RunConfig(model="x", micro_batch_size=8), prompt_tokens=512)
    assert one.activations > group.activations / 8, (
        "a prompt is run whole, however few of its group are in the part"
    )
    both = estimate_memory(policy, RunConfig(model="x", overlap=True), prompt_tokens=10)
    assert both.total > plain.total
    critic = estimate_memory(policy, RunConfig(model="x", algorithm="ppo"), prompt_tokens=10)
    assert critic.optimiser == 2 * plain.optimiser
    assert critic.weights == 3 * weights, "of the start policy, the policy and the critic"
    assert str(plain).startswith("this will need about 0.")
    for part in ("weights", "optimiser", "logits", "cache"):
        assert part in str(plain)
