"""Running rewards: worker processes, a time limit that kills, and one score for every sample, in order.

What ends how:

- a sample over the time limit: the worker's process group is killed, that sample is ``missing`` (the
  function was slow; a verifier of ours that gives up on a completion scores it 0 itself), every other
  sample keeps its score;
- a worker that dies (a crash in C, out of memory): the same, with its last printed line;
- when the first eight samples of a call are all lost, the rest is ``missing`` without being tried;
- a batch function over the time limit: it is called again with batches of one, so that only the stuck
  sample is lost;
- coroutines of an async function each have the time limit, and run concurrently.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from assay.errors import BadInput
from assay.records.score import Score, missing
from assay.rewards.call import CONCURRENCY, BoundReward, prompt_text, resolve
from assay.rewards.load import load_function
from assay.rewards.signatures import BATCH_KINDS, Task, function_name
from assay.rewards.worker import Setup, restore
from assay.rewards.worker_process import WorkerProcess, pack_reward

_LARGEST_CHUNK = 256
_CHUNKS_PER_WORKER = 4
_SHOW_AFTER_SECONDS = 2.0
_LONGEST_WAIT = 0.25
_GIVE_UP_AFTER = 8


class RewardRunner:
    """Scores completions in worker processes that are started once and reused; a context manager.

    Args:
        reward: a callable that can be pickled, or ``"file.py:name"``.
        workers: processes. A batch function (TRL) gets its whole batch in one call, in one of them.
        time_limit: seconds a sample (or a call of a batch function) may take.
        signature, chat: as for :func:`assay.rewards.call.resolve`.
        in_process: no worker and no time limit; for our own rewards, which bound themselves.
        on_stuck: called with one line when a sample takes long, and when it is given up.
        concurrency: coroutines of an async reward at the same time, per worker.

    Raises:
        BadInput: a reward that cannot be loaded, sent or called.
    """

    def __init__(
        self,
        reward: Callable[..., Any] | str,
        *,
        workers: int = 1,
        time_limit: float = 10.0,
        signature: str | None = None,
        chat: bool = False,
        in_process: bool = False,
        on_stuck: Callable[[str], None] | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        if workers < 1 or time_limit <= 0 or concurrency < 1:
            raise BadInput(
                "expected workers and concurrency of at least 1 and a time limit above 0, got "
                f"{workers}, {concurrency} and {time_limit}"
            )
        self.name = reward.rpartition(":")[2] if isinstance(reward, str) else function_name(reward)
        self.time_limit = time_limit
        self._on_stuck = on_stuck or _say_nothing
        self._lock = threading.Lock()
        self._wanted = workers
        self._workers: list[WorkerProcess] = []
        self._bound: BoundReward | None = None
        if in_process:
            function = load_function(reward) if isinstance(reward, str) else reward
            self._bound = resolve(function, signature=signature, chat=chat)
        else:
            data, modules = pack_reward(reward)
            self._setup = Setup(data, modules, signature, chat, time_limit, concurrency)

    def __enter__(self) -> Self:
        if self._bound is None:
            with self._lock:
                self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def score(
        self, completions: Sequence[str], tasks: Sequence[Task], prompts: Sequence[str] | None = None
    ) -> list[Score]:
        """Score completions, in their order.

        Args:
            completions, tasks: equally long; ``tasks[i]`` belongs to ``completions[i]``.
            prompts: default: each task's ``prompt``.

        Raises:
            BadInput: lengths that differ, or a parameter of the function that no column fills.
        """
        texts = list(prompts) if prompts is not None else [prompt_text(task) for task in tasks]
        if not len(completions) == len(tasks) == len(texts):
            raise BadInput(
                f"expected one task and one prompt per completion, got {len(completions)} completions, "
                f"{len(tasks)} tasks and {len(texts)} prompts"
            )
        if self._bound is not None:
            return self._bound.score(completions, tasks, texts)
        with self._lock:
            finished = False
            try:
                self._start()
                result = _Job(self, completions, tasks, texts).run()
                finished = True
                return result
            finally:
                if not finished:  # an interrupt or bad input: no worker is left with half a job
                    self._stop(0.0)

    def output(self) -> str:
        """The end of what the workers have printed."""
        return "".join(worker.output.decode(errors="replace") for worker in self._workers)

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End the workers; the runner can be used again."""
        with self._lock:
            self._stop(0.5)

    def __del__(self) -> None:
        if getattr(self, "_workers", None):
            self._stop(0.0)

    def start_worker(self) -> WorkerProcess:
        """Start one more worker (used by a running job to replace a dead one)."""
        worker = WorkerProcess(self._setup)
        self._workers.append(worker)
        return worker

    def drop_worker(self, worker: WorkerProcess) -> None:
        """Kill a worker."""
        worker.kill()
        self._workers.remove(worker)

    def workers(self) -> list[WorkerProcess]:
        """The live workers."""
        return list(self._workers)

    def tell(self, line: str) -> None:
        """Pass a line about a stuck sample on."""
        self._on_stuck(line)

    def _start(self) -> None:
        while len(self._workers) < self._wanted:
            self.start_worker()
        for worker in self.workers():
            worker.wait_until_ready()

    def _stop(self, patience: float) -> None:
        for worker in self._workers:
            worker.let_go()
        for worker in self._workers:
            worker.kill(patience)
        self._workers.clear()


