"""Sandboxed programs a second against a bare ``python -I -S -c pass``, interleaved, one at a time and on all cores.

    python benchmarks/sandbox.py [--rounds 15] [--batch 20]

A sandboxed program is everything that scoring one completion takes: start, confinement, loading, three tests,
killing, reaping and comparing. The goal is at least half of the bare rate. Medians of interleaved rounds, so that
a busy machine slows both down alike; processor time, of parent and children, for when it is very busy.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from assay.rewards.code import FunctionTest, StdioTest, run_function_tests, run_stdio_tests, sandbox_report

TESTS = [FunctionTest([2, 3], 5), FunctionTest([-1, 1], 0), FunctionTest([10, 5], 15)]
ADD = "def add(a, b):\n    return a + b\n"
SCRIPT = "print(sum(map(int, input().split())))\n"


def bare() -> None:
    executable = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([executable, "-I", "-S", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)


def function_tests() -> None:
    assert run_function_tests(ADD, "add", TESTS).all_passed


def stdio_test() -> None:
    assert run_stdio_tests(SCRIPT, [StdioTest("2 3", "5")]).all_passed


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def seconds(work: Callable[[], None], count: int, workers: int) -> tuple[float, float]:
    start, used = time.perf_counter(), processor_seconds()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(count)]:
            done.result()
    return time.perf_counter() - start, processor_seconds() - used


def compare(rounds: int, batch: int, workers: int) -> None:
    works = (bare, function_tests, stdio_test)
    taken: dict[str, list[tuple[float, float]]] = {work.__name__: [] for work in works}
    for _ in range(rounds):
        for work in works:
            taken[work.__name__].append(seconds(work, batch, workers))
    for name, pairs in taken.items():
        wall, used = zip(*pairs, strict=True)
        ratios = [
            [base[at] / own[at] for base, own in zip(taken["bare"], pairs, strict=True)] for at in (0, 1)
        ]
        print(
            f"{workers} at a time  {name:15} {batch / median(wall):7.1f}/s, {batch / min(wall):7.1f}/s at best, "
            f"{median(ratios[0]):5.2f} of bare; {median(used) / batch * 1e3:5.1f} ms of processor time each, "
            f"{median(ratios[1]):5.2f} of bare"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=20)
    options = parser.parse_args()
    print(sandbox_report())
    print(f"{sys.version.split()[0]} on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for workers in (1, os.cpu_count() or 1):
        compare(options.rounds, options.batch, workers)


if __name__ == "__main__":
    main()
