"""Moving over tokens."""

from __future__ import annotations

from assay.rewards.mathematics.lexer import Token, Unreadable

_SENTINELS = [Token("end of text", "")] * 4  # so that looking ahead needs no check


class Cursor:
    """A place in a list of tokens, and the few ways to look and to move."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = [*tokens, *_SENTINELS]
        self._count = len(tokens)
        self.at = 0

    def more(self) -> bool:
        """Whether tokens are left."""
        return self.at < self._count

    def peek(self, ahead: int = 0) -> Token:
        """The token ``ahead`` of the place, without moving."""
        return self.tokens[self.at + ahead]

    def take(self) -> Token:
        """The next token, moving over it."""
        token = self.peek()
        self.at += 1
        return token

    def is_operator(self, *values: str) -> bool:
        """Whether the next token is one of these operators."""
        token = self.tokens[self.at]
        return token.value in values and token.kind == "operator"

    def is_command(self, *names: str) -> bool:
        """Whether the next token is one of these commands."""
        token = self.peek()
        return token.kind == "command" and token.value in names

    def accept(self, value: str) -> bool:
        """Move over an operator if it is next; whether it was."""
        if self.is_operator(value):
            self.at += 1
            return True
        return False

    def expect(self, *values: str) -> str:
        """Move over one of these operators, or raise :class:`Unreadable`."""
        if not self.is_operator(*values):
            raise Unreadable(f"expected {values[0]!r}, got {self.peek().value!r}")
        return self.take().value
