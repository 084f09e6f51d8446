"""A bench whose reward is a function of this process: laws over many rewards and tasks, without a worker each."""

from assay.audit.bench import build_bench
from assay.audit.prober import Call, Outcome
from assay.audit.source import RewardSource
from assay.audit.task_file import make_tasks


class InProcess:
    """What the bench asks of a prober, for ``reward(completion, row)``."""

    def __init__(self, reward):
        self.reward, self.tasks, self.known = reward, {}, {}
        self.calls, self.isolate, self.usual, self.spec = 0, False, 0.0, "rewards.py:reward"
        self.signature, self.chat = None, False

    def add_task(self, key, row):
        self.tasks[key] = row

    def score(self, task, completion):
        return self.scores([Call(task, completion)])[0]

    def scores(self, calls):
        found = []
        for call in calls:
            if call not in self.known:
                self.known[call] = Outcome(float(self.reward(call.completion, self.tasks[call.task])))
            found.append(self.known[call])
        return found


def bench_of(reward, rows, **source):
    """The bench of a reward on rows with a prompt and an answer."""
    prober = InProcess(reward)
    tasks = make_tasks(rows, ["completion", "answer"], [])
    for task in tasks:
        prober.add_task(task.key, task.row)
    return build_bench(prober, RewardSource(**source), tasks)
