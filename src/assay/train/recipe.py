"""Recipes: a YAML file of a run's keys, with arms that each change some of them.

A user's file and the package's recipes have one form; without ``arms`` there is one, named ``run``.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from assay.algos.recipes import option_names
from assay.config import RunConfig, build_config, known_keys, override
from assay.errors import BadInput, nearest
from assay.key_names import unknown_key
from assay.train.setup import algorithm_of

OWN_KEYS = ("title", "about", "arms", "more_arms", "scripted")


@dataclass(frozen=True)
class Recipe:
    """An experiment: arms that share tasks, model and start policy.

    Attributes:
        name: of the recipe or file. title, about: for people. arms: name to configuration, in order.
        sweep: (key, values) when the arms are the values of one key. scripted: loopholes played by their scripts.
    """

    name: str
    title: str
    about: str
    arms: Mapping[str, RunConfig]
    sweep: tuple[str, tuple[Any, ...]] | None = None
    scripted: tuple[str, ...] = ()

    @property
    def base(self) -> RunConfig:
        """The first arm: what all arms share is read from it."""
        return next(iter(self.arms.values()))


def recipe_names() -> list[str]:
    """Recipes inside the package."""
    folder = importlib.resources.files("assay.recipes")
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def load_recipe(
    source: str,
    assignments: Sequence[str] = (),
    *,
    arms: Sequence[str] = (),
    sweep: str | None = None,
) -> Recipe:
    """Read a recipe by name or file, set keys, choose arms, spread a sweep; everything is checked here.

    Args:
        source: a recipe's name or a YAML file.
        assignments: ``key=value`` strings; values are YAML.
        arms: which arms (also those made on request); all usual ones by default.
        sweep: ``key=v1,v2,...``: one arm a value, of the first chosen arm.
    """
    document = _read(source)
    base = {key: value for key, value in document.items() if key not in OWN_KEYS}
    if "tasks" in base and isinstance(base["tasks"], str):
        base = _resolve_paths(base, source)
    usual = _arms_of(document, "arms") or {"run": {}}
    known = {**usual, **_arms_of(document, "more_arms")}
    for arm in arms:
        if arm not in known:
            raise BadInput(f"unknown arm {arm!r}{nearest(arm, known)}")
    chosen = {arm: known[arm] for arm in (arms or usual)}
    settings = _assignments(assignments)
    configs = {arm: _config(base, changes, settings) for arm, changes in chosen.items()}
    about, title = str(document.get("about", "")), str(document.get("title", source))
    name = Path(source).stem
    if sweep is None:
        scripted = () if arms else tuple(str(hole) for hole in document.get("scripted") or ())
        return Recipe(name, title, about, configs, scripted=scripted)
    key, values = _sweep(sweep)
    first = next(iter(chosen.values()))
    swept = {f"{key}={value}": _config(base, first, {**settings, key: value}) for value in values}
    return Recipe(name, f"{title}: {key}", about, swept, (key, tuple(values)))


def _read(source: str) -> dict[str, Any]:
    if source.endswith((".yaml", ".yml")):
        path = Path(source)
        if not path.is_file():
            raise BadInput(f"expected a recipe file, {source} does not exist")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{source}: expected UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from None
    elif source in recipe_names():
        text = importlib.resources.files("assay.recipes").joinpath(f"{source}.yaml").read_text("utf-8")
    else:
        raise BadInput(f"unknown recipe {source!r}{nearest(source, recipe_names())}, or give a .yaml file")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or not document:
        raise BadInput(
            f"{source}: expected keys of a run (tasks: ..., reward: ...), got {type(document).__name__}"
        )
    for key in document:
        if key not in OWN_KEYS and key not in RunConfig.model_fields:
            raise BadInput(f"{source}: {unknown_key(str(key), [*OWN_KEYS, *known_keys()])}")
    return document


def _resolve_paths(base: dict[str, Any], source: str) -> dict[str, Any]:
    """Files named in a recipe are looked for beside it, then from where the command runs."""
    here = Path(source).parent if source.endswith((".yaml", ".yml")) else None
    resolved = dict(base)
    for key in ("tasks", "evaluation_tasks", "reward", "truth", "model"):
        value = base.get(key)
        if here is None or not isinstance(value, str) or Path(value).is_absolute():
            continue
        file, colon, name = value.rpartition(":") if ".py:" in value else (value, "", "")
        if (here / file).exists():
            resolved[key] = f"{here / file}{colon}{name}"
    return resolved


def _arms_of(document: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    found = document.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(value, dict | None) for value in found.values()):
        raise BadInput(f"{key}: expected a mapping of arm names to changed keys, got {found!r}")
    return {str(name): dict(value or {}) for name, value in found.items()}


def _assignments(texts: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadInput(f"expected key=value, got {text!r}")
        try:
            result[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise BadInput(f"{key}: {value!r} is not a valid value") from None
    return result


def _sweep(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    parsed = [yaml.safe_load(value) for value in values.split(",") if value]
    if not equals or len(parsed) < 2:
        raise BadInput(f"expected --sweep key=v1,v2,... with at least two values, got {text!r}")
    return key, parsed


def _config(base: Mapping[str, Any], changes: Mapping[str, Any], settings: Mapping[str, Any]) -> RunConfig:
    algorithm = str(settings.get("algorithm", changes.get("algorithm", base.get("algorithm", "reinforce"))))
    options = option_names(algorithm)
    values = override(base, changes, algorithm_options=options)
    config = build_config(override(values, settings, algorithm_options=options))
    algorithm_of(config)  # options and presets are refused here, before anything is loaded
    return config
