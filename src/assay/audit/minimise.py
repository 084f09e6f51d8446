"""Making an exploit as short as it can be while it is still paid (delta debugging over words, then characters)."""

from __future__ import annotations

import re
from collections.abc import Callable


def minimised(text: str, still_paid: Callable[[str], bool], calls: int = 200) -> str:
    """Return a shorter text for which ``still_paid`` holds; at most ``calls`` trials.

    Zeller and Hildebrandt (2002): drop ever smaller parts. Words first, then characters of what is left.
    """
    budget = [calls]
    words = re.findall(r"\s*\S+", text)
    if "".join(words) != text:
        words.append(text[len("".join(words)) :])
    parts = _reduce(words, still_paid, budget)
    short = "".join(parts)
    stripped = short.strip()
    if stripped != short and stripped and still_paid(stripped):
        short = stripped
    return "".join(_reduce(list(short), still_paid, budget)) if len(short) <= 60 else short


def _reduce(parts: list[str], still_paid: Callable[[str], bool], budget: list[int]) -> list[str]:
    size = max(1, len(parts) // 2)
    while size >= 1 and budget[0] > 0:
        index, dropped = 0, False
        while index < len(parts) and budget[0] > 0:
            shorter = parts[:index] + parts[index + size :]
            budget[0] -= 1
            if shorter and still_paid("".join(shorter)):
                parts, dropped = shorter, True
            else:
                index += size
        if size == 1 and not dropped:
            break
        size = max(1, size // 2) if size > 1 else (1 if dropped else 0)
    return parts
