"""Contract of decoding: every shape of completion survives, without the marks that are no part of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assay.doctor.contracts.calling import Function, Outcome, attempt_traced, literals_of, shown
from assay.doctor.contracts.decode_ids import observe_ids, takes_ids
from assay.doctor.contracts.decode_shapes import ANSWER, PLAIN, Shape, family_shapes, find_markers, shapes
from assay.doctor.contracts.pairs import Pair, findings
from assay.errors import BadInput
from assay.records.finding import Finding

STRIPPED = "decode.content_stripped"


def check_decode(fn: Function, *, adapt: Function | None = None) -> list[Finding]:
    """Run a user's decoding or answer-cutting function over every shape that a completion can have.

    The shapes are built from the markers in the function's own code: without markers, only a prefix, only a
    suffix, both, nested, empty, white space, special tokens only, cut short, multi-byte. The evidence lists
    each branch (line) with the shapes it keeps and violates, and the fix says which line to change.

    Args:
        fn: ``fn(text) -> str`` or ``fn(token_ids) -> str``.
        adapt: for any other shape: called as ``adapt(fn, text)``.

    Returns:
        What fails or warns, so that ``assert not check_decode(fn)`` is a test.

    Raises:
        BadInput: the function takes neither a text nor a list of ids.
    """
    pairs = observe_decode(fn, adapt)
    found = findings(pairs, fn, "check_decode", also=_empties(pairs))
    order = {STRIPPED: 0, "decode.prompt_in_text": 1, "decode.padding_in_text": 2}
    return sorted(found, key=lambda f: (f.follows_from is not None, order.get(f.id, 3)))


def _empties(pairs: Sequence[Pair]) -> list[Pair]:
    empty = [p for p in pairs if p.broken == STRIPPED and p.came.strip() in ("''", "None")]
    why = "an empty text came where a person expects content"
    return [replace(p, broken="decode.empty", why=why, root=STRIPPED) for p in empty[:3]]


def observe_decode(fn: Function, adapt: Function | None = None, literals: Sequence[str] = ()) -> list[Pair]:
    """Every shape with its output, the branch that answered, and the id it breaks, if any.

    Args:
        literals: markers to use besides the function's own (those of the other version, when comparing).
    """
    call = (lambda text: adapt(fn, text)) if adapt else fn
    plain = _run(fn, call, PLAIN)
    lost = not isinstance(plain.value, str) or ANSWER not in plain.value
    if lost and adapt is None and takes_ids(fn):
        return observe_ids(fn)
    markers = find_markers([*literals, *literals_of(fn)], lambda token: _removes(fn, call, token))
    removed = {tag for tag in markers.tags if _run(fn, call, f"<{tag}>{ANSWER}</{tag}>").value == ANSWER}
    tried = [(shape, _run(fn, call, shape.text)) for shape in shapes(markers, removed)]
    if all(outcome.error for _, outcome in tried):
        raise BadInput(
            f"could not call {getattr(fn, '__name__', 'the function')} with a text or a list of ids: "
            f"{tried[0][1].error}; pass adapt=lambda fn, text: ..."
        )
    extracts = isinstance(plain.value, str) and _flat(plain.value).strip(". ") == ANSWER
    pairs = [_judge(shape, outcome, extracts) for shape, outcome in tried]
    for _fault, group in family_shapes(markers):
        judged = [_judge(shape, _run(fn, call, shape.text), extracts) for shape in group]
        if all(pair.broken for pair in judged):
            pairs.append(judged[0])
    if any(pair.broken == STRIPPED for pair in pairs):
        pairs = [replace(p, root=STRIPPED) if p.broken == "decode.empty" else p for p in pairs]
    return pairs


def _run(fn: Function, call: Function, text: str) -> Outcome:
    if call is fn:
        return attempt_traced(fn, text)
    return attempt_traced(call, text)


def _removes(fn: Function, call: Function, token: str) -> bool:
    plain, marked = _run(fn, call, PLAIN), _run(fn, call, PLAIN + token)
    if not isinstance(marked.value, str) or not isinstance(plain.value, str):
        return False
    return ANSWER in plain.value and _flat(plain.value) == _flat(marked.value)


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()


def _judge(shape: Shape, outcome: Outcome, extracts: bool) -> Pair:
    came = f"raised {outcome.error}" if outcome.error else shown(outcome.value)
    broken, why = judge_text(shape, outcome, extracts)
    return Pair(shape.name, shown(shape.text), came, broken, why, outcome.line)


def judge_text(shape: Shape, outcome: Outcome, extracts: bool) -> tuple[str | None, str]:
    """Say which id an output breaks, and why.

    Args:
        shape: the input and what must survive. outcome: what came.
        extracts: the function returns the answer only, so only the answer must survive.
    """
    if outcome.error:
        return ("decode.empty" if not shape.content else STRIPPED), f"it raised {outcome.error}"
    if not isinstance(outcome.value, str):
        return STRIPPED, f"expected a str, got {type(outcome.value).__name__}"
    got = outcome.value
    wanted = ANSWER if extracts or shape.expect == "answer" else shape.content
    if shape.expect != "anything" and _flat(wanted) not in _flat(got):
        return STRIPPED, f"expected {shown(wanted, 60)} to survive, {shown(got, 60)} came"
    left = [text for text in shape.absent if text in got]
    if left:
        return shape.fault, f"{left[0]!r} is left in {shown(got, 80)}"
    return None, ""
