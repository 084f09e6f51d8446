"""The loophole collection over seeds: is every hole found by training, and is the mended reward left in peace?

    python benchmarks/zoo.py [--seeds 0,1,2] [--arms marker,empty] [--out FOLDER] [--threads 1]

One line an arm. The seconds of a weak reward are those of a user who starts from nothing: warm start,
training and evaluation at every checkpoint. Its sound control then starts from the same policy. Processor
seconds stand beside them, for a machine with other work.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from outcomes import row

from assay.cli.progress import Silent
from assay.report.load import load
from assay.train.experiment import run_experiment
from assay.train.recipe import load_recipe


def processor_seconds() -> float:
    """Of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default="", help="holes, comma-separated; all by default")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["ASSAY_CACHE"] = str((options.out / "starts").resolve())
    holes = [name for name in load_recipe("zoo", []).arms if not name.endswith("+sound")]
    holes = options.arms.split(",") if options.arms else holes
    print(
        "seed recipe        arm      reward truth0  truth  change of truth       hacking rate          "
        "dpass@n  H0    H  template  verdict (seconds, of processor)",
        flush=True,
    )
    for seed in map(int, options.seeds.split(",")):
        for hole in holes:
            for arm in (hole, f"{hole}+sound"):
                root = options.out / f"{arm}-{seed}"
                started, used = time.monotonic(), processor_seconds()
                recipe = load_recipe("zoo", [f"seed={seed}", f"threads={options.threads}"], arms=[arm])
                run_experiment(recipe, root, Silent())
                took = f"({time.monotonic() - started:.0f} s, {processor_seconds() - used:.0f} s)"
                for found, hacking in load(root).evaluated:
                    print(row(seed, "zoo", found, hacking), took, flush=True)


if __name__ == "__main__":
    main()
