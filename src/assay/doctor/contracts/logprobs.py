"""Contract of token log-probs: ``log_softmax`` over the vocabulary, gathered at the token, and nothing else.

When the values differ, the one correction that makes them match is searched for and named.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from assay.doctor.contracts.calling import (
    Array,
    Function,
    Outcome,
    attempt,
    dtype_of,
    numbers,
    shown,
    source_of,
)
from assay.doctor.contracts.pairs import Pair, findings
from assay.errors import BadInput
from assay.records.finding import Finding

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Call = Callable[[Array, Ids], Outcome]
UNKNOWN = "the values are no log-probabilities of these logits"
USUAL_MASSES = (*(round(0.05 * i, 2) for i in range(1, 20)), 0.98, 0.99)
USUAL_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
FEWEST = 4  # kept tokens that must match before a truncation is named
MASKED = 1000.0  # nats below its log-prob at which a token was masked out
FULL, HALF = 1e-4, 0.03  # nats: float32 kernels, and 16-bit ones at |log-prob| around 4


def check_logprobs(fn: Function, *, adapt: Function | None = None) -> list[Finding]:
    """Run a user's log-prob function against ``log_softmax``.

    Args:
        fn: ``fn(logits (B, T, V), ids (B, T)) -> (B, T)`` in nats, where ``logits[:, t]`` predicts
            ``ids[:, t]``; torch or numpy, whichever it takes.
        adapt: for any other shape: called as ``adapt(fn, logits, ids)`` with numpy arrays, returns (B, T).

    Returns:
        What fails or warns, so that ``assert not check_logprobs(fn)`` is a test.

    Raises:
        BadInput: the function cannot be called with these arguments.
    """
    return findings(observe_logprobs(fn, adapt), fn, "check_logprobs")


def observe_logprobs(
    fn: Function, adapt: Function | None = None, _literals: Sequence[str] = ()
) -> list[Pair]:
    """Every input tried with its output and the id it breaks, if any."""
    logits, ids = sample_logits()
    call = _choose_call(fn, adapt, logits, ids)
    first = _judge(call, logits, ids, "deterministic logits")
    sums = _judge_sums(call, logits, ids, first)
    if first.why == UNKNOWN and sums and not sums[0].broken:
        why = "probabilities that sum to 1, of another row, position or token than the sampled one"
        first = replace(first, broken="logprob.wrong_axis", why=why)
    pairs = [first, *sums]
    if first.broken is None:
        pairs.append(_judge_alone(call, logits, ids))
        if pairs[-1].broken:
            return pairs  # values that change with the batch prove nothing more
    sharp, sharp_ids = one_hot_logits()
    pairs.append(_judge(call, sharp, sharp_ids, "near one-hot logits", first))
    pairs.append(_judge(call, sharp * 40 + 3, sharp_ids, "logits of a thousand", first))
    pairs.append(_judge(call, logits - 50.0, ids, "logits far below 0", first))
    pairs.append(_judge(call, *wide_logits(), "a larger vocabulary", first))
    return pairs


def sample_logits() -> tuple[Array, Ids]:
    """Logits (3, 5, 7) without symmetry, above and below 0, and ids (3, 5): no id equals its position."""
    b, t, v = np.meshgrid(np.arange(3), np.arange(5), np.arange(7), indexing="ij")
    logits = 2.5 * np.sin(1.7 * b + 0.9 * t * (v + 1) + 0.3 * v * v) + 0.6 * np.cos(v + 2 * t) + 0.4 * b
    ids = np.array([[6, 2, 5, 1, 3], [1, 4, 0, 6, 2], [3, 0, 6, 2, 5]], dtype=np.int64)
    return np.round(logits, 4), ids


def wide_logits() -> tuple[Array, Ids]:
    """Logits (2, 4, 120) that spread over many tokens, and ids (2, 4) of likely and unlikely ones."""
    b, t, v = np.meshgrid(np.arange(2), np.arange(4), np.arange(120), indexing="ij")
    logits = np.round(2.0 * np.sin(0.7 * b + 1.3 * t + 0.11 * v * v) + 0.3 * np.cos(v), 4)
    ranks = np.array([[0, 7, 30, 90], [2, 15, 60, 118]])
    return logits, np.take_along_axis(np.argsort(-logits, axis=-1), ranks[..., None], axis=-1)[..., 0]


def one_hot_logits() -> tuple[Array, Ids]:
    """Logits (2, 4, 6) with one token 25 above the rest, and the ids (2, 4) of those tokens."""
    ids = np.array([[2, 5, 0, 3], [4, 1, 3, 2]], dtype=np.int64)
    logits = np.zeros((2, 4, 6))
    np.put_along_axis(logits, ids[..., None], 25.0, axis=2)
    return logits, ids


def log_softmax(logits: Array, axis: int = -1) -> Array:
    """Return ``logits - logsumexp``, stable; same shape."""
    high = logits.max(axis=axis, keepdims=True)
    return logits - high - np.log(np.exp(logits - high).sum(axis=axis, keepdims=True))


def gather(values: Array, ids: Ids) -> Array:
    """Pick ``values[b, t, ids[b, t]]``: (B, T, V), (B, T) -> (B, T)."""
    return np.take_along_axis(values, ids[..., None], axis=2)[..., 0]


def _choose_call(fn: Function, adapt: Function | None, logits: Array, ids: Ids) -> Call:
    errors: list[str] = []
    for call in [_with(adapt, fn)] if adapt else _containers(fn):
        outcome = call(logits, ids)
        if outcome.error is None:
            return call
        errors.append(outcome.error)
    raise BadInput(
        f"could not call {getattr(fn, '__name__', 'the function')} as fn(logits (B, T, V), ids (B, T)): "
        f"{'; '.join(dict.fromkeys(errors))[:300]}; pass adapt=lambda fn, logits, ids: ..."
    )


def _with(adapt: Function, fn: Function) -> Call:
    return lambda logits, ids: attempt(adapt, fn, logits, ids)


def _containers(fn: Function) -> Iterator[Call]:
    as_torch = importlib.util.find_spec("torch") is not None
    numpy_first = "np." in source_of(fn) and "torch" not in source_of(fn)
    if as_torch and not numpy_first:
        yield lambda logits, ids: _run_torch(fn, logits, ids)
    yield lambda logits, ids: attempt(fn, logits.astype(np.float32), ids)
    if as_torch and numpy_first:
        yield lambda logits, ids: _run_torch(fn, logits, ids)


def _run_torch(fn: Function, logits: Array, ids: Ids) -> Outcome:
    import torch

    return attempt(fn, torch.tensor(logits, dtype=torch.float32), torch.tensor(ids))


def _judge(call: Call, logits: Array, ids: Ids, shape: str, first: Pair | None = None) -> Pair:
    outcome = call(logits, ids)
    given = f"logits {logits.shape}, ids {ids.tolist()}"
    if outcome.error:
        return Pair(shape, given, outcome.error, "logprob.not_normalised", outcome.error)
    try:
        got = numbers(outcome.value)
    except BadInput as error:
        return Pair(shape, given, shown(outcome.value), "logprob.wrong_axis", str(error))
    tolerance = HALF if "float16" in dtype_of(outcome.value) else FULL
    broken, why = explain_values(logits, ids, got, tolerance)
    if broken and first is not None and first.broken:
        broken = first.broken  # the same fault, seen on another input
    expected = gather(log_softmax(logits), ids)
    error = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("nan")
    measured = {
        "largest_difference": error,
        "tolerance": tolerance,
        "expected": np.round(expected[0], 4).tolist(),
    }
    return Pair(shape, given, shown(got), broken, why, numbers=measured)


def explain_values(logits: Array, ids: Ids, got: Array, tolerance: float) -> tuple[str | None, str]:
    """Find the id and the sentence for values that should be log-softmax gathered at the ids.

    Args:
        logits: (B, T, V). ids: (B, T). got: what came back. tolerance: nats.
    """
    expected = gather(log_softmax(logits), ids)
    if got.shape != expected.shape:
        return _explain_shape(expected, got, tolerance)
    with np.errstate(invalid="ignore"):
        masked = got < expected - MASKED
    if masked.any() and np.isfinite(got[~masked]).all():
        rule = _rule_of_mask(logits, ids, got, masked, max(tolerance, 1e-3))
        if rule:
            return (
                "logprob.truncated_support",
                f"tokens outside {rule} get {got[masked][0]:g} instead of a log-prob",
            )
    if not np.isfinite(got).all():
        return (
            "logprob.not_normalised",
            "NaN or infinity came for finite logits: exp overflows or log meets 0",
        )
    digits = 100 if tolerance < HALF else 2  # logits this large are exact to the tolerance
    if _near(got, expected, tolerance * max(1.0, float(np.abs(logits).max()) / digits)):
        return None, ""
    for broken, why, candidate, where in _candidates(logits, ids, expected):
        if _near(got[where], candidate[where], max(tolerance, 1e-3)):
            return broken, why
    if got.max() > FULL:
        return "logprob.positive", f"a log-prob of {got.max():.4g} is above 0"
    return "logprob.not_normalised", UNKNOWN


def _near(a: Array, b: Array, tolerance: float) -> bool:
    return a.size > 0 and bool(np.isfinite(a).all()) and float(np.abs(a - b).max()) <= tolerance


def _explain_shape(expected: Array, got: Array, tolerance: float) -> tuple[str, str]:
    came = f"expected shape {expected.shape}, got {got.shape}"
    if got.ndim == 2 and got.shape[0] == expected.shape[0] and got.shape[1] < expected.shape[1]:
        return "logprob.shifted", (
            f"{came}: it shifts by itself; here logits[t] already predict ids[t] "
            "(pass adapt= if your caller gives whole sequences)"
        )
    if got.size == 1 and _near(got.reshape(-1), expected.mean().reshape(-1), tolerance):
        return "logprob.mask", f"{came}: the tokens were averaged before any mask"
    return "logprob.wrong_axis", came


Candidate = tuple[str, str, Array, "slice | tuple[slice, slice]"]


def _candidates(logits: Array, ids: Ids, expected: Array) -> Iterator[Candidate]:
    """Known faults as (id, sentence, values, where they are defined), cheapest first."""
    everywhere = (slice(None), slice(None))
    raw = gather(logits, ids)
    high = gather(logits - logits.max(axis=-1, keepdims=True), ids)
    yield "logprob.positive", "the sign is flipped: these are negative log-likelihoods", -expected, everywhere
    yield (
        "logprob.positive",
        "these are probabilities: the logarithm is missing",
        np.exp(expected),
        everywhere,
    )
    yield "logprob.positive", "these are raw logits: the log-softmax is missing", raw, everywhere
    yield (
        "logprob.not_normalised",
        "only the largest logit was subtracted, not the logsumexp",
        high,
        everywhere,
    )
    for base, name in ((2.0, "2"), (10.0, "10")):
        yield (
            "logprob.not_normalised",
            f"logarithm to base {name}, not nats",
            expected / np.log(base),
            everywhere,
        )
    yield from _shifted(logits, ids, expected)
    yield from _wrong_axes(logits, ids)
    yield from _truncated(logits, ids)
    yield from _temperatures(logits, ids)


def _shifted(logits: Array, ids: Ids, expected: Array) -> Iterator[Candidate]:
    length = ids.shape[1]
    steps = log_softmax(logits)
    for shift in (1, -1, 2, -2):
        inner = slice(max(shift, 0), length + min(shift, 0))
        word = f"{abs(shift)} position{'s' if abs(shift) > 1 else ''} {'late' if shift > 0 else 'early'}"
        where = (slice(None), inner)
        late_ids, late_logits = np.roll(ids, shift, axis=1), np.roll(steps, shift, axis=1)
        for values in (np.roll(expected, shift, axis=1), gather(late_logits, ids), gather(steps, late_ids)):
            yield "logprob.shifted", f"the values match log-softmax {word}", values, where


def _wrong_axes(logits: Array, ids: Ids) -> Iterator[Candidate]:
    everywhere = (slice(None), slice(None))
    for axis, name in ((0, "batch"), (1, "time")):
        why = f"the softmax runs over the {name} axis instead of the vocabulary"
        yield "logprob.wrong_axis", why, gather(log_softmax(logits, axis), ids), everywhere
    flat = log_softmax(logits.reshape(1, 1, -1)).reshape(logits.shape)
    yield "logprob.wrong_axis", "the softmax runs over all axes at once", gather(flat, ids), everywhere
    steps = log_softmax(logits)
    for shift in range(1, ids.shape[0]):
        rolled = gather(steps, np.roll(ids, shift, axis=0))
        yield "logprob.wrong_axis", "each row is gathered with another row's ids", rolled, everywhere
    largest = steps.max(axis=-1)
    yield (
        "logprob.wrong_axis",
        "the most likely token is read instead of the sampled one",
        largest,
        everywhere,
    )
    first = gather(np.broadcast_to(steps[:, :1], steps.shape), ids)
    yield "logprob.wrong_axis", "every token is read from the first position", first, everywhere
    for offset in (1, -1):
        off = gather(steps, (ids + offset) % logits.shape[-1])
        yield "logprob.wrong_axis", "the ids are off by one in the vocabulary", off, everywhere


def _supports(logits: Array, ids: Ids) -> Iterator[tuple[str, Mask, Array]]:
    """Every set of the most likely tokens that top-k, top-p or min-p can keep, as (name, whether each id
    is kept (B, T), log of the kept mass (B, T)).

    Thresholds are tried at usual values, then between all that occur, so that none is missed.
    """
    order = np.argsort(-logits, axis=-1)
    ranks = np.argsort(order, axis=-1)
    mass = np.take_along_axis(np.exp(log_softmax(logits)), order, axis=-1)
    before = np.take_along_axis(np.cumsum(mass, axis=-1) - mass, ranks, axis=-1)
    before[ranks == 0] = 0.0
    share = np.exp(logits - logits.max(axis=-1, keepdims=True))
    kept = [(f"top-k {k}", ranks < k) for k in range(1, logits.shape[-1])]
    kept += [(f"top-p {p:.2g}", before < p) for p in _thresholds(before, USUAL_MASSES)]
    kept += [(f"min-p {s:.2g}", share >= s) for s in _thresholds(share, USUAL_SHARES)]
    chance = np.exp(log_softmax(logits))
    for name, keep in kept:
        inside = np.take_along_axis(keep, ids[..., None], axis=2)[..., 0]
        yield name, inside, np.log(np.where(keep, chance, 0).sum(axis=-1))


def _thresholds(values: Array, usual: Sequence[float]) -> list[float]:
    seen = np.unique(values)
    return [*usual, *((seen[1:] + seen[:-1]) / 2).tolist()]


def _truncated(logits: Array, ids: Ids) -> Iterator[Candidate]:
    expected = gather(log_softmax(logits), ids)
    for name, inside, mass in _supports(logits, ids):
        if inside.sum() >= FEWEST and float(np.abs(mass[inside]).max()) > 0.01:
            why = f"the values are normalised over the kept tokens only (they match {name})"
            yield "logprob.truncated_support", why, expected - mass, inside  # type: ignore[misc]


def _rule_of_mask(logits: Array, ids: Ids, got: Array, masked: Mask, tolerance: float) -> str:
    """The rule that masks just these tokens and whose kept ones are normalised among themselves; empty for none."""
    expected = gather(log_softmax(logits), ids)
    for name, inside, mass in _supports(logits, ids):
        if np.array_equal(inside, ~masked) and _near(got[inside], (expected - mass)[inside], tolerance):
            return name
    return ""


def _temperatures(logits: Array, ids: Ids) -> Iterator[Candidate]:
    grid = sorted({round(t * 0.05, 2) for t in range(1, 101)} | {0.01, 10.0, 100.0})
    for temperature in grid:
        if temperature != 1.0:
            values = gather(log_softmax(logits / temperature), ids)
            why = f"the values match log-softmax of logits / {temperature:g}"
            yield "logprob.temperature", why, values, (slice(None), slice(None))


def _judge_sums(call: Call, logits: Array, ids: Ids, first: Pair) -> list[Pair]:
    """exp of the log-probs of every token of the vocabulary must sum to 1 at each position."""
    total = np.zeros(ids.shape)
    for token in range(logits.shape[-1]):
        outcome = call(logits, np.full_like(ids, token))
        if outcome.error:
            return []
        got = numbers(outcome.value)
        if got.shape != ids.shape:
            return []
        with np.errstate(over="ignore"):
            total += np.exp(got)
    worst = float(total.flat[np.argmax(np.abs(total - 1))])
    given, came = "each token of the vocabulary in turn", f"sums of exp: {shown(total[0])}"
    if abs(worst - 1) < 0.05:
        return [Pair("sum over the vocabulary", given, came)]
    root = first.broken if first.broken != "logprob.not_normalised" else None
    why = f"the probabilities of one position sum to {worst:.4g}, expected 1"
    return [Pair("sum over the vocabulary", given, came, "logprob.not_normalised", why, root=root)]


def _judge_alone(call: Call, logits: Array, ids: Ids) -> Pair:
    """A row alone, and a row with more positions after it, keep their values."""
    given = "row 0 alone against row 0 in its batch"
    together, alone = call(logits, ids), call(logits[:1, :3], ids[:1, :3])
    if alone.error:
        return Pair("a row alone", given, alone.error, "logprob.positions", alone.error)
    a, b = numbers(together.value)[0, :3], numbers(alone.value).reshape(-1)
    if a.shape == b.shape and _near(a, b, HALF):
        return Pair("a row alone", given, shown(alone.value))
    why = "a row's log-probs change with the rows and positions beside it"
    return Pair("a row alone", given, shown(alone.value), "logprob.positions", why)
