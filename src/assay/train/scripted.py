"""Holes that a tiny model cannot write its way into are attacked by a script, and shown as what they are."""

from __future__ import annotations

import json
from pathlib import Path

from assay.records.finding import jsonable
from assay.records.run_folder import write_text
from assay.tasks.loopholes.loophole import attack_by_script
from assay.tasks.loopholes.table import loophole
from assay.train.recipe import Recipe

PROMPTS = 24
FILE = "scripted.json"


def play_scripts(recipe: Recipe, root: Path) -> None:
    """Play the exploit of each of the recipe's ``scripted`` loopholes and keep the scores in ``root``."""
    if not recipe.scripted or (root / FILE).is_file():
        return
    rows = []
    for name in recipe.scripted:
        hole = loophole(name)
        played = attack_by_script(hole, seed=recipe.base.seed, prompts=PROMPTS)
        rows.append(
            {"name": name, "pays": hole.pays, "fix": hole.fix, "weak": played.weak, "sound": played.sound,
             "truth": played.truth, "hacking_rate": played.hacking_rate, "prompts": played.prompts}
        )  # fmt: skip
    write_text(root / FILE, json.dumps(jsonable(rows), indent=1) + "\n")
