"""How a user's loss function is called, and its value and gradient whatever library computes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay.doctor.contracts.calling import Array, Function, attempt, numbers, parameters, source_of
from assay.errors import BadInput

REFERENCE_NAMES = (
    "ref_logp",
    "ref_logprobs",
    "ref_log_probs",
    "ref_logps",
    "reference_logp",
    "ref",
    "logp_ref",
)
FORMS = ("B", "BT", "B1", "B bool", "BT bool", "B1 bool")  # the advantages' shape and the mask's type
DIFFERENCE = 1e-5  # half-width of the central difference, for functions without autograd


@dataclass(frozen=True, slots=True)
class Batch:
    """One input of a policy loss.

    Attributes:
        logp, old: (B, T) nats. advantages: (B,). mask: (B, T) of 0 and 1. reference: (B, T) or None.
    """

    logp: Array
    old: Array
    advantages: Array
    mask: Array
    reference: Array | None = None

    def rows(self, index: Any) -> Batch:
        """Return the batch with these rows."""
        reference = None if self.reference is None else self.reference[index]
        return Batch(self.logp[index], self.old[index], self.advantages[index], self.mask[index], reference)

    def padded(self, columns: int, logp: float = -3.0, old: float = -5.0) -> Batch:
        """Return the batch with masked columns appended."""
        extra = (len(self.logp), columns)
        return replace(
            self,
            logp=np.hstack([self.logp, np.full(extra, logp)]),
            old=np.hstack([self.old, np.full(extra, old)]),
            mask=np.hstack([self.mask, np.zeros(extra)]),
            reference=None if self.reference is None else np.hstack([self.reference, np.full(extra, logp)]),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Value, gradient with respect to logp (B, T) or None when there is no graph, and what went wrong."""

    value: float = float("nan")
    gradient: Array | None = None
    error: str | None = None
    size: int = 1


Call = Callable[[Batch], Result]


def choose_loss_call(fn: Function, adapt: Function | None, probe: Batch) -> Call:
    """Find the form of the advantages, (B,), (B, 1) or (B, T), and the library that the function takes.

    Raises:
        BadInput: no form works; the message has what each said.
    """
    errors: list[str] = []
    for call in _candidates(fn, adapt):
        result = call(probe)
        if result.error is None:
            return call
        errors.append(result.error)
    raise BadInput(
        f"could not call {getattr(fn, '__name__', 'the function')} as fn(logp (B, T), old_logp (B, T), "
        f"advantages (B,) or (B, T), mask (B, T)): {'; '.join(dict.fromkeys(errors))[:300]}; "
        "pass adapt=lambda fn, logp, old_logp, advantages, mask: ..."
    )


def wants_reference(fn: Function, adapt: Function | None) -> bool:
    """Whether the function takes a reference's log-probs."""
    return adapt is None and any(name in parameters(fn) for name in REFERENCE_NAMES)


def _candidates(fn: Function, adapt: Function | None) -> Iterator[Call]:
    has_torch = importlib.util.find_spec("torch") is not None
    numpy_first = "np." in source_of(fn) and "torch" not in source_of(fn)
    runs = [_run_torch, _run_numpy] if has_torch else [_run_numpy]
    for run in runs[::-1] if numpy_first else runs:
        for form in FORMS:
            yield lambda batch, run=run, form=form: run(fn, adapt, form, batch)


def _shaped(advantages: Array, form: str, length: int) -> Array:
    if form.split()[0] == "B":
        return advantages
    return np.repeat(advantages[:, None], length if form.startswith("BT") else 1, axis=1)


def _arguments(
    fn: Function, adapt: Function | None, form: str, batch: Batch
) -> tuple[list[Array], dict[str, Array]]:
    given = [batch.logp, batch.old, _shaped(batch.advantages, form, batch.logp.shape[1]), batch.mask]
    name = next((n for n in REFERENCE_NAMES if n in parameters(fn)), None)
    if adapt is not None or name is None:
        return given, {}
    return given, {name: batch.reference if batch.reference is not None else batch.logp}


def _names(fn: Function, adapt: Function | None, given: list[Any], extra: dict[str, Any]) -> Any:
    """Call by position; where the reference stands among the first four, the others follow by order."""
    if adapt is not None:
        return attempt(adapt, fn, *given)
    names = list(parameters(fn))
    if extra and names.index(next(iter(extra))) < 4:
        free = [n for n in names if n not in extra]
        return attempt(fn, **dict(zip(free, given, strict=False)), **extra)
    return attempt(fn, *given, **extra)


def _run_torch(fn: Function, adapt: Function | None, form: str, batch: Batch) -> Result:
    import torch

    given, extra = _arguments(fn, adapt, form, batch)
    tensors = [torch.tensor(a, dtype=torch.float32) for a in given]
    if form.endswith("bool"):
        tensors[3] = tensors[3].bool()
    tensors[0].requires_grad_(True)
    outcome = _names(fn, adapt, tensors, {k: torch.tensor(a, dtype=torch.float32) for k, a in extra.items()})
    value: Any = outcome.value
    if isinstance(value, tuple) and value:
        value = value[0]
    if outcome.error is None and not isinstance(value, torch.Tensor | float | int | np.generic):
        return Result(error=f"expected a scalar tensor, got {type(value).__name__}")
    if outcome.error is not None:
        return Result(error=outcome.error)
    if not isinstance(value, torch.Tensor):
        return Result(float(numbers(value)))
    if value.numel() != 1:
        return Result(size=value.numel())
    if not value.requires_grad or attempt(value.reshape(()).backward).error:
        return Result(float(value.detach()))
    grad = tensors[0].grad
    got = None if grad is None else grad.detach().double().numpy()
    return Result(float(value.detach()), got)


def _run_numpy(fn: Function, adapt: Function | None, form: str, batch: Batch) -> Result:
    """Value by numpy; the gradient by central differences over every live or masked position."""

    def value(logp: Array) -> Result:
        given, extra = _arguments(fn, adapt, form, replace(batch, logp=logp))
        arrays: list[Any] = list(given)
        if form.endswith("bool"):
            arrays[3] = arrays[3] > 0
        outcome = _names(fn, adapt, arrays, extra)
        if outcome.error:
            return Result(error=outcome.error)
        raw = outcome.value[0] if isinstance(outcome.value, tuple) and outcome.value else outcome.value
        try:
            got = numbers(raw)
        except BadInput as error:
            return Result(error=str(error))
        return Result(float(got.reshape(-1)[0]) if got.size else float("nan"), size=got.size)

    base = value(batch.logp)
    if base.error or base.size != 1:
        return base
    gradient = np.zeros_like(batch.logp)
    for index in np.ndindex(*batch.logp.shape):
        moved = [batch.logp.copy(), batch.logp.copy()]
        moved[0][index] += DIFFERENCE
        moved[1][index] -= DIFFERENCE
        gradient[index] = (value(moved[0]).value - value(moved[1]).value) / (2 * DIFFERENCE)
    return replace(base, gradient=gradient)
