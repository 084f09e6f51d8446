"""Messages over a descriptor: four bytes of length, then the message. The side inside the sandbox."""

from __future__ import annotations

import posix

from assay.rewards.code.plain import HEADER

TYPE_CHECKING = False  # as in typing, whose import would double the start-up time of every program
if TYPE_CHECKING:
    from collections.abc import Callable

leave = posix._exit  # pyright: ignore[reportPrivateUsage] - what os._exit is


def write_frame(fd: int, payload: bytes, write: Callable[[int, bytes], int] = posix.write) -> None:
    """Send a length (4 bytes, big-endian) and the payload."""
    view = len(payload).to_bytes(HEADER, "big") + payload
    while view:
        view = view[write(fd, view) :]


def read_frame(fd: int, read: Callable[[int, int], bytes] = posix.read) -> bytes | None:
    """Receive one payload; None when the other side has closed."""
    size = _read_exactly(fd, HEADER, read)
    return None if size is None else _read_exactly(fd, int.from_bytes(size, "big"), read)


def _read_exactly(fd: int, count: int, read: Callable[[int, int], bytes]) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = read(fd, min(count, 1 << 16))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
