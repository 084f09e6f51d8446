"""Moving over tokens."""

from __future__ import annotations

from assay.rewards.mathematics.lexer import Token, Unreadable


class Cursor:
    """A place in a list of tokens, and the few ways to look and to move."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def more(self) -> bool:
        """Whether tokens are left."""
        return self.at < len(self.tokens)

    def peek(self, ahead: int = 0) -> Token:
        """The token ``ahead`` of the place, without moving."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else Token("end of text", "")

    def take(self) -> Token:
        """The next token, moving over it."""
        token = self.peek()
        self.at += 1
        return token

    def is_operator(self, *values: str) -> bool:
        """Whether the next token is one of these operators."""
        token = self.peek()
        return token.kind == "operator" and token.value in values

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
