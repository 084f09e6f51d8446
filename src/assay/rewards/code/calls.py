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

    def load(self, code: str, entry_point: str) -> None:
        """Send the module and the function's name; what came of it is known with the first call."""
        message = {"form": "calls", "code": code, "entry_point": entry_point, "token": self._token}
        self._session.tell(message)
        self.loaded: Reply | None = None

    def call(self, arguments: Sequence[Any], keywords: Mapping[str, Any], last: bool = False) -> Reply:
        """Call the function with plain data; with ``last`` the program ends after its answer.

        When the program could not be loaded, this is why; ``loaded`` then has another status than ``value``.
        """
        if self.loaded is not None and self._session.unasked:
            return Reply("forged", reason=FORGED)
        # a fresh number for each call: no record can be written ahead
        number = secrets.token_hex(8)
        self._session.tell({"id": number, "args": list(arguments), "kwargs": dict(keywords), "last": last})
        if self.loaded is None:
            self.loaded = self._record("load")
        if self.loaded.status != "value":
            return self.loaded
        reply = self._record(number)
        if reply.status != "value":
            return reply
        try:
            return Reply("value", plain.decode(reply.value))
        except plain.NotPlain as error:
            return Reply("forged", reason=str(error))

    def _record(self, number: str) -> Reply:
        try:
            record = self._session.listen()
        except plain.NotPlain as error:
            return Reply("forged", reason=str(error))
        if record is None:
            return Reply("none", reason=self._session.breach or NO_RECORD)
        match record:
            case [str(token), str(name), "value", value] if self._is_ours(token, name, number):
                return Reply("value", value)
            case [str(token), str(name), "raised", str(reason)] if self._is_ours(token, name, number):
                return Reply("raised", reason=reason)
            case _:
                return Reply("forged", reason=FORGED)

    def _is_ours(self, token: str, name: str, number: str) -> bool:
        return (
            secrets.compare_digest(token.encode("utf-8", "replace"), self._token.encode()) and name == number
        )
