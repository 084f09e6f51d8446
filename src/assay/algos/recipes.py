"""Algorithms by name: the published method, or what another library computes under that name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from assay.algos import cispo, dapo, dpo, dr_grpo, grpo, gspo, ppo, reinforce, reinforce_pp, rloo
from assay.algos.algorithm import Algorithm
from assay.algos.presets import Preset
from assay.errors import BadInput, nearest

RECIPES: Mapping[str, tuple[Callable[..., Algorithm], Mapping[str, Preset]]] = {
    "reinforce": (reinforce.reinforce, reinforce.PRESETS),
    "rloo": (rloo.rloo, rloo.PRESETS),
    "grpo": (grpo.grpo, grpo.PRESETS),
    "dr_grpo": (dr_grpo.dr_grpo, dr_grpo.PRESETS),
    "dapo": (dapo.dapo, dapo.PRESETS),
    "gspo": (gspo.gspo, gspo.PRESETS),
    "cispo": (cispo.cispo, cispo.PRESETS),
    "reinforce_pp": (reinforce_pp.reinforce_pp, reinforce_pp.PRESETS),
}
# Methods with a critic or on pairs: the trainer that has what they need asks for their own parts.
SECOND_PATH: Mapping[str, tuple[Callable[..., Algorithm], Mapping[str, Preset]]] = {
    "ppo": (ppo.ppo, ppo.PRESETS),
    "dpo": (dpo.dpo, dpo.PRESETS),
    "online_dpo": (dpo.online_dpo, dpo.PRESETS),
}
ALL = {**RECIPES, **SECOND_PATH}
LIBRARIES = ("trl", "verl", "openrlhf")


def make_algorithm(name: str, *, match: str | None = None, **options: Any) -> Algorithm:
    """Make an algorithm by name.

    Args:
        name: reinforce, rloo, grpo, dr_grpo, dapo, gspo, cispo, reinforce_pp, ppo, dpo or online_dpo.
        match: ``trl``, ``verl`` or ``openrlhf`` for that library's values under this name; None for the
            published method. A group without spread has advantage 0 under every preset.
        options: the recipe's options (see its function); they win over the preset's.

    Raises:
        BadInput: an unknown name, library or option (with the nearest known one), or a bad value.
    """
    if name not in ALL:
        raise BadInput(f"expected an algorithm, got {name!r}{nearest(name, ALL)}")
    recipe, presets = ALL[name]
    known = inspect.signature(recipe).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"{name} has no option {option!r}{nearest(option, known)}")
    if match is None:
        return _build(name, recipe, options)
    if match not in presets:
        raise BadInput(_no_preset(name, match, presets))
    preset = presets[match]
    return preset.apply(_build(name, recipe, {**preset.options, **options}))


def _no_preset(name: str, match: str, presets: Mapping[str, Preset]) -> str:
    if match not in LIBRARIES:
        return f"expected match trl, verl or openrlhf, got {match!r}{nearest(match, LIBRARIES)}"
    having = ", ".join(presets) or "none"
    return f"{match} has no method that {name} could match; presets of {name}: {having}; leave match out"


def _build(name: str, recipe: Callable[..., Algorithm], options: Mapping[str, Any]) -> Algorithm:
    try:
        return recipe(**options)
    except TypeError as error:
        texts = [f"{option}={value!r}" for option, value in options.items() if isinstance(value, str)]
        which = f" among {', '.join(texts)} (a number is not a text)" if texts else ""
        raise BadInput(f"{name} got an option of the wrong type{which}: {error}") from error


def option_names(name: str) -> tuple[str, ...]:
    """Names of a recipe's options, for help texts and configuration checks."""
    if name not in ALL:
        raise BadInput(f"expected an algorithm, got {name!r}{nearest(name, ALL)}")
    return tuple(inspect.signature(ALL[name][0]).parameters)
