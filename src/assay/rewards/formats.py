"""Format rewards: tags and JSON. They pay structure, so they belong behind a gate (see composition)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from assay.errors import BadInput, require_one_of
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
        is_list = not isinstance(self.tags, str) and len(set(self.tags)) == len(self.tags) > 0
        if not is_list or not all(re.fullmatch(r"[\w-]+", tag) for tag in self.tags):
            raise BadInput(f"expected different tag names such as ('think', 'answer'), got {self.tags!r}")
        require_one_of("tail", self.tail, get_args(Tail))

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
        if not isinstance(self.schema, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput("expected a JSON Schema as JSON text, got an object; give json.dumps(schema)")
        import jsonschema
        from referencing.exceptions import Unresolvable

        try:
            schema = json.loads(self.schema)
            jsonschema.Draft202012Validator.check_schema(schema)
            _resolve_references(schema)
        except (ValueError, jsonschema.SchemaError, Unresolvable) as error:
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
        import jsonschema

        validator = jsonschema.Draft202012Validator(json.loads(self.schema))
        try:
            error = next(iter(validator.iter_errors(document)), None)
        except RecursionError:
            return scored(0.0, "nested too deeply")
        return scored(
            error is None, None if error is None else f"does not fit the schema: {error.message[:200]}"
        )


def _resolve_references(schema: Any) -> None:
    """Look every ``$ref`` up now; nothing is fetched: a schema holds all that it refers to."""
    from jsonschema_specifications import REGISTRY
    from referencing.jsonschema import DRAFT202012

    resolver = REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(cast("list[Any]", node))
        elif isinstance(node, dict) and (
            node is schema or "$id" not in node
        ):  # an inner $id has another base
            fields = cast("dict[str, Any]", node)
            if isinstance(fields.get("$ref"), str):
                resolver.lookup(fields["$ref"])
            waiting.extend(value for name, value in fields.items() if name not in ("const", "enum"))


def read_json(text: str) -> Any:
    """Read one JSON document strictly, out of a code fence if there is one.

    Raises:
        ValueError: it is none, or repeats a key, or holds NaN or infinity, or is too long.
    """
    if len(text) > LARGEST_JSON:
        raise ValueError(f"longer than {LARGEST_JSON} characters")
    fenced = _FENCE.fullmatch(text)
    return json.loads(
        fenced.group(1) if fenced else text,
        object_pairs_hook=_unique_keys,
        parse_constant=_no_constant,
        parse_float=_finite,
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a repeated key")
    return found


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _no_constant(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
