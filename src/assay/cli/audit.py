"""``assay audit``: is this reward function sound?"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from assay.audit.reward_audit import AuditReport

REWARD = Annotated[str, typer.Argument(help="FILE.py:FUNCTION, or a folder with assay.toml (a grader).")]
TASKS = Annotated[str | None, typer.Option("--tasks", help="Tasks: JSONL, JSON, Parquet or CSV.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
TESTS = Annotated[str | None, typer.Option("--write-tests", help="Write regression tests to this file.")]
LABELLED = Annotated[str | None, typer.Option("--labelled", help="Completions with your labels: adds rates.")]
SIGNATURE = Annotated[str | None, typer.Option("--signature", help="trl, verl, openrlhf, task or named.")]
CHAT = Annotated[bool, typer.Option("--chat", help="Pass message lists instead of strings.")]
RUN = Annotated[str | None, typer.Option("--run", help="A run: share of its rollouts that use each exploit.")]
TRAIN = Annotated[bool, typer.Option("--train", help="Also train a small policy against the reward.")]
LIMIT = Annotated[float, typer.Option("--time-limit", help="Seconds that one call may take.")]

SHOWN_STEPS = 12
"""About so many steps of a run are printed; the document has them all."""
SECONDS = Annotated[float, typer.Option("--seconds", help="Time for all calls; more for a slow reward.")]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""

    @app.command("audit")
    def audit(  # pyright: ignore[reportUnusedFunction] - typer keeps it
        reward: REWARD,
        tasks: TASKS = None,
        as_json: JSON = False,
        write_tests: TESTS = None,
        labelled: LABELLED = None,
        signature: SIGNATURE = None,
        chat: CHAT = False,
        run: RUN = None,
        train: TRAIN = False,
        time_limit: LIMIT = 5.0,
        seconds: SECONDS = 45.0,
    ) -> None:
        """Ask of a reward function what it pays that it should not, and what it refuses.

        Exits with 1 when it is flawed, with 2 when the audit could not run.
        """
        for name, value in (("--time-limit", time_limit), ("--seconds", seconds)):
            if not 0 < value < float("inf"):
                raise BadInput(f"{name}: expected a number of seconds above 0, got {value:g}")
        from assay.audit.run_link import exploit_shares, rollouts_of

        steps = None if run is None else rollouts_of(run)  # before the work: a wrong folder is said at once
        with _ended_tidily():
            report = _audited(reward, tasks, signature=signature, chat=chat, labelled=labelled, train=train,
                              time_limit=time_limit, seconds=seconds)  # fmt: skip
        document = report.to_json()
        if steps is not None:
            document["run"] = exploit_shares(report.findings, steps)
        if write_tests is not None:
            from assay.records.run_folder import write_text

            write_text(Path(write_tests), report.tests())
        if as_json:
            typer.echo(json.dumps(document))  # ASCII: an exploit may hold what no terminal can write
        else:
            _show(reward, report, document)
        raise typer.Exit(report.exit_code)


@contextlib.contextmanager
def _ended_tidily() -> Generator[None]:
    """Let SIGTERM and SIGHUP unwind, so that what the reward started ends with us."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _audited(reward: str, tasks: str | None, *, train: bool, **options: Any) -> AuditReport:
    from assay.audit.reward_audit import audit_reward
    from assay.audit.tree import audit_tree

    if Path(reward).is_dir():
        return audit_tree(reward)
    if tasks is None:
        raise BadInput("expected --tasks TASKS.jsonl (a prompt and an answer a line) beside FILE.py:FUNCTION")
    return audit_reward(reward, tasks, train=train_function() if train else None, **options)


def train_function() -> Any:
    """The function that trains a tiny policy against a reward; raises BadInput where torch is not installed."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise BadInput(
            "--train needs torch: pip install 'assay[train]' (the audit runs without --train as well)"
        )
    return importlib.import_module("assay.train.attack").train_against


def _show(reward: str, report: AuditReport, document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    colour = {"flawed": "red", "no_flaw_found": "green", "cannot_tell": "yellow"}[report.verdict]
    console.print(f"[bold {colour}]{report.verdict}[/] {escape(reward)}  ({report.probes} probes)")
    for finding in report.findings:
        mark = {"fail": "[red]fail[/]", "warn": "[yellow]warn[/]"}.get(finding.status, finding.status)
        console.print(f"\n{mark} [bold]{finding.id}[/]  {escape(finding.summary)}")
        if finding.exploit is not None:
            exploit = finding.exploit
            console.print(f"  exploit   {escape(repr(exploit.completion[:160]))}")
            console.print(f"  score     {exploit.score}   expected: {escape(exploit.expected)}")
        console.print(f"  why       {escape(str(finding.evidence.get('why', '')))}")
        console.print(f"  mend      {escape(finding.fix)}")
    console.print(f"\nwrong answers paid    {report.false_positive_rate}")
    console.print(f"right answers refused {report.false_negative_rate}")
    _show_labelled(console, document.get("labelled"))
    for text, size in document.get("training", {}).get("clusters", {}).items():
        console.print(f"trained policy: {size} samples like {escape(repr(text[:100]))}")
    for id, rows in document.get("run", {}).items():
        known = [row for row in rows if row["share"] is not None]
        shown = known[:: max(1, len(known) // SHOWN_STEPS)]
        shown += known[-1:] if known and known[-1] is not shown[-1] else []
        shares = ", ".join(f"{row['step']}: {row['share']:.0%}" for row in shown)
        console.print(f"in the run, {id}: {shares}")
    for line in report.limits:
        console.print(f"limit: {escape(line)}")


def _show_labelled(console: Console, labelled: dict[str, Any] | None) -> None:
    """The rates on the user's labels, all rows first, then each stratum."""
    for name, rates in [("all", labelled), *labelled["strata"].items()] if labelled else []:
        wrong, right = (_percent(rates[key]) for key in ("false_positive_rate", "false_negative_rate"))
        console.print(f"labelled, {name}: wrong paid {wrong}, right refused {right}", markup=False)


def _percent(rate: dict[str, Any]) -> str:
    if rate["estimate"] is None:
        return "unknown"
    return f"{rate['estimate']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"
