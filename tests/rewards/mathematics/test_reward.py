"""The mathematics reward: one extractor, golds that are checked first, and nothing that is executed."""

import os
import time
from fractions import Fraction

import pytest

from assay.rewards.mathematics import extract, reward, symbolic
from assay.rewards.mathematics.reward import MathReward, lint_golds, math_reward
from assay.rewards.running import RewardRunner


def task(answer, **more):
    return {"prompt_id": "p", "prompt": "q", "answer": answer, **more}


@pytest.mark.parametrize(
    ("completion", "gold", "value"),
    [
        (r"I get \boxed{41}; counted twice, so \boxed{14}.", "14", 1.0),
        (r"I get \boxed{41}; counted twice, so \boxed{14}.", "41", 0.0),
        (r"One of \boxed{2} \boxed{3} \boxed{5}.", "3", 0.0),
        (r"<think>maybe \boxed{8}</think> So \boxed{5}", "8", 0.0),
        (r"<think>maybe \boxed{5}</think> So \boxed{8}", "8", 1.0),
        (r"\boxed{}", "0", 0.0),
        ("I am not sure.", "7", 0.0),
        ("13*9=117\n#### 1,117", "1117", 1.0),
        ("#### 1", "1117", 0.0),
        ("#### 117", "1117", 0.0),
        ("#### 1,117,000", "1117", 0.0),
        ("#### -8", "-8", 1.0),
        ("#### 8", "-8", 0.0),
        ("#### $45", "45", 1.0),
        ("#### ", "0", 0.0),
        ("#### 20\nNo.\n#### 21", "20", 0.0),
        (r"\boxed{" + "+".join(["1"] * 150) + "}", "150", 1.0),
        ("", "0", 0.0),
        ("7", "7", 1.0),
    ],
)  # fmt: skip
def test_verdicts(completion, gold, value):
    assert math_reward(completion, task(gold)).value == value


@pytest.mark.parametrize("gold", [None, "", "  ", "see the proof above", "1/0", "nan", "\frac12", "#### "])
@pytest.mark.parametrize("completion", ["zzz", r"\boxed{1}", ""])
def test_an_unusable_gold_is_never_paid(gold, completion):
    score = math_reward(completion, task(gold))
    assert score.state == "invalid_task"
    assert "'p'" in str(score.reason)


@pytest.mark.parametrize(
    "gold", ["6", r"$\frac{3}{4}$", "$x=2$", r"\text{B}", "so 4+4=8\n#### 8", r"it is \boxed{9}", 12, 0.5]
)
def test_a_usable_gold_pays_itself_and_no_junk(gold):
    text = reward.gold_text(gold)
    assert math_reward(rf"\boxed{{{text}}}", task(gold)).value == 1.0
    assert math_reward("zzz", task(gold)).value == 0.0


def test_golds_are_linted_before_training():
    golds = [r"\frac12", "\frac12", r"\text{B}", "\beta", "5", None]
    found = lint_golds([task(gold) for gold in golds])
    assert sorted(found) == [1, 3, 5]
    assert "control character" in found[1]


def test_policies_are_explicit():
    text = r"\boxed{7} or \boxed{8}"
    assert MathReward(which="first")(text, task("7")).value == 1.0
    assert MathReward(which="first")(text, task("8")).value == 0.0
    counting = "I see 1 2 3 4 5 6 and then some more of them after that, all in a row without an end"
    assert MathReward()(counting, task("6")).value == 0.0
    assert MathReward(last_number=True)(counting, task("6")).value == 1.0
    assert MathReward(column="gold")("5", {"gold": "5"}).value == 1.0


def test_training_and_evaluation_use_one_extractor():
    assert reward.extract_answer is extract.extract_answer


@pytest.mark.parametrize(
    "payload",
    [
        "__import__('pathlib').Path('EXECUTED').touch()", "open('EXECUTED','w')", "().__class__.__bases__",
        "[__import__('os').system('touch EXECUTED'), 2]", "(lambda: 5)()", "5 if True else 6",
        "exec(\"open('EXECUTED','w')\")", r"2\pi + open('EXECUTED','w').write('')", "x.evalf(subs={x:1})",
    ],
)  # fmt: skip
@pytest.mark.parametrize("gold", ["5", r"2\pi", r"\begin{pmatrix}1\\2\end{pmatrix}", "[1,2]"])
def test_text_is_never_executed(tmp_path, monkeypatch, payload, gold):
    monkeypatch.chdir(tmp_path)
    for completion in (payload, rf"\boxed{{{payload}}}", f"#### {payload}"):
        assert math_reward(completion, task(gold)).value == 0.0
    assert os.listdir(tmp_path) == []


