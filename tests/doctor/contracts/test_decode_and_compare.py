"""Every shape through a decoder, the branch to change, and exactly the pairs that a change moved."""

import json
import re

import pytest

from assay.doctor.contracts import check_decode, check_reward, compare, run_code
from assay.errors import BadInput


def three_branches(text):
    start, end = text.rfind("<answer>"), text.find("</answer>")
    if start >= 0 and end > start:
        return text[start + 8 : end].strip()
    if start >= 0:
        return text[start + 8 :].strip()
    return text[:end].strip()


def three_branches_mended(text):
    start, end = text.rfind("<answer>"), text.find("</answer>")
    if start >= 0 and end > start:
        return text[start + 8 : end].strip()
    if start >= 0:
        return text[start + 8 :].strip()
    return (text[:end] if end >= 0 else text).strip()


def one_line(text):
    return re.search(r"<answer>(.*?)</answer>|^([^<]*)$", text, re.S).group(1) or text.strip()


def test_the_branch_to_change_is_named_and_the_others_are_left_alone():
    found = check_decode(three_branches)
    assert found[0].id == "decode.content_stripped"
    branches = {b["code"]: b for b in found[0].evidence["branches"]}
    bad = [code for code, b in branches.items() if b["violates"]]
    assert bad == ["return text[:end].strip()"]
    assert len(branches) == 3
    assert "change line" in found[0].fix
    assert "leave line" in found[0].fix
    assert check_decode(three_branches_mended) == []


def test_a_repair_moves_only_what_was_wrong():
    result = compare(three_branches, three_branches_mended, "decode")
    assert result.verdict == "mended"
    assert {m.effect for m in result.moves} == {"repaired"}
    assert {m.shape for m in result.moves} >= {"no markers", "several lines, no markers", "multi-byte text"}
    assert not any("<answer>" in m.shape for m in result.moves)
    assert not result.is_rewrite


def test_a_one_line_rewrite_breaks_the_other_branches():
    result = compare(three_branches, one_line, "decode")
    assert result.verdict == "broke"
    assert result.is_rewrite
    assert result.branches_before == 3
    assert result.branches_after == 1
    broken = {m.shape for m in result.broken}
    assert broken >= {"only the prefix <answer>", "only the suffix </answer>"}
    assert "no markers" in {m.shape for m in result.repaired}
    assert "rewrite" in result.summary
    json.dumps(result.to_json())


def test_the_same_function_twice_moves_nothing():
    result = compare(three_branches, three_branches, "decode")
    assert (result.verdict, result.moves) == ("unchanged", ())
    assert "no markers" in result.unresolved


def test_numeric_functions_are_compared_pair_by_pair_too():
    def before(rewards):
        return (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1.0)

    def after(rewards):
        return (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1e-6)

    result = compare(before, after, "advantages")
    assert not result.broken
    assert [m.violated_before for m in result.repaired] == ["advantage.epsilon"]


@pytest.mark.parametrize("kind", ["advantages", "decode"])
def test_files_are_loaded_by_name(tmp_path, kind):
    path = tmp_path / "mine.py"
    path.write_text(
        "def advantages(rewards):\n    return rewards - rewards.mean(axis=1, keepdims=True)\n\n\n"
        "def decode(text):\n    return text.split('<answer>')[1]\n"
    )
    found = run_code(f"{path}:{kind}", kind)
    assert [f.id for f in found][:1] == ([] if kind == "advantages" else ["decode.content_stripped"])
    with pytest.raises(BadInput, match="did you mean"):
        run_code(f"{path}:{kind}", "advantage")
    with pytest.raises(BadInput):
        run_code(f"{path}:absent", kind)


def test_adapt_may_be_named_as_well(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def fn(batch):\n    return batch['r'] - batch['r'].mean(axis=1, keepdims=True)\n\n\n"
        "def bridge(fn, rewards):\n    return fn({'r': rewards})\n"
    )
    assert run_code(f"{path}:fn", "advantages", adapt=f"{path}:bridge") == []


def plain(text):
    return text.strip()


def every_special(text):
    return re.sub(r"<\|[^|]*\|>", "", text).strip()


def header_and_end(text):
    if "<|im_start|>assistant\n" in text:
        text = text.rsplit("<|im_start|>assistant\n", 1)[1]
    return text.split("<|im_end|>")[0].strip()


def thinking(text):
    return text.split("</think>")[-1].replace("<think>", "").strip() or text


def last_answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else re.sub(r"</?answer>", "", text).strip()


