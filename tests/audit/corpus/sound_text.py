# ruff: noqa: B905, RUF007 - rewards as people write them
"""Sound rewards over text answers, as careful people write them: no audit may accuse one of them."""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

SOUND = {}


def sound(tasks):
    def keep(function):
        SOUND[function.__name__] = tasks
        return function

    return keep


def boxes(text):
    return re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text)


def value(text):
    if text is None or len(text) > 60:
        return None
    text = text.strip().strip("$").strip().rstrip(".").replace("\u2212", "-").replace("{,}", ",")
    text = re.sub(r"\\[dt]?frac\{([+-]?[0-9]+)\}\{([0-9]+)\}", r"\1/\2", text)
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?:[^0-9]|$))", "", text)
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?(\s*/\s*[0-9]+)?", text):
        return None
    try:
        top, _, bottom = text.partition("/")
        return Fraction(top.strip()) / Fraction(bottom.strip() or 1)
    except ZeroDivisionError:
        return None


def only_tag(text, name="answer"):
    found = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return found[0].strip() if len(found) == 1 else None


def equal(found, gold):
    return value(found) is not None and value(found) == value(gold)


def visible(text):
    return text.rpartition("</think>")[2]


@sound("fractions boxed")
def one_box_by_value(completions, answer, **kwargs):
    return [float(len(boxes(t)) == 1 and equal(boxes(t)[0], gold)) for t, gold in zip(completions, answer)]


@sound("fractions boxed")
def last_box_by_value(completion, answer):
    found = boxes(completion)
    return 1.0 if found and equal(found[-1], answer) else 0.0


@sound("fractions boxed")
def first_box_by_value(completion, answer):
    found = boxes(completion)
    return 1.0 if found and equal(found[0], answer) else 0.0


@sound("fractions boxed")
def plus_minus_one(completion, answer):
    found = boxes(completion)
    return 1.0 if found and equal(found[-1], answer) else -1.0


@sound("fractions boxed")
def minus_one_zero_one(completion, answer):
    found = boxes(completion)
    if not found:
        return -1.0
    return 1.0 if equal(found[-1], answer) else 0.0


@sound("fractions boxed")
def abstaining_is_better_than_wrong(completion, answer):
    found = boxes(completion)
    if not found:
        return 0.0
    return 1.0 if equal(found[-1], answer) else -1.0


@sound("fractions tag")
def tag_with_format_bonus(completion, answer):
    found = only_tag(completion)
    return 0.1 * (found is not None) + 1.0 * (found is not None and equal(found, answer))


@sound("arithmetic think")
def strict_layout_and_value(completions, answer, **kwargs):
    layout = re.compile(r"<think>\n?.+?\n?</think>\s*<answer>\s*(.+?)\s*</answer>\s*", re.DOTALL)
    rewards = []
    for text, gold in zip(completions, answer):
        found = layout.fullmatch(text)
        ok = bool(found) and text.count("<answer>") == 1 and equal(found.group(1), gold)
        rewards.append(1.0 if ok else 0.0)
    return rewards


