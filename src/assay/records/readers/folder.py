"""A path to one :class:`RunRecord`: every file recognised by its content, all of them merged into one run."""

from __future__ import annotations

import dataclasses
import os
import re
import zipfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assay.errors import BadInput
from assay.records.readers import formats, metrics
from assay.records.readers.flatten import mapping
from assay.records.readers.lines import first_rows
from assay.records.readers.table import frame_of_rows, joined, read_rollouts
from assay.records.run_record import Logits, Note, RunRecord

MAX_FILES = 50_000
_SKIPPED_FOLDERS = {"checkpoints", "wandb", ".git", "__pycache__", "tensorboard", "report"}
_NEVER_READ = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib"}
_CONFIG_NAMES = {
    "config.json",
    "run.json",
    "training_args.json",
    "args.json",
    "hparams.json",
    "metadata.json",
}
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
"""How gzip, bzip2, xz and zstandard files begin."""


@dataclass(slots=True)
class _Parts:
    """What the files of one run have given so far."""

    tables: list[metrics.MetricsTable] = field(default_factory=list[metrics.MetricsTable])
    rollouts: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])
    evaluations: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: list[str] = field(default_factory=list[str])
    logits: Logits | None = None
    notes: list[Note] = field(default_factory=list[Note])


def read_run(path: str | Path) -> RunRecord:
    """Read what one run left on disk.

    Args:
        path: a folder (every file in it is one run), or one file; a configuration beside the file is read too.

    Raises:
        BadInput: nothing at the path is a log of a run, or a line in the middle of a file is broken.
    """
    root = Path(path)
    if not root.exists():
        raise BadInput(f"expected a run's folder or log file, {root} does not exist; give a path that exists")
    parts = _Parts()
    try:
        root = _one_run(root)
        if root.is_dir():
            for file in _files(root):
                _add(parts, file, root, alone=False)
        else:
            _add(parts, root, root.parent, alone=True)
            _add_neighbours(parts, root)
    except OSError as error:
        raise BadInput(
            f"{root} cannot be read ({error.strerror or error}); check the path and its rights"
        ) from error
    if not parts.tables and not parts.rollouts and not parts.evaluations and parts.logits is None:
        raise BadInput(
            f"{root}: expected metrics (JSON lines with a step and numbers) or rollouts (JSON "
            f"lines or Parquet with "
            f"prompt, completion, reward), found none; {_seen(parts, root)}"
        )
    return _record(parts, str(root))


def _one_run(root: Path) -> Path:
    """The run itself, where the folder is that of an experiment with one arm; an experiment of several is no run."""
    if not root.is_dir() or (root / "run.json").is_file():
        return root
    arms = sorted(file.parent for file in root.glob("*/run.json") if file.is_file())
    if len(arms) > 1:
        names = ", ".join(arm.name for arm in arms[:6])
        raise BadInput(
            f"expected one run, {root} holds {len(arms)} ({names}); give one of them, such as {arms[0]}, or two"
        )
    return arms[0] if arms else root


def _seen(parts: _Parts, root: Path) -> str:
    texts = [note.text for note in parts.notes[:3]]
    nothing = (
        "the folder has no file that could be read" if root.is_dir() else "the file has no row of either"
    )
    return "; ".join(texts) if texts else nothing


def _files(root: Path) -> Generator[Path]:
    """Files below a folder in natural order (step 2 before step 10); links out of it are not followed."""
    count = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(
            (n for n in names if n not in _SKIPPED_FOLDERS and not n.startswith(".")), key=_natural
        )
        for name in sorted(files, key=_natural):
            count += 1
            if count > MAX_FILES:
                return
            file = Path(folder) / name
            if not name.startswith(".") and file.is_file() and not file.is_symlink():
                yield file


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(p), "") if p.isdecimal() and len(p) < 18 else (1, 0, p) for p in re.split(r"([0-9]+)", name)
    ]


def _add_neighbours(parts: _Parts, file: Path) -> None:
    """The configuration of a single file lies beside it, when it has none of its own."""
    for name in ("config.json", "run.json"):
        beside = file.parent / name
        if beside != file and beside.is_file() and beside.stat().st_size < 2**22:
            _add_document(parts, beside, metrics.read_json(beside))


def _add(parts: _Parts, file: Path, root: Path, *, alone: bool) -> None:
    suffix = file.suffix.lower()
    with file.open("rb") as stream:
        head = stream.read(4096)
    if suffix in _NEVER_READ or head[:1] == b"\x80" or (head[:2] == b"PK" and suffix != ".npz"):
        parts.notes.append(Note("left_out", f"{file.name}: pickled and archived data are never loaded"))
    elif head.startswith(_COMPRESSED):
        parts.notes.append(Note("left_out", f"{file.name}: compressed; unpack it first"))
    elif not head.strip():
        parts.notes.append(Note("left_out", f"{file.name}: empty"))
    elif head[:4] == b"PAR1":
        _add_parquet(parts, file, root)
    elif suffix == ".npz" and head[:2] == b"PK":
        _add_logits(parts, file)
    elif suffix == ".csv":
        _add_csv(parts, file)
    elif suffix in (".jsonl", ".ndjson") or (alone and suffix != ".json"):
        _add_lines(parts, file, root)
    elif suffix == ".json":
        _add_json(parts, file, alone=alone)
    elif suffix in (".log", ".txt", ".out"):
        _add_console(parts, file)


