"""The audit of one reward function: everything in order, and the report."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from assay.audit.behaviour import behaviour_findings, failure_id, probe_odd, unscored_findings
from assay.audit.bench import Bench, build_bench
from assay.audit.code_rewards import code_findings
from assay.audit.forms import asked_templates
from assay.audit.invalid_gold import invalid_gold_findings
from assay.audit.labelled import check_labelled, labelled_rates
from assay.audit.ledger import Ledger, make_finding
from assay.audit.paid import paid_findings
from assay.audit.patterns import SLOT
from assay.audit.prober import MANY_HANGS, Prober
from assay.audit.probes import plain_words
from assay.audit.refused import refused_findings
from assay.audit.regression import test_file
from assay.audit.repeatable import hidden_error_findings, leaks_state, repeatable_findings
from assay.audit.search import TrainFunction, climb, search_by_training
from assay.audit.slopes import slope_findings
from assay.audit.source import RewardSource, read_source
from assay.audit.task_file import AuditTask, check_golds, make_tasks, read_rows
from assay.errors import BadInput
from assay.records.finding import Finding, jsonable
from assay.stats.interval import Interval, unknown

PAYS_NOTHING = frozenset({
    "accepts_empty", "accepts_noop", "accepts_unreadable", "accepts_marker", "accepts_prompt_echo",
    "accepts_judge_injection", "pays_format_only", "pays_length", "pays_agreement",
})  # fmt: skip
"""Ids that say what is paid without an answer; the search looks for nothing else."""
BENCH_SHARE, PROBES_SHARE = 0.3, 0.4
"""Of the time: for finding the accepted form, and for what is paid or refused; the rest is for behaviour."""
WANTS_MESSAGES = "string indices must be integers"
"""What ``completion[0]["content"]`` raises on a text."""
Verdict = Literal["flawed", "no_flaw_found", "cannot_tell"]


@dataclass(frozen=True)
class AuditReport:
    """What an audit found; ``to_json`` is the document of the contract.

    Attributes:
        probes: calls of the reward. limits: what the audit could not see. numbers: slopes, detection limit.
    """

    verdict: Verdict
    findings: Sequence[Finding]
    false_positive_rate: Interval = field(default_factory=unknown)
    false_negative_rate: Interval = field(default_factory=unknown)
    probes: int = 0
    limits: Sequence[str] = ()
    contested: Sequence[str] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def exit_code(self) -> int:
        """1 on flawed, 0 otherwise."""
        return int(self.verdict == "flawed")

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable document."""
        return {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "false_positive_rate": self.false_positive_rate.to_json(),
            "false_negative_rate": self.false_negative_rate.to_json(),
            "probes": self.probes,
            "limits": list(self.limits),
            "contested": list(self.contested),
            **jsonable(self.numbers),
        }

    def tests(self) -> str:
        """A test module that fails until the flaws are mended."""
        return test_file(self.findings)


def audit_reward(
    spec: str,
    tasks: str | Path | Sequence[Mapping[str, Any]],
    *,
    signature: str | None = None,
    chat: bool = False,
    time_limit: float = 5.0,
    seconds: float = 45.0,
    train: TrainFunction | None = None,
    labelled: str | Path | None = None,
) -> AuditReport:
    """Audit ``file.py:function`` on tasks (a file, or rows).

    Args:
        signature, chat: as for every reward. time_limit: seconds that one call may take.
        seconds: time for all calls together (training apart); ``limits`` says when probes were left out for it.
        labelled: completions with the user's labels, for rates on them.
        train: trains a policy on the reward, to find what probes do not (see :mod:`assay.audit.search`).

    Raises:
        BadInput: the function or the tasks cannot be used.
    """
    rows = read_rows(tasks) if isinstance(tasks, str | Path) else list(tasks)
    if not rows:
        raise BadInput(
            "expected at least one task; give --tasks TASKS.jsonl with a prompt and an answer a line"
        )
    marked = read_rows(labelled) if labelled is not None else []
    if marked:
        check_labelled(marked)
    source = read_source(spec)
    with Prober(spec, {}, signature=signature, chat=chat, time_limit=time_limit) as prober:
        about = prober.start()
        made = make_tasks(rows, list(about["names"]), source.keys)
        check_golds(rows, made)
        for task in made:
            prober.add_task(task.key, task.row)
        prober.allow(seconds * BENCH_SHARE)
        bench, leaked = _bench(prober, source, made)
        report = _report(bench, leaked, train, seconds)
        if not marked:
            return report
        prober.allow(math.inf)
        rates = labelled_rates(bench, marked)
        return replace(report, numbers={**report.numbers, "labelled": rates})


