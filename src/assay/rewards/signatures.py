"""How a reward function wants to be called, read from its parameter names.

In this order: ``completions`` (TRL, one call per batch), ``solution_strs`` (verl's batch manager),
``solution_str`` (verl), ``queries`` (OpenRLHF), exactly ``(completion, task)`` (ours), otherwise by name:
``completion``, ``prompt``, any column of the task, and verifiers' ``state``, ``info``, ``task``, ``parser``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

from assay.errors import BadInput, nearest

Task = Mapping[str, Any]
"""One prompt: ``prompt_id``, ``prompt`` and the columns that a reward reads."""

Kind = Literal["trl", "verl", "verl_batch", "openrlhf", "task", "named"]
KINDS: tuple[Kind, ...] = ("trl", "verl", "verl_batch", "openrlhf", "task", "named")
BATCH_KINDS: frozenset[Kind] = frozenset({"trl", "verl_batch"})
_MARKS: tuple[tuple[str, Kind], ...] = (
    ("completions", "trl"),
    ("solution_strs", "verl_batch"),
    ("solution_str", "verl"),
    ("queries", "openrlhf"),
)
_TASK_COLUMNS_NOT_PASSED = frozenset({"prompt", "prompts", "completion", "completions", "completion_ids"})


@dataclass(frozen=True, slots=True)
class Row:
    """One sample as the arguments are filled from it; ``prompt`` and ``completion`` may be message lists."""

    completion: Any
    task: Task
    prompt: Any


@dataclass(frozen=True, slots=True)
class Parameters:
    """A function's parameters: which must be filled, which may, and whether it takes any other."""

    names: tuple[str, ...]
    required: frozenset[str]
    takes_any: bool
    by_position: tuple[str, ...]

    def choose(self, name: str, offered: Mapping[str, Any], where: str) -> tuple[list[Any], dict[str, Any]]:
        """Pick what the function asks for; raises :class:`BadInput` naming a parameter nothing fills."""
        for wanted in self.names:
            if wanted in self.required and wanted not in offered:
                raise BadInput(
                    f"{name}: nothing fills its parameter {wanted!r} for {where}"
                    f"{nearest(wanted, offered)}; add the column, or give the parameter a default"
                )
        given = dict(offered) if self.takes_any else {k: offered[k] for k in self.names if k in offered}
        positional = [given.pop(k) for k in self.by_position if k in given]
        return positional, given


def read_parameters(function: Callable[..., Any], name: str) -> Parameters:
    """Read a callable's parameters; raises :class:`BadInput` when it has none that can be read."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name}: its parameters cannot be read ({error}); wrap it in a def with named parameters"
        ) from error
    named = [p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return Parameters(
        names=tuple(p.name for p in named),
        required=frozenset(p.name for p in named if p.default is p.empty),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in found),
        by_position=tuple(p.name for p in named if p.kind is p.POSITIONAL_ONLY),
    )


def detect_kind(parameters: Parameters, name: str) -> Kind:
    """Name the signature by the parameters, in the documented order."""
    for mark, kind in _MARKS:
        if mark in parameters.names:
            return kind
    if parameters.names == ("completion", "task") and not parameters.takes_any:
        return "task"
    if not parameters.names and not parameters.takes_any:
        raise BadInput(f"{name}: takes no parameters; expected (completion, task), or see the signatures")
    return "named"


def check_kind(signature: str) -> Kind:
    """Check a signature's name given by the user (``verifiers`` is the by-name call)."""
    known = {kind: kind for kind in KINDS} | {"verifiers": "named"}
    if signature not in known:
        raise BadInput(f"no signature named {signature!r}{nearest(signature, known)}")
    return known[signature]  # type: ignore[return-value]


def function_name(function: Any) -> str:
    """A name for messages: ``__name__``, of a partial the inner one, else the class."""
    if isinstance(function, partial):
        return function_name(function.func)  # pyright: ignore[reportUnknownMemberType]
    return str(getattr(function, "__name__", None) or type(function).__name__)


def is_async(function: Any) -> bool:
    """Whether calling gives a coroutine (also partials and objects with an async ``__call__``)."""
    if isinstance(function, partial):
        return is_async(function.func)  # pyright: ignore[reportUnknownMemberType]
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


def offer_named(row: Row) -> dict[str, Any]:
    """Everything that the by-name call can fill: the task's columns, then what verifiers passes."""
    columns = dict(row.task)
    info = columns.get("info") or {}
    state = {**columns, "prompt": row.prompt, "completion": row.completion, "info": info}
    extra = {"info": info, "state": state, "task": columns, "parser": PlainParser()}
    return {**extra, **columns, "completion": row.completion, "prompt": row.prompt}


def offer_verl(row: Row) -> dict[str, Any]:
    """verl's ``compute_score``: data_source, solution_str, ground_truth, extra_info, and the columns."""
    return {
        **row.task,
        "data_source": row.task.get("data_source", ""),
        "solution_str": row.completion,
        "ground_truth": _ground_truth(row.task),
        "extra_info": dict(row.task.get("extra_info") or {}),
    }


def offer_openrlhf(row: Row) -> dict[str, Any]:
    """OpenRLHF's ``reward_func``: lists of one; a query is the prompt and the completion."""
    label = row.task.get("label", row.task.get("answer"))
    both = row.prompt + row.completion
    return {**row.task, "queries": [both], "prompts": [row.prompt], "labels": [label]}


def offer_trl(rows: Sequence[Row]) -> dict[str, Any]:
    """TRL's batch: prompts, completions, every column as a list, and its hooks (which do nothing here)."""
    offered = _columns(rows)
    for plural, single in (("answers", "answer"), ("infos", "info"), ("tasks", "task")):  # verifiers' groups
        if plural not in offered and single in offered:
            offered[plural] = offered[single]
    hooks = {"trainer_state": SimpleNamespace(global_step=0), "log_extra": ignore, "log_metric": ignore}
    texts = {"prompts": [r.prompt for r in rows], "completions": [r.completion for r in rows]}
    return {**hooks, **offered, **texts}


def offer_verl_batch(rows: Sequence[Row]) -> dict[str, Any]:
    """verl's batch manager: the plural names."""
    singles = [offer_verl(row) for row in rows]
    return {
        "data_sources": [s["data_source"] for s in singles],
        "solution_strs": [s["solution_str"] for s in singles],
        "ground_truths": [s["ground_truth"] for s in singles],
        "extra_infos": [s["extra_info"] for s in singles],
    }


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    names = dict.fromkeys(key for row in rows for key in row.task)
    return {n: [row.task.get(n) for row in rows] for n in names if n not in _TASK_COLUMNS_NOT_PASSED}


def _ground_truth(task: Task) -> Any:
    if "ground_truth" in task:
        return task["ground_truth"]
    model = task.get("reward_model")
    if isinstance(model, Mapping) and "ground_truth" in model:
        return model["ground_truth"]  # pyright: ignore[reportUnknownVariableType]
    return task.get("answer")


def ignore(*_: Any, **__: Any) -> None:
    """A logging hook that a foreign function may call; nothing is kept."""


class PlainParser:
    """What verifiers passes as ``parser`` by default: the whole text is the answer."""

    def parse(self, text: str) -> str:
        """Return the text."""
        return text

    def parse_answer(self, completion: Any) -> str:
        """Return the text of a completion, or of the last message of a list."""
        return completion if isinstance(completion, str) else str(completion[-1]["content"])
