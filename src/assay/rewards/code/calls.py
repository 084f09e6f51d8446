"""The parent's side of function calls: one question at a time, one record for each, nothing believed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.rewards.code import plain
from assay.rewards.code.sandbox import Session

NO_RECORD = "the program ended without a record for this test"
FORGED = "a record that nobody asked for, or with a wrong token or test id"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one call gave.

    Attributes:
        status: ``value``; ``raised`` (an exception, or a value that is not plain data); ``none`` (no record);
            ``forged``.
        value: the received value (``plain.decode``), when there is one.
        reason: why there is none.
    """

    status: Literal["value", "raised", "none", "forged"]
    value: Any = None
    reason: str | None = None


class Calls:
    """A loaded program that answers calls; made for one session, with a random token of its own."""

    def __init__(self, session: Session) -> None:
        self._session, self._token = session, secrets.token_hex(16)

    def load(self, code: str, entry_point: str) -> Reply:
        """Run the module and find the function; status ``value`` when it is there."""
        message = {"form": "calls", "code": code, "entry_point": entry_point, "token": self._token}
        return self._exchange("load", message)

    def call(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Reply:
        """Call the function with plain data."""
        if self._session.unasked:
            return Reply("forged", reason=FORGED)
        # a fresh number for each call: no record can be written ahead
        number = secrets.token_hex(8)
        reply = self._exchange(number, {"id": number, "args": list(arguments), "kwargs": dict(keywords)})
        if reply.status != "value":
            return reply
        try:
            return Reply("value", plain.decode(reply.value))
        except plain.NotPlain as error:
            return Reply("forged", reason=str(error))

    def _exchange(self, number: str, message: Mapping[str, Any]) -> Reply:
        try:
            record = self._session.ask(dict(message))
        except plain.NotPlain as error:
            return Reply("forged", reason=str(error))
        if record is None:
            return Reply("none", reason=self._session.breach or NO_RECORD)
        match record:
            case [str(token), str(name), "ready" | "value", value] if self._is_ours(token, name, number):
                return Reply("value", value)
            case [str(token), str(name), "raised", str(reason)] if self._is_ours(token, name, number):
                return Reply("raised", reason=reason)
            case _:
                return Reply("forged", reason=FORGED)

    def _is_ours(self, token: str, name: str, number: str) -> bool:
        return (
            secrets.compare_digest(token.encode("utf-8", "replace"), self._token.encode()) and name == number
        )