def _bench(prober: Prober, source: RewardSource, tasks: Sequence[AuditTask]) -> tuple[Bench, bool]:
    """The bench; rebuilt with every call in a process of its own when the reward remembers."""
    bench = build_bench(prober, source, tasks)
    if not leaks_state(bench):
        return bench, False
    prober.isolate = True
    prober.known.clear()
    prober.restart()
    return build_bench(prober, source, tasks), True


def _report(bench: Bench, leaked: bool, train: TrainFunction | None, seconds: float) -> AuditReport:
    ledger = Ledger()
    start = time.monotonic()
    bench.prober.allow(seconds * PROBES_SHARE)
    findings = _always(bench)
    numbers: dict[str, Any] = {}
    if bench.good_tasks and not bench.inverted:
        findings += code_findings(bench, ledger)
        findings += paid_findings(bench, ledger)
        findings += refused_findings(bench, ledger)
        findings += invalid_gold_findings(bench)
        slopes, numbers = slope_findings(bench)
        findings += slopes
        if not any(f.status == "fail" and f.id in PAYS_NOTHING for f in findings):
            findings += climb(bench)
        if train is not None:
            bench.prober.allow(math.inf)
            trained = search_by_training(bench, train)
            findings += trained.findings
            numbers["training"] = {"samples": trained.samples, "clusters": trained.clusters}
    bench.prober.allow(seconds * (1 - BENCH_SHARE - PROBES_SHARE))
    findings += repeatable_findings(bench, leaked)
    findings += hidden_error_findings(bench)
    findings += unscored_findings(bench)
    findings += behaviour_findings(bench)
    findings = _ordered(_behind_noise(findings))
    numbers["detection_limit"] = _detection_limit(bench)
    numbers["seconds"] = round(time.monotonic() - start, 3)
    return AuditReport(
        _verdict(bench, findings), findings, ledger.false_positive_rate(), ledger.false_negative_rate(),
        bench.prober.calls, _limits(bench), list(dict.fromkeys(bench.contested)), numbers,
    )  # fmt: skip


def _always(bench: Bench) -> list[Finding]:
    """constant, inverted, and a gold that is never paid."""
    values = _values(bench)
    task = bench.tasks[0]
    unscored = any(
        o.state == "missing" or failure_id(o) in ("non_finite", "wrong_shape")
        for o in bench.prober.known.values()
    )
    if values and not unscored and _are_equal(values):
        return _constant(bench, task)
    if bench.inverted:
        exploit = (task, bench.accepted(task), "more than a wrong answer is paid")
        return [make_finding(bench, "inverted", "fail", "The gold is paid less than a wrong answer.",
                             exploit=exploit)]  # fmt: skip
    asked = _asked(bench)
    if not bench.good_tasks and bench.has_gold and values and not unscored and asked:
        text = asked[0].replace(SLOT, task.gold.text)
        exploit = (task, text, "the full score: the gold in the asked form")
        return [make_finding(bench, "rejects_gold", "fail", "The gold is not paid in any form tried.",
                             exploit=exploit, refused=True)]  # fmt: skip
    if not bench.good_tasks:
        bench.limits.append("no completion was found that is paid more than junk: give a column 'completion'")
        if not bench.prober.chat and any(WANTS_MESSAGES in o.reason for o in bench.prober.known.values()):
            bench.limits.append("the reward takes a text for a list of messages: --chat passes message lists")
    return []


