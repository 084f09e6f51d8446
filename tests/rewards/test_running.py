"""Workers: reused, bounded in time, replaced when they die, and gone afterwards."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.rewards.running import RewardRunner

FOREIGN = Path(__file__).with_name("foreign_rewards.py")


def spec(name):
    return f"{FOREIGN}:{name}"


def tasks_of(count, **columns):
    return [{"prompt_id": f"p{i}", "prompt": "q", "answer": "42", **columns} for i in range(count)]


def placed(count):
    return [{"prompt_id": f"p{i}", "prompt": "q", "place": i} for i in range(count)]


def values(scores):
    return [score.value if score.is_scored else score.state for score in scores]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


def wait_until_gone(pids, seconds=5.0):
    end = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(is_alive, pids))


@dataclass(frozen=True)
class Contains:
    word: str

    def __call__(self, completion, task):
        return self.word in completion


def length(completion, task):
    return len(completion)


def test_scores_come_back_in_order_and_the_worker_is_reused():
    with RewardRunner(spec("process_id")) as runner:
        first, second = (values(runner.score(["x"] * 3, tasks_of(3))) for _ in range(2))
    assert first == second
    assert first[0] != os.getpid()
    with RewardRunner(length, workers=3) as runner:
        assert values(runner.score(["a" * i for i in range(500)], tasks_of(500))) == list(range(500))


def test_functions_and_instances_of_a_test_module_are_sent():
    with RewardRunner(Contains("yes")) as runner:
        assert values(runner.score(["yes", "no"], tasks_of(2))) == [1.0, 0.0]


def test_the_same_scores_in_process():
    with RewardRunner(Contains("yes"), in_process=True) as runner:
        assert runner.pids() == []
        assert values(runner.score(["yes", "no"], tasks_of(2))) == [1.0, 0.0]
    with RewardRunner(spec("ours"), in_process=True) as runner:
        assert values(runner.score(["42"], tasks_of(1))) == [1.0]


def test_what_cannot_be_sent_is_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"file\.py:name.*in_process"):
        RewardRunner(lambda completion, task: 1.0)
    with pytest.raises(BadInput, match="at least 1"):
        RewardRunner(length, workers=0)
    with pytest.raises(BadInput, match="above 0"):
        RewardRunner(length, time_limit=0)


@pytest.mark.parametrize(
    ("name", "expected"), [("our", "did you mean 'ours'"), ("not_a_function", "is a int")]
)
def test_a_reward_that_cannot_be_loaded_is_one_line(name, expected):
    with pytest.raises(BadInput, match=expected), RewardRunner(spec(name)):
        pass


def test_a_missing_column_is_one_line_and_leaves_no_worker():
    runner = RewardRunner(spec("by_name"))
    with pytest.raises(BadInput, match="'difficulty'"):
        runner.score(["x"], tasks_of(1))
    assert runner.pids() == []
    assert values(runner.score(["x"], tasks_of(1, difficulty=2))) == [3.0]
    runner.close()


def test_every_sample_keeps_its_own_fate():
    completions = ["ok", "hang", "ok", "exit", "killed", "raise", "none", "nan", "text", "ok"]
    lines = []
    with RewardRunner(spec("misbehaves"), time_limit=0.4, on_stuck=lines.append) as runner:
        scores = runner.score(completions, tasks_of(10))
        assert values(runner.score(["ok"], tasks_of(1))) == [1.0]
    expected = [1.0, "missing", 1.0, "missing", "missing", "crashed", "missing", "crashed", "crashed", 1.0]
    assert values(scores) == expected
    assert "time-out after 0.4 s" in str(scores[1].reason)
    assert "p1" in str(scores[1].reason)
    assert "exited with code 7" in str(scores[3].reason)
    assert "SIGKILL" in str(scores[4].reason)
    assert any("gave up sample 1 (prompt_id 'p1')" in line for line in lines)


def test_a_stuck_sample_is_named_while_it_runs():
    lines = []
    with RewardRunner(spec("misbehaves"), time_limit=2.3, on_stuck=lines.append) as runner:
        runner.score(["ok", "sleep"], tasks_of(2))
    assert "still scoring sample 1 (prompt_id 'p1')" in lines[0]
    assert "gave up sample 1" in lines[1]


def test_output_is_captured_and_a_flood_does_no_harm(capfd):
    with RewardRunner(spec("misbehaves")) as runner:
        assert values(runner.score(["print", "flood", "ok"], tasks_of(3))) == [1.0, 1.0, 1.0]
        assert len(runner.output()) <= 4096
        runner.score(["print"], tasks_of(1))
        time.sleep(0.05)
        runner.score(["ok"], tasks_of(1))
        assert "to the descriptor" in runner.output()
    assert capfd.readouterr() == ("", "")


def test_an_async_judge_slow_and_failing():
    with RewardRunner(spec("slow_judge"), time_limit=0.5) as runner:
        started = time.monotonic()
        assert values(runner.score(["x"] * 4, placed(4))) == [0.0, 1.0, "missing", "crashed"]
        assert time.monotonic() - started < 10  # about 0.5 s on a free machine, and 30 s without a limit


def test_the_same_judge_written_sync():
    with RewardRunner(spec("slow_judge_sync"), time_limit=0.5) as runner:
        assert values(runner.score(["x"] * 4, placed(4))) == [0.0, 1.0, "missing", "crashed"]


def test_a_batch_function_loses_only_its_stuck_sample():
    with RewardRunner(spec("batch_with_a_hang"), time_limit=0.4) as runner:
        assert values(runner.score(["a", "hang", "ccc"], tasks_of(3))) == [1.0, "missing", 3.0]
        assert values(runner.score(["a", "bb"], tasks_of(2))) == [1.0, 2.0]


def test_an_async_function_that_blocks_is_killed_too():
    with RewardRunner(spec("blocks_the_loop"), time_limit=0.3) as runner:
        assert values(runner.score(["a", "hang", "b"], tasks_of(3))) == [1.0, "missing", 1.0]


def test_every_worker_can_get_stuck_at_once():
    completions = ["hang", "ok"] * 4
    with RewardRunner(spec("misbehaves"), workers=2, time_limit=0.3) as runner:
        assert values(runner.score(completions, tasks_of(8))) == ["missing", 1.0] * 4


def test_a_worker_never_has_torch():
    with RewardRunner(spec("loaded_torch")) as runner:
        assert values(runner.score(["x"], tasks_of(1))) == [0.0]


def test_signals_work_in_a_worker_whichever_thread_drives_it():
    found = []

    def drive():
        with RewardRunner(spec("alarm_in_main_thread")) as runner:
            found.extend(values(runner.score(["4 2", "41"], tasks_of(2))))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert found == [1.0, 0.0]


def test_several_threads_share_a_runner():
    results = {}
    with RewardRunner(length) as runner:

        def drive(size):
            results[size] = values(runner.score(["x" * size] * 50, tasks_of(50)))

        threads = [threading.Thread(target=drive, args=(size,)) for size in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {size: [float(size)] * 50 for size in range(4)}


def test_no_process_is_left_after_close_nor_its_children():
    with RewardRunner(spec("misbehaves"), workers=2) as runner:
        runner.score(["child", "ok"] * 2, tasks_of(4))
        pids = runner.pids()
        group = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and group_of(p) in pids]
        assert len(group) > len(pids)  # the sleeping children
    wait_until_gone(group)


def group_of(process):
    try:
        return int((process / "stat").read_text().split(")")[1].split()[2])
    except (FileNotFoundError, ProcessLookupError):
        return -1


DRIVER = """
import sys
from assay.rewards.running import RewardRunner
with RewardRunner(sys.argv[1], time_limit=60, workers=2) as runner:
    print(*runner.pids(), flush=True)
    runner.score(["hang", "hang"], [{"prompt_id": "a"}, {"prompt_id": "b"}])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_parent_is_interrupted_or_killed(number):
    parent = subprocess.Popen(
        [sys.executable, "-c", DRIVER, spec("misbehaves")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.3)
    parent.send_signal(number)
    parent.communicate(timeout=10)
    wait_until_gone(pids)


def test_a_script_that_defines_its_reward_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from assay.rewards.running import RewardRunner\n"
        "def mine(completion, task):\n    return len(completion)\n"
        "if __name__ == '__main__':\n"
        "    with RewardRunner(mine) as runner:\n"
        "        print(runner.score(['abc'], [{}])[0].value)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3.0\n", "")


