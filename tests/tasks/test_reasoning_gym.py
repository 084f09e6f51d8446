import builtins
import importlib.util
import pickle
import sys

import pytest

from assay.errors import BadInput, MissingExtra
from assay.tasks.reasoning_gym import (
    generator_names,
    library_reward,
    library_truth,
    reasoning_gym_task_set,
)

installed = importlib.util.find_spec("reasoning_gym") is not None
needs_library = pytest.mark.skipif(not installed, reason="needs pip install 'assay[tasks]'")


def test_without_the_library_the_install_line_is_given(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("reasoning_gym"):
            raise ImportError("no module named reasoning_gym")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("reasoning_gym")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'assay\[tasks\]'"):
        reasoning_gym_task_set("chain_sum")


def test_a_task_without_its_columns_is_invalid():
    assert library_reward("1", {"prompt": "1+1"}).state == "invalid_task"
    assert library_truth("1", {"prompt": "1+1"}).state == "invalid_task"


@needs_library
@pytest.mark.parametrize("generator", ["chain_sum", "basic_arithmetic", "spell_backward", "number_sorting"])
def test_the_gold_is_paid_and_junk_is_not(generator):
    task_set = reasoning_gym_task_set(generator, seed=1, train=6, evaluation=3)
    assert (len(task_set.train), len(task_set.evaluation)) == (6, 3)
    for task in [*task_set.train, *task_set.evaluation]:
        assert library_reward(task["answer"], task).value == 1.0
        assert library_truth(task["answer"], task) == 1.0
        assert library_truth("zq xj", task) == 0.0
    assert pickle.loads(pickle.dumps(task_set)).data_hash() == task_set.data_hash()
    assert (
        reasoning_gym_task_set(generator, seed=1, train=6, evaluation=3).data_hash() == task_set.data_hash()
    )


@needs_library
def test_unknown_generators_and_settings_are_refused():
    assert "chain_sum" in generator_names()
    with pytest.raises(BadInput, match="did you mean 'chain_sum'"):
        reasoning_gym_task_set("chain_sums")
    with pytest.raises(BadInput, match="refuses the config"):
        reasoning_gym_task_set("chain_sum", config={"no_such_setting": 1})
    narrow = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(BadInput, match="different questions"):
        reasoning_gym_task_set("chain_sum", train=3_000, evaluation=10, config=narrow)
