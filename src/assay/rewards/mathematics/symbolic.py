"""The last resort: sympy, on a tree of ours (never on text), in a warm child process that can be killed."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any

from assay.rewards.mathematics.algebra import children
from assay.rewards.mathematics.numeric import NotNumeric, evaluate
from assay.rewards.mathematics.tree import (
    CONSTANTS,
    Call,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
    Symbol,
    Tree,
)
from assay.rewards.running import RewardRunner
from assay.rewards.signatures import Task

CPU_LIMIT = 1.0
"""Seconds of CPU that a proof may take; then the pair is undecided. CPU and not wall time, so that a verdict
does not depend on how busy the machine is."""
_WALL_LIMIT = 20.0
LARGEST_MEMORY = 2 * 1024**3
_LARGEST_EXPONENT = 1_000
_LARGEST_OPERATIONS = 200
_GROWING = frozenset(["sum", "binomial", "factorial"])


class Prover:
    """One child process with sympy loaded, started when it is first needed."""

    def __init__(self, cpu_limit: float = CPU_LIMIT) -> None:
        self._lock = threading.Lock()
        self._cpu_limit = cpu_limit
        self._runner: RewardRunner | None = None
        self._decided: dict[tuple[Tree, Tree], bool | None] = {}

    def prove(self, left: Tree, right: Tree) -> bool | None:
        """Whether the two are equal for certain; None: not decided, too large, or no sympy here."""
        if not is_available() or not (_is_small(left) and _is_small(right)):
            return None
        pair = (left, right) if repr(left) <= repr(right) else (right, left)
        with self._lock:
            if pair not in self._decided:
                if len(self._decided) > 4096:
                    self._decided.clear()
                self._decided[pair] = self._ask(pair)
            return self._decided[pair]

    def _ask(self, pair: tuple[Tree, Tree]) -> bool | None:
        if self._runner is None:
            self._runner = RewardRunner(Decider(self._cpu_limit), time_limit=_WALL_LIMIT, signature="task")
        score = self._runner.score([""], [{"left": pair[0], "right": pair[1]}])[0]
        return bool(score.value) if score.is_scored else None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._runner is not None:
                self._runner.close()
                self._runner = None


_PROVER = Prover()
atexit.register(_PROVER.close)


def prove_equal(left: Tree, right: Tree) -> bool | None:
    """Whether two arithmetic trees are equal for certain; None when it is not decided."""
    return _PROVER.prove(left, right)


def is_available() -> bool:
    """Whether sympy is installed (``pip install 'assay[math]'``)."""
    return importlib.util.find_spec("sympy") is not None


class Decider:
    """Decides one pair of trees; loading it (which happens in the child) loads sympy."""

    def __init__(self, cpu_limit: float) -> None:
        self._cpu_limit = cpu_limit

    def __reduce__(self) -> tuple[Callable[[float], Decider], tuple[float]]:
        return _load_decider, (self._cpu_limit,)

    def __call__(self, completion: str, task: Task) -> bool | None:
        """Whether ``task["left"]`` and ``task["right"]`` are equal; None when sympy does not know."""
        import sympy

        signal.setitimer(signal.ITIMER_PROF, self._cpu_limit)  # the kernel ends the process, in C code too
        try:
            return self._decide(_to_sympy(task["left"], sympy) - _to_sympy(task["right"], sympy), sympy)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _decide(self, difference: Any, sympy: Any) -> bool | None:
        if difference == 0 or sympy.simplify(difference) == 0:
            return True
        if not difference.free_symbols:
            if sympy.simplify(sympy.sqrtdenest(difference)) == 0:
                return True
        elif sympy.gammasimp(difference) == 0:
            return True
        return difference.equals(0)


def _load_decider(cpu_limit: float) -> Decider:
    sympy = importlib.import_module(
        "sympy"
    )  # here, so that its seconds do not count as those of the first proof
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    x = sympy.Symbol("x", real=True)
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)  # loads what the first proof would wait for
    return Decider(cpu_limit)


def _is_small(tree: Tree) -> bool:
    """Whether evaluating it cannot blow up: few operations, no towers, no large exponents."""
    operations, stack = 0, [tree]
    while stack:
        node = stack.pop()
        operations += 1
        if isinstance(node, Power) and not _is_small_exponent(node.exponent):
            return False
        if isinstance(node, Power) and not isinstance(node.base, Symbol | Number):
            operations += _repeated(node.exponent)
        if isinstance(node, Call) and node.name in _GROWING and not _has_small_parts(node):
            return False
        stack.extend(children(node))
    return operations <= _LARGEST_OPERATIONS


def has_structure(tree: Tree) -> bool:
    """Whether it has a part that only sympy can evaluate (a sum or a binomial with variables)."""
    if isinstance(tree, Call) and tree.name in _GROWING:
        return True
    return any(has_structure(part) for part in children(tree))


def _has_small_parts(call: Call) -> bool:
    return all(_has_variable(part) or _is_small_number(part) for part in call.arguments)


def _is_small_number(tree: Tree) -> bool:
    return isinstance(tree, Number) and abs(tree.value) <= _LARGEST_EXPONENT


def _repeated(exponent: Tree) -> int:
    """How many factors a power of a sum expands to."""
    return int(abs(exponent.value)) if isinstance(exponent, Number) else 0


def _is_small_exponent(tree: Tree) -> bool:
    if _has_variable(tree):
        return True
    try:
        return abs(evaluate(tree)) <= _LARGEST_EXPONENT
    except NotNumeric:
        return False


def _has_variable(tree: Tree) -> bool:
    if isinstance(tree, Symbol):
        return tree.name not in CONSTANTS
    return any(_has_variable(part) for part in children(tree))


def _to_sympy(tree: Tree, sympy: Any) -> Any:
    if isinstance(tree, Number):
        return sympy.Rational(tree.value.numerator, tree.value.denominator)
    if isinstance(tree, Symbol):
        constants = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
        return constants.get(tree.name) or sympy.Symbol(tree.name, real=True)
    if isinstance(tree, Sum):
        return sympy.Add(*(_to_sympy(term, sympy) for term in tree.terms))
    if isinstance(tree, Product):
        return sympy.Mul(*(_to_sympy(factor, sympy) for factor in tree.factors))
    if isinstance(tree, Power):
        return _power_to_sympy(tree, sympy)
    if isinstance(tree, Quantity):
        return _to_sympy(tree.value, sympy)
    if isinstance(tree, Call):
        return _call_to_sympy(tree, sympy)
    raise ValueError(f"no sympy form of {type(tree).__name__}")


def _power_to_sympy(tree: Power, sympy: Any) -> Any:
    base, exponent = _to_sympy(tree.base, sympy), _to_sympy(tree.exponent, sympy)
    if tree.is_root and base.is_negative and exponent.is_Rational and exponent.q % 2:
        return sympy.Integer(-1) ** exponent.p * (-base) ** exponent
    return base**exponent


def _call_to_sympy(tree: Call, sympy: Any) -> Any:
    arguments = [_to_sympy(argument, sympy) for argument in tree.arguments]
    if tree.name == "sum":
        index, low, high, body = arguments
        return sympy.Sum(body, (index, low, high)).doit()
    if tree.name == "lg":
        return sympy.log(arguments[0], 10)
    names = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "abs": "Abs", "ln": "log",
             "max": "Max", "min": "Min"}  # fmt: skip
    if tree.name not in _KNOWN:
        return sympy.Function(f"unknown_{tree.name}")(*arguments)
    function: Callable[..., Any] = getattr(sympy, names.get(tree.name, tree.name))
    return function(*arguments)


_KNOWN = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "exp",
     "ln", "log", "abs", "max", "min", "factorial", "binomial", "gcd", "lcm"]
)  # fmt: skip
