"""One fault, one diagnosis; what people and programs read of it."""

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from assay.cli.main import app
from assay.doctor.catalogue import CATALOGUE
from assay.doctor.causes import EXPLAINS, MOOT, ORDER, link
from assay.doctor.comparison import compare_runs
from assay.doctor.diagnosis import diagnose
from assay.doctor.reading import parting, reading
from assay.errors import BadInput
from assay.records.finding import Finding


def fail(id, **evidence):
    return Finding(id=id, stage=1, status="fail", summary=id, evidence=evidence)


def test_the_order_names_every_id_once():
    assert sorted(ORDER) == sorted(CATALOGUE)
    known = set(CATALOGUE)
    assert set(EXPLAINS) | {x for v in EXPLAINS.values() for x in v} | set(MOOT) <= known


@pytest.mark.parametrize(
    ("ids", "root"),
    [
        (["loss.no_gradient", "reward.constant"], "reward.constant"),
        (["reward.constant", "decode.no_eos"], "decode.no_eos"),
        (["loss.non_finite", "advantage.non_finite", "reward.non_finite"], "reward.non_finite"),
        (["loss.non_finite", "advantage.non_finite", "advantage.dtype"], "advantage.dtype"),
        (["hacking.reward_without_truth", "hacking.length"], "hacking.length"),
        (["logprob.sampler_mismatch", "logprob.shifted"], "logprob.shifted"),
    ],
)
def test_the_root_is_what_explains_the_rest(ids, root):
    linked, cause = link([fail(id) for id in ids])
    assert cause is not None
    assert cause.id == root
    assert cause.follows_from is None
    assert all(found.follows_from for found in linked if found.id != root)


def test_late_degeneration_follows_from_the_step_that_wrecked_the_policy():
    linked, cause = link([fail("decode.truncated", early=0.01, late=0.9), fail("loss.step_too_large")])
    assert cause is not None
    assert cause.id == "loss.step_too_large"
    assert linked[0].follows_from == "loss.step_too_large"


def test_the_page_names_cause_fix_and_next_command(make_log):
    log = make_log(end=0.35)
    for row in log.metrics:
        row["clip_ratio/region_mean"] = 0.97
    console = Console(record=True, width=100)
    console.print(reading(log.diagnose()))
    text = console.export_text()
    for word in ("loss.clip_saturated", "Fix:", "Next:", "4. loss and gradient"):
        assert word in text


def run(*args):
    return CliRunner().invoke(app, ["doctor", *map(str, args)])


def test_the_command_prints_json_and_exits_with_one_on_a_failure(tmp_path, make_log):
    log = make_log(steps=30, end=0.35)
    for row in log.metrics:
        row["grad_norm"] = 0.0
    broken = run(log.write(tmp_path / "a"), "--json")
    assert broken.exit_code == 1
    document = json.loads(broken.stdout)
    assert document["root_cause"]["id"] == "loss.no_gradient"
    assert set(document["root_cause"]) == {"stage", "id", "summary", "fix"}
    assert run(make_log(steps=30).write(tmp_path / "b"), "--json").exit_code == 0


def test_two_runs_part_where_one_changes(tmp_path, make_log):
    one, two = make_log(seed=1), make_log(seed=1)
    for row in two.metrics[30:]:
        row["entropy"] += 1.0
    result = compare_runs(one.record(), two.record())
    assert result.metric == "entropy"
    assert 29 <= result.step <= 33
    assert result.first_difference == 31
    console = Console(record=True, width=100)
    console.print(parting(result))
    assert "part at step" in console.export_text()


@pytest.mark.parametrize(("prompts", "rate", "status"), [(["p0"], 0.001, "fail"), (["p4"], 0.0006, "pass")])
def test_a_continuation_that_starts_over(tmp_path, prompts, rate, status):
    first = [
        {"step": s, "prompt_ids": [f"p{s}"], "lr": 0.001 - 0.0001 * s, "reward": 0.3 + 0.01 * s}
        for s in range(4)
    ]
    second = [{"step": 4, "prompt_ids": prompts, "lr": rate, "reward": 0.4}]
    for name, rows in (("a", first), ("b", second)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = compare_runs(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert result.resumed is not None
    assert result.resumed.status == status


def test_the_reward_function_shows_a_prefilled_tag(tmp_path):
    (tmp_path / "r.py").write_text(
        "def reward(completions, **columns):\n    return [float(c.startswith('<think>')) for c in completions]\n"
    )
    rows = [
        {"prompt_id": "p", "prompt": "q<think>\n", "completion": f"so {i}</think> x", "reward": 0.0}
        for i in range(4)
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = diagnose(tmp_path / "rollouts.jsonl", reward=f"{tmp_path}/r.py:reward")
    assert found.root_cause is not None
    assert found.root_cause.id == "decode.prefilled"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["{log}", "{log}", "--html", "page.html"], "--html goes with one run"),
        (["{log}", "{log}", "--reward", "r.py:f"], "--reward goes with one run"),
        (["--code", "r.py:f", "--as", "reward", "--tokenizer", "t"], "--tokenizer goes with one run"),
        (["{log}", "--code", "r.py:f", "--as", "reward"], "expected a run or a function"),
        (["{log}", "--html", ""], "expected a file for the page"),
        (["{log}", "--html", "{log}/page.html"], "cannot be written"),
    ],
)
def test_an_option_without_effect_and_a_page_that_cannot_be_written_are_one_line(tmp_path, options, words):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": s, "reward": s / 9}) + "\n" for s in range(9)))
    error = run(*(option.format(log=log) for option in options)).exception
    assert isinstance(error, BadInput)
    assert words in str(error)
    assert "\n" not in str(error)