BOMBS = [
    "8^{8^{8^{8}}}", "(10^{9})!", "2^{" * 80 + "2" + "}" * 80, "9" * 100_000, r"\sum_{k=1}^{10^{11}} \frac{1}{k^3}",
    r"\frac{7^{7^{7^7}}+1}{7^{7^7}+1}", "(" * 3000 + ")" * 3000, "(x+y+z+w)^{900}", "((x+1)^{40}+(y+1)^{40})^{40}",
    "+".join(f"x_{{{i}}}" for i in range(3000)), r"\binom{10^9}{5\cdot 10^8}", "1e999999999", "1/" * 2000 + "1",
    r"\sqrt{" * 50 + "2" + "}" * 50, "!" * 5000, r"\sin(" * 40 + "x" + ")" * 40, "-" * 100_000 + "3",
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_decided_within_its_limit_and_the_next_sample_is_right(bomb):
    started, wall = time.process_time(), time.monotonic()
    assert not math_reward(rf"\boxed{{{bomb}}}", task(r"\sin(x)+3")).value
    assert not math_reward(rf"\boxed{{{bomb}}}", task("4")).value
    assert time.process_time() - started < 1.0
    assert time.monotonic() - wall < 30.0  # a proof in the child takes at most 1 s of a free machine
    assert math_reward(r"\boxed{4}", task("4")).value == 1.0


def test_a_proof_that_hangs_is_killed_and_the_next_one_works():
    prover = symbolic.Prover(cpu_limit=0.5)
    hard = symbolic.Call(
        "sum",
        (symbolic.Symbol("k"), number(1), number(10**11), symbolic.Power(symbolic.Symbol("k"), number(-3))),
    )
    assert prover.prove(hard, number(1)) is None
    x = symbolic.Symbol("x")
    two_x = symbolic.Product((number(2), x))
    assert (
        prover.prove(
            symbolic.Call("sin", (two_x,)),
            symbolic.Product((number(2), symbolic.Call("sin", (x,)), symbolic.Call("cos", (x,)))),
        )
        is True
    )
    prover.close()


def number(value):
    return symbolic.Number(Fraction(value))


def test_without_sympy_what_needs_it_is_missing_with_the_install_line(monkeypatch):
    monkeypatch.setattr(symbolic, "is_available", lambda: False)
    monkeypatch.setattr(reward, "is_available", lambda: False)
    score = math_reward(r"\boxed{\sin(x)^2}", task(r"\frac{1-\cos(2x)}{2}"))
    assert score.state == "missing"
    assert "assay[math]" in str(score.reason)
    assert math_reward(r"\boxed{2}", task("2")).value == 1.0


def test_it_runs_in_a_worker_and_its_prover_goes_with_it():
    with RewardRunner(math_reward, time_limit=20) as runner:
        scores = runner.score([r"\boxed{\sin^2 x}", r"\boxed{1}"], [task(r"1-\cos^2 x"), task("2")])
    assert [score.value for score in scores] == [1.0, 0.0]


def test_a_flood_is_scored_zero_with_its_reason():
    score = math_reward("x" * 1_000_001, task("1"))
    assert (score.value, score.reason) == (0.0, "longer than 1000000 characters")


def test_a_gold_of_several_parts_is_matched_by_boxes_beside_each_other():
    assert MathReward()(r"\boxed{1}, \boxed{2} and \boxed{3}", task("3, 1, 2")).value == 1.0
    assert MathReward()(r"\boxed{1}, \boxed{2} and \boxed{4}", task("3, 1, 2")).value == 0.0
    assert MathReward()(r"\boxed{1}, \boxed{2} and \boxed{3}", task("2")).value == 0.0, "a guess list"
    assert MathReward()(r"\boxed{-8, 4}", task(r"\boxed{a=4,\,-8}")).value == 1.0
    assert MathReward()(r"\boxed{\frac12}", task(r"\\frac{1}{2}")).value == 1.0, "a gold escaped twice"
