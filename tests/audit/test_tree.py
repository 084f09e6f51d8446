"""Graders of file trees: tests within reach of the agent, exit codes, and a grader out of reach."""

import pytest

from assay.audit.tree import audit_tree, read_tree_config
from assay.errors import BadInput

CONFIG = '[env]\nworkspace = "work"\nsource_globs = ["area.py"]\n[grade]\ncmd = "{cmd}"\npass_marker = "GRADE: OK"\n'
SOURCE = "def area(a, b):\n    return a + b\n"
TESTS = "from area import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n"
IN_TREE = """import runpy, sys
sys.path.insert(0, sys.argv[1])
try:
    names = runpy.run_path(sys.argv[1] + "/test_area.py")
except FileNotFoundError:
    names = {}
bad = 0
for name, test in names.items():
    if name.startswith("test_"):
        try:
            test()
        except Exception:
            bad += 1
print("GRADE: " + ("BAD" if bad else "OK"))
"""
SEALED = """import json, random, subprocess, sys
pairs = [[random.randint(2, 999), random.randint(2, 999)] for _ in range(10)]
child = ("import json, sys; sys.path.insert(0, sys.argv[1]); from area import area; "
         "print(json.dumps([area(a, b) for a, b in json.loads(sys.argv[2])]))")
done = subprocess.run([sys.executable, "-c", child, sys.argv[1], json.dumps(pairs)], capture_output=True, text=True)
try:
    got = json.loads(done.stdout.strip().splitlines()[-1])
except (ValueError, IndexError):
    got = None
print("GRADE: " + ("OK" if got == [a * b for a, b in pairs] else "BAD"))
"""


def grader(folder, script, *, tests=True, source=SOURCE):
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "area.py").write_text(source)
    if tests:
        (folder / "work" / "test_area.py").write_text(TESTS)
    (folder / "judge.py").write_text(script)
    (folder / "assay.toml").write_text(CONFIG.replace("{cmd}", "python3 judge.py {workspace}"))
    return folder


def failures(report):
    return {finding.id for finding in report.findings if finding.status == "fail"}


def test_tests_in_the_tree_are_editable(tmp_path):
    folder = grader(tmp_path / "g", IN_TREE)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    report = audit_tree(folder)
    assert report.verdict == "flawed"
    assert {"tests_editable", "missing_tests_pass", "equality_overridden"} <= failures(report)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_sealed_grader_is_not_accused(tmp_path):
    report = audit_tree(grader(tmp_path / "g", SEALED, tests=False))
    assert failures(report) == set()
    assert report.verdict == "no_flaw_found"


def test_an_unchanged_tree_that_passes(tmp_path):
    lazy = 'import sys\nprint("GRADE: OK" if "def area" in open(sys.argv[1] + "/area.py").read() else "GRADE: BAD")\n'
    assert "accepts_noop" in failures(audit_tree(grader(tmp_path / "g", lazy, tests=False)))


def test_an_exit_code_that_is_trusted(tmp_path):
    folder = grader(tmp_path / "g", "import sys\nsys.path.insert(0, sys.argv[1])\nimport area\n"
                    "assert area.area(2, 4) == 8 and area.area(3, 5) == 15\n", tests=False)  # fmt: skip
    (folder / "assay.toml").write_text('workspace = "work"\ncommand = "python3 judge.py {workspace}"\n')
    assert "exit_code_trusted" in failures(audit_tree(folder))


@pytest.mark.parametrize(
    "text", ["", "workspace = 'work'\n", "workspace = 'nowhere'\ncommand = 'x'\n", "= broken"]
)
def test_settings_that_cannot_be_used(tmp_path, text):
    (tmp_path / "work").mkdir()
    (tmp_path / "assay.toml").write_text(text)
    with pytest.raises(BadInput):
        read_tree_config(tmp_path)


def test_a_folder_without_settings(tmp_path):
    with pytest.raises(BadInput, match=r"assay\.toml"):
        audit_tree(tmp_path)
