"""Truth after equal samples for every method: a table for the docs.

    python benchmarks/methods.py [--tasks sorting,proofs] [--methods grpo,...] [--seeds 0,1,2] [--out FOLDER]
        [--steps N] [--pages docs/algorithms]

Same start policy, prompts, samples and learning rate for every method; published defaults otherwise. Proofs are
the `loophole` recipe with its sound verifier. `--pages` writes each method's rows into the marked section of its
page; without it they are printed only. `--steps` is for trying the script out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("GOMP_SPINCOUNT", "1000")

METHODS = (
    "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "ppo", "online_dpo",
)  # fmt: skip
RECIPES = {"sorting": ("sorting", ["run"]), "proofs": ("loophole", ["sound"])}


SECTION = ("<!-- measured: benchmarks/methods.py -->\n", "<!-- end -->")


class Result(NamedTuple):
    """One run: truth on the held-out prompts at the start and the end, samples drawn, and the verdict."""

    task: str
    seed: int
    start: float
    end: float
    samples: int
    verdict: str


def measure(task: str, method: str, seed: int, out: Path, steps: int | None) -> Result:
    from assay.cli.progress import Silent
    from assay.records.run_folder import RunFolder
    from assay.report.load import load
    from assay.train.experiment import run_experiment
    from assay.train.recipe import load_recipe

    name, arms = RECIPES[task]
    root = out / f"{task}-{method}-{seed}"
    keys = [f"seed={seed}", f"algorithm={method}", "keep_checkpoints=false"]
    keys += [f"steps={steps}"] if steps else []
    run_experiment(load_recipe(name, keys, arms=arms), root, Silent())
    ((_, hacking),) = load(root).evaluated
    first, last = hacking.checkpoints[0], hacking.checkpoints[-1]
    run = RunFolder(root / arms[0])
    batch = run.read_run()["config"]["batch_size"]
    drawn = sum(int(row.get("sampled_completions", batch)) for row in run.read_metrics())
    return Result(task, seed, first.truth.estimate, last.truth.estimate, drawn, hacking.verdict)


def table(results: Sequence[Result]) -> str:
    """The rows of one method, as Markdown."""
    seeds = sorted({result.seed for result in results})
    lines = ["| task | samples | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean at the end |"]
    lines.append("|---|---|" + "---|" * (len(seeds) + 1))
    for task in dict.fromkeys(result.task for result in results):
        own = sorted((result for result in results if result.task == task), key=lambda r: r.seed)
        cells = [f"{r.start:.2f} to {r.end:.2f}, {r.verdict.replace('_', ' ')}" for r in own]
        mean = sum(r.end for r in own) / len(own)
        lines.append(f"| {task} | {own[0].samples:,} | {' | '.join(cells)} | {mean:.2f} |")
    return "\n".join(lines) + "\n"


def write_section(page: Path, text: str) -> None:
    """Put the text between the two marks of a page."""
    before, start, rest = page.read_text("utf-8").partition(SECTION[0])
    _, end, after = rest.partition(SECTION[1])
    if not start or not end:
        raise SystemExit(f"{page}: expected the marks {SECTION[0].strip()} and {SECTION[1]}")
    page.write_text(before + start + text + end + after, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="sorting,proofs")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pages", type=Path)
    options = parser.parse_args()
    tasks, seeds = options.tasks.split(","), [int(seed) for seed in options.seeds.split(",")]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for method in options.methods.split(","):
            jobs = [
                pool.submit(measure, task, method, seed, options.out, options.steps)
                for task in tasks
                for seed in seeds
            ]
            text = table([job.result() for job in jobs])
            print(f"{method}\n{text}", flush=True)
            if options.pages:
                write_section(options.pages / f"{method}.md", text)


if __name__ == "__main__":
    main()
