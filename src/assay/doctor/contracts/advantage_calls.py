"""How a user's advantage function wants its rewards: by matrix, flat with a group size or ids, or by list."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.doctor.contracts.calling import (
    Array,
    Function,
    Outcome,
    attempt,
    dtype_of,
    numbers,
    parameters,
    required,
    source_of,
)
from assay.errors import BadInput

_FULL_SIZE_NAMES = ("group_size", "num_generations", "num_samples", "n_samples", "n_samples_per_prompt")
SIZE_NAMES = frozenset((*_FULL_SIZE_NAMES, "samples_per_prompt", "g", "k", "n", "G", "K", "N"))
ID_NAMES = frozenset(
    ("group_ids", "groups", "prompt_ids", "group_id", "index", "indices", "uid", "uids", "ids")
)
_MATRIX_HINT = re.compile(r"axis|dim\b|dim=|reshape|view\(|shape|\[:, ?None|keepdim|unsqueeze|ndim|\(P, ?G\)")
_ONE_GROUP = re.compile(
    r"\b(one|a|each|single|the same|its|per|of) (group|prompt)\b|^group (rewards|scores)", re.IGNORECASE
)
_LIST_HINT = re.compile(r"list|Sequence|Iterable|tuple", re.IGNORECASE)

Convert = Callable[[Array, str], Any]


@dataclass(slots=True)
class Call:
    """One way to call the function; (P, G) in, (P, G) out. ``dtype`` is the one that came back."""

    run: Callable[[Array, str], Outcome]
    dtype: str = ""

    def __call__(self, rewards: Array, dtype: str = "float64") -> Outcome:
        """Return the advantages as a (P, G) float64 array, or the error in one line."""
        outcome = self.run(rewards, dtype)
        if outcome.error:
            return outcome
        self.dtype = dtype_of(outcome.value)
        try:
            got = numbers(outcome.value)
        except BadInput as error:
            return Outcome(error=str(error))
        if got.size != rewards.size:
            return Outcome(error=f"expected {rewards.size} advantages, got shape {got.shape}")
        return Outcome(value=got.reshape(rewards.shape))


def choose_call(fn: Function, adapt: Function | None, probe: Array) -> Call:
    """Find the first form that the function accepts.

    Raises:
        BadInput: no form works; the message has what each said.
    """
    errors: list[str] = []
    for call in [_adapted(fn, adapt)] if adapt else _candidates(fn):
        outcome = call(probe)
        if outcome.error is None:
            return call
        errors.append(outcome.error)
    raise BadInput(
        f"could not call {getattr(fn, '__name__', 'the function')} as fn(rewards (P, G)), "
        f"fn(rewards, group_size) or fn(list): {'; '.join(dict.fromkeys(errors))[:300]}; "
        "pass adapt=lambda fn, rewards: ..."
    )


def _adapted(fn: Function, adapt: Function) -> Call:
    return Call(lambda rewards, dtype: attempt(adapt, fn, rewards.astype(dtype)))


def _candidates(fn: Function) -> Iterator[Call]:
    names = parameters(fn)
    size = next((n for n in names if n in SIZE_NAMES), None)
    ids = next((n for n in names if n in ID_NAMES), None)
    if ids and (ids in required(fn) or size is None):
        yield from (_by_ids(fn, ids, convert) for convert in _containers(fn))
    if size:
        yield from (_flat(fn, size, convert) for convert in _containers(fn))
    if _takes_one_list(fn):
        yield _by_list(fn)
    yield from (_matrix(fn, convert) for convert in _containers(fn))
    yield _by_list(fn)


def _takes_one_list(fn: Function) -> bool:
    """A function of one plain list: it says so, or gives a list back and has nothing that a matrix needs.

    One that gives an array back is judged as a function of the whole (P, G): its mean is over all of it.
    """
    first = next(iter(parameters(fn).values()), None)
    if first is None:
        return False
    annotation = "" if first.annotation is first.empty else str(first.annotation)
    if annotation and not _LIST_HINT.search(annotation):
        return False
    nested = re.search(r"(list|Sequence)\[(list|Sequence)", annotation)
    if nested:
        return False
    plain = attempt(fn, [0.0, 1.0, 0.5, 0.25])
    if plain.error is not None or getattr(plain.value, "__len__", lambda: 0)() != 4:
        return False
    words = (fn.__doc__ or "", first.name, getattr(fn, "__name__", ""))
    says = any(_ONE_GROUP.search(word.replace("_", " ")) for word in words)
    gives = isinstance(plain.value, list | tuple) and not _MATRIX_HINT.search(source_of(fn))
    return bool(annotation) or says or gives


def _containers(fn: Function) -> list[Convert]:
    source = source_of(fn)
    order: list[Convert] = [_as_numpy, _as_list]
    if importlib.util.find_spec("torch") is not None:
        order.insert(0 if "torch" in source or "Tensor" in source else 1, _as_torch)
    return order


def _as_numpy(rewards: Array, dtype: str) -> Any:
    return rewards.astype(dtype)


def _as_list(rewards: Array, dtype: str) -> Any:
    return rewards.astype(dtype).astype(np.float64).tolist()


def _as_torch(rewards: Array, dtype: str) -> Any:
    import torch

    return torch.tensor(rewards, dtype=getattr(torch, dtype))


def _matrix(fn: Function, convert: Convert) -> Call:
    return Call(lambda rewards, dtype: attempt(fn, convert(rewards, dtype)))


def _flat(fn: Function, size: str, convert: Convert) -> Call:
    return Call(
        lambda rewards, dtype: attempt(fn, convert(rewards.reshape(-1), dtype), **{size: rewards.shape[1]})
    )


def _by_ids(fn: Function, name: str, convert: Convert) -> Call:
    """Rows in interleaved order (a, b, c, a, b, c, ...): a group is its id, never its position."""

    def run(rewards: Array, dtype: str) -> Outcome:
        prompts, size = rewards.shape
        ids: Any = np.tile(np.arange(prompts), size)
        given = convert(rewards.T.reshape(-1), dtype)
        if convert is _as_list:
            ids = [f"p{i}" for i in ids]
        outcome = attempt(fn, given, **{name: ids})
        if outcome.error:
            return outcome
        try:
            got = numbers(outcome.value)
        except BadInput as error:
            return Outcome(error=str(error))
        if got.size != rewards.size:
            return Outcome(error=f"expected {rewards.size} advantages, got shape {got.shape}")
        return Outcome(value=got.reshape(size, prompts).T)

    return Call(run)


def _by_list(fn: Function) -> Call:
    def run(rewards: Array, dtype: str) -> Outcome:
        rows: list[Any] = []
        for row in rewards.astype(dtype).astype(np.float64).tolist():
            outcome = attempt(fn, row)
            if outcome.error:
                return outcome
            rows.append(outcome.value)
        try:
            return Outcome(value=np.stack([numbers(row) for row in rows]))
        except (BadInput, ValueError) as error:
            return Outcome(error=str(error))

    return Call(run)