class _Job:
    """One call of :meth:`RewardRunner.score`."""

    def __init__(
        self, runner: RewardRunner, completions: Sequence[str], tasks: Sequence[Task], prompts: Sequence[str]
    ) -> None:
        self._runner = runner
        self._completions, self._tasks, self._prompts = completions, tasks, prompts
        self._plain = {id(task): dict(task) for task in tasks}  # one object a task: pickled once a chunk
        self._scores: list[Score | None] = [None] * len(completions)
        self._queue = deque(self._chunks())
        self._shown: set[int] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> list[Score]:
        with self._selector:
            for worker in self._runner.workers():
                self._watch(worker)
            while any(worker.chunk for worker in self._runner.workers()) or self._queue:
                self._hand_out()
                self._collect()
                self._check_time()
        return [score for score in self._scores if score is not None]

    def _chunks(self) -> list[list[int]]:
        count, workers = len(self._completions), self._runner.workers()
        kind, _, is_async = workers[0].ready or ("named", "", False)
        if kind in BATCH_KINDS:
            size = max(count, 1)
        elif is_async:
            size = -(-count // len(workers)) or 1
        else:
            size = min(_LARGEST_CHUNK, -(-count // (len(workers) * _CHUNKS_PER_WORKER)) or 1)
        return [list(range(start, min(start + size, count))) for start in range(0, count, size)]

    def _watch(self, worker: WorkerProcess) -> None:
        self._selector.register(worker.channel, selectors.EVENT_READ, (worker, False))
        self._selector.register(worker.out_fd, selectors.EVENT_READ, (worker, True))

    def _forget(self, worker: WorkerProcess) -> None:
        for key in [key for key in self._selector.get_map().values() if key.data[0] is worker]:
            self._selector.unregister(key.fileobj)

    def _hand_out(self) -> None:
        for worker in self._runner.workers():
            if self._queue and worker.is_idle:
                chunk = self._queue.popleft()
                message = (
                    [self._completions[i] for i in chunk],
                    [self._plain[id(self._tasks[i])] for i in chunk],
                    [self._prompts[i] for i in chunk],
                )
                worker.give(chunk, message)

    def _collect(self) -> None:
        now = time.monotonic()
        busy = [worker for worker in self._runner.workers() if not worker.is_idle]
        soonest = min((worker.position()[0] for worker in busy), default=now)
        for key, _ in self._selector.select(min(max(soonest - now, 0.0) + 0.001, _LONGEST_WAIT)):
            worker, is_output = key.data
            if key.fileobj not in self._selector.get_map():
                continue  # forgotten a moment ago
            if is_output:
                if not worker.read_output():
                    self._selector.unregister(key.fileobj)
                continue
            messages = worker.read()
            if messages is None:
                self._replace(worker, f"the worker {worker.how_it_died()}")
            else:
                self._take(worker, messages)

    def _take(self, worker: WorkerProcess, messages: list[Any]) -> None:
        for message in messages:
            if message[0] == "bad":
                raise BadInput(message[1])
            if message[0] == "ready":
                worker.ready = message[1:]
                continue
            for data in message[1]:
                self._scores[worker.chunk[worker.done]] = restore(data)
                worker.done += 1
            if message[0] == "done":
                worker.chunk = []

    def _check_time(self) -> None:
        now = time.monotonic()
        for worker in self._runner.workers():
            if not worker.chunk and worker.ready:
                continue
            deadline, place = worker.position()
            if now > deadline:
                self._replace(worker, f"time-out after {self._runner.time_limit:g} s")
            elif deadline - now < self._runner.time_limit - _SHOW_AFTER_SECONDS and worker.chunk:
                self._show(worker, place, deadline - now)

    def _show(self, worker: WorkerProcess, place: int, left: float) -> None:
        index = worker.chunk[place] if 0 <= place < len(worker.chunk) else -1
        if index in self._shown:
            return
        self._shown.add(index)
        which = f"sample {index} ({self._id(index)})" if index >= 0 else f"a batch of {len(worker.chunk)}"
        self._runner.tell(f"{self._runner.name}: still scoring {which}; it is given up in {left:.1f} s")

    def _replace(self, worker: WorkerProcess, why: str) -> None:
        if worker.ready is None:
            self._forget(worker)
            raise BadInput(f"{self._runner.name}: the worker did not start: {why}")
        lost, rest = worker.stuck_at()
        if lost is not None:
            self._scores[lost] = missing(f"{self._runner.name} ({self._id(lost)}): {why}")
            self._runner.tell(f"{self._runner.name}: gave up sample {lost} ({self._id(lost)}): {why}")
            self._queue.extendleft([rest] if rest else [])
            self._give_up_if_all_are_lost(why)
        else:  # nobody knows which sample of the call it was: one at a time
            self._queue.extendleft([index] for index in reversed(rest))
        self._forget(worker)
        self._runner.drop_worker(worker)
        self._watch(self._runner.start_worker())

    def _give_up_if_all_are_lost(self, why: str) -> None:
        """A function that loses the first samples one after the other would lose hours on the rest."""
        known = [score for score in self._scores if score is not None]
        if len(known) < _GIVE_UP_AFTER or any(score.is_scored for score in known):
            return
        reason = f"{self._runner.name}: not tried, since the first {len(known)} were all lost ({why})"
        for index in (index for chunk in self._queue for index in chunk):
            self._scores[index] = missing(reason)
        self._queue.clear()

    def _id(self, index: int) -> str:
        return f"prompt_id {self._tasks[index].get('prompt_id')!r}"


def _say_nothing(_: str) -> None:
    return None
