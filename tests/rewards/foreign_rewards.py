"""Rewards as people write them for other libraries; nothing here knows of assay."""

import asyncio
import os
import re
import signal
import sys
import time


def trl_accuracy(completions, solution, **kwargs):
    log_metric = kwargs.get("log_metric")
    scores = [1.0 if s in c else 0.0 for c, s in zip(completions, solution, strict=True)]
    if log_metric:
        log_metric("accuracy", sum(scores) / len(scores))
    return scores


def trl_chat(prompts, completions, answer):
    assert prompts[0][-1]["role"] == "user"
    return [float(c[0]["content"].strip() == a) for c, a in zip(completions, answer, strict=True)]


async def trl_async(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [float(len(c)) for c in completions]


def trl_sometimes_none(completions, **kwargs):
    return [None if not c else 0.5 for c in completions]


def compute_score(data_source, solution_str, ground_truth, extra_info=None, strictness=1):
    extra_info["num_turns"] = 1  # verl mutates it
    right = solution_str.strip().endswith(str(ground_truth))
    return {"score": float(right) * strictness, "acc": right, "pred": solution_str[-3:]}


def compute_score_float(data_source, solution_str, ground_truth, extra_info):
    assert data_source == "openai/gsm8k"
    return solution_str == ground_truth


def compute_scores(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(s == g) for s, g in zip(solution_strs, ground_truths, strict=True)]


def reward_func(queries, prompts, labels):
    assert queries[0].startswith(prompts[0])
    reward = float(queries[0][len(prompts[0]) :] == labels[0])
    return {"rewards": [reward], "scores": reward, "extra_logs": {"length": len(queries[0])}}


async def correct_answer(parser, completion, answer, state, info):
    assert state["prompt"]
    assert info["level"] == 3
    return 1.0 if parser.parse_answer(completion) == answer else 0.0


def group_rank(prompts, completions, answers):
    return [float(c == a) for c, a in zip(completions, answers, strict=True)]


def ours(completion, task):
    return float(completion == task["answer"])


def by_name(completion, difficulty, bonus=0.0):
    return difficulty + bonus + len(completion)


class Judge:
    def __init__(self, word):
        self.word = word

    def __call__(self, completion, task):
        return self.word in completion


yes_judge = Judge("yes")
not_a_function = 3


def misbehaves(completion, task):
    """One function that does to the worker what its completion says."""
    if completion == "hang":
        while True:
            pass
    if completion == "sleep":
        time.sleep(60)
    if completion == "exit":
        os._exit(7)
    if completion == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if completion == "system exit":
        sys.exit(3)
    if completion == "print":
        print("to stdout")
        os.write(1, b"to the descriptor\n")
        print("to stderr", file=sys.stderr)
    if completion == "flood":
        for _ in range(2000):
            print("x" * 1000)
    if completion == "raise":
        raise ValueError("first line\nsecond line")
    if completion == "recurse":
        return misbehaves(completion, task)
    if completion == "child":
        os.system("sleep 60 &")
    values = {"none": None, "nan": float("nan"), "inf": float("inf"), "text": "1.0", "list": [1.0]}
    return values.get(completion, 1.0)


DELAYS = [0.05, 0.05, 30.0, 0.05]


async def slow_judge(completion, place):
    await asyncio.sleep(DELAYS[place])
    if place == 3:
        raise ConnectionError("the judge answered 503")
    return float(place)


def slow_judge_sync(completion, place):
    time.sleep(DELAYS[place])
    if place == 3:
        raise ConnectionError("the judge answered 503")
    return float(place)


def batch_with_a_hang(completions, **kwargs):
    if "hang" in completions:
        time.sleep(60)
    return [float(len(c)) for c in completions]


async def blocks_the_loop(completion, task):
    if completion == "hang":
        time.sleep(60)
    return 1.0


def alarm_in_main_thread(completion, answer):
    """Works only where signals work: in the main thread of a process."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(2)
    try:
        return float(re.sub(r"\s", "", completion) == answer)
    finally:
        signal.alarm(0)


def alarm_hidden(completion, answer):
    try:
        raise RuntimeError("no signals here")
    except Exception:  # noqa: BLE001 - the fault this one shows
        return 0.0


def process_id(completion, task):
    return os.getpid()


def loaded_torch(completion, task):
    return "torch" in sys.modules


def mutates(completion, task):
    task["answer"] = "stolen"
    return 1.0
