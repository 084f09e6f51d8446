"""A training step beside another busy process, against the same step alone: how much one neighbour costs.

    python benchmarks/busy_neighbour.py [--shapes a b c] [--steps 5] [--threads 2] [--contenders assay-float32 ...]

Steps alternate: one alone, one while a process of its own keeps one processor busy. On as many processors as threads
a fair share is 1.33 to 2 times the quiet time; a step that spins while it waits takes 20 to 100 times.
``GOMP_SPINCOUNT`` is set as the command line tool sets it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from against_trl import OURS, SHAPES, TRL, Contender, write_model


@contextmanager
def neighbour() -> Generator[None]:
    """A process that is busy until this one is gone."""
    code = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
    busy = subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def main() -> None:
    """One line a contender and shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--contenders", nargs="+", choices=[*TRL, *OURS], default=list(OURS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    for shape in asked.shapes:
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), SHAPES[shape])
            for name in asked.contenders:
                one = Contender(name, shape, Path(folder), asked.threads, "full")
                one.step()  # warms up
                for _ in range(asked.steps):
                    one.step()
                    with neighbour():
                        one.step()
                one.close()
                quiet, busy = ([step["wall"] for step in one.steps[first::2]] for first in (1, 2))
                ratio = statistics.median(b / q for q, b in zip(quiet, busy, strict=True))
                times = f"{statistics.median(quiet):.2f} s alone, {statistics.median(busy):.2f} s beside it"
                print(f"shape {shape}, {name}: {ratio:.2f} times ({times})", flush=True)


if __name__ == "__main__":
    main()
