"""What stands before a prompt in the chat: the system's turn, examples, and the question's form."""

import pytest
from tests.hub_models import make_folder, tokenizer_of

from assay.config import ModelOptions, build_config
from assay.errors import BadInput
from assay.models.huggingface import HuggingFacePolicy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("chat"), tokenizer=tokenizer_of(chat=True))


def text_of(folder, **options):
    policy = HuggingFacePolicy.load(folder, ModelOptions(chat_template=True, **options))
    return policy.tokenizer.decode(policy.encode_prompt("1+1=\n")).replace(" ", "")


def test_turns_in_order(folder):
    text = text_of(
        folder, system_prompt="echo", examples=(("2+2=", "4"), ("3+1=", "4")), question="of{prompt}?"
    )
    parts = ["echo", "2+2=", "4", "3+1=", "4", "of1+1=?", "<|assistant|>"]
    places = [text.index(part) for part in parts[:2]] + [text.index("of1+1=?"), text.rindex("<|assistant|>")]
    assert places == sorted(places)
    assert text.count("<|assistant|>") == 3
    assert text.count("<|user|>") == 3


def test_without_them_a_prompt_is_one_turn_as_it_is(folder):
    text = text_of(folder)
    assert text.count("<|user|>") == 1
    assert "1+1=\n" in text


@pytest.mark.parametrize(
    "asked", [{"system_prompt": "x"}, {"examples": [["a", "b"]]}, {"question": "is {prompt}"}]
)
def test_turns_need_a_template(asked):
    with pytest.raises(BadInput, match=f"{next(iter(asked))} needs chat_template=true"):
        build_config({"model": "folder", **asked})


def test_a_question_has_to_hold_the_prompt():
    with pytest.raises(BadInput, match=r"\{prompt\}"):
        build_config({"model": "folder", "chat_template": True, "question": "what?"})


def test_a_begin_token_in_the_prompts_text_is_not_a_second_one(folder):
    policy = HuggingFacePolicy.load(folder, ModelOptions(chat_template=True))
    begin = policy.tokenizer.bos_token
    assert begin
    assert policy.encode_prompt(begin + "1+1=") == policy.encode_prompt("1+1=")
    assert policy.encode_prompt("1+1=").count(policy.tokenizer.bos_token_id) == 1
