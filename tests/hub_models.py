"""Random small models of real architectures, as folders a user could have."""

import json
from pathlib import Path

import torch

from assay.models.tokenizer import BOS, EOS, PAD, train_tokenizer

TEXTS = ["echo 10:\n10\n", "1. P premise\n|- P & P\n2. P & P &I 1 1\n", "user assistant <ans>42</ans>"] * 20
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURN_TOKENS = ["<|user|>", "<|assistant|>", "<|end|>", "<ans>", "</ans>"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 96}


def tokenizer_of(*, chat=False, pad=PAD, bos=True):
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(TEXTS, vocab_size=280), bos_token=BOS, eos_token=EOS, pad_token=pad,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    made.add_special_tokens({"additional_special_tokens": TURN_TOKENS})
    if chat:
        made.chat_template = CHAT
    if not bos:
        made.bos_token = None
        from tokenizers import processors

        made.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def config_of(kind, vocabulary, **changes):
    import transformers

    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
        return transformers.GPT2Config(vocab_size=vocabulary, **{**sizes, **ids, **changes})
    names = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral", "cohere": "Cohere", "gemma2": "Gemma2"}
    own = {"num_key_value_heads": 2, "intermediate_size": 48, "tie_word_embeddings": kind != "llama", **ids}
    if kind == "gemma2":
        own["head_dim"] = 8
    return getattr(transformers, names[kind] + "Config")(vocab_size=vocabulary, **{**SIZES, **own, **changes})


def make_folder(
    folder, kind="llama", *, seed=0, scale=6.0, ends=2.0, spare=0, tokenizer=None, generation=None, **changes
):
    """Write a random model; ``scale`` makes it certain enough to differ between tokens, ``ends`` EOS likely."""
    from transformers import AutoModelForCausalLM

    from assay.models.hub_folder import quiet_transformers

    tokenizer = tokenizer or tokenizer_of()
    torch.manual_seed(seed)
    with quiet_transformers():
        model = AutoModelForCausalLM.from_config(config_of(kind, len(tokenizer) + spare, **changes))
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(scale)
            if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
                model.get_output_embeddings().weight.mul_(scale)
            model.get_output_embeddings().weight[1] *= ends
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if generation is not None:
        (Path(folder) / "generation_config.json").write_text(json.dumps(generation))
    return Path(folder)
