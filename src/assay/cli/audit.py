"""``assay audit``: is this reward function sound?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import BadInput

if TYPE_CHECKING:
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
        if run is not None:
            _must_be_a_run(run)
        report = _audited(reward, tasks, signature=signature, chat=chat, labelled=labelled, train=train,
                          time_limit=time_limit, seconds=seconds)  # fmt: skip
        document = report.to_json()
        if run is not None:
            from assay.audit.run_link import exploit_shares

            document["run"] = exploit_shares(report.findings, run)
        if write_tests is not None:
            from assay.records.run_folder import write_text

            write_text(Path(write_tests), report.tests())
        if as_json:
            typer.echo(json.dumps(document, ensure_ascii=False))
        else:
            _show(reward, report, document)
        raise typer.Exit(report.exit_code)


def _must_be_a_run(run: str) -> None:
    """A wrong folder is said before the work, not after it."""
    from assay.records.run_folder import RunFolder

    RunFolder(run).read_run()


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
    for text, size in document.get("training", {}).get("clusters", {}).items():
        console.print(f"trained policy: {size} samples like {escape(repr(text[:100]))}")
    for id, rows in document.get("run", {}).items():
        shares = ", ".join(f"{row['step']}: {row['share']:.0%}" for row in rows if row["share"] is not None)
        console.print(f"in the run, {id}: {shares}")
    for line in report.limits:
        console.print(f"limit: {escape(line)}")
