"""What the source of a reward says: its literals, patterns, tags, and the constructs that are dangerous."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EVALUATORS = frozenset({"eval", "exec", "sympify", "parse_expr", "execfile"})
COMPLETION_PARAMETERS: tuple[str, ...] = (
    "completion", "completions", "solution_str", "solution_strs", "queries", "response", "responses", "output",
    "generation", "model_output", "prediction", "solution_text",
)  # fmt: skip
PATTERN_CALLS = frozenset(
    {"compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "split", "subn"}
)
SERVICES = re.compile(r"^(requests|httpx|urllib|urlopen|openai|anthropic|aiohttp|client|socket)\b")
JUDGE_WORDS = re.compile(
    r"judge|grader|rubric|verdict|rating|reward_model|\bllm|critic|evaluator|helpful|\bscore:", re.I
)
SHAPED = re.compile(r"<[^<>\s]+>|\\boxed|\\\[|####|```|\{|\}|\[|\]|:\s*$|\$\$|\*\*", re.I)


@dataclass(frozen=True, slots=True)
class BroadExcept:
    """A handler that catches everything and goes on.

    ``calls``: dotted names called in the guarded block. ``pays``: the number it returns or appends, if any.
    ``bare``: it also catches the interrupt of a time limit.
    """

    line: int
    calls: tuple[str, ...]
    pays: float | None
    bare: bool


@dataclass(frozen=True, slots=True)
class RewardSource:
    """One reward file, read statically.

    Attributes:
        literals: strings that the code itself uses (docstrings apart), short ones, in order.
        patterns: strings used as regular expressions. keys: strings used as subscript or ``.get`` keys.
        evaluators: (line, name) of eval and the like on something that derives from the model's text.
        guarded: an evaluator comes after a check of the characters (``fullmatch`` and the like, or a walk of
            the syntax tree).
        columns: names that the code reads; judge: whether it looks like a judge or a learned score.
    """

    text: str = ""
    literals: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    evaluators: tuple[tuple[int, str], ...] = ()
    guarded: bool = False
    broad_excepts: tuple[BroadExcept, ...] = ()
    names: frozenset[str] = frozenset()
    judge: bool = False

    @property
    def tags(self) -> list[str]:
        """Names of the XML-like tags in the literals and patterns, in order of appearance."""
        found = re.findall(r"<(?:/|\\/)?([A-Za-z_][\w-]*)>", "\n".join([*self.patterns, *self.literals]))
        return list(dict.fromkeys(found))

    @property
    def markers(self) -> list[str]:
        """Literals that could be words to look for: no patterns, at most 60 characters, one only if it is a symbol."""
        kept = [s.strip() for s in self.literals if s not in self.patterns]
        return list(
            dict.fromkeys(
                s for s in kept if (len(s) > 1 or not s.isascii()) and len(s) <= 60 and s.isprintable()
            )
        )


def read_source(spec: str) -> RewardSource:
    """Read the file of ``file.py:function``; a package or an unreadable file gives an empty source.

    Functions of the file that the reward cannot reach by name are left out, so that another reward's literals
    in the same file are not this one's markers.
    """
    path, _, name = spec.rpartition(":")
    try:
        text = Path(path).read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return RewardSource()
    nodes = list(_reachable(tree, name.split(".")[0]))
    strings = [s for node in nodes for s in _strings(node)]
    constants = _constants(tree)
    patterns = [s for node in nodes for s in _patterns(node, constants)]
    names = {n for node in nodes for n in _names(node)}
    guarded = bool(names & {"fullmatch", "issubset", "NodeVisitor", "walk"}) or any(
        re.search(r"\^\[.*\][+*]\$", p) for p in patterns
    )
    return RewardSource(
        text="\n".join(ast.unparse(node) for node in nodes),
        literals=tuple(dict.fromkeys(strings)),
        patterns=tuple(dict.fromkeys(patterns)),
        keys=tuple(dict.fromkeys(k for node in nodes for k in _keys(node))),
        evaluators=tuple(_evaluators(nodes)),
        guarded=guarded,
        broad_excepts=tuple(b for node in nodes for b in _broad(node)),
        names=frozenset(names),
        judge=any(JUDGE_WORDS.search(w) for w in [*names, *strings]),
    )


def _reachable(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    """Top-level statements that the function uses, directly or not; imports and loose code are kept."""
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        for defined_name in _defines(node):
            defined[defined_name] = node
    if name not in defined:
        yield from tree.body
        return
    wanted, seen = [name], set[str]()
    while wanted:
        current = wanted.pop()
        if current in seen or current not in defined:
            continue
        seen.add(current)
        wanted.extend(n.id for n in ast.walk(defined[current]) if isinstance(n, ast.Name))
    chosen = {id(defined[n]) for n in seen}
    for node in tree.body:
        if id(node) in chosen or not any(True for _ in _defines(node)):
            yield node


def _defines(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _strings(node: ast.AST) -> Iterator[str]:
    """String constants, the constant parts of f-strings included, docstrings and annotations left out."""
    documentation = {
        id(n.body[0].value)
        for n in ast.walk(node)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    for found in ast.walk(node):
        if (
            isinstance(found, ast.Constant)
            and isinstance(found.value, str)
            and id(found) not in documentation
            and found.value.strip()
            and len(found.value) <= 2000
        ):
            yield found.value


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names bound to a string at the top of the module or anywhere inside."""
    return {
        target.id: text
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Assign) and (text := _text_of(statement.value, {})) is not None
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _patterns(node: ast.AST, constants: Mapping[str, str]) -> Iterator[str]:
    for found in ast.walk(node):
        if isinstance(found, ast.Call) and found.args and _called(found).split(".")[-1] in PATTERN_CALLS:
            text = _text_of(found.args[0], constants)
            if text is not None and _called(found).split(".")[0] in ("re", "regex") and _compiles(text):
                yield text