def _values(bench: Bench) -> list[float]:
    return [o.value for o in bench.prober.known.values() if o.state == "scored"]


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= max(abs(v) for v in values) * 1e-9


def _asked(bench: Bench) -> list[str]:
    """Forms in which a right answer is asked for, or known to be right; none where an expression is wanted."""
    task = bench.tasks[0]
    if task.column == "target":
        return []
    return asked_templates([task.prompt]) or [text for t in bench.tasks for text in t.completions]


def _constant(bench: Bench, task: AuditTask) -> list[Finding]:
    """All texts got one score: a constant, a form not found, or a mere penalty that only odd texts meet."""
    if not _asked(bench) and not _is_plainly_constant(bench):
        bench.limits.append(
            "nothing was paid differently: give a column 'completion' with one good completion"
        )
        return []
    probe_odd(bench)
    bench.prefetch((task, text) for text in ("no " * 400, plain_words(3000), plain_words(12000)))
    values = _values(bench)
    if not _are_equal(values):
        bench.limits.append(
            "only odd texts (long, repeated) are paid less than the rest: a penalty, which knows no right answer; "
            "audit the sum of all rewards"
        )
        return []
    summary = f"All {len(values)} texts got the same score, the golds in the asked form among them."
    exploit = (task, bench.accepted(task), "more than junk is paid")
    evidence = {"texts": len(values)}
    return [make_finding(bench, "constant", "fail", summary, evidence=evidence, exploit=exploit)]


def _is_plainly_constant(bench: Bench) -> bool:
    """The source has no choice in it at all."""
    text = bench.source.text
    return bool(text) and not any(
        word in text for word in ("if ", " or ", " and ", "==", "search", "match", " in ")
    )


def _behind_noise(findings: Sequence[Finding]) -> list[Finding]:
    """Where equal texts are paid differently, what is said about pay may be noise: a warning until that is mended.

    A score relative to its batch is constant in a batch of one.
    """
    explained = {
        "not_deterministic": ("accepts_", "pays_", "rejects_", "invalid_gold"),
        "state_leak": ("constant",),
    }
    for cause in [id for id in explained if any(f.id == id for f in findings)]:
        findings = [
            replace(f, status="warn", follows_from=cause)
            if f.status == "fail" and f.id.startswith(explained[cause])
            else f
            for f in findings
        ]
    return list(findings)


def _ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Failures first; of one id only the first of the gravest status."""
    order = {"fail": 0, "warn": 1, "pass": 2, "skip": 3}
    best: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: order[f.status]):
        best.setdefault(finding.id, finding)
    return list(best.values())


def _verdict(bench: Bench, findings: Sequence[Finding]) -> Verdict:
    if any(finding.status == "fail" for finding in findings):
        return "flawed"
    return "no_flaw_found" if bench.good_tasks else "cannot_tell"


def _detection_limit(bench: Bench) -> float | None:
    """An exploit paid on a smaller share of tasks than this would be missed in 5 audits of 100."""
    tasks = len(bench.good_tasks)
    return 1 - math.pow(0.05, 1 / tasks) if tasks else None


def _limits(bench: Bench) -> list[str]:
    found = list(dict.fromkeys(bench.limits))
    if bench.good_tasks:
        limit = _detection_limit(bench)
        found.append(
            f"probed on {len(bench.good_tasks)} tasks: an exploit that is paid on fewer than {limit:.0%} of the "
            "tasks may be missed"
        )
    if bench.prober.hung >= MANY_HANGS:
        found.append("the reward hung on many texts: the rest of the probes was not run; mend that first")
    elif bench.prober.dropped:
        found.append("the reward is slow: some probes were left out for the time (--seconds gives more)")
    bare = [int(task.key[1:]) + 1 for task in bench.all_tasks if not task.has_gold]
    if bench.has_gold and bare:
        found.append(
            f"{len(bare)} of {len(bench.all_tasks)} tasks have no readable gold (tasks {bare[:8]}): mend the tasks"
        )
    if not bench.has_gold:
        found.append("the tasks have no gold: only structure, behaviour and slopes were checked")
    return found
