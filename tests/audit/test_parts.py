"""The parts of the audit: golds, patterns, source, minimising, tasks, rates."""

import json
import math
import re
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.audit.advice import ADVICE
from assay.audit.bench import Bench, Scale
from assay.audit.countdown import solved_expression
from assay.audit.forms import asked_templates
from assay.audit.golds import as_number, equal_forms, read_gold, wrong_values
from assay.audit.labelled import rogan_gladen
from assay.audit.minimise import minimised
from assay.audit.patterns import SLOT, pumps, templates
from assay.audit.prober import Prober
from assay.audit.probes import _lists, unit_of
from assay.audit.source import RewardSource, read_source
from assay.audit.task_file import check_golds, gold_column, make_tasks, misfits, read_rows
from assay.audit.worker import Watch
from assay.errors import BadInput


@pytest.mark.parametrize(
    ("text", "number"),
    [("42", 42), ("-7", -7), ("1,250", 1250), ("3/4", Fraction(3, 4)), ("\\frac{3}{4}", Fraction(3, 4)),
     ("$5$", 5), ("\u22125", -5), ("4.50", Fraction(9, 2)), ("4²", None), ("1/0", None), ("five", None)],
)  # fmt: skip
def test_plain_numbers_are_read_exactly(text, number):
    assert as_number(text) == number


@pytest.mark.parametrize(
    ("raw", "kind"),
    [("12", "integer"), ("0.5", "decimal"), ("1/3", "fraction"), ("B", "choice"), ("Paris", "text"),
     ("x^2 - 1", "expression"), (None, "unusable"), ("", "unusable"), ("def f(x):\n    return x\n", "code"),
     ("so #### 7", "integer"), ("thus \\boxed{3.5}", "decimal")],
)  # fmt: skip
def test_kinds_of_gold(raw, kind):
    assert read_gold(raw).kind == kind


@given(st.integers(-(10**6), 10**6))
def test_equal_forms_are_equal_and_wrong_values_are_not(number):
    gold = read_gold(str(number))
    for form in equal_forms(gold):
        assert as_number(form.text.replace("+", "", 1)) == number, form
    wrong = [v.text for v in wrong_values(gold, ["17", str(number)])]
    assert wrong
    assert all(as_number(text) != number for text in wrong)


@given(st.fractions(max_denominator=50))
def test_fractions_too(number):
    gold = read_gold(f"{number.numerator}/{number.denominator}")
    for form in equal_forms(gold):
        read = as_number(form.text.replace("+", "", 1))
        assert read is None or abs(float(read) - float(number)) < 1e-9, form
    assert all(as_number(v.text) != number for v in wrong_values(gold, []))


