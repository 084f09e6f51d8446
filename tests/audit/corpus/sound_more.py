# ruff: noqa: B905 - rewards as people write them
"""More sound rewards, a second hand: strict, tolerant, graded, composite, negative, length-bounded."""

import ast
import functools
import json
import logging
import math
import operator
import re
from fractions import Fraction

SOUND = {}
LOG = logging.getLogger("reward")


def sound(tasks):
    def keep(function):
        SOUND[function.__name__] = tasks
        return function

    return keep


def number(text):
    """The exact value of a short number, or None."""
    text = text.strip().strip("$").replace(",", "").replace("\u2212", "-")
    text = re.sub(r"^(-?)\\d?frac\{(-?\d{1,12})\}\{(\d{1,12})\}$", r"\1\2/\3", text)
    if not re.fullmatch(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?(/[0-9]{1,12})?", text) or (
        "." in text and "/" in text
    ):
        return None
    top, _, bottom = text.partition("/")
    return None if bottom and not int(bottom) else Fraction(top) / int(bottom or 1)


def one_box(text):
    found = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text[-4000:])
    return found[0] if len(found) == 1 else None


def one_tag(text):
    found = re.findall(r"<answer>([^<>]{0,200})</answer>", text)
    return found[0].strip() if len(found) == 1 and text.count("<answer>") == 1 else None


def same(found, gold):
    return found is not None and number(found) is not None and number(found) == number(gold)


@sound("fractions boxed")
def six_digits_are_enough(completion, answer):
    found = number(one_box(completion) or "")
    return 1.0 if found is not None and abs(float(found) - float(number(answer))) <= 1e-6 else 0.0


@sound("arithmetic boxed")
def third_for_the_box(completion, answer):
    found = one_box(completion)
    return 0.0 if found is None else 0.3 + 0.7 * same(found, answer)


@sound("arithmetic boxed")
def soft_overlong_punishment(solution_str, ground_truth, data_source="", extra_info=None):
    right = 1.0 if same(one_box(solution_str), ground_truth) else -1.0
    over = max(0, len(solution_str) - 2000)
    return right - min(1.0, over / 1000)


@sound("capitals line")
def word_f1(completion, answer):
    found = re.search(r"Answer:[ ]*([^\n]{1,200})\s*$", completion)
    if not found:
        return 0.0
    have, want = re.findall(r"\w+", found[1].lower()), re.findall(r"\w+", answer.lower())
    common = len(set(have) & set(want))
    return 2 * common / (len(have) + len(want)) if have else 0.0


@sound("arithmetic think")
def whole_text_must_match(completion, answer):
    found = re.fullmatch(r"<think>[^<>]*</think>\s*<answer>\s*([^<>]*)</answer>\s*", completion)
    return 1.0 if found and same(found[1], answer) else 0.0


@sound("arithmetic json")
def json_by_value(completion, answer):
    try:
        document = json.loads(completion, parse_float=number, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(document, dict) or set(document) != {"answer"}:
        return 0.0
    found = document["answer"]
    if isinstance(found, bool) or not isinstance(found, int | str | Fraction):
        return 0.0
    if isinstance(found, str):
        return float(same(found, answer))
    return float(found == number(answer))


@sound("arithmetic tag")
def all_below_zero(completion, answer):
    return -1.0 if same(one_tag(completion), answer) else -10.0


@sound("arithmetic tag")
def marks_out_of_a_hundred(completions, answer, **kwargs):
    return [100 if same(one_tag(t), g) else 20 if one_tag(t) else 0 for t, g in zip(completions, answer)]


@sound("letters option")
def one_letter_in_the_sentence(completion, answer):
    found = re.findall(r"[Tt]he answer is:? ?\(?([A-Z])\)?(?!\w)", completion)
    return 1.0 if found == [answer] else 0.0


@sound("arithmetic tag")
def three_rungs(completion, answer):
    found = one_tag(completion)
    if found is None:
        return 0.0
    return 0.1 + 0.1 * (number(found) is not None) + 0.8 * same(found, answer)


@sound("fractions boxed")
def near_is_a_little(completion, answer):
    found, gold = number(one_box(completion) or ""), number(answer)
    if found is None:
        return 0.0
    if found == gold:
        return 1.0
    return 0.3 * math.exp(-abs(float(found - gold)) / max(1.0, abs(float(gold))))


@sound("arithmetic boxed")
async def asks_politely(completion, answer):
    return 1.0 if same(one_box(completion), answer) else 0.0


@sound("arithmetic boxed")
def list_of_booleans(completions, answer, **kwargs):
    return [same(one_box(text), gold) for text, gold in zip(completions, answer)]


@sound("capitals tag")
def logs_and_leaves_out(completion, answer):
    if not answer or not str(answer).strip():
        LOG.info("no gold")
        return None
    found = one_tag(completion)
    if found is None:
        LOG.debug("nothing to read")
        return 0.0
    return 1.0 if found.casefold().rstrip(".") == answer.casefold() else 0.0


@functools.lru_cache(maxsize=10_000)
def judged(text, gold):
    return float(same(one_box(text), gold))


@sound("arithmetic boxed")
def cached_by_everything(completion, answer):
    return judged(completion, answer)


class TagReward:
    """A reward with its settings."""

    def __init__(self, right):
        self.right = right
        self.__name__ = "TagReward"

    def __call__(self, completions, answer, **kwargs):
        return [self.right if same(one_tag(t), g) else 0.0 for t, g in zip(completions, answer)]


settings_in_an_object = TagReward(2.0)
SOUND["settings_in_an_object"] = "arithmetic tag"


@sound("arithmetic boxed")
def repeats_cost(completion, answer):
    words = completion.split()
    grams = list(zip(words, words[1:], words[2:]))
    repeated = 1 - len(set(grams)) / len(grams) if grams else 0.0
    return float(same(one_box(completion), answer)) - 0.3 * repeated


@sound("capitals tag")
def stays_in_its_language(completion, answer):
    foreign = sum(ord(c) > 0x24F for c in completion) / max(1, len(completion))
    found = one_tag(completion)
    right = bool(found) and found.casefold() == answer.casefold()
    return float(right) - 0.2 * (foreign > 0.1)


@sound("arithmetic verl hash")
def last_hash_line(data_source, solution_str, ground_truth, extra_info=None):
    lines = [line for line in solution_str.splitlines() if line.startswith("####")]
    right = len(lines) == 1 and same(lines[0][4:], ground_truth)
    return {"score": float(right), "acc": right, "pred": lines[-1:] and lines[-1][4:].strip()}


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def exact(node):
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 10**12:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -exact(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](exact(node.left), exact(node.right))
    raise ValueError("not arithmetic")


@sound("arithmetic tag")
def sums_are_welcome(completion, answer):
    found = (one_tag(completion) or "").replace(",", "")
    if len(found) > 60:
        return 0.0
    if number(found) is not None:
        return float(same(found, answer))
    try:
        return float(exact(ast.parse(found, mode="eval").body) == int(answer))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0


@sound("three words")
def exactly_three_words(completion, words):
    return 1.0 if len(completion.split()) == words else 0.0
