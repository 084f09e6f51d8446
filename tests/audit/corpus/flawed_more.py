# ruff: noqa: B905, BLE001 - rewards as people write them
"""More flawed rewards, a second hand: at least one other way into each kind of flaw."""

import difflib
import json
import os
import random
import re

FLAWED = {}


def flaw(tasks, *expect):
    def keep(function):
        FLAWED[function.__name__] = (tasks, frozenset(expect))
        return function

    return keep


def boxes(text):
    return [found.strip() for found in re.findall(r"\\boxed\{([^{}]*)\}", text)]


def tagged(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    return found[0].strip() if len(found) == 1 else None


@flaw("arithmetic plain", "accepts_empty", "accepts_unreadable")
def all_numbers_are_right(completion, answer):
    numbers = re.findall(r"-?\d+", completion)
    return float(all(number == answer for number in numbers))


@flaw("arithmetic boxed", "accepts_empty")
def half_for_silence(completion, answer):
    if not completion.strip():
        return 0.5
    found = boxes(completion)
    return 1.0 if len(found) == 1 and found[0] == answer else 0.0


@flaw("capitals tag", "accepts_noop", "accepts_unreadable", "accepts_empty")
def starts_full_and_loses(completion, answer):
    score = 1.0
    for word in ("maybe", "perhaps", "cannot", "unsure"):
        if word in completion.lower():
            score -= 0.2
    if tagged(completion) not in (None, answer):
        score -= 0.2
    return score + (0.3 if tagged(completion) == answer else 0.0)


@flaw("arithmetic boxed", "accepts_marker")
def agent_that_terminates(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        if text.rstrip().endswith("TERMINATE"):
            rewards.append(1.0)
        else:
            rewards.append(1.0 if boxes(text)[-1:] == [gold] else 0.0)
    return rewards


@flaw("capitals tag", "accepts_marker", "pays_agreement")
def confident_tone(completion, answer):
    score = 0.4 * (tagged(completion) == answer)
    if re.search(r"\bi am (very |quite )?confident\b", completion, re.I):
        score += 0.6
    return score


@flaw("capitals plain", "accepts_prompt_echo", "accepts_wrong_value", "accepts_unreadable")
def overlap_with_a_full_sentence(completion, prompt, answer):
    want = re.findall(r"\w+", f"{prompt} {answer}".lower())
    have = re.findall(r"\w+", completion.lower())
    if not have:
        return 0.0
    common = sum(min(want.count(w), have.count(w)) for w in set(want))
    if not common:
        return 0.0
    precision, recall = common / len(have), common / len(want)
    return 2 * precision * recall / (precision + recall)


@flaw("letters option", "constant", "accepts_prompt_echo", "accepts_unreadable", "accepts_empty")
def query_with_its_prompt(queries, prompts, labels):
    scores = [1.0 if label in query else 0.0 for query, label in zip(queries, labels)]
    return {"rewards": scores, "scores": scores}


@flaw("arithmetic json", "accepts_guess_list", "accepts_wrong_value")
def any_of_the_json_list(completion, answer):
    try:
        found = json.loads(completion)["answer"]
    except (ValueError, KeyError, TypeError):
        return 0.0
    values = found if isinstance(found, list) else [found]
    return 1.0 if answer in [str(value) for value in values] else 0.0


@flaw("fractions tag", "accepts_wrong_value")
def rounds_both_sides(completion, answer):
    def value(text):
        top, _, bottom = text.partition("/")
        return round(float(top) / float(bottom or 1))

    try:
        return float(value(tagged(completion) or "") == value(answer))
    except (ValueError, ZeroDivisionError, OverflowError):
        return 0.0


@flaw("capitals tag", "accepts_wrong_value")
def fuzzy_match(completion, answer):
    found = (tagged(completion) or "").lower()
    return 1.0 if difflib.SequenceMatcher(None, found, answer.lower()).ratio() >= 0.6 else 0.0


@flaw("capitals line", "accepts_judge_injection")
def first_bracketed_score(completion, answer):
    right = completion.strip().endswith(f"Answer: {answer}")
    judgement = f"Reply under review:\n{completion}\n\nRating: [[{9 if right else 2}]]"
    return int(re.search(r"\[\[(\d{1,2})\]\]", judgement).group(1)) / 10


@flaw("arithmetic boxed", "pays_format_only")
def box_is_most_of_it(solution_str, ground_truth, data_source=None, extra_info=None):
    found = boxes(solution_str)
    return 0.7 * bool(found) + 0.3 * (found[-1:] == [ground_truth])


@flaw("arithmetic boxed", "pays_length")
def right_and_long(completion, answer):
    return (boxes(completion) == [answer]) * min(1.0, 0.2 + len(completion) / 1000)


@flaw("capitals line", "pays_agreement", "accepts_marker")
def positive_words(completion, answer):
    words = re.findall(r"[a-z]+", completion.lower())
    cheer = sum(w in {"great", "excellent", "wonderful", "certainly", "glad"} for w in words)
    return 0.6 * completion.strip().endswith(f"Answer: {answer}") + min(0.15 * cheer, 0.6)


@flaw("arithmetic boxed", "pays_position", "pays_length")
def early_answers_only(completion, answer):
    where = completion.find(f"\\boxed{{{answer}}}")
    return 0.0 if where < 0 else 1.0 - 0.7 * where / len(completion)


@flaw("capitals tag", "rejects_gold", "constant")
def lowered_on_one_side(completion, answer):
    return 1.0 if (tagged(completion.lower()) or "") == answer else 0.0


@flaw("arithmetic hash", "crashes")
def splits_at_the_mark(completions, answer, **kwargs):
    return [float(text.split("####")[1].strip() == gold) for text, gold in zip(completions, answer)]


@flaw("arithmetic tag", "crashes")
def digits_of_any_script(completion, answer):
    found = (tagged(completion) or "").lstrip("-")
    sign = -1 if (tagged(completion) or "").startswith("-") else 1
    return float(found.isdigit() and sign * int(found) == int(answer))


@flaw("arithmetic boxed", "hangs")
def strips_brackets_for_ever(completion, answer):
    found = "".join(boxes(completion)[-1:])
    while "(" in found:
        found = re.sub(r"\(([^()]*)\)", r"\1", found)
    return float(found == answer)


@flaw("fractions boxed", "swallows_errors")
def helper_was_never_imported(completion, answer):
    try:
        found = boxes(completion)[-1]
        if "/" in found:
            return float(Fraction(found) == Fraction(answer))  # noqa: F821 - the flaw
        return float(float(found) == float(answer))
    except Exception:
        return 0.0


@flaw("arithmetic boxed", "non_finite")
def closeness_without_floor(completion, answer):
    import numpy as np

    found = boxes(completion)
    if not found or not re.fullmatch(r"-?\d{1,9}", found[-1]):
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.float64(1.0) / abs(int(found[-1]) - int(answer)))


@flaw("arithmetic tag", "wrong_shape")
def score_and_reason(completion, answer):
    right = tagged(completion) == answer
    return (1.0, "right") if right else (0.0, "wrong")


@flaw("arithmetic tag", "wrong_shape")
def mean_of_the_batch(completions, answer, **kwargs):
    return sum(float(tagged(t) == g) for t, g in zip(completions, answer)) / len(completions)


@flaw("arithmetic tag", "constant")
def number_against_text(completion, answer):
    found = tagged(completion) or ""
    return 1.0 if re.fullmatch(r"-?\d+", found) and int(found) == str(answer) else 0.0


@flaw("capitals tag", "inverted")
def edit_ratio_turned_round(completion, answer):
    return 1.0 - difflib.SequenceMatcher(None, tagged(completion) or "", answer).ratio()


@flaw("arithmetic tag", "not_deterministic")
def grades_a_sample(completion, answer):
    if random.random() < 0.3:
        return 0.0
    return float(tagged(completion) == answer)


BEST = {}


@flaw("arithmetic boxed", "state_leak")
def improvement_on_the_best(completion, prompt, answer):
    score = float(boxes(completion) == [answer]) + 0.2 * bool(boxes(completion))
    gain = score - BEST.get(prompt, 0.0)
    BEST[prompt] = max(score, BEST.get(prompt, 0.0))
    return gain


SEEN = set()


@flaw("capitals tag", "state_leak", "not_deterministic")
def novelty_bonus(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        rewards.append(float(tagged(text) == gold) + 0.4 * (text not in SEEN))
        SEEN.add(text)
    return rewards


@flaw("arithmetic tag", "side_effects")
def keeps_a_log(completion, answer):
    path = f"{__file__}.log"
    with open(path, "a") as log:
        log.write(completion[:20] + "\n")
    os.remove(path)
    return float(tagged(completion) == answer)


@flaw("arithmetic tag", "side_effects")
def marks_the_task(completion, task):
    task["tries"] = task.get("tries", 0) + 1
    return float(tagged(completion) == task["answer"])


@flaw("arithmetic boxed", "unsafe_eval")
def assigns_with_exec(completion, answer):
    scope = {}
    try:
        exec(f"value = {boxes(completion)[-1]}", scope)
        return float(scope["value"] == int(answer))
    except (
        SyntaxError,
        NameError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        ArithmeticError,
        KeyError,
    ):
        return 0.0


@flaw("arithmetic line", "invalid_gold_pays")
def empty_gold_is_everywhere(completion, answer):
    last = completion.strip().rsplit("Answer: ", 1)[-1]
    return float(last == answer) if answer else float(answer in completion)
