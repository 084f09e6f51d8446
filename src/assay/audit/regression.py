"""Turning a finding into a pytest function that fails until the reward is mended."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from assay.audit.bench import HALF, JUNK, Bench
from assay.audit.golds import far_value
from assay.audit.task_file import AuditTask
from assay.records.finding import Finding, jsonable

HEADER = '''"""Regression tests of a reward function, written by `assay audit`. They fail until the reward is mended."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from assay.audit.prober import Call, Prober
from assay.rewards.call import resolve
from assay.rewards.load import load_function

'''
SCORED = """    texts = ["", {text!r}, {gold!r}, {text!r}]
    found = reward.score(texts, [task] * 4)
    assert all(score.is_scored for score in found), [score.reason for score in found]"""
RIGHT_ABOVE_WRONG = """    right, wrong = reward.score([{gold!r}, {wrong!r}], [task] * 2)
    assert right.is_scored and wrong.is_scored and right.value > wrong.value"""
PADDED = """    found, plain, gold, low = (reward.score([text], [task])[0] for text in {four!r})
    assert abs(found.value - plain.value) <= 0.2 * abs(gold.value - low.value)"""
UNUSABLE = """    good = json.loads({good!r})
    found = reward.score([{text!r}], [task])[0]
    gold, low = (reward.score([text], [good])[0] for text in {both!r})
    assert not found.is_scored or found.value - low.value <= 0.5 * (gold.value - low.value)"""
PAID = """    found, gold, low = (reward.score([text], [task])[0] for text in {three!r})
    assert found.is_scored, found.reason
    assert found.value - low.value {sign} 0.5 * (gold.value - low.value)"""
ALONE = """    tasks = {{"a": task, "b": json.loads({other!r})}}
    calls = [Call(key, text) for key in tasks for text in {texts!r}]
    with Prober({spec!r}, tasks{options}) as prober:
        alone = prober.run(calls, "isolated")
        for mode in ("plain", "plain", *(["batch"] if prober.about["batch"] else [])):
            assert [repr(o.value) for o in prober.run(calls, mode)] == [repr(o.value) for o in alone]"""
BODIES: dict[str, str] = {
    "crashes": SCORED, "non_finite": SCORED, "wrong_shape": SCORED,
    "constant": RIGHT_ABOVE_WRONG, "inverted": RIGHT_ABOVE_WRONG,
    "pays_length": PADDED, "pays_agreement": PADDED, "pays_position": PADDED,
    "invalid_gold_pays": UNUSABLE, "missing_tests_pass": UNUSABLE,
    "state_leak": ALONE,
    "not_deterministic": """    values = {{repr(reward.score([{text!r}], [task])[0].value) for _ in range(60)}}
    assert len(values) == 1, values""",
    "hangs": """    with Prober({spec!r}, {{"t": task}}{options}, time_limit=10.0) as prober:
        assert prober.score("t", {text!r}).state != "hang\"""",
    "unsafe_eval": """    sys.__dict__.pop("assay_canary", None)
    reward.score([{text!r}], [task])
    assert not hasattr(sys, "assay_canary"), "the text was run in this process\"""",
    "side_effects": """    with Prober({spec!r}, {{"t": task}}{options}) as prober:
        outcomes = prober.run([Call("t", {text!r}), Call("t", {gold!r})], "watched")
    seen = [kind for o in outcomes for kind in ("printed", "mutated", "wrote", "network") if kind in o.seen]
    assert not seen, seen""",
    "swallows_errors": """    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(reward.score, [{text!r}], [task]).result()[0]
    low = reward.score([{low!r}], [task])[0]
    assert not found.is_scored or found.value > low.value""",
}  # fmt: skip
PLACE = """    found = reward.score([{text!r}] * 6, [task] * 6)
    assert len({{repr(score.value) for score in found}}) == 1"""


def regression_test(
    bench: Bench,
    id: str,
    task: AuditTask,
    completion: str,
    *,
    refused: bool = False,
    control: str | None = None,
) -> str:
    """Source of a test function that fails now, and passes once the reward is mended.

    Most: the exploit is paid at most half of what the gold is (or, ``refused``, more); one that was found at
    exactly half has to be paid less than half. ``control``: the same text without what was paid for.
    """
    body = BODIES.get(id, PAID)
    if id == "pays_position" and control is None:
        body = PLACE
    good = bench.good_tasks[0] if bench.good_tasks else task
    gold, low = bench.accepted(task), _lowest(bench, task)
    wrong = bench.write(task, far_value(task.gold, [])) if bench.has_gold else JUNK[0]
    half = task.key in bench.scales and bench.paid(task, completion) <= HALF
    if body is PAID and math.isnan(bench.prober.score(task.key, gold).value):
        body = SCORED
    other = next((t for t in bench.tasks if t is not task), task)
    options = _options(bench)
    filled = body.format(
        spec=bench.prober.spec, options=options, text=completion, gold=gold, wrong=wrong, low=low,
        three=(completion, gold, low), four=(completion, control, gold, low),
        both=(bench.accepted(good), _lowest(bench, good)), sign=">" if refused else "<" if half else "<=",
        good=json.dumps(jsonable(good.row)), other=json.dumps(jsonable(other.row)),
        texts=(completion, gold, wrong, JUNK[0], bench.accepted(other), _highest(bench, task)),
    )  # fmt: skip
    head = [
        f"def test_{re.sub(r'[^a-z0-9]+', '_', id.lower())}():",
        f"    reward = resolve(load_function({bench.prober.spec!r}){options})",
        f"    task = json.loads({json.dumps(jsonable(task.row))!r})",
    ]
    return "\n".join([*head, filled, ""])


def _options(bench: Bench) -> str:
    """What the user said about how the reward is called, as further arguments."""
    signature, chat = bench.prober.signature, bench.prober.chat
    return (f", signature={signature!r}" if signature else "") + (", chat=True" if chat else "")


def _lowest(bench: Bench, task: AuditTask) -> str:
    """The text with the lowest known score of a task."""
    texts = ["", *JUNK]
    texts += [call.completion for call in bench.prober.known if call.task == task.key][:200]
    scores = {text: bench.prober.score(task.key, text).value for text in texts}
    known = {text: value for text, value in scores.items() if not math.isnan(value)}
    return min(known, key=lambda text: (round(known[text], 9), len(text)), default="")


def _highest(bench: Bench, task: AuditTask) -> str:
    """The text with the highest known score of a task."""
    known = {
        c.completion: o.value
        for c, o in bench.prober.known.items()
        if c.task == task.key and o.value == o.value
    }
    return max(known, key=lambda text: known[text], default="")


def test_file(findings: Sequence[Finding]) -> str:
    """The text of a test module with the regression tests of all findings that have one."""
    blocks = [f.regression_test for f in findings if f.regression_test is not None and f.status == "fail"]
    return HEADER + "\n" + "\n\n".join(blocks)


test_file.__test__ = False  # type: ignore[attr-defined] - pytest collects by name
