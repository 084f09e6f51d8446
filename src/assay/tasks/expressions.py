"""Integer expressions, evaluated exactly by two instruments that share nothing.

``value_by_syntax`` walks Python's own syntax tree (parsed, never run); ``value_by_stack`` turns the text into
postfix with a stack. Both are exact (fractions) and bounded in length.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from itertools import pairwise

MAX_CHARACTERS = 200
MAX_DIGITS = 9
_TOKEN = re.compile(r"[ \t]*([0-9]+|[-+*/()])", re.ASCII)
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3}


def numbers_in(text: str) -> list[int] | None:
    """The integers of an expression, in order; None when the text holds anything else than one."""
    tokens = _tokens(text)
    return None if tokens is None else [int(token) for token in tokens if token.isdigit()]


def value_by_syntax(text: str) -> Fraction | None:
    """The exact value of ``+ - * /`` over integers; None when unreadable, undefined or too long."""
    if _tokens(text) is None:
        return None
    try:
        return _walk(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _walk(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int(value)):
            return Fraction(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            return _apply(_SYMBOL.get(type(operator), "?"), _walk(left), _walk(right))
        case _:
            raise ValueError(f"not arithmetic: {type(node).__name__}")


_SYMBOL: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _apply(symbol: str, left: Fraction, right: Fraction) -> Fraction:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case _:
            raise ValueError(f"not arithmetic: {symbol}")


def value_by_stack(text: str) -> Fraction | None:
    """The same value by the shunting-yard algorithm; None when unreadable, undefined or too long."""
    tokens = _tokens(text)
    if not tokens:
        return None
    try:
        return _run(_postfix(tokens))
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    position, text = 0, text.strip()
    if len(text) > MAX_CHARACTERS:
        return None
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or len(found.group(1)) > MAX_DIGITS:
            return None
        tokens.append(found.group(1))
        position = found.end()
    glued = any(left.isdigit() and right.isdigit() for left, right in pairwise(tokens))
    floor = any(left in "*/" and left == right for left, right in pairwise(tokens))
    return None if glued or floor or any(_leading_zero(token) for token in tokens) else tokens


def _leading_zero(token: str) -> bool:
    return len(token) > 1 and token[0] == "0"


def _postfix(tokens: list[str]) -> list[str]:
    output: list[str] = []
    waiting: list[str] = []
    operand_next = True
    for token in tokens:
        if token.isdigit() or token == "(":
            if not operand_next:
                raise ValueError("two operands in a row")
            (output if token.isdigit() else waiting).append(token)
            operand_next = token == "("
        elif operand_next:
            if token != "-":
                raise ValueError("an operand is missing")
            waiting.append("neg")
        elif token == ")":
            while waiting[-1] != "(":
                output.append(waiting.pop())
            waiting.pop()
        else:
            while waiting and waiting[-1] != "(" and _PRECEDENCE[waiting[-1]] >= _PRECEDENCE[token]:
                output.append(waiting.pop())
            waiting.append(token)
            operand_next = True
    if operand_next or "(" in waiting:
        raise ValueError("the expression does not end")
    return output + waiting[::-1]


def _run(postfix: list[str]) -> Fraction:
    stack: list[Fraction] = []
    for token in postfix:
        if token.isdigit():
            stack.append(Fraction(int(token)))
        elif token == "neg":
            stack.append(-stack.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(_apply(token, left, right))
    (value,) = stack
    return value
