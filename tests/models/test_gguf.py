"""A folder with one GGUF file is a model like any other, and can be saved."""

import json

import numpy as np
import pytest
import torch
from tests.hub_models import CHAT, make_folder, tokenizer_of
from transformers import AutoModelForCausalLM

from assay.errors import BadInput
from assay.models.checkpoint import load_policy

gguf = pytest.importorskip("gguf")

WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def interleaved(x, heads):
    """The order of rotary pairs that GGUF keeps queries and keys in."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(path, tokenizer, weights):
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, value in {
        "context_length": 96, "embedding_length": 32, "block_count": 2, "feed_forward_length": 48, "head_count": 4,
        "head_count_kv": 4, "layer_norm_rms_eps": 1e-6, "rope_dimension_count": 8, "rope_freq_base": 10000.0,
        "vocab_size": len(tokenizer), "tokenizer_model": "gpt2", "tokenizer_pre": "default", "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": tokenizer.pad_token_id, "chat_template": CHAT, "add_bos_token": True,
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    tokens = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i in tokenizer.added_tokens_decoder else 1 for i in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    for name, value in weights.items():
        array = value.numpy().astype(np.float32)
        target = WHOLE.get(name)
        if target is None:
            _, _, layer, rest = name.split(".", 3)
            target = f"blk.{layer}.{PARTS[rest.removesuffix('.weight')]}.weight"
        writer.add_tensor(
            target, interleaved(array, 4) if "attn_q" in target or "attn_k" in target else array
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("gguf")
    tokenizer = tokenizer_of(chat=True)
    base = make_folder(root / "base", "llama", tokenizer=tokenizer, num_key_value_heads=4)
    (root / "gguf").mkdir()
    weights = AutoModelForCausalLM.from_pretrained(base).state_dict()
    write_gguf(root / "gguf" / "tiny.gguf", tokenizer, weights)
    return base, root / "gguf"


def test_it_is_the_model_it_was_written_from_and_saves_as_a_clean_one(folders, tmp_path, capfd):
    base, packed = folders
    capfd.readouterr()
    policy, known = load_policy(packed), load_policy(base)
    assert capfd.readouterr() == ("", ""), "transformers' bars were shown"
    ids = torch.tensor([[0, 3, 70, 90]])
    policy.save(tmp_path)
    with torch.no_grad():
        expected = known.module(input_ids=ids).logits
        for one in (policy, load_policy(tmp_path)):
            torch.testing.assert_close(one.module(input_ids=ids).logits, expected)
    assert policy.encode_prompt("|- P & <ans>") == known.encode_prompt("|- P & <ans>")
    assert policy.eos_ids == known.eos_ids
    assert policy.pad_id == known.pad_id


def test_two_files_are_a_choice_that_is_the_users(folders, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes((folders[1] / "tiny.gguf").read_bytes())
    with pytest.raises(BadInput, match=r"expected one \.gguf file, got a\.gguf, b\.gguf"):
        load_policy(tmp_path)
