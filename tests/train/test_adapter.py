"""A run of an adapter depends on its seed alone, from its first matrices on."""

import yaml

from assay.records.run_folder import RunFolder
from assay.train.experiment import run_experiment
from assay.train.recipe import load_recipe
from tests.hub_models import make_folder
from tests.train.test_second_path import Silent

OWN = {
    "tasks": "arithmetic-v1",
    "reward": "sound",
    "algorithm": "grpo",
    "controls": False,
    "lora": {"rank": 2},
    "steps": 1,
    "batch_size": 8,
    "group_size": 4,
    "max_new_tokens": 4,
    "eval_prompts": 2,
    "eval_samples": 2,
    "arms": {"run": {}},
}


def adapters(root, recipe):
    run_experiment(recipe, root, Silent())
    folder = RunFolder(root / "run")
    return [(folder.checkpoint(step) / "adapter_model.safetensors").read_bytes() for step in (0, 1)]


def test_the_same_seed_gives_the_same_adapter_and_another_seed_another(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, "model": str(make_folder(tmp_path / "base"))}))
    one, two = (adapters(tmp_path / name, load_recipe(str(path))) for name in ("one", "two"))
    assert one == two
    other = adapters(tmp_path / "other", load_recipe(str(path), ["seed=1"]))
    assert one[0] != other[0]
