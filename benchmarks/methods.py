"""Truth after equal samples for every method: a table for the docs.

    python benchmarks/methods.py [--tasks sorting,proofs] [--seeds 0,1,2] [--out FOLDER]

Same start policy, prompts, samples and learning rate for every method; published defaults otherwise. Proofs are
the `loophole` recipe with its sound verifier.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")

METHODS = ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp")
RECIPES = {"sorting": ("sorting", ["run"]), "proofs": ("loophole", ["sound"])}


def measure(task: str, method: str, seed: int, out: Path) -> tuple[str, str, int, float, float, str]:
    from assay.cli.progress import Silent
    from assay.report.load import load
    from assay.train.experiment import run_experiment
    from assay.train.recipe import load_recipe

    name, arms = RECIPES[task]
    root = out / f"{task}-{method}-{seed}"
    keys = [f"seed={seed}", f"algorithm={method}", "keep_checkpoints=false"]
    run_experiment(load_recipe(name, keys, arms=arms), root, Silent())
    ((_, hacking),) = load(root).evaluated
    first, last = hacking.checkpoints[0], hacking.checkpoints[-1]
    return task, method, seed, first.truth.estimate, last.truth.estimate, hacking.verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="sorting,proofs")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for task in options.tasks.split(","):
            print(f"{task}: truth at the start -> at the end, by seed", flush=True)
            for method in METHODS:
                jobs = [pool.submit(measure, task, method, seed, options.out) for seed in seeds]
                rows = [job.result() for job in jobs]
                cells = "  ".join(f"{start:.2f} -> {end:.2f} {verdict}" for *_, start, end, verdict in rows)
                print(f"  {method:14} {cells}", flush=True)


if __name__ == "__main__":
    main()
