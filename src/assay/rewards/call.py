"""Calling a reward: whatever its signature, one :class:`Score` per completion.

This is the one boundary where a user's function runs. What it raises, prints or returns never travels
further: a sample that fails is ``crashed`` with its id, and its neighbours keep their scores.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BadInput
from assay.records.score import Score, crashed, missing
from assay.rewards.load import describe
from assay.rewards.outcome import as_score, as_score_with_parts, as_scores
from assay.rewards.signatures import (
    BATCH_KINDS,
    Kind,
    Parameters,
    Row,
    Task,
    check_kind,
    detect_kind,
    function_name,
    is_async,
    offer_named,
    offer_openrlhf,
    offer_trl,
    offer_verl,
    offer_verl_batch,
    read_parameters,
)

CONCURRENCY = 64
"""Coroutines of an async reward that run at the same time."""


def resolve(function: Callable[..., Any], *, signature: str | None = None, chat: bool = False) -> BoundReward:
    """Find out by its parameter names how a reward wants to be called.

    Args:
        function: a reward in any accepted signature, sync or async.
        signature: trl, verl, verl_batch, openrlhf, task or named, instead of what the names say.
        chat: pass message lists instead of strings.

    Raises:
        BadInput: parameters that cannot be read, or an unknown signature.
    """
    name = function_name(function)
    parameters = read_parameters(function, name)
    kind = check_kind(signature) if signature else detect_kind(parameters, name)
    return BoundReward(function, kind, name, parameters, chat, is_async(function))


@dataclass(frozen=True, slots=True)
class BoundReward:
    """A reward function and how it is called. :meth:`score` never raises what the function raised."""

    function: Callable[..., Any]
    kind: Kind
    name: str
    parameters: Parameters
    chat: bool = False
    is_async: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether one call scores a whole batch."""
        return self.kind in BATCH_KINDS

    def score(
        self,
        completions: Sequence[str],
        tasks: Sequence[Task],
        prompts: Sequence[str] | None = None,
        *,
        time_limit: float | None = None,
        concurrency: int = CONCURRENCY,
    ) -> list[Score]:
        """Score completions, in their order; prints of the function are swallowed.

        Args:
            completions, tasks: equally long; ``tasks[i]`` belongs to ``completions[i]``.
            prompts: default: each task's ``prompt``.
            time_limit: seconds for each coroutine of an async reward (a sync one cannot be interrupted
                from inside its process: use :class:`assay.rewards.running.RewardRunner`).
            concurrency: coroutines at the same time.

        Raises:
            BadInput: lengths that differ, or a parameter that no column fills.
        """
        rows = self.rows(completions, tasks, prompts)
        with swallowed_output():
            if self.is_batch:
                return self._score_batch(rows, time_limit) if rows else []
            if self.is_async:
                return asyncio.run(self._score_async(rows, time_limit, concurrency))
            return [self.score_row(row) for row in rows]

    def rows(
        self, completions: Sequence[str], tasks: Sequence[Task], prompts: Sequence[str] | None
    ) -> list[Row]:
        """Pair completions, tasks and prompts."""
        texts = prompts if prompts is not None else [prompt_text(task) for task in tasks]
        if not len(completions) == len(tasks) == len(texts):
            raise BadInput(
                f"{self.name}: expected one task and one prompt per completion, got {len(completions)} "
                f"completions, {len(tasks)} tasks and {len(texts)} prompts"
            )
        if self.chat:
            return [Row(_message("assistant", c), t, _messages(t, p))
                    for c, t, p in zip(completions, tasks, texts, strict=True)]  # fmt: skip
        return [Row(c, t, p) for c, t, p in zip(completions, tasks, texts, strict=True)]

    def score_row(self, row: Row) -> Score:
        """Score one sample with a function that is not async (a coroutine it returns is still run)."""
        positional, named = self._arguments(row)
        try:
            value = self.function(*positional, **named)
            if inspect.isawaitable(value):
                value = asyncio.run(_finish(value))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary where a user's function runs
            return self._crashed(error, row)
        return self._convert(value, row)

    async def _score_async(
        self, rows: Sequence[Row], time_limit: float | None, concurrency: int
    ) -> list[Score]:
        gate = asyncio.Semaphore(concurrency)

        async def one(row: Row) -> Score:
            positional, named = self._arguments(row)
            async with gate:
                limit = asyncio.timeout(time_limit)
                try:
                    async with limit:
                        value = await self.function(*positional, **named)
                except TimeoutError as error:
                    if limit.expired():
                        return missing(f"{self._who(row)}: time-out after {time_limit:g} s")
                    return self._crashed(error, row)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - as in score_row
                    return self._crashed(error, row)
            return self._convert(value, row)

        return list(await asyncio.gather(*(one(row) for row in rows)))

    def _score_batch(self, rows: Sequence[Row], time_limit: float | None) -> list[Score]:
        offered = offer_trl(rows) if self.kind == "trl" else offer_verl_batch(rows)
        positional, named = self.parameters.choose(self.name, offered, f"{len(rows)} samples")
        try:
            values = self.function(*positional, **named)
            if inspect.isawaitable(values):
                values = asyncio.run(_finish(values, time_limit))
        except TimeoutError as error:
            if self.is_async and time_limit is not None and not str(error):
                return [missing(f"{self._who(row)}: time-out after {time_limit:g} s") for row in rows]
            return [self._crashed(error, row) for row in rows]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary where a user's function runs
            return [self._crashed(error, row) for row in rows]
        return as_scores(values, len(rows), self.name, [self._who(row) for row in rows])

    def _arguments(self, row: Row) -> tuple[list[Any], dict[str, Any]]:
        if self.kind == "task":
            return [row.completion, dict(row.task)], {}
        if self.kind == "verl":
            offered = offer_verl(row)
        elif self.kind == "openrlhf":
            offered = offer_openrlhf(row)
        else:
            offered = offer_named(row)
        return self.parameters.choose(self.name, offered, f"prompt_id {row.task.get('prompt_id')!r}")

    def _convert(self, value: Any, row: Row) -> Score:
        if type(value) is float and 0.0 <= value <= 1.0:  # the common case, at full speed
            return Score(value)
        if self.kind == "verl":
            return as_score_with_parts(value, "score", self._who(row))
        if self.kind == "openrlhf":
            return as_score_with_parts(value, "rewards", self._who(row))
        return as_score(value, self._who(row))

    def _crashed(self, error: BaseException, row: Row) -> Score:
        return crashed(f"{self._who(row)}: {describe(error)}")

    def _who(self, row: Row) -> str:
        return f"{self.name} (prompt_id {row.task.get('prompt_id')!r})"


async def _finish(value: Any, time_limit: float | None = None) -> Any:
    return await asyncio.wait_for(value, time_limit)


def prompt_text(task: Task) -> str:
    """The prompt of a task as one string (a message list gives its contents, a line each)."""
    prompt = task.get("prompt", "")
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(m.get("content", "")) for m in prompt)


def _message(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def _messages(task: Task, text: str) -> Any:
    prompt = task.get("prompt")
    return prompt if isinstance(prompt, list) else _message("user", text)


class _Swallow(io.TextIOBase):
    """A stream that drops what one thread writes and passes on what others write (a progress display)."""

    def __init__(self, through: Any) -> None:
        self._through = through
        self._thread = threading.get_ident()

    def write(self, text: str, /) -> int:
        if threading.get_ident() == self._thread:
            return len(text)
        return int(self._through.write(text))

    def flush(self) -> None:
        if self._through is not None:
            self._through.flush()


@contextlib.contextmanager
def swallowed_output() -> Generator[None]:
    """Keep what this thread prints away from our stdout and stderr."""
    with (
        contextlib.redirect_stdout(_Swallow(sys.stdout)),
        contextlib.redirect_stderr(_Swallow(sys.stderr)),
    ):
        yield
