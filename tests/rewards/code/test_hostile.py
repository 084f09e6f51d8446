"""Programs that attack the machine: a verdict in time, nothing left, and the next program runs well."""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from hostile import KINDS, samples

from assay.rewards.code import FunctionTest, Limits, run_function_tests, sandbox_report
from assay.rewards.code.isolation import HIGH_UID

TESTS = [FunctionTest([2, 3], 5), FunctionTest([-1, 1], 0)]
HONEST = "def add(a, b):\n    return a + b\n"
GRACE_S = 4.0  # start-up and clean-up on a busy machine


def limits(wall_s):
    return Limits(wall_s=wall_s, cpu_s=wall_s, memory_mb=256, processes=24)


def left_over():
    """Processes of the sandbox's users, and files where the programs tried to write."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = Path(f"/proc/{name}/status").read_text()
        except OSError:
            continue
        uid = int(status.partition("Uid:")[2].split()[0])
        if uid >= HIGH_UID:
            found.append(f"process {name} of {uid}")
    for folder in ("/etc", "/var", "/var/tmp", "/dev/shm", "/tmp", "/root", "/usr", os.getcwd(), "/"):
        path = Path(folder, "assay-hostile")
        try:
            found += [str(path)] * path.exists()
        except OSError:
            continue
    return found + [str(path) for path in Path(tempfile.gettempdir()).glob("assay-box-*")]


def verdict(code, wall_s):
    start = time.monotonic()
    result = run_function_tests(code, "add", TESTS, limits(wall_s))
    return result, time.monotonic() - start


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_program_leaves_nothing(kind):
    for code in samples(kind, 2):
        result, seconds = verdict(code, 0.6)
        assert result.failure is None
        assert not result.all_passed, code
        assert seconds < 0.6 + GRACE_S
    assert left_over() == []
    assert run_function_tests(HONEST, "add", TESTS).all_passed


def test_four_at_a_time_disturb_nobody():
    codes = [samples(kind, 3)[2] for kind in KINDS]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda code: verdict(code, 0.6)[0], codes))
        honest = pool.map(lambda _: run_function_tests(HONEST, "add", TESTS), range(8))
        assert all(result.all_passed for result in honest)
    assert not any(result.all_passed for result in results)
    assert left_over() == []


def test_everything_dies_with_the_scorer():
    """The scorer is killed while the program runs: its descendants are gone too, soon."""
    script = (
        "from assay.rewards.code import *\n"
        "code = 'import os, time\\ndef f():\\n    os.fork()\\n    os.setsid() if os.getpid() > 1 else 0\\n"
        "    print(1, flush=True)\\n    time.sleep(300)\\n'\n"
        "print('ready', flush=True)\n"
        "run_function_tests(code, 'f', [FunctionTest([], 1)], Limits(wall_s=60))\n"
    )
    scorer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert scorer.stdout is not None
    assert scorer.stdout.readline() == b"ready\n"
    time.sleep(1.0)
    scorer.kill()
    scorer.wait()
    scorer.stdout.close()
    last = time.monotonic() + 5
    while left_over() and time.monotonic() < last:
        time.sleep(0.05)
    assert left_over() == []


FRESH = """
import sys, time
from assay.rewards.code import FunctionTest, run_function_tests
tests = [FunctionTest([2, 3], 5), FunctionTest([-1, 1], 0)]
run_function_tests("def add(a, b):\\n    return a + b\\n", "add", tests)
for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        assert run_function_tests("def add(a, b):\\n    return a + b\\n", "add", tests).all_passed
    print(time.perf_counter() - start, flush=True)
"""


def seconds_here(count):
    start = time.perf_counter()
    for _ in range(count):
        assert run_function_tests(HONEST, "add", TESTS).all_passed
    return time.perf_counter() - start


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_hostile_programs_leave_machine_and_pool_healthy():
    assert sandbox_report().level != "none"
    codes = [code for kind in KINDS for code in samples(kind, 20)]
    assert len(codes) == 200
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda code: verdict(code, 1.0), codes))
    assert not any(result.all_passed for result, _ in verdicts)
    assert not any(result.failure for result, _ in verdicts)
    assert max(seconds for _, seconds in verdicts) < 1.0 + GRACE_S
    assert left_over() == []
    fresh = subprocess.Popen(
        [sys.executable, "-c", FRESH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert fresh.stdin is not None
    assert fresh.stdout is not None
    with fresh:
        ratios = []
        for _ in range(5):
            fresh.stdin.write("40\n")
            fresh.stdin.flush()
            there = float(fresh.stdout.readline())
            ratios.append(seconds_here(40) / there)
        fresh.stdin.close()
    assert median(ratios) < 1.25, ratios