def _add_lines(parts: _Parts, file: Path, root: Path) -> None:
    rows = first_rows(file)
    form = formats.rollout_format(rows)
    if form is not None:
        frame, notes = read_rollouts(file, form)
        _add_rollouts(parts, frame, form, file, root)
        parts.notes += [Note("dropped", note) for note in notes]
    elif any("config" in row for row in rows) or formats.looks_like_metrics(_data_rows(rows)):
        _add_table(parts, metrics.read_metrics(file))
    elif not rows:
        if not _add_console(parts, file):
            metrics.read_rows(file)  # raises with the number of the line that is no JSON object
    else:
        parts.notes.append(
            Note("left_out", f"{file.name}: no known columns ({', '.join(list(rows[0])[:8])})")
        )


def _data_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, **mapping(row.get("data"))} for row in rows]


def _add_table(parts: _Parts, table: metrics.MetricsTable) -> None:
    parts.tables.append(table)
    parts.config.update(table.config)
    parts.sources.append(formats.metrics_source(table.names))
    parts.notes += [Note("unknown_metric" if n.startswith("unknown") else "dropped", n) for n in table.notes]


def _add_rollouts(
    parts: _Parts, frame: pl.DataFrame, form: formats.RolloutFormat, file: Path, root: Path
) -> None:
    if not frame.height:
        return
    inside = file.relative_to(root).as_posix().lower() if file.is_relative_to(root) else file.name
    held_out = form.evaluation or bool(re.search(r"(^|[/_-])(evals?|val|validation|test)([/_.-]|$)", inside))
    if "split" in frame.columns:
        training = frame["split"].fill_null("train").str.starts_with("train")
        parts.evaluations.append(frame.filter(~training))
        frame, held_out = frame.filter(training), False
    (parts.evaluations if held_out else parts.rollouts).append(frame)
    parts.sources.append(form.source)


def _add_json(parts: _Parts, file: Path, *, alone: bool) -> None:
    if not alone and file.name not in _CONFIG_NAMES and file.stat().st_size > 2**28:
        parts.notes.append(Note("left_out", f"{file.name}: too long for one JSON document"))
        return
    try:
        document = metrics.read_json(file)
    except BadInput:
        if formats.rollout_format(first_rows(file)) is not None or formats.looks_like_metrics(
            first_rows(file)
        ):
            _add_lines(parts, file, file.parent)
            return
        if alone:
            raise
        parts.notes.append(Note("left_out", f"{file.name}: not a JSON document"))
        return
    _add_document(parts, file, document)


def _add_document(parts: _Parts, file: Path, document: Any) -> None:
    """A trainer's state, a configuration, one row, or a list of rows."""
    if isinstance(document, Mapping) and isinstance(document.get("log_history"), list):
        table = metrics.trainer_state(document)
        _add_table(parts, table)
        parts.sources.append("trl")
    elif isinstance(document, Mapping) and file.name in _CONFIG_NAMES:
        inner = document.get("config", document.get("configuration"))
        parts.config.update(metrics.flattened(document))
        parts.config.update(metrics.flattened(mapping(inner)))
        if "status" in document and file.name == "run.json":
            parts.sources.append("assay")
    elif isinstance(document, list | Mapping):
        rows = [
            row for row in (document if isinstance(document, list) else [document]) if isinstance(row, dict)
        ]
        form = formats.rollout_format(rows[:50]) if rows else None
        if form is not None:
            _add_rollouts(parts, frame_of_rows(rows, form), form, file, file.parent)
        elif rows and formats.looks_like_metrics(rows[:50]):
            _add_table(parts, metrics.table_of_rows(rows))


def _add_csv(parts: _Parts, file: Path) -> None:
    try:
        frame = pl.read_csv(file, infer_schema_length=None)
    except (pl.exceptions.PolarsError, ValueError) as error:
        parts.notes.append(Note("left_out", f"{file.name}: not a table ({str(error)[:60]})"))
        return
    rows = frame.to_dicts()
    if formats.looks_like_metrics(rows[:50]):
        _add_table(parts, metrics.table_of_rows(rows))