def test_a_reward_typed_into_an_interpreter_is_refused():
    code = (
        "from assay.rewards.running import RewardRunner\n"
        "def mine(completion, task): return 1.0\n"
        "try: RewardRunner(mine)\nexcept ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "typed into an interpreter" in done.stdout


def test_large_tasks_and_shared_ones_travel():
    one = {"prompt_id": "p", "prompt": "x" * 100_000}
    with RewardRunner(length) as runner:
        assert values(runner.score(["ab"] * 64, [one] * 64)) == [2.0] * 64


def test_scores_with_reasons_and_parts_travel(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(
        "from assay.records.score import scored, invalid_task\n"
        "def f(completion, task):\n"
        "    return scored(0.5, 'half', {'a': 1}) if completion else invalid_task('no gold')\n"
    )
    with RewardRunner(f"{path}:f") as runner:
        half, none = runner.score(["x", ""], tasks_of(2))
    assert (half.value, half.reason, half.parts) == (0.5, "half", {"a": 1.0})
    assert (none.state, none.reason) == ("invalid_task", "no gold")
    assert pickle.loads(pickle.dumps(half)) == half


def test_it_is_fast_enough():
    """The promise is 20,000 trivial scores a second; a busy test machine gets a wide margin."""
    with RewardRunner(length) as runner:
        runner.score(["x"] * 256, tasks_of(256))
        tasks = [task for task in tasks_of(500) for _ in range(8)]
        best = min(timed(lambda: runner.score(["x"] * 4000, tasks)) for _ in range(3))
    assert 4000 / best > 2_000


def timed(action):
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def hangs_always(completion, task):
    time.sleep(3600)


def test_a_function_that_loses_the_first_samples_does_not_lose_hours_on_the_rest():
    with RewardRunner(hangs_always, time_limit=0.05) as runner:
        scores = runner.score(["x"] * 500, tasks_of(500))
    assert {score.state for score in scores} == {"missing"}
    assert sum("time-out" in score.reason and "not tried" not in score.reason for score in scores) == 8
    assert "not tried, since the first 8 were all lost" in scores[-1].reason
