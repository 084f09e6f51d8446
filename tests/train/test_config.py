"""A configuration is checked before anything is loaded, and every refusal says what to do."""

import re

import pytest

from assay.algos.recipes import option_names
from assay.config import RunConfig, build_config, known_keys, override
from assay.errors import BadInput
from assay.key_names import ELSEWHERE
from assay.train.recipe import load_recipe, recipe_names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gruop_size": 4}, "did you mean 'group_size'"),
        (
            {"batch_size": 10, "group_size": 4},
            r"not divisible.*batch_size=8 or 12, or group_size in \[1, 2, 5, 10\]",
        ),
        ({"group_size": 1}, "group_size=1 leaves a group baseline"),
        ({"group_size": 1, "algorithm": "grpo"}, "group_size of 2 or more"),
        ({"steps": "many"}, "steps: .*got 'many'"),
        ({"steps": 0}, "steps: .*got 0"),
        ({"temperature": -1}, "temperature: .*got -1"),
        ({"match": "deepspeed"}, "match: .*got 'deepspeed'"),
        ({"warm_start": {"targt": 1}}, "did you mean 'warm_start.target'"),
    ],
)
def test_a_bad_value_is_one_clear_line(values, message):
    with pytest.raises(BadInput, match=message) as caught:
        build_config(values)
    assert "\n" not in str(caught.value)


def test_group_size_one_is_fine_without_a_group_baseline():
    config = build_config({"group_size": 1, "algorithm_options": {"baseline": "moving_average"}})
    assert config.group_size == 1


def test_overrides_reach_nested_keys_and_algorithm_options():
    values = {"warm_start": {"target": 0.1}, "algorithm_options": {"baseline": "group_mean"}}
    changed = override(
        values, {"warm_start.target": 0.2, "kl_coef": 0.3, "steps": 9}, algorithm_options=option_names("grpo")
    )
    assert changed == {
        "warm_start": {"target": 0.2},
        "algorithm_options": {"baseline": "group_mean", "kl_coef": 0.3},
        "steps": 9,
    }
    assert values["warm_start"] == {"target": 0.1}, "the recipe itself is not changed"


@pytest.mark.parametrize("key", ["kl_ceof", "warm_strat.target", "nothing.like.it"])
def test_an_unknown_override_is_refused(key):
    with pytest.raises(BadInput, match="unknown key"):
        override({}, {key: 1}, algorithm_options=option_names("grpo"))


def test_a_single_value_has_no_inner_key():
    with pytest.raises(BadInput, match="single value"):
        override({"steps": 3}, {"steps.more": 1})


def test_known_keys_are_dotted():
    assert {"group_size", "warm_start", "warm_start.target", "sizes.layers"} <= set(known_keys())
    assert set(RunConfig.model_fields) <= set(known_keys())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_package_is_valid(name):
    recipe = load_recipe(name)
    assert recipe.arms
    assert recipe.title


def test_the_required_experiment_has_its_arms():
    assert list(load_recipe("loophole").arms) == ["sound", "weak", "weak+kl"]
    assert list(load_recipe("loophole", arms=["random", "noise"]).arms) == ["random", "noise"]


def test_assignments_win_over_arms_over_the_recipe(small):
    recipe = load_recipe(small, ["steps=7", "kl_coef=0.2"])
    assert {config.steps for config in recipe.arms.values()} == {7}
    assert {config.algorithm_options["kl_coef"] for config in recipe.arms.values()} == {0.2}
    assert [config.reward for config in recipe.arms.values()] == ["sound", "marker"]


def test_a_sweep_of_the_clip_range():
    recipe = load_recipe("rlhf", arms=["kl 0.1"], sweep="clip=0.05,0.2,0.8")
    assert list(recipe.arms) == ["clip=0.05", "clip=0.2", "clip=0.8"]
    options = [config.algorithm_options for config in recipe.arms.values()]
    assert [(one["clip"], one["kl_coef"]) for one in options] == [(0.05, 0.1), (0.2, 0.1), (0.8, 0.1)]


def test_a_sweep_is_one_arm_a_value(small):
    recipe = load_recipe(small, sweep="group_size=2,4,8")
    assert list(recipe.arms) == ["group_size=2", "group_size=4", "group_size=8"]
    assert [config.group_size for config in recipe.arms.values()] == [2, 4, 8]
    assert recipe.sweep == ("group_size", (2, 4, 8))


