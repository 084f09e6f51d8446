r"""Read arithmetic: sums, products, powers, atoms, brackets. What stands in brackets is read by the subclass."""

from __future__ import annotations

import re
from fractions import Fraction

from assay.rewards.mathematics.cursor import Cursor
from assay.rewards.mathematics.lexer import FUNCTIONS, GREEK, Token, Unreadable
from assay.rewards.mathematics.tree import (
    EULER,
    IMAGINARY,
    INFINITY,
    PI,
    Bracket,
    Call,
    Collection,
    Matrix,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    Sum,
    Symbol,
    Tree,
    inverse,
    negated,
)

DEEPEST = 60
RELATIONS = {"=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=",
              "le": "<=", "ge": ">=", "ne": "!=", "in": "in", "equiv": "="}  # fmt: skip
_CONSTANTS = {"pi": PI, "infty": INFINITY}
_STARTS_FACTOR = frozenset(["(", "[", "{", r"\{"])
_HUNDREDTH = Number(Fraction(1, 100))
_REALS = Bracket("(", (negated(INFINITY), INFINITY), ")")
_ENDS = {"(": (")", "]"), "[": ("]", ")", "["), r"\{": (r"\}",), "{": ("}",)}


class Arithmetic(Cursor):
    """The grammar of values; :meth:`items` (a list, with relations) comes from the subclass."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.depth = 0
        self._bars = 0

    def items(self) -> list[Tree]:
        """One or more answers, separated by commas."""
        raise NotImplementedError

    def sum(self) -> Tree:
        """Terms with their signs."""
        terms = [self._signed_term()]
        while self.is_operator("+", "-") or self.is_command("pm", "mp"):
            terms.append(self._signed_term())
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def _signed_term(self) -> Tree:
        sign = 1
        while self.is_operator("+", "-"):
            sign = -sign if self.take().value == "-" else sign
        if self.is_command("pm", "mp"):
            self.at += 1
            return Call("pm", (self._product(),))
        term = self._product()
        return negated(term) if sign < 0 else term

    def _product(self) -> Tree:
        factors = [self._power()]
        while True:
            if self.accept("*"):
                factors.append(self._signed_power())
            elif self.accept("/"):
                factors.append(inverse(self._signed_power()))
            elif self._starts_factor():
                factors.append(self._juxtaposed(factors))
            else:
                return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def _juxtaposed(self, factors: list[Tree]) -> Tree:
        last = factors[-1]
        is_whole = len(factors) == 1 and isinstance(last, Number) and last.value.denominator == 1
        if self.peek().kind == "number":
            following = self.peek(1).value == "/" and self.peek(2).kind == "number"
            if not (is_whole and following):
                raise Unreadable(f"two numbers in a row at {self.peek().value!r}")
            above, _, below = self.take(), self.take(), self.take()
            part: Tree = Number(exact_number(above.value) / (exact_number(below.value) or 1))
        elif self.is_command("frac"):
            part = self._power()
            if not (is_whole and _is_proper_fraction(part)):
                return part
        else:
            return self._power()
        factors.pop()
        return Sum((last, part))  # a mixed number

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token.kind in ("number", "symbol", "begin"):
            return True
        if token.kind == "command":
            return token.value not in RELATIONS and token.value not in ("cup", "cap", "pm", "mp", "circ")
        return token.kind == "operator" and (
            token.value in _STARTS_FACTOR or (token.value == "|" and not self._bars)
        )

    def _signed_power(self) -> Tree:
        sign = 1
        while self.is_operator("+", "-"):
            sign = -sign if self.take().value == "-" else sign
        power = self._power()
        return negated(power) if sign < 0 else power

    def _power(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable("nested too deeply")
        base = self._atom()
        while True:
            if self.is_operator("^"):
                self.at += 1
                if self._is_degree():
                    base = Quantity(base, "deg")
                else:
                    base = Power(base, self._exponent())
            elif self.accept("!"):
                base = Call("factorial", (base,))
            elif self.accept("%"):
                base = Product((base, _HUNDREDTH))
            elif self.is_command("circ"):
                self.at += 1
                base = Quantity(base, "deg")
            elif self.accept("'"):
                base = Call("prime", (base,))
            else:
                self.depth -= 1
                return base

    def _is_degree(self) -> bool:
        braces = self.is_operator("{") and self.peek(1).value == "circ"
        if self.is_command("circ") or braces:
            self.at += 3 if braces else 1
            return True
        return False

    def _exponent(self) -> Tree:
        if self.is_operator("+", "-"):
            sign = self.take().value
            tree = self._power() if not self.is_operator("{") else self.argument()
            return negated(tree) if sign == "-" else tree
        tree = self.argument()
        if self.is_operator("^"):  # a tower written without braces is right-associative
            self.at += 1
            return Power(tree, self._exponent())
        return tree

    def argument(self) -> Tree:
        """A braced group, or the next single token (one digit of a longer number)."""
        if self.accept("{"):
            tree = self._inside("}")
            self.expect("}")
            return tree
        token = self.peek()
        if token.kind == "number" and len(token.value) > 1 and "." not in token.value:
            self.tokens[self.at] = Token("number", token.value[1:])
            return Number(Fraction(int(token.value[0])))
        return self._atom()

    def _inside(self, end: str) -> Tree:
        if self.is_operator(end):
            raise Unreadable("an empty group")
        bars, self._bars = self._bars, 0
        items = self.items()
        self._bars = bars
        return items[0] if len(items) == 1 else Collection(tuple(items))

    def _atom(self) -> Tree:
        token = self.take()
        if token.kind == "number":
            return self._subscripted_number(token)
        if token.kind == "symbol":
            return self._symbol(token.value)
        if token.kind == "command":
            return self._command(token.value)
        if token.kind == "begin":
            return self._matrix(token.value)
        if token.kind == "operator" and token.value == "|":
            return self._absolute()
        if token.kind == "operator" and token.value in _ENDS:
            return self._bracketed(token.value)
        raise Unreadable(f"unexpected {token.value or 'end'!r}")

    def _subscripted_number(self, token: Token) -> Tree:
        number = Number(exact_number(token.value))
        if self.accept("_"):
            return Call("base", (number, self.argument()))
        return number

    def _symbol(self, name: str) -> Tree:
        subscript = self._subscript()
        if not subscript:
            return {"e": EULER, "i": IMAGINARY}.get(name) or Symbol(name)
        return Symbol(f"{name}_{subscript}")

    def _subscript(self) -> str:
        if not self.accept("_"):
            return ""
        if not self.accept("{"):
            return self.take().value
        parts: list[str] = []
        while self.more() and not self.is_operator("}"):
            parts.append(self.take().value)
        self.expect("}")
        return " ".join(parts)

    def _absolute(self) -> Tree:
        self._bars += 1
        inner = self.sum()
        self._bars -= 1
        self.expect("|")
        return Call("abs", (inner,))

    def _bracketed(self, left: str) -> Tree:
        if left == r"\{" and self.accept(r"\}"):
            return Collection(())
        bars, self._bars = self._bars, 0
        items = tuple(self.items())
        self._bars = bars
        right = self.expect(*_ENDS[left])
        if left == "[" and right == "[":
            right = ")"
        if left == r"\{":
            return Collection(items)
        if len(items) == 1 and (left, right) in (("(", ")"), ("{", "}")):
            return items[0]
        if left == "{":
            return Collection(items)
        if len(items) == 1 and isinstance(items[0], Matrix):
            return items[0]
        return Bracket(left, items, right)

    def _matrix(self, name: str) -> Tree:
        if name in ("vmatrix", "Vmatrix"):
            raise Unreadable("a determinant")
        rows: list[tuple[Tree, ...]] = []
        while self.peek().kind != "end":
            row = [self.sum()]
            while self.accept("&"):
                row.append(self.sum())
            rows.append(tuple(row))
            if self.peek().kind == "newrow":
                self.at += 1
            elif self.peek().kind != "end":
                raise Unreadable(f"unexpected {self.peek().value!r} in a matrix")
        self.at += 1
        if len({len(row) for row in rows}) != 1:
            raise Unreadable("a matrix with rows of different lengths")
        return Matrix(tuple(rows))

    def _command(self, name: str) -> Tree:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in GREEK:
            return self._symbol(name)
        if name == "frac":
            above = self.argument()
            return Product((above, inverse(self.argument())))
        if name == "sqrt":
            return self._root()
        if name in ("binom", "dbinom", "tbinom"):
            return Call("binomial", (self.argument(), self.argument()))
        if name in FUNCTIONS:
            return self._function(name)
        if name == "sum":
            return self._big_sum()
        if name == "emptyset":
            return Collection(())
        if name == "mathbb" and self.accept("{"):
            letter = self.take().value
            self.expect("}")
            return _REALS if letter == "R" else Symbol(f"mathbb {letter}")
        raise Unreadable(f"unexpected \\{name}")

    def _root(self) -> Tree:
        order: Tree = Number(Fraction(2))
        if self.accept("["):
            order = self.sum()
            self.expect("]")
        return Power(self.argument(), inverse(order), is_root=True)

    def _function(self, name: str) -> Tree:
        base: tuple[Tree, ...] = (self.argument(),) if self.accept("_") else ()
        exponent = None
        if self.is_operator("^"):
            self.at += 1
            exponent = self._exponent()
        call: Tree = Call(name, (*self._function_arguments(), *base))
        if exponent is None:
            return call
        if exponent == Number(Fraction(-1)) or exponent == negated(Number(Fraction(1))):
            raise Unreadable("an inverse function")
        return Power(call, exponent)

    def _function_arguments(self) -> tuple[Tree, ...]:
        if self.accept("("):
            items = tuple(self.items())
            self.expect(")")
            return items
        if self.is_operator("-"):
            self.at += 1
            return (negated(self._function_arguments()[0]),)
        factors = [self._power()]
        while self._starts_factor() and not (
            self.peek().kind == "command" and self.peek().value in FUNCTIONS
        ) and not self.is_operator("("):  # fmt: skip
            factors.append(self._power())
        return (factors[0] if len(factors) == 1 else Product(tuple(factors)),)

    def _big_sum(self) -> Tree:
        self.expect("_")
        start = self.argument()
        self.expect("^")
        end = self.argument()
        if not (isinstance(start, Relation) and start.operators == ("=",)):
            raise Unreadable("a sum without an index")
        return Call("sum", (start.sides[0], start.sides[1], end, self._product()))


def _is_proper_fraction(tree: Tree) -> bool:
    if not (isinstance(tree, Product) and len(tree.factors) == 2):
        return False
    above, below = tree.factors
    if not (isinstance(below, Power) and isinstance(below.base, Number) and isinstance(above, Number)):
        return False
    return 0 < above.value < below.base.value


def exact_number(text: str) -> Fraction:
    r"""A decimal literal exactly, with exponent (``1e-3``) or repeating digits (``0.\overline{3}``)."""
    match = re.fullmatch(r"(\d*)\.(\d*)(?:\\overline\{(\d+)\}|\((\d+)\))", text)
    if match is None:
        return Fraction(text.rstrip("."))
    whole, once, again = match.group(1), match.group(2), match.group(3) or match.group(4)
    nines = 10 ** len(again) - 1
    start = Fraction(int((whole + once) or "0"), 10 ** len(once))
    return start + Fraction(int(again), nines * 10 ** len(once))
