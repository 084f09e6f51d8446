"""``assay run`` and ``assay eval`` as a user calls them."""

import json
import shutil

import polars as pl
import pytest

from assay.records.run_folder import RunFolder
from tests.cli.conftest import one_line_refusal


def test_a_users_own_run_then_eval_then_report(mine):
    recipe = mine.write()
    done = mine.assay("run", recipe, "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["arms"]["run"]["verdict"]
    assert (mine.folder / "out/report.html").is_file()
    assert list((mine.folder / "out/report").glob("*.png"))
    last = document["arms"]["run"]["checkpoints"][-1]
    again = mine.here("eval", "out/run/checkpoints/step-000002", "--json")
    assert again.returncode == 0, again.stderr
    repeated = json.loads(again.stdout)
    for name in ("reward", "truth", "hacking_rate", "kl_sequence", "entropy", "length"):
        assert repeated[name] == last[name], name
    assert mine.here("report", "out", "--json").returncode == 0


def test_a_print_in_a_reward_does_not_reach_stdout(mine):
    done = mine.here("run", mine.write(reward="rewards.py:prints", steps=1), "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)


def test_the_terminal_names_verdict_folder_and_report(mine):
    done = mine.here("run", mine.write(steps=1), "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "step    1" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1] == "report: out/report.html"


@pytest.mark.parametrize(
    ("reward", "state", "words"),
    [
        ("raises", "crashed", "never divides"),
        ("nan", "crashed", "nan"),
        ("text", "crashed", "'good'"),
        ("none", "missing", "None"),
        ("wrong_length", "crashed", "expected 8"),
    ],
)
def test_a_broken_reward_stops_the_run_with_its_sample(mine, reward, state, words):
    done = mine.here("run", mine.write(reward=f"rewards.py:{reward}"), "--out", "out")
    one_line_refusal(done, "8 of 8 completions have no score", state, "sample 0", "--resume")
    assert words.lower() in done.stderr.lower()
    folder = RunFolder(mine.folder / "out/run")
    assert folder.read_run()["status"] == "stopped"
    rows = pl.read_parquet(folder.rollouts(1))
    assert set(rows["reward_state"]) == {state}
    assert rows["reward"].is_nan().all(), "a missing score is never 0"


def test_a_broken_reward_can_be_mended_and_the_run_goes_on(mine):
    recipe = mine.write(reward="rewards.py:raises")
    assert mine.here("run", recipe, "--out", "out").returncode == 2
    source = (mine.folder / "rewards.py").read_text()
    (mine.folder / "rewards.py").write_text(
        source.replace('raise ZeroDivisionError("never divides")', "return 1.0")
    )
    done = mine.here("run", "--resume", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert RunFolder(mine.folder / "out/run").read_run()["status"] == "done"


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("pays_anything", ["junk completion", "should score less than 0.5, got 1", "controls=false"]),
        ("raises", ["should score", "crashed", "never divides"]),
        ("pays_nothing", ["gold completion", "should score 1, got 0", "controls=false"]),
    ],
)
def test_controls_stop_a_run_before_its_first_step(mine, reward, words):
    recipe = mine.write(reward=f"rewards.py:{reward}", controls=True)
    one_line_refusal(mine.here("run", recipe, "--out", "out"), *words)
    assert not (mine.folder / "out/run/metrics.jsonl").exists()


def test_a_hanging_reward_is_given_up_and_counted(mine):
    recipe = mine.write(
        reward="rewards.py:hangs", reward_time_limit=0.2, steps=1, batch_size=2, group_size=2, eval_prompts=2,
        eval_samples=1,
    )  # fmt: skip
    done = mine.here("run", recipe, "--out", "out")
    one_line_refusal(done, "2 of 2 completions have no score", "missing")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": "absent.jsonl"}, ["absent.jsonl"]),
        ({"tasks": "empty.jsonl"}, ["empty.jsonl"]),
        ({"tasks": "broken.jsonl"}, ["broken.jsonl", "2"]),
        ({"tasks": "promptless.jsonl"}, ["prompt"]),
        ({"tasks": "proofs-v9"}, ["did you mean 'proofs-v1'"]),
        ({"tasks": 3}, ["tasks", "3"]),
        ({"reward": "rewards.py:rewrad"}, ["did you mean 'reward'"]),
        ({"reward": "absent.py:reward"}, ["absent.py"]),
        ({"reward": "broken.py:reward"}, ["broken.py"]),
        ({"reward": "rewards.py:needs_more"}, ["rubric"]),
        ({"truth": None}, ["truth=file.py:name"]),
        ({"reward": "sound"}, ["reward=file.py:name"]),
        ({"model": "nowhere"}, ["nowhere", "config.json"]),
        ({"batch_size": 10, "group_size": 4}, ["not divisible"]),
        ({"max_new_tokens": 500}, ["64 positions"]),
        ({"algorithm": "grop"}, ["did you mean 'grpo'"]),
        ({"algorithm_options": {"klcoef": 1}}, ["did you mean 'kl_coef'"]),
        ({"stpes": 3}, ["did you mean 'steps'"]),
        ({"match": "trl", "algorithm": "reinforce"}, ["trl"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_lost(mine, changes, words):
    (mine.folder / "empty.jsonl").write_text("")
    (mine.folder / "broken.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": \n')
    (mine.folder / "promptless.jsonl").write_text('{"question": "a"}\n')
    (mine.folder / "broken.py").write_text("def reward(:\n")
    one_line_refusal(mine.here("run", mine.write(**changes), "--out", "out"), *words)
    assert (mine.folder / "tasks.jsonl").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "lophole"], ["did you mean 'loophole'"]),
        (["run", "absent.yaml"], ["does not exist"]),
        (["run", "loophole", "stepz=3"], ["did you mean 'steps'"]),
        (["run", "--resume", "nowhere"], ["experiment.json"]),
        (["run", "--resume", ".", "--arms", "weak"], ["leave out"]),
        (["eval", "nowhere"], ["checkpoints/step-"]),
        (["report", "nowhere"], ["experiment.json"]),
        (["audit", "rewards.py:reward", "--tasks", "latin.jsonl"], ["UTF-8"]),
        (
            ["audit", "rewards.py:reward", "--tasks", "tasks.jsonl", "--time-limit", "-1"],
            ["--time-limit", "-1"],
        ),
    ],
)
def test_a_wrong_call_is_one_line(mine, arguments, words):
    (mine.folder / "latin.jsonl").write_bytes(b"\xff\xfe")
    one_line_refusal(mine.here(*arguments), *words)


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_cannot_be_written_is_one_line_and_the_run_resumes(mine, kind):
    number, text = {"full": (28, "No space left on device"), "read-only": (30, "Read-only file system")}[kind]
    patch = mine.folder / "sitecustomize.py"
    patch.write_text(
        "import assay.records.run_folder as r, os\n"
        "keep = r.RunFolder.append_metrics\n"
        "def fails(self, row):\n"
        f"    if row['step'] == 2: raise OSError({number}, {text!r}, str(self.metrics_jsonl))\n"
        "    keep(self, row)\n"
        "r.RunFolder.append_metrics = fails\n"
    )
    recipe = mine.write(steps=3)
    done = mine.assay("run", recipe, "--out", "out", env={"PYTHONPATH": str(mine.folder)})
    one_line_refusal(done, text)
    patch.unlink()
    assert mine.here("run", "--resume", "out", "--json").returncode == 0
    whole = mine.here("run", recipe, "--out", "whole", "--json")
    assert whole.returncode == 0, whole.stderr
    one, two = (RunFolder(mine.folder / name / "run").checkpoint(3) for name in ("out", "whole"))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_json_refusals_keep_stdout_empty(mine):
    done = mine.here("run", "lophole", "--json")
    one_line_refusal(done, "loophole")
    assert done.stdout == ""


def test_recipes_are_listed(mine):
    done = mine.here("run", "--list")
    assert done.returncode == 0
    assert "loophole" in done.stdout
    assert "sound, weak, weak+kl" in done.stdout


def test_eval_refuses_tasks_that_changed(mine):
    recipe = mine.write(steps=1)
    assert mine.here("run", recipe, "--out", "out", "--json").returncode == 0
    shutil.copy(mine.folder / "tasks.jsonl", mine.folder / "kept.jsonl")
    with (mine.folder / "tasks.jsonl").open("a") as stream:
        stream.write('{"prompt": "echo 99:\\n", "answer": "99"}\n')
    one_line_refusal(mine.here("eval", "out/run/checkpoints/step-000001"), "have changed")
