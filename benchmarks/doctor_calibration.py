"""The doctor on simulated runs: is the planted fault named, and are healthy runs left in peace?

    python benchmarks/doctor_calibration.py faults [--kinds a,b] [--seeds 20] [--sizes small large]
    python benchmarks/doctor_calibration.py healthy [--runs 1000]

A fault is named when the root cause has one of its ids. Runs are written to disk and read back, in the four forms of
the simulator by turns. Hours on one core for everything; lines come as they are known.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from assay.doctor.diagnosis import Diagnosis, diagnose
from assay.doctor.simulate import FAULTS, FRAMEWORKS, SHAPES, simulate, write

FORMS = list(FRAMEWORKS)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"steps": 40},
    {"steps": 16, "prompts": 4},
    {"steps": 80, "prompts": 4},
)
GROUPS = (4, 8, 16, 64)


def diagnosed(run: Any) -> Diagnosis:
    """Of a run that was written to disk."""
    folder = Path(tempfile.mkdtemp()) / "run"
    try:
        write(run, folder)
        return diagnose(folder)
    finally:
        shutil.rmtree(folder.parent)


def is_named(kind: Any, found: Diagnosis) -> bool:
    """By the root cause, or by a warning where nothing failed."""
    if found.root_cause is not None:
        return found.root_cause.id in kind.ids
    return any(one.id in kind.ids for one in found.of("warn"))


def faults(kinds: list[str], seeds: int, sizes: list[str]) -> None:
    total = named = 0
    for name in kinds:
        for size in sizes:
            missed = []
            for seed in range(100, 100 + seeds):
                found = diagnosed(simulate(name, seed=seed, framework=FORMS[seed % len(FORMS)], size=size))
                if not is_named(FAULTS[name], found):
                    missed.append((seed, found.root_cause and found.root_cause.id))
            total, named = total + seeds, named + seeds - len(missed)
            print(f"{name:28} {size:6} {seeds - len(missed):3d} of {seeds} {missed or ''}", flush=True)
    print(f"named: {named} of {total}")


def healthy(runs: int) -> None:
    failed = 0
    ids: Counter[str] = Counter()
    shapes = list(SHAPES)
    for number in range(runs):
        seed, place = divmod(number, len(shapes))
        order = random.Random(seed).sample(shapes, len(shapes))
        settings = dict(SETTINGS[(7 * seed + place) % len(SETTINGS)])
        if settings.get("steps") == 80:
            settings["group_size"] = GROUPS[place % len(GROUPS)]
        run = simulate(
            seed=1_000 + seed, shape=order[place], framework=FORMS[(seed + place) % len(FORMS)], **settings
        )
        wrong = [found.id for found in diagnosed(run).of("fail")]
        failed += bool(wrong)
        ids.update(wrong)
        if (number + 1) % 50 == 0:
            print(f"{number + 1} healthy runs: {failed} with a failure {dict(ids)}", flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("faults", "healthy"))
    parser.add_argument("--kinds", default="", help="comma-separated; all by default")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", nargs="+", default=["small", "large"])
    parser.add_argument("--runs", type=int, default=1_000)
    asked = parser.parse_args()
    if asked.what == "faults":
        faults(asked.kinds.split(",") if asked.kinds else list(FAULTS), asked.seeds, asked.sizes)
    else:
        healthy(asked.runs)


if __name__ == "__main__":
    main()
