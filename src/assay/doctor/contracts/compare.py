"""Run a function named on the command line, and compare two versions pair by pair: mending, not rewriting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.doctor.contracts.advantages import check_advantages, observe_advantages
from assay.doctor.contracts.calling import Function, literals_of, source_of
from assay.doctor.contracts.decode import check_decode, observe_decode
from assay.doctor.contracts.logprobs import check_logprobs, observe_logprobs
from assay.doctor.contracts.loss import check_loss, observe_loss
from assay.doctor.contracts.pairs import Pair
from assay.doctor.contracts.reward import check_reward, observe_reward
from assay.errors import BadInput, nearest
from assay.records.finding import Finding
from assay.rewards.load import load_function

CHECKS: Mapping[str, Callable[..., list[Finding]]] = {
    "advantages": check_advantages,
    "logprobs": check_logprobs,
    "loss": check_loss,
    "decode": check_decode,
    "reward": check_reward,
}
_OBSERVE: Mapping[str, Callable[..., list[Pair]]] = {
    "advantages": observe_advantages,
    "logprobs": observe_logprobs,
    "loss": observe_loss,
    "decode": observe_decode,
    "reward": observe_reward,
}


def run_code(
    spec: str | Function, kind: str, adapt: str | Function | None = None, **options: Any
) -> list[Finding]:
    """Check one function of a user's file.

    Args:
        spec: ``file.py:function`` or the function itself.
        kind: advantages, logprobs, loss, decode or reward.
        adapt: ``file.py:function`` or a function; see the check of that kind.
        options: further arguments of that check (``tasks=`` of the reward's).

    Returns:
        What fails or warns; empty when the contract holds.

    Raises:
        BadInput: an unknown kind, a file or name that cannot be loaded, a function that cannot be called.
    """
    return CHECKS[_known(kind)](_load(spec), adapt=None if adapt is None else _load(adapt), **options)


def _known(kind: str) -> str:
    if kind not in CHECKS:
        raise BadInput(f"no kind of function named {kind!r}{nearest(kind, CHECKS)}")
    return kind


def _load(spec: str | Function) -> Function:
    return load_function(spec) if isinstance(spec, str) else spec


@dataclass(frozen=True, slots=True)
class Move:
    """One input whose output differs between two versions."""

    shape: str
    given: str
    before: str
    after: str
    violated_before: str | None
    violated_after: str | None
    why: str = ""

    @property
    def effect(self) -> str:
        """``repaired``, ``broken``, ``still_broken`` or ``changed`` (both keep the contract)."""
        if self.violated_after:
            return "still_broken" if self.violated_before else "broken"
        return "repaired" if self.violated_before else "changed"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "shape": self.shape,
            "given": self.given,
            "before": self.before,
            "after": self.after,
            "violated_before": self.violated_before,
            "violated_after": self.violated_after,
            "effect": self.effect,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Exactly the pairs that a change moved, and whether it mends or rewrites.

    Attributes:
        kind: what was compared. moves: inputs whose output differs, in the order they were tried.
        tried: inputs given to both. unresolved: shapes that violate the contract in both versions.
        branches_before, branches_after: distinct lines that answered, 0 when unknown.
    """

    kind: str
    moves: tuple[Move, ...]
    tried: int
    unresolved: tuple[str, ...]
    branches_before: int
    branches_after: int

    @property
    def repaired(self) -> tuple[Move, ...]:
        """Pairs that violated the contract and no longer do."""
        return tuple(m for m in self.moves if m.effect == "repaired")

    @property
    def broken(self) -> tuple[Move, ...]:
        """Pairs that kept the contract and no longer do."""
        return tuple(m for m in self.moves if m.effect == "broken")

    @property
    def is_rewrite(self) -> bool:
        """Whether branches were folded away and pairs that held were broken by it."""
        return bool(self.broken) and 0 < self.branches_after < self.branches_before

    @property
    def verdict(self) -> str:
        """``broke``, ``unchanged``, ``mended`` or ``moved``."""
        if self.broken:
            return "broke"
        if not self.moves:
            return "unchanged"
        return "mended" if self.repaired and all(m.effect == "repaired" for m in self.moves) else "moved"

    @property
    def summary(self) -> str:
        """One sentence for a person."""
        counts = f"{len(self.moves)} of {self.tried} pairs moved: {len(self.repaired)} repaired"
        text = f"{counts}, {len(self.broken)} broken"
        if self.is_rewrite:
            text += (
                f"; {self.branches_before} branches became {self.branches_after}: "
                "this is a rewrite, and it broke " + ", ".join(m.shape for m in self.broken[:6])
            )
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "summary": self.summary,
            "is_rewrite": self.is_rewrite,
            "tried": self.tried,
            "moves": [m.to_json() for m in self.moves],
            "unresolved": list(self.unresolved),
            "branches_before": self.branches_before,
            "branches_after": self.branches_after,
        }


def compare(
    before: str | Function, after: str | Function, kind: str, adapt: str | Function | None = None
) -> Comparison:
    """Give both versions the same inputs and list the pairs whose output moved.

    Args:
        before, after: ``file.py:function`` or functions. kind, adapt: as in :func:`run_code`.

    Raises:
        BadInput: as :func:`run_code`.
    """
    observe, bridge = _OBSERVE[_known(kind)], None if adapt is None else _load(adapt)
    old, new = _load(before), _load(after)
    literals = [*literals_of(old), *literals_of(new)]
    first, second = _by_shape(observe(old, bridge, literals)), _by_shape(observe(new, bridge, literals))
    shared = [key for key in first if key in second]
    moves = [_move(first[k], second[k]) for k in shared if _differs(first[k], second[k])]
    unresolved = [k for k in shared if first[k].broken and second[k].broken]
    return Comparison(
        kind, tuple(moves), len(shared), tuple(unresolved), _branches(old, first), _branches(new, second)
    )


def _by_shape(pairs: Sequence[Pair]) -> dict[str, Pair]:
    """Index by shape and input; of several ids on one input the first stands."""
    found: dict[str, Pair] = {}
    for pair in pairs:
        key = pair.shape if pair.shape not in found or found[pair.shape].given == pair.given else (
            f"{pair.shape} ({pair.given})"
        )  # fmt: skip
        found.setdefault(key, pair)
    return found


def _differs(a: Pair, b: Pair) -> bool:
    return a.came != b.came or a.broken != b.broken


def _move(a: Pair, b: Pair) -> Move:
    return Move(a.shape, a.given, a.came, b.came, a.broken, b.broken, b.why or a.why)


def _branches(fn: Function, pairs: Mapping[str, Pair]) -> int:
    lines = {p.line for p in pairs.values() if p.line is not None}
    if lines:
        return len(lines)
    source = source_of(fn)
    return source.count("return ") if source else 0