@pytest.mark.parametrize("fn", [plain, every_special, header_and_end, thinking, last_answer])
def test_decoders_that_keep_the_content_pass(fn):
    assert check_decode(fn) == []


def test_what_is_left_in_the_text_is_named():
    def keeps_end(text):
        return (
            text.replace("<|pad|>", "") if "<|im_end|>" not in text else text.replace("<|pad|>", "").strip()
        )

    def keeps_pad(text):
        return (
            text.replace("<|im_end|>", "")
            if "<|pad|>" not in text
            else text.replace("<|im_end|>", "").strip()
        )

    assert [f.id for f in check_decode(keeps_end)] == ["decode.special_tokens"]
    assert [f.id for f in check_decode(keeps_pad)] == ["decode.padding_in_text"]


def test_a_crash_on_degenerate_text_is_a_finding():
    def first_character(text):
        return text if text[0] != "#" else text[1:]

    def none(text):
        found = re.search(r"<a>(.*)</a>", text)
        return found.group(1) if found else None

    assert [f.id for f in check_decode(first_character)] == ["decode.empty"]
    assert check_decode(none)[0].id == "decode.content_stripped"


VOCABULARY = ["<pad>", "<eos>", "ca", "ts", " ", "nap", "é"]


def decodes_ids(ids):
    return "".join(VOCABULARY[i] for i in ids if i > 1)


def drops_the_last_id(ids):
    return "".join(VOCABULARY[i] for i in ids[:-1] if i > 1)


def joins_with_blanks_and_pads(ids):
    return "".join(VOCABULARY[i] for i in ids)


def without_repeats(ids):
    return "".join(VOCABULARY[i] for i in dict.fromkeys(ids) if i > 1)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (decodes_ids, []),
        (drops_the_last_id, ["decode.content_stripped", "decode.empty"]),
        (joins_with_blanks_and_pads, ["decode.padding_in_text", "decode.special_tokens"]),
        (without_repeats, ["decode.content_stripped"]),
    ],
)
def test_decoders_of_ids(fn, expected):
    assert [f.id for f in check_decode(fn)] == expected


def test_a_decoder_that_takes_neither_text_nor_ids():
    with pytest.raises(BadInput, match="adapt="):
        check_decode(lambda tokenizer, batch: batch)
    assert check_decode(lambda batch: [t.strip() for t in batch], adapt=lambda fn, text: fn([text])[0]) == []


def number(text):
    found = re.findall(r"-?\d+", text)
    return found[-1] if found else ""


SEEN = []


@pytest.mark.parametrize(
    ("fn", "identifier"),
    [
        (lambda completion, answer: "1" if number(completion) == answer else "0", "reward.wrong_shape"),
        (lambda completions, answer, **_: [1.0] * (len(completions) - 1), "reward.wrong_shape"),
        (lambda completions, answer, **_: [[0.0]] * len(completions), "reward.wrong_shape"),
        (lambda completion, answer: float(re.findall(r"\d+", completion)[-1] == answer), "reward.missing"),
        (
            lambda completion, answer: float("inf") if number(completion) == answer else 0.0,
            "reward.non_finite",
        ),
        (lambda completion, extra_info: extra_info.update(n=1) or float(len(completion)), "side_effects"),
        (lambda completion, answer: SEEN.append(1) or len(SEEN) * 1.0, "not_deterministic"),
    ],
)
def test_rewards_that_break_the_contract(fn, identifier):
    assert identifier in [f.id for f in check_reward(fn)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda completions, answer, **_: [number(c) == a for c, a in zip(completions, answer, strict=True)],
        lambda data_source, solution_str, ground_truth, extra_info: {
            "score": number(solution_str) == ground_truth
        },
        lambda completion, task: 1.0 if number(completion) == task["answer"] else -1.0,
        lambda completion, answer: -abs(int(number(completion) or 0) - int(answer)) / 100,
        lambda completion: float("<think>" in completion),
        lambda completions, **_: [-len(c) / 100 for c in completions],
        lambda completion, answer: float(f"<ans>{answer}</ans>" in completion),
    ],
)
def test_sound_rewards_of_every_signature_pass(fn):
    assert check_reward(fn) == []


def test_own_tasks_decide_where_the_usual_sums_cannot():
    def proof(completion, answer):
        return float(completion.startswith("QED"))

    tasks = [{"prompt": "Prove it.", "answer": "x", "good": ["QED x"], "bad": ["x"]}]
    assert check_reward(proof)[0].id == "reward.constant"
    assert check_reward(proof, tasks=tasks) == []
