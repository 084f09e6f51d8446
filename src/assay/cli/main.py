"""The ``assay`` command: registers one verb per file and turns errors into one clear line and exit code 2."""

from __future__ import annotations

import importlib
import sys

import typer

from assay import __version__
from assay.errors import AssayError

VERBS = ("run", "eval", "report", "audit", "doctor")

app = typer.Typer(
    name="assay",
    help="Train on rewards, and measure how much of the reward is gold.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"assay {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Train on rewards, and measure how much of the reward is gold."""


for _verb in VERBS:
    _module = importlib.import_module(f"assay.cli.{_verb}")
    _module.register(app)


def main() -> None:
    """Run the command line; user errors print one line on stderr and exit with 2."""
    try:
        app()
    except UnicodeDecodeError as error:
        print(
            f"assay: expected a text file in UTF-8, got {error.object[error.start : error.start + 1]!r} at byte "
            f"{error.start}; save the file as UTF-8",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    except (AssayError, OSError) as error:
        print(f"assay: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
