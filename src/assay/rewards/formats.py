"""Format rewards: tags and JSON. They pay structure, so they belong behind a gate (see composition)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.errors import BadInput, require
from assay.records.score import Score, scored

Task = Mapping[str, Any]
Tail = Literal["none", "required", "allowed"]
_CONTENT = re.compile(r"\w")
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
LARGEST_JSON = 1_000_000


@dataclass(frozen=True, slots=True)
class TagFormat:
    """1 when the completion is the given blocks, once each, in order, each with content.

    Nothing may stand before or between them, no tag may be repeated or nested, and a block needs a letter
    or digit. When the prompt ends with the first opening tag (a template that starts the thinking), that
    tag counts as written.

    Attributes:
        tags: names such as ``("think", "answer")``.
        tail: whether text after the last block is forbidden, required or allowed.
    """

    tags: Sequence[str] = ("think", "answer")
    tail: Tail = "none"

    def __post_init__(self) -> None:
        if not self.tags or not all(re.fullmatch(r"[\w-]+", tag) for tag in self.tags):
            raise BadInput(f"expected tag names such as ('think', 'answer'), got {self.tags!r}")

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion; a 0 says which rule it breaks."""
        problem = self.problem(completion, str(task.get("prompt", "")))
        return scored(problem is None, problem)

    def problem(self, completion: str, prompt: str = "") -> str | None:
        """The first rule that a completion breaks, or None."""
        first = f"<{self.tags[0]}>"
        text = first + completion if prompt.rstrip().endswith(first) else completion
        for tag in self.tags:
            for mark in (f"<{tag}>", f"</{tag}>"):
                if text.count(mark) != 1:
                    return f"{mark} stands {text.count(mark)} times, not once"
        return self._order_problem(text)

    def _order_problem(self, text: str) -> str | None:
        rest = text
        for tag in self.tags:
            before, _, rest = rest.partition(f"<{tag}>")
            if before.strip():
                return f"text before <{tag}>"
            content, closing, rest = rest.partition(f"</{tag}>")
            if not closing:
                return f"</{tag}> stands in the wrong place"
            if not _CONTENT.search(content):
                return f"<{tag}> is empty"
            if any(f"<{other}>" in content or f"</{other}>" in content for other in self.tags):
                return f"a tag inside <{tag}>"
        if self.tail == "none" and rest.strip():
            return "text after the last block"
        if self.tail == "required" and not _CONTENT.search(rest):
            return "nothing after the last block"
        return None


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """1 when the completion is one JSON document that fits a schema.

    Read strictly: no NaN, no repeated keys, nothing around it but one code fence.

    Attributes:
        schema: a JSON Schema, as JSON text (so that the reward stays hashable); None: any document.
    """

    schema: str | None = None

    def __post_init__(self) -> None:
        if self.schema is None:
            return
        library = require("jsonschema", "dev")
        try:
            library.Draft202012Validator.check_schema(json.loads(self.schema))
        except (ValueError, library.SchemaError) as error:
            message = getattr(error, "message", str(error))
            raise BadInput(f"expected a JSON Schema, got one that is not: {message}") from error

    def __call__(self, completion: str, task: Task) -> Score:
        """Score one completion; a 0 says what does not fit."""
        del task
        try:
            document = read_json(completion)
        except (ValueError, RecursionError) as error:
            return scored(0.0, f"no JSON: {str(error)[:200] or type(error).__name__}")
        if self.schema is None:
            return scored(1.0)
        library = require("jsonschema", "dev")
        validator = library.Draft202012Validator(json.loads(self.schema))
        error = next(iter(validator.iter_errors(document)), None)
        return scored(
            error is None, None if error is None else f"does not fit the schema: {error.message[:200]}"
        )


def read_json(text: str) -> Any:
    """Read one JSON document strictly, out of a code fence if there is one.

    Raises:
        ValueError: it is none, or repeats a key, or holds NaN or infinity, or is too long.
    """
    if len(text) > LARGEST_JSON:
        raise ValueError(f"longer than {LARGEST_JSON} characters")
    fenced = _FENCE.fullmatch(text)
    return json.loads(
        fenced.group(1) if fenced else text, object_pairs_hook=_unique_keys, parse_constant=_no_constant
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a repeated key")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
