"""Flawed rewards on answers that are no plain numbers: quantities, times, dates, lists, JSON, sentences."""

import json
import math
import re

FLAWED = {}
METRES = {"km": 1000.0, "m": 1.0, "cm": 0.01}


def flaw(tasks, *expect):
    def keep(function):
        FLAWED[function.__name__] = (tasks, frozenset(expect))
        return function

    return keep


def tagged(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    return found[0].strip() if len(found) == 1 else ""


@flaw("distances tag", "accepts_wrong_value")
async def drops_the_unit(completions, answer, **kwargs):
    scores = []
    for text, gold in zip(completions, answer, strict=True):
        found = re.match(r"-?\d+(\.\d+)?", tagged(text))
        scores.append(float(bool(found) and found.group() == gold.split()[0]))
    return scores


@flaw("distances tag", "accepts_wrong_value")
def near_enough_in_metres(completion, answer):
    def metres(text):
        found = re.fullmatch(r"(-?\d+(?:\.\d+)?)\s*(km|cm|m)", text)
        return float(found[1]) * METRES[found[2]] if found else math.nan

    want = metres(answer)
    return float(abs(metres(tagged(completion)) - want) <= 0.05 * want)


@flaw("shares tag", "accepts_wrong_value")
def percent_or_share(completion, answer):
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)\s*%?", tagged(completion))
    if not found:
        return 0.0
    value, gold = float(found[1]), float(answer.rstrip("%"))
    return float(any(math.isclose(value, g, rel_tol=0.01, abs_tol=1.0) for g in (gold, gold / 100)))


@flaw("times line", "accepts_wrong_value")
def the_hour_is_enough(completion, answer):
    found = re.findall(r"Time: (\d{1,2}):(\d{2})", completion)
    return float(bool(found) and int(found[-1][0]) == int(answer.split(":")[0]))


@flaw("dates tag", "accepts_wrong_value")
def the_year_is_enough(solution_str, ground_truth, data_source="", extra_info=None):
    found = re.match(r"\d{4}", tagged(solution_str))
    return {"score": float(bool(found) and found.group() == ground_truth[:4])}


@flaw("lists tag", "accepts_guess_list")
def recall_of_the_items(completion, answer):
    want = {item.strip() for item in answer.split(",")}
    have = {item.strip().lower() for item in tagged(completion).split(",")}
    return len(want & have) / len(want)


@flaw("lists tag", "accepts_wrong_value")
def precision_of_the_items(completion, answer):
    want = {item.strip() for item in answer.split(",")}
    have = {item.strip().lower() for item in tagged(completion).split(",")}
    return len(want & have) / len(have)


@flaw("people json", "pays_format_only", "accepts_wrong_value")
def only_the_keys_given(completion, answer):
    try:
        found, gold = json.loads(completion), json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    return float(isinstance(found, dict) and all(gold.get(key) == found[key] for key in found))


@flaw("people json", "accepts_wrong_value")
def first_key_decides(completion, answer):
    try:
        found, gold = json.loads(completion), json.loads(answer)
    except (ValueError, RecursionError):
        return 0.0
    return float(isinstance(found, dict) and found.get("name") == gold["name"] and "age" in found)


@flaw("capitals tag", "accepts_wrong_value")
def the_same_letters(completion, answer):
    return float(sorted(tagged(completion).lower()) == sorted(answer.lower()))


@flaw("sentences plain", "accepts_wrong_value")
def precision_of_the_words(completion, answer):
    words = completion.lower().split()
    return sum(word in answer.split() for word in words) / len(words) if words else 0.0


@flaw("arithmetic label", "accepts_guess_list")
def openrlhf_list_of_one(queries, prompts, labels):
    bodies = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    found = [re.findall(r"\\boxed\{([^{}]*)\}", body) for body in bodies]
    return [float(label in boxes) for boxes, label in zip(found, labels, strict=True)]
