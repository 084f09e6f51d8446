"""Loopholes that no policy is trained on are played by scripts and shown as that."""

from dataclasses import replace

from assay.cli.progress import Silent
from assay.report.console import print_experiment
from assay.report.load import load
from assay.report.write import write_loaded
from assay.tasks.loopholes.table import LOOPHOLES
from assay.train.experiment import reload_recipe, run_experiment
from assay.train.recipe import load_recipe
from assay.train.scripted import play_scripts


def test_holes_attacked_by_scripts_are_kept_and_shown(small, tmp_path, capsys):
    recipe = replace(
        load_recipe(small, ["steps=1", "eval_every=1"], arms=["sound"]), scripted=("sycophancy",)
    )
    root = tmp_path / "scripted"
    run_experiment(recipe, root, Silent())
    play_scripts(recipe, root)
    assert reload_recipe(root).scripted == ("sycophancy",)
    found = load(root)
    row = found.scripted[0]
    assert row["weak"] - row["sound"] >= 0.4
    assert row["sound"] == row["truth"]
    print_experiment(found)
    assert "attacked by scripts" in capsys.readouterr().out
    assert "Attacked by scripts" in write_loaded(found).read_text("utf-8")


def test_the_zoo_shows_every_hole_and_a_choice_of_arms_only_those():
    assert len(load_recipe("zoo").scripted) + len(load_recipe("zoo").arms) / 2 == len(LOOPHOLES)
    assert load_recipe("zoo", arms=["empty"]).scripted == ()
