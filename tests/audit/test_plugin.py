"""The pytest fixture, and the command line as a user meets it: noisy rewards, labels, runs, bad input."""

import json
import subprocess
import sys

import pytest

from assay.cli.main import main

FLAWED = """import re

def reward(completion, answer):
    print("scoring", completion)
    return float(answer in re.findall(r"\\\\boxed\\{([^{}]*)\\}", completion))
"""
SOUND = """import re

def reward(completion, answer):
    return float(re.findall(r"\\\\boxed\\{\\s*([^{}]*?)\\s*\\}", completion) == [answer])
"""
SUITE = """pytest_plugins = ["assay.audit.pytest_plugin"]


def test_flawed(assay_audit):
    assay_audit("flawed.py:reward", "tasks.jsonl")


def test_allowed(assay_audit):
    report = assay_audit("flawed.py:reward", "tasks.jsonl", allow=["accepts_guess_list", "side_effects"])
    assert report.probes > 100

"""
ROWS = [
    {"prompt": f"What is {a} + {b}? Put the final answer in \\boxed{{}}.", "answer": str(a + b)}
    for a, b in ((3, 4), (20, -31), (15, 27), (8, 85))
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "flawed.py").write_text(FLAWED)
    (folder / "sound.py").write_text(SOUND)
    (folder / "test_rewards.py").write_text(SUITE)
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def run(folder, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def assay(folder, *arguments):
    return run(folder, "-m", "assay.cli.main", "audit", *arguments)


@pytest.mark.timeout(900)
def test_the_fixture_fails_a_suite_with_the_exploit(project):
    done = run(project, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "test_rewards.py")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "accepts_guess_list" in done.stdout
    assert "Exploit: '" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.timeout(900)
def test_everything_at_once_is_one_document(project, tmp_path):
    from assay.records.run_folder import RunFolder

    folder = RunFolder(tmp_path / "run")
    folder.write_run({"status": "done"})
    texts = ["\\boxed{1} \\boxed{7} \\boxed{3}", "\\boxed{7}"]
    table = {"prompt_id": ["a", "a"], "prompt": ["q", "q"], "completion": texts, "reward": [1.0, 1.0]}
    folder.write_table(folder.rollouts(3), table)
    labelled = tmp_path / "labelled.jsonl"
    rows = [("\\boxed{7}", True), ("seven", True), ("\\boxed{8} \\boxed{7}", False), ("\\boxed{9}", False)]
    labelled.write_text(
        "".join(json.dumps({**ROWS[0], "completion": t, "correct": c}) + "\n" for t, c in rows)
    )
    tests = tmp_path / "test_reward.py"
    done = assay(project, "flawed.py:reward", "--tasks", "tasks.jsonl", "--json", "--labelled", str(labelled),
                 "--run", str(folder.root), "--write-tests", str(tests))  # fmt: skip
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["labelled"]["false_positive_rate"]["estimate"] == 0.5
    assert document["labelled"]["false_negative_rate"]["estimate"] == 0.5
    assert document["run"]["accepts_guess_list"] == [
        {"step": 3, "share": 0.5, "rollouts": 2, "mean_reward": 1.0}
    ]
    assert "def test_accepts_guess_list" in tests.read_text()


def bad_files(folder):
    (folder / "empty.jsonl").write_text("")
    (folder / "torn.jsonl").write_text('{"prompt": "a", "answer": "1"}\n{"prompt"\n')
    (folder / "unlabelled.jsonl").write_text('{"completion": "x"}\n')
    (folder / "grader").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["sound.py:reward"], "--tasks"),
        (["sound.py:missing", "--tasks", "tasks.jsonl"], "missing"),
        (["sound.py", "--tasks", "tasks.jsonl"], "sound.py"),
        (["sound.py:reward", "--tasks", "empty.jsonl"], "at least one task"),
        (["sound.py:reward", "--tasks", "torn.jsonl"], "line 2"),
        (["sound.py:reward", "--tasks", "tasks.jsonl", "--signature", "latin"], "latin"),
        (["sound.py:reward", "--tasks", "tasks.jsonl", "--labelled", "unlabelled.jsonl"], "label"),
        (["sound.py:reward", "--tasks", "tasks.jsonl", "--run", "nowhere"], "nowhere"),
        (["grader"], "toml"),
    ],
)
def test_what_cannot_be_audited_is_said_in_one_line(project, monkeypatch, capsys, arguments, word):
    bad_files(project)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["assay", "audit", *arguments, "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert err.count("\n") == 1, err
    assert word in err
    assert out == ""
