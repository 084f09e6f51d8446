"""The README stays short, starts with something to run, and its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from assay.config import build_config
from assay.train.recipe import load_recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
CONSOLE = [
    line.split("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


def test_it_is_short_and_starts_with_something_to_run():
    lines = README.splitlines()
    assert len(lines) < 150
    assert lines.index("```console") < 20


@pytest.mark.parametrize("command", [line for line in CONSOLE if line.startswith("make ")])
def test_make_targets_exist(command):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command.split()[1] in targets


@pytest.mark.parametrize("command", [line for line in CONSOLE if line.startswith("assay ")])
def test_every_option_of_a_command_exists(command):
    words = shlex.split(command)
    shown = subprocess.run(
        [sys.executable, "-m", "assay.cli.main", words[1], "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": ""},
    ).stdout  # fmt: skip
    for word in words[2:]:
        if word.startswith("--"):
            assert word in shown, f"{command}: {word} is no option"


def test_run_commands_are_valid_recipes():
    for command in CONSOLE:
        words = shlex.split(command)
        if words[:3] == ["assay", "run", "loophole"]:
            arms = words[words.index("--arms") + 1].split(",") if "--arms" in words else []
            sweep = words[words.index("--sweep") + 1] if "--sweep" in words else None
            keys = [word for word in words[3:] if re.match(r"^\w+=[^,]*$", word)]
            load_recipe("loophole", keys, arms=arms, sweep=sweep)


def test_the_yaml_example_is_a_valid_configuration():
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    config = build_config(yaml.safe_load(example))
    assert config.algorithm == "grpo"


def test_extras_named_in_the_readme_exist():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in ("math", "tensorboard", "vllm", "gguf", "tasks", "train"):
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE)


def test_every_folder_named_exists():
    for name in re.findall(r"`(src/assay/\w+|examples|benchmarks|docs)`", README):
        assert (ROOT / name).is_dir(), name
