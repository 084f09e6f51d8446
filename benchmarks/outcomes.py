"""The three outcomes of a weak verifier, over seeds: one table, and whether each holds.

    python benchmarks/outcomes.py [--seeds 0,1,2,3,4] [--out FOLDER]

Runs `loophole` (sound, weak, weak+kl, random), `unreachable` and `overoptimise` for every seed. Minutes a seed
on two cores; a folder that holds finished arms is not trained again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import numpy as np

from assay.cli.progress import Silent
from assay.hacking import MatchedCheckpoint
from assay.report.load import load
from assay.stats.clustered import paired_difference
from assay.train.experiment import run_experiment
from assay.train.recipe import load_recipe

PLAN = {
    "loophole": ["sound", "weak", "weak+kl", "random"],
    "unreachable": [],
    "overoptimise": [],
}


def gap(arm) -> np.ndarray:
    step = max(arm.tables)
    last = MatchedCheckpoint.from_table(step, arm.tables[step])
    return last.reward - last.truth


def row(seed: int, recipe: str, arm, hacking) -> str:
    first, last = hacking.checkpoints[0], hacking.checkpoints[-1]
    change = hacking.changes.truth[-1]
    rate = last.hacking_rate
    return (
        f"{seed:4d} {recipe:13} {arm.name:8} {last.reward.estimate:6.2f} "
        f"{first.truth.estimate:6.2f} {last.truth.estimate:6.2f} "
        f"{change.estimate:+.2f} [{change.low:+.2f}, {change.high:+.2f}] "
        f"{rate.estimate:+.2f} [{rate.low:+.2f}, {rate.high:+.2f}] "
        f"{last.pass_n - first.pass_n:+.2f} {first.entropy:5.2f} {last.entropy:5.2f} "
        f"{last.template_share:5.2f}  {hacking.verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--out", type=Path, default=Path("runs/outcomes"))
    options = parser.parse_args()
    jobs = os.cpu_count() or 1
    print(
        "seed recipe        arm      reward truth0  truth  change of truth       hacking rate          "
        "dpass@n  H0    H  template  verdict",
        flush=True,
    )
    for seed in map(int, options.seeds.split(",")):
        for name, arms in PLAN.items():
            recipe = load_recipe(name, [f"seed={seed}"], arms=arms)
            root = options.out / f"{name}-{seed}"
            run_experiment(recipe, root, Silent(), jobs=min(jobs, len(recipe.arms)))
            found = load(root)
            for arm, hacking in found.evaluated:
                print(row(seed, name, arm, hacking), flush=True)
            if name == "loophole":
                by_name = {arm.name: gap(arm) for arm, _ in found.evaluated}
                difference = paired_difference(by_name["weak"], by_name["weak+kl"])
                print(f"     weak minus weak+kl, hacking rate: {difference}", flush=True)


if __name__ == "__main__":
    main()
