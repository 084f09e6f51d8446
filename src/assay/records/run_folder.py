"""A run's folder: where everything lies, how it is written so that a kill loses nothing, how it is read.

Files are written whole (temporary file, fsync, rename); ``metrics.jsonl`` is appended one complete line at
a time. A torn last line is dropped by the reader and cut by :meth:`RunFolder.truncate_metrics` on resume.

    run.json                      configuration, seeds, versions, data hash, status
    metrics.jsonl                 one line a step
    rollouts/step-000010.parquet  every rollout of a step
    evals/step-000010.parquet     one matched checkpoint
    checkpoints/step-000010/      Hugging Face format, plus optimiser, RNG, data position
    report.html, report/*.png
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput
from assay.records.finding import jsonable

if TYPE_CHECKING:
    import polars as pl

EVAL_COLUMNS = (
    "prompt_id", "sample", "prompt", "completion", "reward", "reward_state", "reward_reason", "truth",
    "truth_state", "truth_reason", "length", "finish_reason", "entropy", "kl",
)  # fmt: skip
"""Columns of ``evals/*.parquet``: one row per (prompt_id, sample). ``kl`` is the sampled sequence estimate
log pi - log pi_start in nats, ``entropy`` the mean token entropy in nats, ``length`` in tokens."""


class RunFolder:
    """Paths of one run, and the few ways to write and read them."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def run_json(self) -> Path:
        """The configuration, seeds, versions, data hash and status."""
        return self.root / "run.json"

    @property
    def metrics_jsonl(self) -> Path:
        """One line a step."""
        return self.root / "metrics.jsonl"

    def rollouts(self, step: int) -> Path:
        """Every rollout of a step."""
        return self.root / "rollouts" / f"step-{step:06d}.parquet"

    def evaluation(self, step: int) -> Path:
        """The matched checkpoint of a step."""
        return self.root / "evals" / f"step-{step:06d}.parquet"

    def checkpoint(self, step: int) -> Path:
        """The model, optimiser, RNG and data position after a step."""
        return self.root / "checkpoints" / f"step-{step:06d}"

    def steps(self, kind: str) -> list[int]:
        """Steps that have a complete file or folder of ``kind``: rollouts, evals or checkpoints, sorted."""
        pattern = re.compile(r"step-(\d{6,})(\.parquet)?$")
        folder = self.root / kind
        found = (pattern.match(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        return sorted(int(match.group(1)) for match in found if match)

    def write_run(self, document: Mapping[str, Any]) -> None:
        """Replace ``run.json``."""
        write_text(self.run_json, json.dumps(jsonable(document), indent=2, ensure_ascii=False) + "\n")

    def read_run(self) -> dict[str, Any]:
        """Read ``run.json``; raises :class:`BadInput` when the folder is not a run."""
        if not self.run_json.is_file():
            raise BadInput(
                f"{self.root} is not a run: expected {self.run_json.name} in it; give a run's folder"
            )
        try:
            return json.loads(self.run_json.read_text("utf-8"))
        except ValueError as error:
            raise BadInput(f"{self.run_json} is not valid JSON ({error})") from error

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one complete line; a kill leaves at most a torn last line."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self.metrics_jsonl.open("ab") as stream:
            stream.write((json.dumps(jsonable(row), ensure_ascii=False) + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read all complete lines; a torn last line is dropped, a broken earlier one is an error."""
        if not self.metrics_jsonl.is_file():
            return []
        lines = self.metrics_jsonl.read_bytes().split(b"\n")
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(lines[:-1], start=1):  # the last piece has no newline: torn or empty
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise BadInput(
                    f"{self.metrics_jsonl} line {number}: expected one JSON object ({error})"
                ) from error
        return rows

    def truncate_metrics(self, last_step: int) -> None:
        """Keep the lines up to and including ``last_step``, dropping a torn tail (used by resume)."""
        rows = [row for row in self.read_metrics() if int(row["step"]) <= last_step]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(self.metrics_jsonl, text)

    def write_table(self, path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
        """Write a Parquet file whole."""
        import polars as pl

        frame = pl.DataFrame(dict(columns), strict=False)
        with replacing(path) as temporary:
            frame.write_parquet(temporary)

    def read_table(self, path: Path) -> pl.DataFrame:
        """Read a Parquet file of this run."""
        import polars as pl

        if not path.is_file():
            raise BadInput(f"expected {path}, which does not exist")
        return pl.read_parquet(path)


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yield a temporary path beside ``path``; on success fsync it and rename it over ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # not mkstemp: its files can be read by their owner alone, whatever the umask says
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")