def _add_console(parts: _Parts, file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as stream:
        rows = metrics.console_rows(stream)
    if rows:
        _add_table(parts, metrics.table_of_rows(rows))
    return bool(rows)


def _add_parquet(parts: _Parts, file: Path, root: Path) -> None:
    try:
        frame = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise BadInput(
            f"{file.name}: expected a Parquet file, it cannot be read ({str(error)[:80]})"
        ) from error
    rows = frame.to_dicts()
    if formats.TRL.keys <= set(frame.columns) and "completions_" in file.name:
        form = formats.TRL
    elif re.fullmatch(r"step-\d+\.parquet", file.name):
        form = formats.ASSAY
    else:
        found = formats.rollout_format(rows[:50])
        if found is None:
            if rows and formats.looks_like_metrics(rows[:50]):
                _add_table(parts, metrics.table_of_rows(rows))
            return
        form = found
    canonical = frame_of_rows(rows, form)
    step = formats.step_of(file, re.compile(r"step-(\d+)\.parquet$"))
    if step is not None and canonical.height and "step" not in canonical.columns:
        canonical = canonical.with_columns(pl.lit(step, pl.Int64).alias("step"))
    _add_rollouts(parts, canonical, form, file, root)


def _add_logits(parts: _Parts, file: Path) -> None:
    """Logits with the log-probs made of them; object arrays (pickles) are refused by NumPy."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name in _LOGIT_NAMES}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
        parts.notes.append(
            Note("left_out", f"{file.name}: not an archive of plain arrays ({str(error)[:60]})")
        )
        return
    logged = next(
        (arrays[name] for name in ("logged_logprobs", "logprobs", "logged") if name in arrays), None
    )
    ids = next((arrays[name] for name in ("token_ids", "ids", "labels") if name in arrays), None)
    logits = arrays.get("logits")
    if logits is None or ids is None or logged is None or logits.ndim != 3 or ids.shape != logged.shape:
        parts.notes.append(
            Note("left_out", f"{file.name}: expected logits (B,T,V), token_ids and logprobs (B,T)")
        )
        return
    if logits.shape[:2] != ids.shape or not np.issubdtype(ids.dtype, np.integer) or logits.dtype.kind != "f":
        parts.notes.append(
            Note("left_out", f"{file.name}: logits {logits.shape} and token_ids {ids.shape} do not fit")
        )
        return
    parts.logits = Logits(logits.astype(np.float64), ids.astype(np.int64), logged.astype(np.float64))


_LOGIT_NAMES = {"logits", "token_ids", "ids", "labels", "logged_logprobs", "logprobs", "logged"}


def _record(parts: _Parts, origin: str) -> RunRecord:
    rollouts, evaluations = joined(parts.rollouts), joined(parts.evaluations)
    if not rollouts.height and "truth" not in evaluations.columns:
        rollouts, evaluations = evaluations, pl.DataFrame()
    tables = sorted(parts.tables, key=lambda table: -len(table.frame.columns))
    frame, notes = _merged(tables)
    record = RunRecord(
        source=_source(parts.sources, parts.config),
        config=metrics.known_config(parts.config),
        raw_config=parts.config,
        metrics=frame,
        rollouts=rollouts,
        evaluations=evaluations,
        logits=parts.logits,
        notes=(*parts.notes, *notes),
        origin=origin,
        prompts_by_step={step: ids for table in tables for step, ids in table.prompts.items()},
        step_order=tables[0].order if tables else (),
    )
    return _single_step(record)


def _single_step(record: RunRecord) -> RunRecord:
    """Rollouts without a step are of one step, 0."""
    if not record.rollouts.height:
        return record
    step = (
        pl.col("step").fill_null(0)
        if "step" in record.rollouts.columns
        else pl.lit(0, pl.Int64).alias("step")
    )
    return dataclasses.replace(record, rollouts=record.rollouts.with_columns(step))


_SETTINGS_OF = {
    "num_generations": "trl",
    "n_samples_per_prompt": "openrlhf",
    "actor_rollout_ref.rollout.n": "verl",
}


def _source(sources: Sequence[str], config: Mapping[str, Any]) -> str:
    """The trainer that most files and settings name; the generic form names nobody."""
    named = [source for source in sources if source != "generic"]
    named += [source for setting, source in _SETTINGS_OF.items() if setting in config and named]
    return max(dict.fromkeys(named), key=named.count) if named else "generic"


def _merged(tables: Sequence[metrics.MetricsTable]) -> tuple[pl.DataFrame, list[Note]]:
    """One row a step; where two files hold one metric the first counts, and a difference is noted."""
    frames = [table.frame for table in tables if table.frame.height]
    if not frames:
        return pl.DataFrame(), []
    merged, notes = frames[0], list[Note]()
    for frame in frames[1:]:
        both = [name for name in frame.columns if name in merged.columns and name != "step"]
        merged = merged.join(frame, on="step", how="full", coalesce=True, suffix="\x00other").sort("step")
        for name in both:
            other = f"{name}\x00other"
            if _disagree(merged[name].to_numpy(), merged[other].to_numpy()):
                notes.append(
                    Note("contradiction", f"two files of metrics disagree about {name!r} at the same steps")
                )
        merged = merged.with_columns(pl.col(name).fill_null(pl.col(f"{name}\x00other")) for name in both)
        merged = merged.drop([f"{name}\x00other" for name in both])
    return merged, notes


def _disagree(first: Any, second: Any) -> bool:
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < 5:
        return False
    scale = np.maximum(np.abs(first[known]), np.abs(second[known])) + 1e-12
    return bool((np.abs(first[known] - second[known]) / scale > 0.05).mean() > 0.5)
