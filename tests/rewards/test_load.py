"""Loading ``file.py:name``: every mistake is one clear line."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.rewards.load import load_function

FOREIGN = Path(__file__).with_name("foreign_rewards.py")


def write(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_function_is_loaded_and_called(tmp_path):
    path = write(tmp_path, "def reward(completion, task):\n    return 2.0\n")
    assert load_function(f"{path}:reward")("x", {}) == 2.0


def test_an_instance_and_a_dotted_name_are_loaded():
    assert load_function(f"{FOREIGN}:yes_judge")("yes", {}) is True
    assert load_function(f"{FOREIGN}:yes_judge.word.upper")() == "YES"


def test_a_module_of_a_package_is_loaded():
    assert load_function("math:sqrt")(4) == 2


def test_one_content_runs_once_and_a_changed_file_runs_again(tmp_path):
    path = write(
        tmp_path, "calls = []\ndef reward(completion):\n    calls.append(1)\n    return len(calls)\n"
    )
    assert load_function(f"{path}:reward")("") == 1
    assert load_function(f"{path}:reward")("") == 2
    write(tmp_path, "def reward(completion):\n    return 9\n")
    assert load_function(f"{path}:reward")("") == 9


def test_the_file_can_import_its_neighbour(tmp_path):
    write(tmp_path, "VALUE = 5\n", "its_neighbour_module.py")
    path = write(
        tmp_path, "import its_neighbour_module\ndef f(completion):\n    return its_neighbour_module.VALUE\n"
    )
    assert load_function(f"{path}:f")("") == 5


def test_what_the_file_prints_stays_off_stdout(tmp_path, capsys):
    path = write(tmp_path, "print('loading')\ndef f(completion):\n    return 0\n")
    load_function(f"{path}:f")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("def my_reward(c):\n    return 0\n", "my_rewrad", "did you mean 'my_reward'"),
        ("x = 3\n", "x", "is a int; expected a function"),
        ("class R:\n    pass\n", "R", "is a class"),
        ("def f(:\n", "f", "line 1: syntax error"),
        ("import no_such_module_anywhere\n", "f", "No module named 'no_such_module_anywhere'"),
        ("raise RuntimeError('broken')\n", "f", "RuntimeError: broken (mine.py:1)"),
        ("import sys\nsys.exit(3)\n", "f", "SystemExit: 3"),
    ],
)
def test_mistakes_in_the_file(tmp_path, text, name, expected):
    path = write(tmp_path, text)
    with pytest.raises(BadInput, match=r"\w") as caught:
        load_function(f"{path}:{name}")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("reward.py", "expected FILE.py:FUNCTION"),
        (":f", "expected FILE.py:FUNCTION"),
        ("f.py:", "expected FILE.py:FUNCTION"),
        ("no_such_package_here:f", "no module named 'no_such_package_here'"),
        (f"{FOREIGN.with_name('foreign_reward.py')}:f", "did you mean 'foreign_rewards.py'"),
    ],
)
def test_mistakes_in_the_spec(spec, expected):
    with pytest.raises(BadInput, match=r"\w") as caught:
        load_function(spec)
    assert expected in str(caught.value)


def test_a_file_that_fails_can_be_mended_and_loaded(tmp_path):
    path = write(tmp_path, "raise ValueError\n")
    with pytest.raises(BadInput):
        load_function(f"{path}:f")
    write(tmp_path, "def f(completion):\n    return 1\n")
    assert load_function(f"{path}:f")("") == 1


def test_loading_is_light():
    code = "import sys, assay.rewards.running, assay.rewards.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "polars", "scipy", "sympy"} & set(done.stdout.split())
