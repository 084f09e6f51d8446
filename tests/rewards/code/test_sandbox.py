"""What confines a program, at every level that this machine can make; and the refusal where none holds."""

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.rewards.code import (
    FunctionTest,
    FunctionTestsReward,
    Limits,
    StdioReward,
    isolation,
    require_isolation,
    run_function_tests,
    run_stdio_tests,
    sandbox_report,
)
from assay.rewards.code.filters import REFUSED, filter_program, landlock_abi
from assay.rewards.code.folder import remove_folder
from assay.rewards.code.isolation import LEVELS, Isolation, current_isolation, make_isolation
from assay.rewards.code.probe import report_on, run_probe, why_not
from assay.rewards.code.sandbox import SandboxFailed, Session
from assay.rewards.code.stdio import StdioTest, run_program
from assay.rewards.code.supervisor import descendants

HONEST = "def f(x):\n    return x\n"
ONE = [FunctionTest([1], 1)]


def usable_levels():
    made = [make_isolation(level) for level in LEVELS]
    return [one for one in made if isinstance(one, Isolation) and why_not(one) is None]


USABLE = usable_levels()
ISOLATED = [one for one in USABLE if one.level != "none"]
needs_isolation = pytest.mark.skipif(not ISOLATED, reason="no namespaces and no other user here")


def answer_of(body, wall_s=5.0, use=None, **limits):
    """What ``def f(): body`` returns in the sandbox, as text; or the reason why nothing came."""
    code = "import os, sys, time\ndef f():\n" + "\n".join(f"    {line}" for line in body.splitlines())
    test = FunctionTest([], "no such answer")
    result = run_function_tests(code, "f", [test], Limits(wall_s=wall_s, **limits), isolation=use)
    assert result.failure is None
    return (result.first_reason() or "").removeprefix("expected 'no such answer', got ")


@pytest.mark.parametrize("use", USABLE, ids=lambda one: one.level)
class TestEveryLevel:
    def test_an_honest_program_passes(self, use):
        code = "import json, decimal, collections\ndef f(x):\n    return json.loads(json.dumps(x))\n"
        assert run_function_tests(code, "f", ONE, isolation=use).all_passed

    def test_a_program_inherits_its_streams_and_one_socket(self, use):
        """Neither the namespaces nor the file with the harness's code stay open."""
        body = (
            "import stat\nkinds = []\n"
            "for fd in range(256):\n"
            "    try:\n        kinds.append((fd > 2, stat.S_ISSOCK(os.fstat(fd).st_mode)))\n"
            "    except OSError:\n        pass\n"
            "return kinds"
        )
        assert answer_of(body, use=use) == str([(False, False)] * 3 + [(True, True)])

    def test_no_writing_elsewhere(self, use, tmp_path):
        target = tmp_path / "written"
        tmp_path.chmod(0o777)
        assert "Error" in answer_of(f"open({str(target)!r}, 'w').close()", use=use)
        assert not target.exists()
        assert "Error" in answer_of("os.mkdir('/var/tmp/assay-written')", use=use)
        assert not Path("/var/tmp/assay-written").exists()

    def test_the_temporary_folder_can_be_used_and_is_gone(self, use):
        body = "import tempfile\nwith tempfile.NamedTemporaryFile() as file:\n    file.write(b'x')\n"
        assert (
            answer_of(body + "open('kept', 'w').write('x')\nreturn sorted(os.listdir('.'))", use=use)
            == "['kept']"
        )
        assert answer_of("return os.listdir('.')", use=use) == "[]"

    def test_no_reading_of_this_file(self, use):
        assert "Error" in answer_of(f"return open({__file__!r}).read()", use=use)

    def test_no_network(self, use):
        assert "Error" in answer_of("import socket\nsocket.socket()", use=use)

    def test_no_installed_packages(self, use):
        assert "ModuleNotFoundError" in answer_of("import pytest", use=use)

    def test_orphans_die(self, use):
        marker = f"assay-orphan-{use.level}-{os.getpid()}"
        sleeper = f"import time; time.sleep(100) #{marker}"
        body = (
            "import subprocess\n"
            f"subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)\n"
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(100)\n    os._exit(0)\n"
            "time.sleep(0.2)\nreturn 'started'"
        )
        assert answer_of(body, use=use) == "'started'"
        assert marker not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        assert descendants(os.getpid()) == []

    def test_time_is_limited(self, use):
        start = time.monotonic()
        assert answer_of("while True: pass", wall_s=0.3, use=use) == "timeout"
        assert time.monotonic() - start < 3

    def test_the_report_says_what_the_level_is(self, use):
        report = report_on(use)
        assert report.level == use.level
        assert ("limit on processes" in report.covered) == (use.level != "none")
        assert any("kernel" in line for line in report.not_covered)