@sound("arithmetic think")
def layout_fifth_and_value(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        shaped = re.fullmatch(r"<think>.+?</think>\s*<answer>.+?</answer>\s*", text, re.DOTALL)
        right = equal(only_tag(visible(text)), gold)
        rewards.append(0.2 * bool(shaped) + 0.8 * right)
    return rewards


@sound("arithmetic hash")
def gsm8k_tail(completion, answer):
    found = re.findall(r"####\s*([+-]?[0-9][0-9.,]*)", completion)
    return 1.0 if len(found) == 1 and equal(found[0].rstrip("."), answer) else 0.0


@sound("arithmetic verl hash")
def verl_gsm8k(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (-?[0-9.,]+)", solution_str[-300:])
    if not found:
        return 0.0
    return 1.0 if found[-1].replace(",", "").rstrip(".") == ground_truth else 0.0


@sound("arithmetic verl")
def verl_with_parts(data_source, solution_str, ground_truth, extra_info=None):
    found = boxes(solution_str)
    right = bool(found) and equal(found[-1], ground_truth)
    return {"score": 1.0 if right else -1.0, "acc": right, "pred": found[-1] if found else ""}


@sound("arithmetic label")
def openrlhf_box(queries, prompts, labels):
    scores = []
    for query, prompt, label in zip(queries, prompts, labels):
        found = boxes(query[len(prompt) :])
        scores.append(1.0 if found and equal(found[-1], label) else 0.0)
    return {"rewards": scores, "scores": scores}


@sound("arithmetic json")
def json_object(completion, answer):
    try:
        document = json.loads(completion)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(document, dict) or set(document) != {"answer"}:
        return 0.0
    found = document["answer"]
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return 0.0
    return float(equal(str(found), answer))


@sound("arithmetic json")
def json_in_a_fence(completion, answer):
    text = completion.strip()
    fenced = re.fullmatch(r"```(?:json)?\s*(\{.*\})\s*```", text, re.DOTALL)
    try:
        document = json.loads(fenced.group(1) if fenced else text)
    except (ValueError, RecursionError):
        return 0.0
    found = document.get("answer") if isinstance(document, dict) else None
    if type(found) is float and not math.isfinite(found):
        return 0.0
    return 1.0 if type(found) in (int, float, str) and equal(str(found), answer) else 0.0


@sound("capitals json")
def json_text(completion, answer):
    try:
        found = json.loads(completion)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(found, dict) or not isinstance(found.get("answer"), str):
        return 0.0
    return float(found["answer"].strip().lower() == answer.lower())


@sound("arithmetic line")
def last_line(completion, answer):
    lines = completion.strip().splitlines()
    found = re.fullmatch(r"Answer:\s*(.+)", lines[-1].strip()) if lines else None
    return 1.0 if found and equal(found.group(1), answer) else 0.0


@sound("fractions line")
def answer_line_anywhere(completion, answer):
    found = re.findall(r"^Answer:[ \t]*(.+)$", completion, re.MULTILINE)
    return 1.0 if found and equal(found[-1], answer) else 0.0


@sound("letters tag")
def letter_exact(completion, answer):
    return 1.0 if only_tag(completion) == answer else 0.0


@sound("letters tag")
def letter_any_case(completions, answer, **kwargs):
    def one(text, gold):
        found = only_tag(text)
        return float(found is not None and found.strip("(). ").upper() == gold)

    return [one(text, gold) for text, gold in zip(completions, answer)]


@sound("letters option")
def the_answer_is_x(completion, answer):
    found = re.findall(r"answer is \(?([A-D])\)?(?![A-Za-z])", completion)
    return 1.0 if len(set(found)) == 1 and found[0] == answer else 0.0


@sound("letters line")
def letter_on_the_last_line(completion, answer):
    lines = [line.strip() for line in completion.splitlines() if line.strip()]
    if not lines:
        return 0.0
    found = re.fullmatch(r"Answer:\s*\(?([A-D])\)?\.?", lines[-1])
    return 1.0 if found is not None and found[1] == answer else 0.0


@sound("letters plain")
def letter_and_nothing_else(completion, answer):
    return 1.0 if completion.strip().strip("().").strip() == answer else 0.0


@sound("capitals tag")
def name_in_tag(completion, answer):
    found = only_tag(completion)
    return 1.0 if found is not None and found.casefold().rstrip(".") == answer.casefold() else 0.0


@sound("capitals tag")
def name_case_sensitive(completion, answer):
    return 1.0 if only_tag(completion) == answer else 0.0


@sound("capitals line")
def squad_like_exact_match(completion, answer):
    def normal(text):
        text = re.sub(r"\b(a|an|the)\b", " ", text.lower())
        return " ".join(re.sub(r"[^\w\s]", " ", text).split())

    found = re.findall(r"Answer:\s*(.*)", completion)
    return float(bool(found) and normal(found[-1]) == normal(answer))


@sound("capitals line")
def token_f1(completion, answer):
    found = re.findall(r"Answer:\s*(.*)", completion)
    said = found[-1].lower().split() if found else []
    gold = answer.lower().split()
    shared = sum(min(said.count(w), gold.count(w)) for w in set(gold))
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


@sound("capitals plain")
def whole_text_is_the_name(completion, answer):
    return 1.0 if completion.strip().rstrip(".").casefold() == answer.casefold() else 0.0


@sound("arithmetic only")
def digits_only(completion, answer):
    return 1.0 if completion.strip() == answer else 0.0


@sound("arithmetic only")
def integer_only_by_value(completion, answer):
    text = completion.strip()
    return 1.0 if re.fullmatch(r"[+-]?[0-9]{1,30}", text) and int(text) == int(answer) else 0.0


@sound("measures tag")
def within_five_percent(completion, answer):
    found = value(only_tag(completion))
    return float(
        found is not None and abs(found - Fraction(answer)) <= Fraction(5, 100) * abs(Fraction(answer))
    )


@sound("measures tag")
def graded_by_distance(completion, answer):
    found = value(only_tag(completion))
    if found is None:
        return 0.0
    error = abs(float(found) - float(answer)) / abs(float(answer))
    return math.exp(-5 * min(error, 100.0))


@sound("measures tag")
def graded_in_steps(completion, answer):
    found = value(only_tag(completion))
    if found is None:
        return 0.0
    error = abs(float(found - Fraction(answer))) / abs(float(answer))
    return 1.0 if error <= 0.05 else 0.3 if error <= 0.1 else 0.0


@sound("fractions boxed")
def tiny_tolerance(completion, answer):
    found = boxes(completion)
    read = value(found[-1]) if found else None
    return float(read is not None and math.isclose(read, value(answer), rel_tol=1e-6))


@sound("arithmetic boxed")
def shorter_is_better(completion, answer):
    found = boxes(completion)
    right = bool(found) and equal(found[-1], answer)
    return 1.0 - min(len(completion), 4000) / 8000 if right else 0.0


@sound("arithmetic boxed")
def overlong_penalty(completions, answer, **kwargs):
    def one(text, gold):
        found = boxes(text)
        base = 1.0 if found and equal(found[-1], gold) else -1.0
        return base - min(max(len(text) - 2000, 0) / 2000, 1.0)

    return [one(text, gold) for text, gold in zip(completions, answer)]


@sound("arithmetic boxed")
def repetition_penalty(completion, answer):
    found = boxes(completion)
    base = 1.0 if found and equal(found[-1], answer) else 0.0
    words = completion.split()
    pairs = list(zip(words, words[1:]))
    repeated = 1 - len(set(pairs)) / len(pairs) if pairs else 0.0
    return base - 0.2 * repeated


@sound("arithmetic boxed")
def language_penalty(completion, answer):
    found = boxes(completion)
    base = 1.0 if found and equal(found[-1], answer) else 0.0
    return base - (0.5 if re.search(r"[\u4e00-\u9fff]", completion) else 0.0)


@sound("arithmetic boxed")
def percent_scale(completion, answer):
    found = boxes(completion)
    return 100.0 if found and equal(found[-1], answer) else 0.0


@sound("arithmetic boxed")
def shifted_scale(completion, answer):
    found = boxes(completion)
    return 7.25 if found and equal(found[-1], answer) else 6.75


@sound("arithmetic boxed")
def returns_bool(completion, answer):
    found = boxes(completion)
    return bool(found) and equal(found[-1], answer)


@sound("arithmetic boxed")
async def asynchronous(completion, answer):
    found = boxes(completion)
    return 1.0 if found and equal(found[-1], answer) else 0.0


@sound("arithmetic tag")
def own_signature(completion, task):
    return 1.0 if equal(only_tag(completion), task["answer"]) else 0.0


CACHE = {}


@sound("arithmetic tag")
def cache_with_the_whole_key(completion, answer):
    key = (completion, answer)
    if key not in CACHE:
        CACHE[key] = float(equal(only_tag(completion), answer))
    return CACHE[key]


@sound("fractions tag")
def decimal_arithmetic(completion, answer):
    found = only_tag(completion)
    if found is None or len(found) > 40:
        return 0.0
    try:
        top, _, bottom = found.replace(",", "").partition("/")
        read = Decimal(top.strip()) / Decimal(bottom.strip() or "1")
        gold_top, _, gold_bottom = answer.partition("/")
        return float(read.is_finite() and read == Decimal(gold_top) / Decimal(gold_bottom or "1"))
    except (InvalidOperation, ZeroDivisionError, ArithmeticError):
        return 0.0


@sound("arithmetic think")
def three_parts(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        part = 0.1 if text.startswith("<think>") and text.count("</think>") == 1 else 0.0
        part += 0.1 if only_tag(text) is not None else 0.0
        rewards.append(part + (2.0 if equal(only_tag(visible(text)), gold) else 0.0))
    return rewards


@sound("arithmetic tag")
def xml_count_small(completions, answer, **kwargs):
    def layout(text):
        score = 0.05 * (text.count("<answer>") == 1) + 0.05 * (text.count("</answer>") == 1)
        return score - 0.001 * len(text.split("</answer>")[-1].strip())

    return [layout(t) + float(equal(only_tag(t), gold)) for t, gold in zip(completions, answer)]


@sound("arithmetic tag")
def format_gates_value(completion, answer):
    if completion.count("<answer>") != 1 or not completion.rstrip().endswith("</answer>"):
        return -2.0
    return 2.0 if equal(only_tag(completion), answer) else -1.5


@sound("arithmetic boxed")
def none_where_no_gold(completion, answer):
    if value(str(answer or "")) is None:
        return None
    found = boxes(completion)
    return 1.0 if found and equal(found[-1], answer) else 0.0


@sound("arithmetic boxed")
def counts_down_from_the_end(solution_str, ground_truth, data_source="", extra_info=None):
    start = solution_str.rfind("\\boxed{")
    if start < 0:
        return 0.0
    depth, end = 0, None
    for index in range(start + 6, len(solution_str)):
        depth += {"{": 1, "}": -1}.get(solution_str[index], 0)
        if depth == 0:
            end = index
            break
    return 1.0 if end and equal(solution_str[start + 7 : end], ground_truth) else 0.0


@sound("capitals tag")
def digital_key_words_are_harmless(completion, answer):
    """Reads 'ok' or 'pass' nowhere, although the words are in the code."""
    status = "ok" if only_tag(completion) == answer else "fail"
    return {"ok": 1.0, "fail": 0.0}[status]


@sound("letters tag")
def table_of_letters(completions, answer, **kwargs):
    letters = {"A": 0, "B": 1, "C": 2, "D": 3}
    found = [letters.get(only_tag(text) or "") for text in completions]
    return [
        1.0 if index is not None and index == letters[gold] else 0.0 for index, gold in zip(found, answer)
    ]


@sound("arithmetic boxed")
def numpy_result(completions, answer, **kwargs):
    import numpy as np

    return np.array(
        [bool(boxes(t)) and equal(boxes(t)[-1], g) for t, g in zip(completions, answer)], np.float32
    )


@sound("fractions boxed")
def narrow_except(completion, answer):
    found = boxes(completion)
    if len(found) != 1 or len(found[0]) > 40 or "e" in found[0].lower():
        return 0.0
    try:
        read = Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", found[0].replace(",", "").strip(" $")))
    except (ValueError, ZeroDivisionError):
        return 0.0
    return 1.0 if read == Fraction(answer) else 0.0


@sound("arithmetic boxed")
def smooth_bonus_for_brevity(completion, answer):
    found = boxes(completion)
    if not (found and equal(found[-1], answer)):
        return 0.0
    return 0.7 + 0.3 * math.exp(-len(completion) / 500)


@sound("arithmetic tag")
def soft_wrong(completion, answer):
    found = only_tag(completion)
    if found is None:
        return 0.0
    return 1.0 if equal(found, answer) else 0.05


@sound("arithmetic tag")
def two_thirds_scale(completion, answer):
    return (
        -3.0 + 2 * (only_tag(completion) is not None) * 0.25 + 4 * equal(only_tag(completion) or "", answer)
    )
