"""Training logs to one frame of ``step`` and known metrics, whatever the trainer calls them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from assay.errors import BadInput, nearest
from assay.records.readers.aliases import CONFIG, METRICS, STEP_NAMES, find, unknown_metrics
from assay.records.readers.flatten import Row, items, mapping
from assay.records.readers.lines import loads, read_rows

MAX_UNKNOWN = 20


@dataclass(slots=True)
class MetricsTable:
    """One file of metrics: the frame, the configuration it carried, notes, and the logged names."""

    frame: pl.DataFrame
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])
    names: set[str] = field(default_factory=set[str])
    order: tuple[int, ...] = ()
    prompts: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])


def read_metrics(path: Path) -> MetricsTable:
    """Read metrics in JSON lines: flat rows, or ``{"step", "data"}``, with a configuration line or without."""
    rows, notes = read_rows(path)
    table = table_of_rows(rows)
    table.notes = notes + table.notes
    return table


def table_of_rows(rows: list[Row]) -> MetricsTable:
    """Bring metric rows to known names; several rows of a step are merged, the later value counts."""
    config: dict[str, Any] = {}
    flat: list[Row] = []
    for row in rows:
        settings = {
            name: row[name] for name in ("config", "args", "hparams") if isinstance(row.get(name), dict)
        }
        for value in settings.values():
            config.update(flattened(value))
        data = row.get("data")
        whole = {**{k: v for k, v in row.items() if k != "data"}, **data} if isinstance(data, dict) else row
        flat.append({name: value for name, value in whole.items() if name not in settings})
    frame, order, prompts = _frame(flat)
    names = {name for row in flat for name, value in row.items() if isinstance(value, int | float)}
    return MetricsTable(frame, config, _unknown_notes(names), names, order, prompts)


def _frame(rows: list[Row]) -> tuple[pl.DataFrame, tuple[int, ...], dict[int, tuple[str, ...]]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    chosen = {known: found for known, table in METRICS.items() if (found := find(names, table))}
    step_names = find(names, STEP_NAMES)
    if "margin" in chosen:  # preference learning: what is called a reward here is the learned score
        chosen = {known: found for known, found in chosen.items() if known not in _LEARNED}
        chosen.setdefault("preference_accuracy", find(names, ("accuracy",)))
    rewards = chosen.get("reward", [])
    silent = any(row[name] is None for row in rows for name in rewards if name in row)
    parts = {
        f"part:{m[1]}:{m[2]}": name for name in names if (m := re.fullmatch(r"rewards/(.+)/(mean|std)", name))
    }
    by_step: dict[int, dict[str, float]] = {}
    order: list[int] = []
    prompts: dict[int, tuple[str, ...]] = {}
    for row in rows:
        values = {known: _first(row, found) for known, found in chosen.items()}
        values |= {part: _first(row, [name]) for part, name in parts.items()}
        known = {name: value for name, value in values.items() if value is not None}
        if silent and any(name in row for name in rewards):  # a mean of nothing is written as null
            known.setdefault("missing", float("reward" not in known))
        if not known and not isinstance(row.get("prompt_ids"), list):
            continue
        step = next((int(row[name]) for name in step_names if _is_step(row.get(name))), len(order))
        order.append(step)
        by_step.setdefault(step, {}).update(known)
        if isinstance(row.get("prompt_ids"), list):
            prompts[step] = tuple(str(value) for value in items(row["prompt_ids"]))
    columns = sorted({name for values in by_step.values() for name in values})
    steps = sorted(by_step)
    data = {name: [by_step[step].get(name) for step in steps] for name in columns}
    schema = {"step": pl.Int64, **dict.fromkeys(columns, pl.Float64)}
    return pl.DataFrame({"step": steps, **data}, schema=schema), tuple(order), prompts


_LEARNED = ("reward", "reward_min", "reward_max", "reward_std", "group_std")


def _first(row: Row, names: list[str]) -> float | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return None
    return None


def _is_step(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 2**53
        and value == int(value)
    )


def _unknown_notes(names: Iterable[str]) -> list[str]:
    unknown = unknown_metrics(sorted(names))
    known = [name for patterns in METRICS.values() for name in patterns if "*" not in name]
    notes = [
        f"unknown metric {name!r}{nearest(name, known) if _close(name, known) else ''}"
        for name in unknown[:MAX_UNKNOWN]
    ]
    return notes + (
        [f"and {len(unknown) - MAX_UNKNOWN} more unknown metrics"] if len(unknown) > MAX_UNKNOWN else []
    )


def _close(name: str, known: list[str]) -> bool:
    return nearest(name, known).startswith("; did you mean")


def flattened(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat.update(flattened(item, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = item
    return flat


def known_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under our names; a nested one is also found by its last part, unless another has the full name."""
    config: dict[str, Any] = {}
    inherited = ("generation_config.", "effective_sampling.")
    short = {name.rsplit(".", 1)[-1]: name for name in reversed(list(raw)) if not name.startswith(inherited)}
    for known, table in CONFIG.items():
        logged = [name for name in table if name in raw] + [short[name] for name in table if name in short]
        value = next((raw[name] for name in logged if raw[name] is not None), None)
        if value is not None:
            config[known] = value
    return config


def trainer_state(document: Mapping[str, Any]) -> MetricsTable:
    """The ``log_history`` of a Hugging Face trainer."""
    rows = [dict(row) for row in items(document.get("log_history")) if isinstance(row, dict)]
    return table_of_rows(rows)


_OPENRLHF_LINE = re.compile(r"Global step (\d+): (\{.*\})\s*$")
_OPENRLHF_EVAL = re.compile(r"global_step (\d+), eval_metrics: (\{.*\})\s*$")
_VERL_PAIR = re.compile(r"(?:^|\s-\s)([A-Za-z_][\w@./+-]*):\s*(?:np\.float\d+\()?([-+\w.]+)\)?")


def console_rows(lines: Iterable[str]) -> list[Row]:
    """Metric rows of a console log: OpenRLHF's ``Global step N: {...}``, verl's ``step:N - name:value``."""
    rows: list[Row] = []
    for line in lines:
        match = _OPENRLHF_LINE.search(line) or _OPENRLHF_EVAL.search(line)
        if match:
            value = _literal(match.group(2))
            rows += [{"global_step": int(match.group(1)), **mapping(value)}] if mapping(value) else []
        elif "step:" in line and " - " in line:
            pairs = _VERL_PAIR.findall(line[line.index("step:") :])
            values = {name: number for name, text in pairs if (number := _number(text)) is not None}
            rows += [values] if len(values) > 1 and "step" in values else []
    return rows


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(re.sub(r"\b(nan|inf)\b", "None", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_json(path: Path) -> Any:
    """A JSON document; raises :class:`BadInput` where it is none."""
    try:
        return loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path.name}: expected a JSON document ({str(error)[:100]})") from error
