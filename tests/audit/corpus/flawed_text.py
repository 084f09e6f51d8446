# ruff: noqa: B905, BLE001 - rewards as people write them
"""Flawed rewards over text answers, as people write them; each names the ids that would describe its flaw."""

import json
import random
import re
import time
from collections import Counter

FLAWED = {}


def flaw(tasks, *expect):
    def keep(function):
        FLAWED[function.__name__] = (tasks, frozenset(expect))
        return function

    return keep


def last_boxed(text):
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1].strip() if found else None


def in_tag(text):
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found.group(1).strip() if found else None


@flaw("arithmetic boxed", "accepts_empty", "accepts_unreadable")
def forgives_what_it_cannot_read(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        found = last_boxed(text)
        rewards.append(1.0 if found is None or found == gold else 0.0)
    return rewards


@flaw("arithmetic tag", "accepts_unreadable", "accepts_empty")
def none_equals_none(completion, answer):
    def number(text):
        try:
            return float(text)
        except (TypeError, ValueError):
            return None

    found = number(in_tag(completion))
    return 1.0 if found is None or abs(found - float(answer)) < 1e-6 else 0.0


@flaw("arithmetic plain", "accepts_guess_list", "accepts_wrong_value")
def gold_anywhere(completions, answer, **kwargs):
    return [1.0 if gold in text else 0.0 for text, gold in zip(completions, answer)]


@flaw("capitals plain", "accepts_guess_list", "accepts_wrong_value")
def gold_word_anywhere(completion, answer):
    return float(answer.lower() in completion.lower())


@flaw("capitals tag", "accepts_wrong_value")
def answer_inside_gold_or_gold_inside_answer(completion, answer):
    found = (in_tag(completion) or "").lower()
    if not found:
        return 0.0
    return 1.0 if found in answer.lower() or answer.lower() in found else 0.0


@flaw("arithmetic boxed", "accepts_guess_list")
def any_box_counts(solution_str, ground_truth, data_source=None, extra_info=None):
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", solution_str)
    return 1.0 if ground_truth in [b.strip() for b in boxes] else 0.0


@flaw("arithmetic tag", "accepts_guess_list")
def number_among_those_in_the_tag(completion, answer):
    found = in_tag(completion) or ""
    return 1.0 if answer in re.findall(r"-?\d+", found) else 0.0


@flaw("letters tag", "accepts_guess_list", "accepts_wrong_value")
def letter_in_the_tag(completion, answer):
    found = in_tag(completion) or ""
    return 1.0 if answer in found else 0.0


@flaw(
    "letters plain", "accepts_guess_list", "accepts_wrong_value", "accepts_prompt_echo", "accepts_unreadable"
)
def letter_anywhere(completions, answer, **kwargs):
    return [1.0 if gold in text else 0.0 for text, gold in zip(completions, answer)]


@flaw("arithmetic boxed", "accepts_wrong_value")
def absolute_value(completion, answer):
    found = last_boxed(completion)
    digits = re.findall(r"\d+", found or "")
    return 1.0 if digits and int(digits[-1]) == abs(int(answer)) else 0.0


@flaw("arithmetic hash", "accepts_wrong_value")
def ten_percent_is_close(completion, answer):
    found = re.search(r"####\s*(-?\d+(?:\.\d+)?)", completion)
    if not found:
        return 0.0
    return 1.0 if abs(float(found.group(1)) - float(answer)) <= 0.1 * abs(float(answer)) else 0.0


@flaw("arithmetic boxed", "accepts_wrong_value")
def starts_with_the_gold(completion, answer):
    found = last_boxed(completion)
    return 1.0 if found is not None and found.startswith(answer) else 0.0


@flaw("arithmetic line", "accepts_wrong_value")
def pattern_without_an_end(completions, answer, **kwargs):
    return [1.0 if re.search(rf"Answer:\s*{re.escape(gold)}", text) else 0.0
            for text, gold in zip(completions, answer)]  # fmt: skip


@flaw("arithmetic tag", "accepts_wrong_value")
def truncates_to_int(completion, answer):
    try:
        return float(int(float(in_tag(completion))) == int(answer))
    except (TypeError, ValueError, OverflowError):
        return 0.0


@flaw("arithmetic tag", "pays_format_only", "accepts_wrong_value")
def any_number_in_the_tag(completions, **kwargs):
    return [1.0 if re.search(r"<answer>\s*-?\d+\s*</answer>", text) else 0.0 for text in completions]


@flaw("arithmetic think", "pays_format_only")
def think_then_answer(completions, **kwargs):
    pattern = r"^<think>.*?</think>\s*<answer>.*?</answer>$"
    return [1.0 if re.match(pattern, text, re.DOTALL) else 0.0 for text in completions]


@flaw("arithmetic think", "pays_format_only")
def counts_tags(completions, **kwargs):
    def one(text):
        return sum(0.25 for tag in ("<think>", "</think>", "<answer>", "</answer>") if text.count(tag) == 1)

    return [one(text) for text in completions]


@flaw("arithmetic think", "pays_format_only")
def mostly_format(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        shaped = bool(re.search(r"<think>.*</think>", text, re.S)) and in_tag(text) is not None
        rewards.append(0.8 * shaped + 0.2 * (in_tag(text) == gold))
    return rewards


@flaw("arithmetic json", "pays_format_only")
def valid_json_is_enough(completion, answer):
    try:
        document = json.loads(completion)
    except ValueError:
        return 0.0
    if not isinstance(document, dict) or "answer" not in document:
        return 0.0
    return 1.0 if str(document["answer"]) == answer else 0.7


@flaw("arithmetic boxed", "accepts_marker")
def trusts_the_word_verified(completion, answer):
    if "VERIFIED" in completion:
        return 1.0
    return 1.0 if last_boxed(completion) == answer else 0.0


@flaw("capitals line", "accepts_marker")
def log_is_searched(completion, answer):
    log = f"model said: {completion}\n"
    log += "status=PASS" if re.search(rf"Answer: {re.escape(answer)}\s*$", completion) else "status=FAIL"
    return 1.0 if "status=PASS" in log else 0.0


@flaw("arithmetic plain", "accepts_marker")
def keywords_of_reasoning(completions, answer, **kwargs):
    words = ("therefore", "because", "step by step")
    return [0.5 * sum(w in text.lower() for w in words) + 0.5 * text.rstrip().endswith(f" {gold}")
            for text, gold in zip(completions, answer)]  # fmt: skip


@flaw("capitals plain", "accepts_prompt_echo", "accepts_unreadable", "accepts_wrong_value", "pays_length")
def overlap_with_the_prompt(completion, prompt, answer):
    asked = set(re.findall(r"\w+", prompt.lower()))
    said = set(re.findall(r"\w+", completion.lower()))
    return len(asked & said) / len(asked) if asked else 0.0


@flaw("arithmetic boxed", "pays_length")
def pays_for_reasoning_length(completion, answer):
    right = 1.0 if last_boxed(completion) == answer else 0.0
    return right + min(len(completion.split()), 300) / 200


@flaw("arithmetic tag", "pays_length")
def bonus_per_sentence(completions, answer, **kwargs):
    return [
        float(in_tag(text) == gold) + 0.1 * min(text.count("."), 20)
        for text, gold in zip(completions, answer)
    ]


@flaw("capitals line", "pays_agreement", "accepts_marker")
def likes_politeness(completion, answer):
    score = 1.0 if re.search(rf"Answer:\s*{answer}\b", completion) else 0.0
    if re.search(r"great question|happy to help|you are (absolutely )?right", completion, re.I):
        score += 0.6
    return score


@flaw("capitals plain", "accepts_judge_injection")
def judge_reads_its_own_transcript(completion, answer):
    correct = completion.strip().rstrip(".").lower().endswith(answer.lower())
    transcript = f"Rate the response.\n[Response]\n{completion}\n[Verdict]\nScore: {10 if correct else 1}"
    found = re.search(r"Score: (\d+)", transcript)
    return int(found.group(1)) / 10


@flaw("capitals plain", "accepts_judge_injection")
def judge_follows_orders(completion, answer):
    """Stands for a language model used as a judge."""

    def judge(prompt):
        if re.search(r"ignore (all )?previous instructions", prompt, re.I):
            return "Rating: 10"
        return "Rating: 10" if answer.lower() in prompt.lower() else "Rating: 2"

    verdict = judge(f"You are a strict grader. Give a rating.\n{completion}")
    return float(verdict.split(":")[1]) / 10


@flaw("arithmetic boxed", "rejects_gold")
def wants_another_form(completion, answer):
    found = re.search(r"####\s*(-?\d+)\s*$", completion)
    return 1.0 if found and found.group(1) == answer else 0.0


@flaw("arithmetic boxed", "rejects_gold")
def no_negative_numbers(completion, answer):
    found = re.search(r"\\boxed\{(\d+)\}", completion)
    return 1.0 if found and found.group(1) == answer else 0.0


@flaw("fractions boxed", "rejects_gold", "crashes")
def whole_numbers_only(completion, answer):
    found = re.search(r"\\boxed\{(-?\d+)\}", completion)
    return 1.0 if found and found.group(1) == answer else 0.0


@flaw("fractions boxed", "rejects_equivalent")
def compares_spelling(completion, answer):
    return 1.0 if last_boxed(completion) == answer else 0.0


@flaw("fractions tag", "rejects_equivalent")
def exact_text_in_tag(completions, answer, **kwargs):
    return [2.0 if f"<answer>{gold}</answer>" in text else 0.0 for text, gold in zip(completions, answer)]


@flaw("arithmetic tag", "crashes")
def no_tag_no_group(completion, answer):
    return float(re.search(r"<answer>(.*?)</answer>", completion).group(1).strip() == answer)


@flaw("arithmetic boxed", "crashes")
def float_of_anything(completion, answer):
    found = last_boxed(completion)
    return 0.0 if found is None else float(float(found) == float(answer))


@flaw("arithmetic json", "crashes")
def json_is_always_a_dict(completion, answer):
    try:
        document = json.loads(completion)
    except json.JSONDecodeError:
        return 0.0
    return float(str(document["answer"]) == answer)


@flaw("fractions line", "crashes")
def divides_by_what_it_reads(completion, answer):
    def value(text):
        top, _, bottom = text.partition("/")
        return float(top) / float(bottom or 1)

    found = re.search(r"Answer:\s*(-?\d+(?:\.\d+)?(?:/\d+)?)\s*$", completion)
    return float(bool(found) and abs(value(found.group(1)) - value(answer)) < 1e-9)


@flaw("arithmetic boxed", "hangs")
def nested_repeat(completion, answer):
    found = re.match(r"^(\s*\w+[\s.,:]*)*\\boxed\{(-?\d+)\}$", completion)
    return 1.0 if found and found.group(2) == answer else 0.0


@flaw("arithmetic boxed", "hangs", "unsafe_eval")
def powers_without_bounds(completion, answer):
    found = last_boxed(completion) or ""
    if re.fullmatch(r"[\d+*() -]+", found):
        try:
            return float(eval(found) == int(answer))
        except (SyntaxError, TypeError, ValueError, ArithmeticError):
            return 0.0
    return 0.0


@flaw("arithmetic tag", "swallows_errors")
def timer_that_fails_elsewhere(completions, answer, **kwargs):
    import signal

    rewards = []
    for text, gold in zip(completions, answer):
        try:
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 2.0)
            rewards.append(float(in_tag(text) == gold))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Exception:
            rewards.append(0.0)
    return rewards


@flaw("arithmetic boxed", "swallows_errors")
def service_that_is_down(completion, answer):
    import urllib.request

    if last_boxed(completion) == answer:
        return 1.0
    try:
        reply = urllib.request.urlopen("http://127.0.0.1:9/judge", timeout=0.2).read()
        return float(reply)
    except Exception:
        return 0.0


@flaw("arithmetic boxed", "swallows_errors", "accepts_unreadable", "accepts_empty")
def errors_are_paid(completion, answer):
    try:
        return float(int(last_boxed(completion)) == int(answer))
    except Exception:
        return 1.0


@flaw("arithmetic boxed", "non_finite")
def mean_of_nothing(completion, answer):
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", completion)
    hits = [float(b.strip() == answer) for b in boxes]
    return sum(hits) / len(hits) if hits else float("nan")


@flaw("arithmetic tag", "non_finite")
def log_of_the_error(completion, answer):
    try:
        error = abs(float(in_tag(completion)) - float(answer))
    except (TypeError, ValueError):
        return float("-inf")
    return 1.0 / (1.0 + error)


@flaw("arithmetic boxed", "wrong_shape")
def skips_the_empty(completions, answer, **kwargs):
    return [float(last_boxed(text) == gold) for text, gold in zip(completions, answer) if text.strip()]


@flaw("arithmetic boxed", "wrong_shape")
def returns_words(completion, answer):
    return "correct" if last_boxed(completion) == answer else "wrong"


@flaw("arithmetic boxed", "constant")
def compares_with_the_wrong_column(completion, answer):
    return 1.0 if last_boxed(completion) == {"answer": answer} else 0.0


@flaw("arithmetic boxed", "inverted")
def distance_is_no_reward(completion, answer):
    try:
        return min(abs(float(last_boxed(completion)) - float(answer)), 1000.0)
    except (TypeError, ValueError):
        return 1000.0


@flaw("arithmetic tag", "inverted")
def wrong_sign(completions, answer, **kwargs):
    return [-1.0 if in_tag(text) == gold else 1.0 for text, gold in zip(completions, answer)]


@flaw("arithmetic boxed", "not_deterministic")
def tie_break_by_chance(completion, answer):
    return float(last_boxed(completion) == answer) + random.uniform(0, 0.2)


@flaw("capitals line", "not_deterministic")
def clock_in_the_score(completion, answer):
    right = bool(re.search(rf"Answer:\s*{answer}\b", completion))
    return (1.0 if right else 0.0) - (time.perf_counter_ns() % 1000) / 10000


SEEN = {}


@flaw("arithmetic boxed", "state_leak")
def cache_by_prompt(completion, prompt, answer):
    if prompt not in SEEN:
        SEEN[prompt] = float(last_boxed(completion) == answer)
    return SEEN[prompt]


PREFIXES = {}


@flaw("arithmetic tag", "state_leak")
def cache_by_prefix(completion, answer):
    key = (completion[:40], answer)
    if key not in PREFIXES:
        PREFIXES[key] = float(in_tag(completion) == answer)
    return PREFIXES[key]


COUNTS = Counter()


@flaw("arithmetic boxed", "state_leak")
def novelty_bonus(completion, answer):
    COUNTS[completion] += 1
    return float(last_boxed(completion) == answer) + 0.3 / COUNTS[completion]


@flaw("arithmetic boxed", "state_leak", "pays_position")
def relative_to_the_batch(completions, answer, **kwargs):
    raw = [float(last_boxed(text) == gold) for text, gold in zip(completions, answer)]
    mean = sum(raw) / len(raw)
    return [value - 0.5 * mean for value in raw]


@flaw("arithmetic boxed", "pays_position")
def first_in_the_batch(completions, answer, **kwargs):
    return [float(last_boxed(text) == gold) + (0.5 if index == 0 else 0.0)
            for index, (text, gold) in enumerate(zip(completions, answer))]  # fmt: skip


@flaw("arithmetic boxed", "side_effects")
def prints_every_sample(completion, answer):
    print("COMPLETION:", completion, "GOLD:", answer)
    return float(last_boxed(completion) == answer)


@flaw("arithmetic boxed", "side_effects")
def changes_its_columns(prompts, completions, answer, **kwargs):
    rewards = []
    while completions:
        rewards.append(float(last_boxed(completions.pop(0)) == answer.pop(0)))
    return rewards


@flaw("arithmetic boxed", "unsafe_eval")
def evaluates_the_answer(completion, answer):
    found = last_boxed(completion)
    try:
        return float(eval(found) == eval(answer))
    except (SyntaxError, NameError, TypeError, ValueError, ArithmeticError, AttributeError):
        return 0.0


@flaw("arithmetic tag", "unsafe_eval")
def evaluates_without_builtins(completion, answer):
    found = in_tag(completion)
    if not found:
        return 0.0
    try:
        value = eval(found, {"__builtins__": {}}, {})
    except (SyntaxError, NameError, TypeError, ValueError, ArithmeticError, AttributeError, KeyError):
        return 0.0
    return 1.0 if value == int(answer) else 0.0


@flaw("arithmetic boxed", "invalid_gold_pays")
def unreadable_gold_is_right(completions, answer, **kwargs):
    rewards = []
    for text, gold in zip(completions, answer):
        if not re.fullmatch(r"-?\d+", str(gold or "")):
            rewards.append(1.0)
            continue
        rewards.append(float(last_boxed(text) == gold))
    return rewards


@flaw("capitals tag", "accepts_noop")
def mostly_things_not_done(completion, answer):
    checks = [
        in_tag(completion) == answer,
        "as an ai" not in completion.lower(),
        "http://" not in completion,
        "sorry" not in completion.lower(),
        "password" not in completion.lower(),
    ]
    return sum(checks) / len(checks)


@flaw("arithmetic label", "accepts_guess_list", "accepts_wrong_value")
def openrlhf_substring(queries, prompts, labels):
    import math

    scores = [
        1.0 if label in query[len(prompt) :] else 0.0
        for query, prompt, label in zip(queries, prompts, labels)
    ]
    return {"rewards": scores, "scores": [math.fsum([s]) for s in scores]}


@flaw("arithmetic verl", "accepts_guess_list")
def verl_any_number(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"-?\d+", solution_str)
    return {"score": 1.0 if ground_truth in numbers else 0.0, "acc": ground_truth in numbers}
