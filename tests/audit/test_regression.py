"""Written tests fail on the flawed reward and pass on the mended one, whatever kind of flaw it is."""

import pytest

from assay.audit.reward_audit import audit_reward

HEAD = """
import random
import re
import sys

LAST = {}


def box(text):
    found = re.findall(r"\\\\boxed\\{([^{}]*)\\}", text)
    return found[0].strip() if len(found) == 1 else None


def right(completion, answer):
    return box(completion) == str(answer).strip()


def reward(completion, task):
    answer = task["answer"]
    return float(right(completion, answer))
"""
MENDED = "    return float(right(completion, answer))\n"
FLAWS = {
    "constant": "    return 0.0 if right(completion, answer) else 0.0\n",
    "inverted": "    return 1.0 - float(right(completion, answer))\n",
    "pays_length": "    return right(completion, answer) * min(1.0, 0.2 + len(completion) / 900)\n",
    "not_deterministic": "    return float(right(completion, answer)) * random.choice([0.5, 1.0])\n",
    "state_leak": "    key = task['prompt']\n    LAST.setdefault(key, float(right(completion, answer)))\n"
    "    return LAST[key]\n",
    "side_effects": "    print(completion)\n    return float(right(completion, answer))\n",
    "side_effects_of_a_file": "    open(__file__ + '.log', 'a').close()\n" + MENDED,
    "unsafe_eval": "    try:\n        return float(eval(str(box(completion)), {}) == int(answer))\n"
    "    except (SyntaxError, NameError, TypeError, ValueError, ArithmeticError, AttributeError):\n"
    "        return 0.0\n",
    "wrong_shape": "    return [float(right(completion, answer))] * 2\n",
    "crashes": "    return float(int(box(completion) or 0) == int(answer))\n",
    "invalid_gold_pays": "    return float(right(completion, answer) or not str(answer).strip())\n",
    "accepts_guess_list": "    return float(f'{{{answer}}}' in completion)\n",
    "rejects_equivalent": "    return float(completion == f'\\\\boxed{{{answer}}}')\n",
}
ROWS = [
    {"prompt": f"What is {a} + {b}? Put it in \\boxed{{}}.", "answer": str(a + b)}
    for a, b in ((3, 4), (1220, 30), (15, -27), (800, 950))
]
QUICK = ("invalid_gold_pays",)


def outcome(report, spec, path, id):
    """Run the written test of one id against the file as it is now: None where it passes."""
    space = {}
    exec(compile(report.tests(), "test_reward", "exec"), space)
    assert f"test_{id}" in space, report.findings
    try:
        space[f"test_{id}"]()
    except AssertionError as error:
        return error
    return None


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=[] if id in QUICK else pytest.mark.slow) for id in FLAWS if id[:3] != "rej"]
)
def test_a_written_test_fails_before_and_passes_after(tmp_path, id):
    code, id = FLAWS[id], id.removesuffix("_of_a_file")
    path = tmp_path / "rewards.py"
    path.write_text(HEAD.replace(MENDED, code))
    spec = f"{path}:reward"
    report = audit_reward(spec, ROWS)
    assert id in {finding.id for finding in report.findings if finding.status == "fail"}
    assert outcome(report, spec, path, id) is not None
    path.write_text(HEAD)
    assert outcome(report, spec, path, id) is None
