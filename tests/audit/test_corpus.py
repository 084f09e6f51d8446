"""The audit measured on rewards written as people write them: a part in every run, all of them when slow."""

import importlib.util
import sys
from pathlib import Path

import pytest

from assay.audit.reward_audit import audit_reward

FOLDER = Path(__file__).parent / "corpus"


def corpus(name):
    path = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"audit_corpus_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TASKS = corpus("tasks").TASKS
FLAWED = {
    (m, n): row
    for m in ("flawed_text", "flawed_more", "flawed_answers", "flawed_code")
    for n, row in corpus(m).FLAWED.items()
}
SOUND = {
    (m, n): tasks
    for m in ("sound_text", "sound_more", "sound_answers", "sound_code")
    for n, tasks in corpus(m).SOUND.items()
}
QUICK_FLAWED = ("any_box_counts", "absolute_value")
QUICK_SOUND = ("minus_one_zero_one",)


def audited(module, name, tasks):
    return audit_reward(f"{FOLDER / module}.py:{name}", TASKS[tasks])


def failures(report):
    return {finding.id for finding in report.findings if finding.status == "fail"}


def test_the_corpus_is_large_and_varied():
    assert len(FLAWED) >= 60
    assert len(SOUND) >= 60
    assert len(frozenset().union(*(expected for _, expected in FLAWED.values()))) >= 25


@pytest.mark.parametrize("name", QUICK_FLAWED)
def test_a_flaw_is_named(name):
    tasks, expected = FLAWED["flawed_text", name]
    report = audited("flawed_text", name, tasks)
    assert report.verdict == "flawed"
    assert failures(report) & expected
    assert report.exit_code == 1


@pytest.mark.parametrize("name", QUICK_SOUND)
def test_a_sound_reward_is_not_accused(name):
    report = audited("sound_text", name, SOUND["sound_text", name])
    assert failures(report) == set()
    assert report.verdict == "no_flaw_found"
    assert report.exit_code == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nine_in_ten_flaws_are_named():
    missed = [
        name
        for (module, name), (tasks, expected) in FLAWED.items()
        if not failures(audited(module, name, tasks)) & expected
    ]
    assert len(missed) <= 0.1 * len(FLAWED), missed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_at_most_one_sound_reward_is_accused():
    accused = {}
    for (module, name), tasks in SOUND.items():
        if found := failures(audited(module, name, tasks)):
            accused[name] = found
    assert len(accused) <= 1, accused