def _text_of(node: ast.AST, constants: Mapping[str, str]) -> str | None:
    """A string constant, a name bound to one, or a concatenation of these."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text_of(node.left, constants), _text_of(node.right, constants)
        return left + right if left is not None and right is not None else None
    return None


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""


def _names(node: ast.AST) -> Iterator[str]:
    for found in ast.walk(node):
        if isinstance(found, ast.Name):
            yield found.id
        elif isinstance(found, ast.Attribute):
            yield found.attr
        elif isinstance(found, ast.arg):
            yield found.arg
        elif isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            yield found.name
        elif isinstance(found, ast.Import | ast.ImportFrom):
            yield from (alias.name.split(".")[0] for alias in found.names)


def _keys(node: ast.AST) -> Iterator[str]:
    for found in ast.walk(node):
        if isinstance(found, ast.Subscript) and isinstance(found.slice, ast.Constant):
            if isinstance(found.slice.value, str):
                yield found.slice.value
        elif isinstance(found, ast.Call) and _called(found).endswith((".get", ".pop")) and found.args:
            first = found.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _evaluators(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Calls of eval and the like on something that derives from the model's text."""
    dirty = tainted(nodes)
    for found in (n for node in nodes for n in ast.walk(node)):
        if not (isinstance(found, ast.Call) and found.args and _is_evaluator(_called(found))):
            continue
        if _named([found.args[0]]) & dirty:
            yield found.lineno, _called(found)


def _is_evaluator(called: str) -> bool:
    owner, _, last = called.rpartition(".")
    return last in EVALUATORS and (last not in ("eval", "exec") or owner in ("", "builtins"))


def tainted(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that may hold the model's text: its parameters, and what is computed from them.

    Scopes are ignored: a name is dirty everywhere once it is dirty somewhere.
    """
    dirty: set[str] = {*COMPLETION_PARAMETERS}
    functions = {n.name: n for node in nodes for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
    while True:
        before = len(dirty)
        for found in (n for node in nodes for n in ast.walk(node)):
            dirty |= _spread(found, dirty, functions)
        if len(dirty) == before:
            return dirty


def _spread(found: ast.AST, dirty: set[str], functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    if isinstance(found, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets = found.targets if isinstance(found, ast.Assign) else [found.target]
        return _named(targets) if found.value is not None and _named([found.value]) & dirty else set()
    if isinstance(found, ast.For | ast.comprehension):
        return _named([found.target]) if _named([found.iter]) & dirty else set()
    if isinstance(found, ast.withitem):
        vars_ = [found.optional_vars] if found.optional_vars is not None else []
        return _named(vars_) if _named([found.context_expr]) & dirty else set()
    if isinstance(found, ast.Call) and (callee := functions.get(_called(found))) is not None:
        names = [a.arg for a in callee.args.args]
        given = dict(zip(names, found.args, strict=False)) | {k.arg: k.value for k in found.keywords if k.arg}
        return {name for name, value in given.items() if _named([value]) & dirty}
    return set()


def _named(nodes: Sequence[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _broad(node: ast.AST) -> Iterator[BroadExcept]:
    for found in ast.walk(node):
        if not isinstance(found, ast.Try):
            continue
        for handler in found.handlers:
            if _is_broad(handler.type) and not any(isinstance(n, ast.Raise) for n in ast.walk(handler)):
                inner = [n for s in found.body for n in ast.walk(s) if isinstance(n, ast.Call)]
                bare = handler.type is None or "BaseException" in ast.unparse(handler.type)
                yield BroadExcept(handler.lineno, tuple(_called(c) for c in inner), _pays(handler), bare)


def _is_broad(kind: ast.expr | None) -> bool:
    names: Sequence[ast.expr] = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
    return kind is None or any(ast.unparse(n).split(".")[-1] in ("Exception", "BaseException") for n in names)


def _pays(handler: ast.ExceptHandler) -> float | None:
    for found in ast.walk(handler):
        value: ast.expr | None = None
        if isinstance(found, ast.Return):
            value = found.value
        elif isinstance(found, ast.Call) and _called(found).endswith(".append") and found.args:
            value = found.args[0]
        elif isinstance(found, ast.Assign):
            value = found.value
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            return float(value.value)
    return None