PATTERNS = [
    r"<answer>(.*?)</answer>", r"^<think>\n.*?\n</think>\n<answer>\n(.*?)\n</answer>$", r"#### (\-?[0-9\.\,]+)",
    r"\\boxed\{([^}]*)\}", r"[Aa]nswer\s*(?:is|:)\s*\(?([A-D])\)?", r"Score: (\d+)/10", r"\[\[(\w+)\]\]",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_written_out_pattern_matches_itself(pattern):
    found = templates(pattern)
    assert found
    assert any(SLOT in text for text in found)
    for text in found:
        filled = text.replace(SLOT, "A" if "A-D" in pattern else "7")
        assert re.search(pattern, filled, re.DOTALL), filled


def test_pumps_hold_the_repeated_part_many_times():
    short, long = pumps([r"^(\w+\s?)*$"])[:2]
    assert short.count("a") >= 30
    assert 3000 < len(long) <= 4096


def test_source_of_one_reward_does_not_hold_the_words_of_another(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(
        '"""Doc with SECRET."""\nimport re\nMARK = "GOOD JOB"\n'
        "def first(completion):\n    'text OTHERDOC'\n    return float(MARK in completion)\n"
        "def second(completion):\n    return float('SEVEN' in completion and eval(completion.strip()))\n"
    )
    first, second = read_source(f"{path}:first"), read_source(f"{path}:second")
    assert "GOOD JOB" in first.markers
    assert not {"SEVEN", "SECRET", "text OTHERDOC"} & set(first.markers)
    assert first.evaluators == ()
    assert [name for _, name in second.evaluators] == ["eval"]


def test_eval_of_something_else_is_not_evaluation_of_the_text(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(
        "def r(completion, answer):\n    table = eval(answer)\n    return float(completion in table)\n"
    )
    assert read_source(f"{path}:r").evaluators == ()


def test_taint_passes_through_calls(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(
        "def value(text):\n    return eval(text)\n"
        "def r(completion, answer):\n    last = completion.split()[-1]\n    return float(value(last) == answer)\n"
    )
    assert len(read_source(f"{path}:r").evaluators) == 1


@pytest.mark.parametrize(
    ("prompt", "template"),
    [("Put it in \\boxed{}.", f"\\boxed{{{SLOT}}}"), ("Reply inside <answer></answer>.", f"<answer>{SLOT}</answer>"),
     ("End with #### 7.", f"#### {SLOT}"), ("Reply in JSON: {'result': 7}", f'{{"result": {SLOT}}}'),
     ("Finish with 'Answer: 7'", f"Answer: {SLOT}")],
)  # fmt: skip
def test_forms_asked_for_are_read_from_the_prompt(prompt, template):
    assert template in asked_templates([prompt])


@pytest.mark.parametrize(
    ("template", "unit"),
    [(f"<think>\nx\n</think>\n<answer>\n{SLOT}\n</answer>", f"<answer>\n{SLOT}\n</answer>"),
     (f"So it is \\boxed{{{SLOT}}}.", f"\\boxed{{{SLOT}}}"), (f"Hm.\nAnswer: {SLOT}\n", f"Answer: {SLOT}")],
)  # fmt: skip
def test_the_unit_that_states_the_answer(template, unit):
    assert unit_of(template) == unit


@given(st.text("ab ", max_size=30), st.text("ab ", max_size=30))
def test_a_minimised_text_still_pays_and_is_short(before, after):
    found = minimised(f"{before} KEY {after}", lambda text: "KEY" in text)
    assert found == "KEY"


def test_gold_columns():
    rows = [{"prompt": "q", "solution": "long text", "answer": "5"}]
    assert gold_column(rows, ["completion", "answer"]) == "answer"
    assert gold_column(rows, ["completion", "solution"]) == "solution"
    assert (
        gold_column([{"prompt": "q", "reward_model": {"ground_truth": "5"}}], [])
        == "reward_model.ground_truth"
    )
    assert gold_column([{"prompt": "q"}], []) is None


def test_rows_of_columns_and_broken_lines(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"prompts": ["a", "b"], "answer": ["1", "2"]}')
    assert read_rows(path) == [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"}]
    broken = tmp_path / "t.jsonl"
    broken.write_text('{"prompt": "a"}\n{oops\n')
    with pytest.raises(BadInput, match="row 2"):
        read_rows(broken)
    with pytest.raises(BadInput, match="not a file"):
        read_rows(tmp_path / "none.jsonl")


def test_a_known_completion_is_kept():
    task = make_tasks([{"prompt": "q", "answer": "5", "completion": "It is 5."}], ["answer"], [])[0]
    assert task.completions == ("It is 5.",)
    assert task.with_gold("6")["answer"] == "6"


def test_one_value_everywhere_is_a_setting_not_a_gold():
    rows = [{"prompt": f"Describe {thing} in three words.", "words": 3} for thing in ("a", "b", "c")]
    assert gold_column(rows, ["completion", "words"]) is None
    assert (
        gold_column([{**row, "words": i} for i, row in enumerate(rows)], ["completion", "words"]) == "words"
    )
    named = [{"prompt": "q", "answer": "B"} for _ in range(4)]
    assert gold_column(named, ["completion", "answer"]) == "answer"


@pytest.mark.parametrize(
    ("low", "high", "share", "paid", "contested"),
    [
        (0.0, 1.0, 0.5, True, False),  # half of a pay that starts at 0
        (0.0, 640.0, 0.5, True, False),
        (-1.0, 1.0, 0.5, False, False),  # the 0 of an abstention
        (2.0, 4.0, 0.5, False, True),  # nobody can tell
        (2.0, 4.0, 0.51, True, False),
        (-1.0, 1.0, 0.51, True, False),
        (0.0, 1.0, 0.49, False, False),
        (0.0, 1.0, math.nan, False, False),
    ],
)
def test_half_of_the_pay_for_saying_nothing(low, high, share, paid, contested):
    task = make_tasks([{"prompt": "q", "answer": "5"}], ["answer"], [])[0]
    bench = Bench(Prober("none.py:reward", {}), RewardSource(), [task], [task])
    bench.scales[task.key] = Scale(low, high, low, low)
    assert bench.pays_nothing(task, share) is paid
    assert bool(bench.contested) is contested


def test_patience_with_a_reward_that_hangs_is_bounded():
    prober = Prober("none.py:reward", {}, time_limit=5.0)
    waits = []
    for prober.hung in range(60):
        waits.append(prober._patience())
    assert waits[0] == 5.0
    assert waits[-1] == 0.3
    assert sum(waits) < 45
    prober.usual = 1.0  # a slow reward is not a hanging one
    assert prober._patience() == 5.0


def test_guesses_in_json_stay_json():
    values = ["41", "42", "43"]
    for template in (f'{{"answer": {SLOT}}}', f'{{"answer": "{SLOT}"}}'):
        texts = [build(values) for name, build in _lists(template) if name == "a list in JSON"]
        assert [len(json.loads(text)["answer"]) for text in texts] == [3]
    assert "a list in JSON" not in [name for name, _ in _lists(f"\\boxed{{{SLOT}}}")]


@given(st.floats(0.01, 0.99), st.floats(0, 0.4), st.floats(0, 0.4))
def test_rogan_gladen_inverts_the_two_rates(right, false_positive, false_negative):
    observed = right * (1 - false_negative) + (1 - right) * false_positive
    assert rogan_gladen(observed, false_positive, false_negative) == pytest.approx(right, abs=1e-9)


def test_rogan_gladen_is_unknown_for_a_reward_without_information():
    assert math.isnan(rogan_gladen(0.5, 0.5, 0.5))


def test_every_piece_of_advice_says_why_and_how():
    assert len(ADVICE) >= 29
    assert all(advice.why and advice.fix for advice in ADVICE.values())


@pytest.mark.parametrize(("numbers", "target"), [([3, 7, 25], 46), ([2, 2], 1), ([1, 5, 6, 9], 21), ([4], 4)])
def test_a_target_is_reached_with_every_number_once(numbers, target):
    expression = solved_expression({"nums": numbers, "target": target})
    assert eval(expression) == target
    assert sorted(map(int, re.findall(r"\d+", expression))) == sorted(numbers)
    nested = {"reward_model": {"ground_truth": {"numbers": numbers, "target": target}}}
    assert solved_expression(nested) == expression


def test_other_tasks_have_no_expression():
    assert solved_expression({"prompt": "q", "answer": "5"}) is None
    assert solved_expression({"nums": [2, 2], "target": 999}) is None


def test_a_scratch_folder_is_not_a_side_effect(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    watch = Watch()
    watch.start()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text("pass")
    assert "wrote" not in watch.stop()
    outside = tmp_path / "written_by_a_test.txt"
    watch.start()
    outside.write_text("x")
    outside.unlink()
    assert "written_by_a_test" in watch.stop()["wrote"]


@pytest.mark.parametrize(
    ("golds", "odd"),
    [(["1", "2", "3", "see the figure"], [3]), (["1", None, "2"], [1]), (["1", "Paris", "Oslo", "2"], []),
     (["1", "2", "3", "x^2 - 1"], []), (["1", "2", "3", "???"], [3]), ([None, None], []), (["7", "8", "N/A"], [2])],
)  # fmt: skip
def test_golds_that_are_a_fault_of_the_file(golds, odd):
    tasks = make_tasks([{"prompt": "q", "answer": gold} for gold in golds], ["completion", "answer"], [])
    assert [tasks.index(task) for task in misfits(tasks)] == odd


@pytest.mark.parametrize("value", [None, "", "n/a", math.nan])
def test_tasks_without_any_gold_are_refused_and_not_the_reward(value):
    rows = [{"prompt": "q", "answer": value}] * 3
    with pytest.raises(BadInput, match="mend the tasks"):
        check_golds(rows, make_tasks(rows, ["completion", "answer"], []))


@pytest.mark.parametrize("row", [{"prompt": "q"}, {"prompt": "q", "answer": {"numbers": [1]}},
                                 {"prompt": "q", "answer": None, "completion": "good"},
                                 {"prompt": "q", "answer": None, "label": "5"}])  # fmt: skip
def test_tasks_that_can_do_without_a_text_for_a_gold(row):
    check_golds([row], make_tasks([row], ["completion"], []))
