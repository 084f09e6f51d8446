"""The same kinds of answer, judged soundly: each mends one of the flawed rewards."""

import json
import re

SOUND = {}
METRES = {"km": 1000.0, "m": 1.0, "cm": 0.01}


def sound(tasks):
    def keep(function):
        SOUND[function.__name__] = tasks
        return function

    return keep


def tagged(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    return found[0].strip() if len(found) == 1 else "?"  # an empty gold must not equal it


def items(text):
    return sorted(item.strip().lower() for item in text.split(","))


@sound("distances tag")
async def quantity_in_any_unit(completions, answer, **kwargs):
    def metres(text):
        found = re.fullmatch(r"(-?\d{1,12}(?:\.\d{1,12})?)\s*(km|cm|m)\.?", text)
        return float(found[1]) * METRES[found[2]] if found else None

    pairs = zip(completions, answer, strict=True)
    values = [(metres(tagged(text)), metres(gold)) for text, gold in pairs]
    return [float(value is not None and abs(value - gold) <= 1e-9 * abs(gold)) for value, gold in values]


@sound("shares tag")
def percent_sign_optional(completion, answer):
    found = re.fullmatch(r"(-?\d{1,12}(?:\.\d{1,12})?)\s*%?\.?", tagged(completion))
    return float(bool(found) and float(found[1]) == float(answer.rstrip("%")))


@sound("times line")
def hours_and_minutes(completion, answer):
    found = re.findall(r"^Time: (\d{1,2}):(\d{2})\.?$", completion.strip(), re.M)
    return float(len(found) == 1 and [int(part) for part in found[0]] == [int(p) for p in answer.split(":")])


@sound("dates tag")
def the_whole_date(solution_str, ground_truth, data_source="", extra_info=None):
    return {"score": float(tagged(solution_str).rstrip(".") == ground_truth)}


@sound("lists tag")
def the_same_items(completion, answer):
    return float(items(tagged(completion)) == items(answer))


@sound("lists tag")
def f1_of_the_items(completion, answer):
    want, have = set(items(answer)), set(items(tagged(completion)))
    return 2 * len(want & have) / (len(want) + len(have))


@sound("people json")
def equal_objects(completion, answer):
    try:
        return float(json.loads(completion) == json.loads(answer))
    except (ValueError, RecursionError):
        return 0.0


@sound("people json")
def share_of_the_fields(completion, answer):
    try:
        found, gold = json.loads(completion), json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    if not isinstance(found, dict) or set(found) != set(gold):
        return 0.0
    return sum(found[key] == gold[key] for key in gold) / len(gold)


@sound("sentences plain")
def f1_of_the_words(completion, answer):
    have, want = completion.lower().rstrip(".").split(), answer.split()
    common = sum(min(have.count(word), want.count(word)) for word in set(want))
    return 2 * common / (len(have) + len(want))


@sound("arithmetic label")
def openrlhf_one_box(queries, prompts, labels):
    bodies = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    found = [re.findall(r"\\boxed\{\s*(-?\d{1,30})\s*\}", body) for body in bodies]
    right = [
        len(boxes) == 1 and int(boxes[0]) == int(label) for boxes, label in zip(found, labels, strict=True)
    ]
    return [float(value) for value in right]
