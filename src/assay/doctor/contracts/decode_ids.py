"""Contract of decoding from token ids, when the vocabulary is known only to the function itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from assay.doctor.contracts.calling import Function, Outcome, attempt_traced, parameters, shown
from assay.doctor.contracts.decode_shapes import is_special, role_of
from assay.doctor.contracts.pairs import Pair

PROBED = 64  # ids tried one by one to learn the vocabulary


def takes_ids(fn: Function) -> bool:
    """Whether the function turns some list of small ids into text, or names its parameter so."""
    named = re.search(r"ids?$|tokens?$", next(iter(parameters(fn)), ""))
    pieces = _pieces(fn)
    return bool(pieces) and (bool(named) or any(pieces.values()))


def _pieces(fn: Function) -> dict[int, str]:
    found: dict[int, str] = {}
    for token in range(PROBED):
        value = attempt_traced(fn, [token]).value
        if isinstance(value, str):
            found[token] = value
    return found


def observe_ids(fn: Function) -> list[Pair]:
    """Concatenation, order, repetition and the empty list: laws of every decoder.

    An id that decodes to nothing alone is taken for special (end, padding); it must not swallow what stands
    before it, and content must not change because of it.
    """
    pieces = _pieces(fn)
    marks = {i: role_of(text) for i, text in pieces.items() if is_special(text)}
    content = [i for i, text in pieces.items() if text.strip() and i not in marks][:8]
    special = [i for i, text in pieces.items() if not text][:4]
    pairs = [_expect(fn, "empty", [], "")]
    if not content:
        why = "every single id decodes to nothing"
        pairs.append(Pair("single ids", "each id alone", "''", "decode.content_stripped", why))
    for a, b in pairwise(content):
        pairs.append(_expect(fn, f"ids {a}, {b}", [a, b], pieces[a] + pieces[b]))
    if content:
        many = content * 3
        pairs.append(_expect(fn, "a longer text", many, "".join(pieces[i] for i in many)))
        pairs.append(_expect(fn, "the same id twice", [content[0]] * 2, pieces[content[0]] * 2))
    for token in special:
        text = "".join(pieces[i] for i in content)
        pairs.append(_expect(fn, f"content, then special id {token}", [*content, token, token], text))
        pairs.append(_expect(fn, f"only special id {token}", [token, token], ""))
    return pairs + [_mark(fn, content, token, marks[token], pieces[token]) for token in marks]


def _mark(fn: Function, content: Sequence[int], token: int, role: str, text: str) -> Pair:
    """An end or pad mark must not reach the text; a mark of another role may be what the reward reads."""
    outcome = attempt_traced(fn, [*content, token, token])
    left = role in ("pad", "end") and isinstance(outcome.value, str) and text in outcome.value
    broken = ("decode.padding_in_text" if role == "pad" else "decode.special_tokens") if left else None
    why = f"{text!r} is left in the text" if left else ""
    name = f"content, then {text}"
    return Pair(name, shown([*content, token, token]), shown(outcome.value), broken, why, outcome.line)


def _expect(fn: Function, shape: str, ids: Sequence[int], wanted: str) -> Pair:
    outcome: Outcome = attempt_traced(fn, list(ids))
    came = f"raised {outcome.error}" if outcome.error else shown(outcome.value)
    if outcome.error:
        broken, why = ("decode.content_stripped" if wanted else "decode.empty"), f"it raised {outcome.error}"
    elif not isinstance(outcome.value, str) or _squeeze(outcome.value) != _squeeze(wanted):
        broken, why = (
            "decode.content_stripped",
            f"expected {shown(wanted, 60)}, {shown(outcome.value, 60)} came",
        )
    else:
        broken, why = None, ""
    return Pair(shape, shown(list(ids)), came, broken, why, outcome.line)


def _squeeze(text: str) -> str:
    return "".join(text.split())
