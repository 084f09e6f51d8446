"""Plain data over a pipe: exact builtin types only, in a format that cannot carry code.

Both sides of the sandbox use it, so it imports nothing. Integers and floats travel as hexadecimal (exact, and
linear to read whatever their size). A subclass is refused, except the three dictionaries of ``collections``,
which travel as the dictionaries they are: a value that lies about itself does not survive the trip.

    N T F                    None, True, False
    i<hex>;  f<hex>;         int, float
    c<hex>,<hex>;            complex
    s<bytes>:  b<bytes>:     str as UTF-8 (lone surrogates kept), bytes
    l t e z<count>:          list, tuple, set, frozenset, then the items
    d<count>:                dict, then key, value, key, value, ...
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would double the start-up time of every program
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 100
HEADER = 4  # bytes of a frame's length
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"e", frozenset: b"z"}


class NotPlain(ValueError):
    """A value that is not plain data, or bytes that do not spell one."""


class SetOf:
    """A set as it was received: its items in a list, nothing hashed (hashes can be made to collide)."""

    __slots__ = ("frozen", "items")

    def __init__(self, items: list[Any], frozen: bool) -> None:
        self.items, self.frozen = items, frozen

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.items))
        return f"{'frozenset' if self.frozen else 'set'}({inside})"


class DictOf:
    """A dictionary as it was received: its pairs in a list, nothing hashed."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: {value!r}" for key, value in self.pairs) + "}"


def encode(value: Any) -> bytes:
    """Spell a value; the items of sets and dictionaries keep their own order.

    Raises:
        NotPlain: another type than the builtin ones, or nested more than ``MAX_DEPTH`` deep.
    """
    out: list[bytes] = []
    _write(value, out, 0, False)
    return b"".join(out)


def canonical(value: Any) -> bytes:
    """Spell a value so that equal sets and dictionaries have equal bytes: their items are sorted."""
    out: list[bytes] = []
    _write(value, out, 0, True)
    return b"".join(out)


def _write(value: Any, out: list[bytes], depth: int, ordered: bool) -> None:
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    if value is None or kind is bool:
        out.append(b"N" if value is None else b"T" if value else b"F")
    elif kind is int:
        out.append(b"i%x;" % value)
    elif kind is float:
        out.append(b"f" + value.hex().encode() + b";")
    elif kind is str:
        _write_bytes(b"s", value.encode("utf-8", "surrogatepass"), out)
    elif kind is bytes:
        _write_bytes(b"b", value, out)
    elif kind is complex:
        out.append(f"c{value.real.hex()},{value.imag.hex()};".encode())
    else:
        _write_container(value, kind, out, depth, ordered)


def _write_bytes(tag: bytes, data: bytes, out: list[bytes]) -> None:
    out.append(tag + b"%d:" % len(data))
    out.append(data)


def _write_container(value: Any, kind: type, out: list[bytes], depth: int, ordered: bool) -> None:
    if kind in _SEQUENCES or kind is SetOf:
        tag = _SEQUENCES.get(kind) or (b"z" if value.frozen else b"e")
        items = value.items if kind is SetOf else list(value)
        unordered = tag in b"ez"
        spelt = [_spell([item], depth + 1, ordered) for item in items]
    elif kind is DictOf or kind is dict or _is_known_dict(value, kind):
        tag, unordered = b"d", True
        pairs = value.pairs if kind is DictOf else list(dict.items(value))
        spelt = [_spell(pair, depth + 1, ordered) for pair in pairs]
    else:
        raise NotPlain(f"{kind.__name__} is not plain data")
    out.append(tag + b"%d:" % len(spelt))
    out.extend(sorted(spelt) if ordered and unordered else spelt)


def _spell(values: Any, depth: int, ordered: bool) -> bytes:
    out: list[bytes] = []
    for value in values:
        _write(value, out, depth, ordered)
    return b"".join(out)


def _is_known_dict(value: Any, kind: type) -> bool:
    named = kind.__module__ == "collections" and kind.__name__ in ("defaultdict", "OrderedDict", "Counter")
    return named and isinstance(value, dict)


def decode(data: bytes, hashed: bool = False) -> Any:
    """Read one value that takes up all of ``data``.

    Args:
        data: what :func:`encode` wrote, or anything else.
        hashed: build real sets and dictionaries (for data from our own side); otherwise :class:`SetOf` and
            :class:`DictOf`.

    Raises:
        NotPlain: the bytes spell no value, or one nested more than ``MAX_DEPTH`` deep.
    """
    try:
        value, end = _read(data, 0, 0, hashed)
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise NotPlain(f"not a record: {error}") from None
    if end != len(data):
        raise NotPlain("not a record: bytes left over")
    return value


def _read(data: bytes, at: int, depth: int, hashed: bool) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    tag, at = data[at : at + 1], at + 1
    if tag in (b"N", b"T", b"F"):
        return {b"N": None, b"T": True, b"F": False}[tag], at
    if tag in (b"i", b"f", b"c"):
        end = data.index(b";", at)
        return _number(tag, data[at:end].decode("ascii")), end + 1
    end = data.index(b":", at, at + 20)
    count, at = int(data[at:end]), end + 1
    if not 0 <= count <= len(data) - at:
        raise NotPlain("not a record: a count beyond its end")
    if tag == b"s":
        return data[at : at + count].decode("utf-8", "surrogatepass"), at + count
    if tag == b"b":
        return data[at : at + count], at + count
    return _read_container(tag, data, at, count, depth, hashed)


def _number(tag: bytes, text: str) -> Any:
    if tag == b"i":
        return int(text, 16)
    if tag == b"f":
        return float.fromhex(text)
    real, imaginary = text.split(",")
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _read_container(
    tag: bytes, data: bytes, at: int, count: int, depth: int, hashed: bool
) -> tuple[Any, int]:
    if tag not in (b"l", b"t", b"e", b"z", b"d"):
        raise NotPlain(f"not a record: tag {tag!r}")
    items: list[Any] = []
    for _ in range(2 * count if tag == b"d" else count):
        item, at = _read(data, at, depth + 1, hashed)
        items.append(item)
    if tag == b"d":
        pairs = list(zip(items[::2], items[1::2], strict=True))
        return (dict(pairs) if hashed else DictOf(pairs)), at
    if tag in (b"e", b"z"):
        frozen = tag == b"z"
        if not hashed:
            return SetOf(items, frozen), at
        return (frozenset(items) if frozen else set(items)), at
    return (tuple(items) if tag == b"t" else items), at