@needs_isolation
class TestLimits:
    def test_processor_time(self):
        assert answer_of("while True: pass", wall_s=30.0, cpu_s=0.3) == "cpu time"

    def test_processor_time_of_all_processes_together(self):
        body = "for _ in range(4): os.fork()\nwhile True: pass"
        assert answer_of(body, wall_s=30.0, cpu_s=0.3) == "cpu time"

    def test_memory_of_one_process(self):
        assert answer_of("x = bytearray(200 << 20)", memory_mb=128) == "memory"

    def test_memory_of_all_processes_together(self):
        body = (
            "for _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(b'x') * (40 << 20)\n"
            "        time.sleep(60)\ntime.sleep(60)"
        )
        assert answer_of(body, memory_mb=128) == "memory"

    def test_processes(self):
        body = (
            "n = 0\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(60)\n"
            "    except OSError:\n        return n\n    n += 1"
        )
        assert int(answer_of(body, processes=10)) < 10

    def test_threads_count_as_processes(self):
        body = "import threading\nfor _ in range(50): threading.Thread(target=time.sleep, args=(60,)).start()"
        assert "RuntimeError" in answer_of(body, processes=10)

    def test_the_size_of_a_file(self):
        assert "OSError" in answer_of("open('x', 'wb').write(b'x' * (3 << 20))", file_mb=2)

    def test_the_size_of_the_folder(self):
        body = "for n in range(20): open(str(n), 'wb').write(b'x' * (1 << 20))\ntime.sleep(1)"
        said = answer_of(body, disk_mb=4)
        assert "OSError" in said or said == "disk"

    def test_output(self):
        assert answer_of("while True: print('x' * 1000)", output_kb=10) == "output"
        assert answer_of("return 'x' * 20_000", output_kb=10) == "output"

    def test_output_within_the_limit_is_no_offence(self):
        code = "def f(x):\n    print('x' * 5000)\n    return x\n"
        assert run_function_tests(code, "f", ONE, Limits(output_kb=10)).all_passed

    def test_large_arguments_and_values_pass(self):
        value = list(range(100_000))
        test = [FunctionTest([value], value)]
        assert run_function_tests(HONEST, "f", test, Limits(output_kb=2000)).all_passed

    def test_a_program_that_never_reads_its_input_does_not_block(self):
        test = [StdioTest("x" * 3_000_000, "done")]
        assert run_stdio_tests("print('done')", test).all_passed

    def test_a_call_that_is_never_read_does_not_block(self):
        code = (
            "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: time.sleep(60))\n"
            "def f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.0002)\n    return 1\n"
        )
        start = time.monotonic()
        tests = [FunctionTest([0], 1), FunctionTest(["x" * 3_000_000], 1), FunctionTest(["x" * 3_000_000], 1)]
        result = run_function_tests(code, "f", tests, Limits(wall_s=0.5))
        assert result.breach == "timeout"
        assert time.monotonic() - start < 4

    def test_a_program_that_hangs_when_loaded_does_not_block_a_large_call(self):
        start = time.monotonic()
        code = "import time\ntime.sleep(60)\ndef f(x): return x\n"
        result = run_function_tests(code, "f", [FunctionTest(["x" * 3_000_000], 1)], Limits(wall_s=0.5))
        assert result.breach == "timeout"
        assert time.monotonic() - start < 10

    def test_stdin_is_at_its_end(self):
        assert "EOFError" in answer_of("input()")


