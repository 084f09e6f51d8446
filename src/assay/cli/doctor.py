"""``assay doctor``: why does this run not improve?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.errors import BadInput

PATHS = Annotated[
    list[str] | None, typer.Argument(help="A run's folder or log; two of them to see where they part.")
]
REWARD = Annotated[
    str | None, typer.Option("--reward", help="FILE.py:FUNCTION, called on golds and rollouts.")
]
TOKENIZER = Annotated[
    str | None, typer.Option("--tokenizer", help="A tokenizer's folder or file, or vocab.json.")
]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
HTML = Annotated[str | None, typer.Option("--html", help="Write the findings as a page to this file.")]
CODE = Annotated[str | None, typer.Option("--code", help="FILE.py:FUNCTION, checked against its contract.")]
KIND = Annotated[
    str | None, typer.Option("--as", help="What it is: advantages, logprobs, loss, decode or reward.")
]
BEFORE = Annotated[str | None, typer.Option("--before", help="FILE.py:FUNCTION before a change.")]
AFTER = Annotated[str | None, typer.Option("--after", help="FILE.py:FUNCTION after a change.")]
ADAPT = Annotated[str | None, typer.Option("--adapt", help="FILE.py:FUNCTION that adapts another signature.")]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""

    @app.command("doctor")
    def doctor(  # pyright: ignore[reportUnusedFunction] - typer keeps it
        paths: PATHS = None,
        reward: REWARD = None,
        tokenizer: TOKENIZER = None,
        as_json: JSON = False,
        html: HTML = None,
        code: CODE = None,
        kind: KIND = None,
        before: BEFORE = None,
        after: AFTER = None,
        adapt: ADAPT = None,
    ) -> None:
        """Say which stage of a run is broken first, by which evidence, and what to change.

        Exits with 1 when anything fails, with 2 when nothing could be read.
        """
        runs = paths or []
        ignored = {"--reward": reward, "--tokenizer": tokenizer} if len(runs) != 1 or code or before else {}
        ignored |= {"--html": html} if len(runs) == 2 or before or after else {}
        _refuse([name for name, value in ignored.items() if value is not None], runs, code or before or after)
        if code is not None:
            failed = _code(code, _kind(kind), adapt, as_json=as_json, html=html)
        elif before is not None or after is not None:
            failed = _compare_code(before, after, _kind(kind), adapt, as_json=as_json)
        elif len(runs) == 1:
            failed = _run(runs[0], reward, tokenizer, as_json=as_json, html=html)
        elif len(runs) == 2:
            failed = _two_runs(runs[0], runs[1], as_json=as_json)
        else:
            raise BadInput(
                f"expected one run, two runs, --code or --before with --after, got {len(runs)} paths; "
                "write for example: assay doctor outputs/my_run"
            )
        raise typer.Exit(1 if failed else 0)


def _refuse(unused: list[str], runs: list[str], function: str | None) -> None:
    """What would have no effect is an error, so that nobody waits for it."""
    if function is not None and runs:
        raise BadInput(f"expected a run or a function, got {runs[0]} and {function}; give one of them")
    if unused:
        raise BadInput(f"{unused[0]} goes with one run, and has no effect here; leave it out")


def _kind(kind: str | None) -> str:
    if kind is None:
        raise BadInput("expected --as advantages, logprobs, loss, decode or reward beside the function")
    return kind


def _print(document: Any) -> None:
    from assay.records.finding import jsonable

    typer.echo(json.dumps(jsonable(document), ensure_ascii=False, allow_nan=False))


def _run(path: str, reward: str | None, tokenizer: str | None, *, as_json: bool, html: str | None) -> bool:
    from assay.doctor.diagnosis import diagnose
    from assay.records.readers import read_run
    from assay.report.findings import write_findings

    record = read_run(path)
    diagnosis = diagnose(record, reward=reward, tokenizer=tokenizer)
    if html is not None:
        root = diagnosis.root_cause
        title = root.summary if root else f"This run: {diagnosis.verdict.replace('_', ' ')}"
        write_findings(diagnosis.findings, Path(html), title, record)
    if as_json:
        _print(diagnosis.to_json())
    else:
        from rich.console import Console

        from assay.doctor.reading import reading

        Console().print(reading(diagnosis))
    return diagnosis.verdict == "broken"


def _two_runs(first: str, second: str, *, as_json: bool) -> bool:
    from assay.doctor.comparison import compare_runs

    result = compare_runs(first, second)
    if as_json:
        _print(result.to_json())
    else:
        from rich.console import Console

        from assay.doctor.reading import parting

        Console().print(parting(result))
    return result.fails


def _code(code: str, kind: str, adapt: str | None, *, as_json: bool, html: str | None) -> bool:
    from assay.doctor.contracts import run_code
    from assay.report.findings import write_findings

    findings = run_code(code, kind, adapt)
    failed = any(found.status == "fail" for found in findings)
    if html is not None:
        write_findings(findings, Path(html), f"{code} as {kind}")
    if as_json:
        _print(
            {
                "verdict": "broken" if failed else "healthy",
                "root_cause": None,
                "findings": [f.to_json() for f in findings],
            }
        )
        return failed
    typer.echo(
        f"{code} as {kind}: " + ("the contract holds" if not findings else f"{len(findings)} findings")
    )
    for found in findings:
        typer.echo(f"{found.status}: {found.id}: {found.summary}\n  fix: {found.fix}")
    return failed


def _compare_code(
    before: str | None, after: str | None, kind: str, adapt: str | None, *, as_json: bool
) -> bool:
    from assay.doctor.contracts import compare

    if before is None or after is None:
        raise BadInput("expected both --before FILE.py:FUNCTION and --after FILE.py:FUNCTION")
    result = compare(before, after, kind, adapt)
    if as_json:
        _print(result.to_json())
    else:
        typer.echo(result.summary)
        for move in result.moves:
            typer.echo(f"{move.effect}: {move.shape}")
    return bool(result.broken)