@pytest.mark.parametrize(
    ("source", "kwargs", "message"),
    [
        ("lophole", {}, "did you mean 'loophole'"),
        ("absent.yaml", {}, "does not exist"),
        ("loophole", {"arms": ["sond"]}, "did you mean 'sound'"),
        ("loophole", {"assignments": ["steps"]}, "expected key=value"),
        ("loophole", {"assignments": ["steps=[1"]}, "not a valid value"),
        ("loophole", {"sweep": "group_size=4"}, "at least two values"),
        ("loophole", {"sweep": "group_siz=4,8"}, "did you mean 'group_size'"),
        ("loophole", {"assignments": ["baseline=group_maen"]}, "did you mean 'group_mean'"),
        ("loophole", {"assignments": ["algorithm=grop"]}, "did you mean 'grpo'"),
    ],
)
def test_a_recipe_that_cannot_be_used_says_why(source, kwargs, message):
    with pytest.raises(BadInput, match=message):
        load_recipe(source, **kwargs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: [unclosed", "not valid YAML"),
        ("", "expected keys of a run"),
        ("- a\n- b\n", "expected keys of a run"),
        ("grop_size: 3", "did you mean 'group_size'"),
        ("arms: [a, b]", "arms: expected a mapping"),
    ],
)
def test_a_broken_recipe_file_says_why(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        load_recipe(str(path))


def test_a_recipe_that_is_not_utf8_says_so(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="save it as UTF-8"):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_files_are_found_beside_the_recipe(tmp_path):
    (tmp_path / "tasks.jsonl").write_text("{}\n")
    (tmp_path / "mine.py").write_text("def reward(completion, task): return 1\n")
    (tmp_path / "mine.yaml").write_text("tasks: tasks.jsonl\nreward: mine.py:reward\n")
    config = load_recipe(str(tmp_path / "mine.yaml")).base
    assert config.tasks == str(tmp_path / "tasks.jsonl")
    assert config.reward == f"{tmp_path / 'mine.py'}:reward"


@pytest.mark.parametrize(("key", "ours"), sorted(ELSEWHERE.items()))
def test_what_other_trainers_call_a_key_is_answered_with_its_name_here(key, ours):
    with pytest.raises(BadInput, match=re.escape(f"unknown key {key!r}; here it is {ours!r}")):
        build_config(override({}, {key: 1}))
    name = ours.partition("=")[0]
    if name.startswith("algorithm_options."):
        assert name.partition(".")[2] in option_names("grpo")
    elif name != "--out":
        assert name.partition(".")[0] in RunConfig.model_fields


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lora.targets", 3, "^lora.targets: expected a valid string, got 3"),
        ("threads", "two", "^threads: expected a valid integer, .*got 'two'"),
        ("dtype", "fp8", "^dtype: expected 'float32' or 'bfloat16', got 'fp8'"),
        ("lora.rank", 0, "^lora.rank: expected greater than or equal to 1, got 0"),
    ],
)
def test_a_value_of_the_wrong_kind_is_said(key, value, message):
    with pytest.raises(BadInput, match=message):
        build_config(override({"model": "folder"}, {key: value}))


def test_a_value_where_keys_belong_is_said():
    with pytest.raises(BadInput, match=r"vllm: expected its own keys, as in vllm.NAME=VALUE, got True"):
        build_config({"vllm": True})


@pytest.mark.parametrize("targets", ["*q_proj", "["])
def test_a_pattern_of_layers_that_is_none_is_said(targets):
    with pytest.raises(
        BadInput, match=r"is no regular expression .* as in \.\*q_proj, or a list of layer names"
    ):
        build_config({"model": "folder", "lora": {"targets": targets}})


@pytest.mark.parametrize("inside", ["", "arms:\n  one:\n    "])
def test_other_trainers_names_are_answered_in_a_file_too(tmp_path, inside):
    path = tmp_path / "own.yaml"
    path.write_text(f"tasks: arithmetic-v1\n{inside}num_generations: 8\n")
    with pytest.raises(BadInput, match=r"unknown key 'num_generations'; here it is 'group_size'"):
        load_recipe(str(path))
