"""The report: the same under every positive scale, machine-readable, with tests that fail until it is mended."""

import json
import random
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from assay.audit.reward_audit import audit_reward
from assay.audit.run_link import exploit_shares, rollouts_of
from assay.cli.main import app
from assay.errors import BadInput
from assay.records.run_folder import RunFolder

REWARD = """import re

SCALE, SHIFT = {scale!r}, {shift!r}


def boxes(text):
    return re.findall(r"\\\\boxed\\{{([^{{}}]*)\\}}", text)


def reward(completion, answer):
    found = boxes(completion)
    right = {rule}
    return SCALE * (0.25 * bool(found) + 0.75 * right) + SHIFT
"""
HOLE = "answer in [f.strip() for f in found]"
MENDED = "len(found) == 1 and answer == found[0].strip()"
ROWS = [
    {"prompt": f"What is {a} + {b}? Put the final answer in \\boxed{{}}.", "answer": str(a + b)}
    for a, b in ((3, 4), (20, -31), (15, 27), (8, 85), (-6, -2), (40, 19))
]


def write(folder, rule, scale=1.0, shift=0.0):
    path = folder / "rewards.py"
    path.write_text(REWARD.format(scale=scale, shift=shift, rule=rule))
    return f"{path}:reward"


def essence(report):
    return [
        (f.id, f.status, f.exploit and (f.exploit.task["prompt"], f.exploit.completion))
        for f in report.findings
    ]


@pytest.fixture(scope="module")
def flawed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flawed")
    spec = write(folder, HOLE)
    return folder, spec, audit_reward(spec, ROWS)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 777.0), (640.0, -1e3)])
def test_scale_and_shift_change_nothing(flawed, tmp_path, scale, shift):
    found = audit_reward(write(tmp_path, HOLE, scale, shift), ROWS)
    assert essence(found) == essence(flawed[2])
    assert found.verdict == "flawed"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_scales_and_shifts_change_nothing(flawed, tmp_path):
    rng = random.Random(3)
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        scale, shift = 10 ** rng.uniform(-3, 3), rng.uniform(-1e3, 1e3)
        found = audit_reward(write(folder, HOLE, scale, shift), ROWS)
        assert essence(found) == essence(flawed[2]), (scale, shift)


def test_a_negative_scale_is_inverted(tmp_path):
    found = audit_reward(write(tmp_path, MENDED, -2.0), ROWS)
    assert [f.id for f in found.findings if f.status == "fail"] == ["inverted"]


def test_the_document_has_the_fields_of_the_contract(flawed):
    document = json.loads(json.dumps(flawed[2].to_json()))
    assert document["verdict"] == "flawed"
    assert {"estimate", "low", "high", "n"} <= set(document["false_positive_rate"])
    assert document["probes"] > 500
    finding = next(f for f in document["findings"] if f["id"] == "accepts_guess_list")
    assert set(finding["exploit"]) == {"task", "completion", "score", "expected"}
    assert finding["stage"] == "audit"
    assert finding["exploit"]["completion"].count("\\boxed") == 3
    assert 0 < document["detection_limit"] < 1


def test_written_tests_fail_until_the_reward_is_mended(flawed, tmp_path):
    _, _, report = flawed
    spec = write(tmp_path, HOLE)
    module = tmp_path / "test_reward.py"
    module.write_text(report.tests().replace(flawed[1], spec))
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", str(module)]
    before = subprocess.run(command, capture_output=True, text=True)
    write(tmp_path, MENDED)
    after = subprocess.run(command, capture_output=True, text=True)
    assert before.returncode == 1, before.stdout
    assert after.returncode == 0, after.stdout


def test_labelled_completions_give_rates_by_stratum(flawed, tmp_path):
    from assay.audit.bench import build_bench
    from assay.audit.labelled import labelled_rates
    from assay.audit.prober import Prober
    from assay.audit.source import read_source
    from assay.audit.task_file import make_tasks

    task = ROWS[0]
    rows = [
        {**task, "completion": "\\boxed{7}", "correct": True, "stratum": "plain"},
        {**task, "completion": "seven", "correct": True, "stratum": "words"},
        {**task, "completion": "\\boxed{6} \\boxed{7} \\boxed{8}", "correct": False, "stratum": "plain"},
        {**task, "completion": "\\boxed{9}", "correct": False, "stratum": "plain"},
    ]
    tasks = make_tasks(ROWS, ["completion", "answer"], [])
    with Prober(flawed[1], {t.key: t.row for t in tasks}) as prober:
        bench = build_bench(prober, read_source(flawed[1]), tasks)
        found = labelled_rates(bench, rows)
        with pytest.raises(BadInput, match="label"):
            labelled_rates(bench, [{"completion": "x"}])
    assert found["false_positive_rate"]["estimate"] == 0.5
    assert found["false_negative_rate"]["estimate"] == 0.5
    assert found["strata"]["words"]["false_negative_rate"]["estimate"] == 1.0


def test_findings_link_to_the_rollouts_of_a_run(flawed, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_run({"status": "done"})
    several = "\\boxed{1} \\boxed{2} \\boxed{3}"
    for step, texts in ((1, ["\\boxed{7}", "no"]), (2, [several, "\\boxed{7}"])):
        table = {"prompt_id": ["a", "b"], "prompt": ["q", "q"], "completion": texts, "reward": [1.0, 0.0]}
        folder.write_table(folder.rollouts(step), table)
    shares = exploit_shares(flawed[2].findings, rollouts_of(str(folder.root)))["accepts_guess_list"]
    assert [(row["step"], row["share"]) for row in shares] == [(1, 0.0), (2, 0.5)]
    assert shares[1]["mean_reward"] == 1.0


def test_the_command_prints_one_document_and_exits_with_one(flawed, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    done = CliRunner().invoke(app, ["audit", flawed[1], "--tasks", str(tasks), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["verdict"] == "flawed"


@pytest.mark.parametrize("arguments", [["nope.py:f", "--tasks", "none.jsonl"], ["nope.py:f"]])
def test_what_cannot_run_is_one_clear_line(arguments):
    code = "import sys; from assay.cli.main import main; sys.argv = ['assay', *sys.argv[1:]]; main()"
    done = subprocess.run([sys.executable, "-c", code, "audit", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_reward_that_does_not_load(tmp_path):
    path = tmp_path / "r.py"
    path.write_text(
        "def reward(completion, answer):\n    return 1.0\n\nraise RuntimeError('no model here')\n"
    )
    with pytest.raises(BadInput, match="no model here"):
        audit_reward(f"{path}:reward", ROWS)
    path.write_text("def reward(completion, key_of_the_sheet):\n    return 1.0\n")
    with pytest.raises(BadInput, match="key_of_the_sheet"):
        audit_reward(f"{path}:reward", ROWS)