@pytest.mark.parametrize("name", Limits.__dataclass_fields__)
def test_a_limit_must_be_above_zero(name):
    with pytest.raises(BadInput, match=name):
        Limits(**{name: 0})


@needs_isolation
class TestIsolation:
    def test_the_strongest_level_is_used(self):
        assert require_isolation().level == ISOLATED[0].level
        assert sandbox_report().level == ISOLATED[0].level
        assert "NOT COVERED" in str(sandbox_report())

    def test_the_probe_could_do_nothing_but_its_work(self):
        found = run_probe(ISOLATED[0])
        could = {name for name, stopped in found.items() if stopped is None}
        assert could == {"temporary folder", "standard library"}

    def test_nothing_of_the_environment_gets_in(self, monkeypatch):
        monkeypatch.setenv("ASSAY_SECRET", "gold")
        assert "gold" not in answer_of("return sorted(os.environ.items())")

    def test_no_capability_and_not_root(self):
        assert answer_of("return os.getuid() != 0") == "True"
        assert "PermissionError" in answer_of("os.setuid(0)")
        assert "Error" in answer_of("os.chroot('.')")

    def test_no_new_namespaces(self):
        body = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nreturn libc.unshare(0x10000000)"
        assert answer_of(body) == "-1"

    def test_descriptors_of_the_parent_stay_outside(self):
        body = "n = 0\nfor fd in range(64):\n    try: os.fstat(fd)\n    except OSError: continue\n    n += 1\nreturn n"
        assert answer_of(body) == "4"  # stdin, stdout, stderr and the channel

    def test_two_programs_at_once_do_not_share_a_folder(self):
        body = "open('mine', 'x').close()\ntime.sleep(0.3)\nreturn os.listdir('.')"
        with ThreadPoolExecutor(3) as pool:
            assert set(pool.map(answer_of, [body] * 3)) == {"['mine']"}

    def test_works_from_threads_and_after_a_fork(self):
        script = (
            "import os, sys, threading\n"
            "from assay.rewards.code import *\n"
            "def check():\n"
            "    assert run_function_tests('def f(): return 1', 'f', [FunctionTest([], 1)]).all_passed\n"
            "check()\n"
            "thread = threading.Thread(target=check); thread.start(); thread.join()\n"
            "pid = os.fork()\n"
            "if pid == 0:\n    check(); os._exit(7)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        assert subprocess.run([sys.executable, "-c", script]).returncode == 7

    def test_descriptors_do_not_pile_up(self):
        run_function_tests(HONEST, "f", ONE)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            run_function_tests(HONEST, "f", ONE)
        assert len(os.listdir("/proc/self/fd")) == before


class TestRefusal:
    @pytest.fixture
    def nothing(self, monkeypatch):
        bare = Isolation("none", rejected={"namespaces": "turned off"})
        monkeypatch.setattr(isolation, "current_isolation", lambda: bare)
        monkeypatch.delenv(isolation.OVERRIDE, raising=False)

    def test_rewards_refuse_to_start(self, nothing):
        for make in (FunctionTestsReward, StdioReward):
            with pytest.raises(BadInput, match=r"turned off.*ASSAY_ALLOW_UNISOLATED_CODE=1"):
                make()
        with pytest.raises(BadInput):
            run_function_tests(HONEST, "f", ONE)
        with pytest.raises(BadInput):
            run_stdio_tests("print(1)", [StdioTest("", "1")])

    def test_the_override_is_explicit(self, nothing, monkeypatch):
        assert FunctionTestsReward(allow_unisolated=True).allow_unisolated
        monkeypatch.setenv(isolation.OVERRIDE, "1")
        assert require_isolation().level == "none"
        monkeypatch.setenv(isolation.OVERRIDE, "0")
        with pytest.raises(BadInput):
            require_isolation()


class TestFailure:
    def test_a_sandbox_that_does_not_start_is_no_verdict(self):
        broken = Isolation("namespaces", {"mnt": os.open("/dev/null", os.O_RDONLY)})
        try:
            result = run_function_tests(HONEST, "f", ONE, isolation=broken)
            with Session(Limits(), broken) as session, pytest.raises(SandboxFailed):
                session.wait()
        finally:
            os.close(broken.namespaces["mnt"])
        assert result.failure
        assert not result.all_passed
        assert not result.outcomes[0].passed

    @needs_isolation
    def test_a_killed_supervisor_is_no_verdict_and_leaves_nothing(self):
        results = []
        code = "import time\ndef f(x):\n    time.sleep(60)\n"
        run = lambda: results.append(run_function_tests(code, "f", ONE, Limits(wall_s=20)))  # noqa: E731
        thread = threading.Thread(target=run)
        thread.start()
        last = time.monotonic() + 10
        while len(family := descendants(os.getpid())) < 2 and time.monotonic() < last:
            time.sleep(0.02)
        time.sleep(0.1)
        os.kill(family[0], 9)
        thread.join()
        assert results[0].failure
        assert descendants(os.getpid()) == []

    def test_levels_that_cannot_be_made_say_why(self):
        for level in LEVELS:
            made = make_isolation(level)
            assert isinstance(made, Isolation) or made


def test_the_filter_knows_both_machines_and_refuses_others():
    for machine in ("x86_64", "aarch64"):
        program = filter_program(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 > 2 * len(REFUSED) - 10
        jumps = [max(program[at + 2 : at + 4]) for at in range(0, len(program), 8)]
        assert all(at + 1 + jump < len(jumps) for at, jump in enumerate(jumps) if jump)
    with pytest.raises(OSError, match="riscv"):
        filter_program("riscv")


def test_landlock_is_a_number():
    assert landlock_abi() >= 0


def test_a_folder_deeper_than_any_path_is_removed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("kept")
    top = Path(
        tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    )  # a disk takes seconds
    here = os.getcwd()
    os.chdir(top)
    try:
        os.symlink(outside, "link")
        Path("file").touch()
        for _ in range(sys.getrecursionlimit() + 50):
            os.mkdir("d")
            os.chdir("d")
        os.symlink(outside, "link")
        Path("file").touch()
    finally:
        os.chdir(here)
    remove_folder(str(top))
    assert not top.exists()
    assert outside.read_text() == "kept"


@needs_isolation
def test_rewards_can_be_pickled():
    for reward in (FunctionTestsReward(Limits(wall_s=3)), StdioReward(match="tokens")):
        assert pickle.loads(pickle.dumps(reward)) == reward


@needs_isolation
def test_the_probe_works_from_any_folder_and_any_temporary_folder(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert why_not(isolation.current_isolation()) is None
    monkeypatch.chdir("/tmp")
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    assert "writing elsewhere" in report_on(isolation.current_isolation()).covered


@pytest.mark.parametrize(
    ("code", "output", "status"),
    [
        ("import atexit\natexit.register(print, 'last')\nprint('first')", "first\nlast\n", 0),
        ("import threading, time\nthreading.Timer(0.2, print, ['late']).start()", "late\n", 0),
        ("import sys\nprint('x', end='')\nsys.exit(3)", "x", 3),
        ("import sys\nsys.exit()", "", 0),
        ("import sys\nsys.exit('why')", "", 1),
        ("print('a')\nraise ValueError", "a\n", 1),
        ("import atexit\natexit.register(lambda: 1 / 0)\nprint('a')", "a\n", 0),
        ("import sys\nsys.stdout = None", "", 0),
        ("import sys\nsys.stdout = 3", "", 120),
        ("import os\nprint('lost', end='')\nos._exit(0)", "", 0),
        ("from concurrent import futures\nfutures.ThreadPoolExecutor(1).submit(print, 'done')", "done\n", 0),
    ],
)  # fmt: skip
def test_a_script_ends_as_scripts_do(code, output, status):
    ending = run_program(code, "", Limits(wall_s=10), current_isolation())
    assert (ending.stdout.decode(), ending.exit_code) == (output, status)
