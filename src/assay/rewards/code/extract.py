"""From a completion to a program: one policy, in one place, for training and evaluation.

1. With ``</think>`` in the completion, only what follows the last one counts.
2. The last block fenced by lines starting with ``` or ~~~ and tagged ``python``, ``python3`` or ``py``;
   else the last block without a tag; blocks with another tag never count.
3. A block that is not closed does not count: being cut off must not pay.
4. Without any fence, the whole text, if ``bare`` allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PYTHON_TAGS = ("python", "python3", "py")
FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        tag: the first word after the fence, in lower case.
        code: the lines between the fences.
    """

    tag: str
    code: str


def extract_code(completion: str, which: Literal["last", "first"] = "last", bare: bool = True) -> str | None:
    """The program in a completion, or None.

    Args:
        completion: what the model wrote.
        which: the block that counts when there are several.
        bare: whether text without any fence is taken as the program.
    """
    text = completion.rpartition("</think>")[2]
    if not any(line.lstrip().startswith(FENCES) for line in text.splitlines()):
        return text if bare and text.strip() else None
    blocks = fenced_blocks(text)
    tagged = [block.code for block in blocks if block.tag in PYTHON_TAGS]
    untagged = [block.code for block in blocks if not block.tag]
    chosen = tagged or untagged
    return chosen[-1 if which == "last" else 0] if chosen else None


def fenced_blocks(text: str) -> list[Block]:
    """Every closed block; a line of the fence's characters, at least as long and without a tag, closes it."""
    blocks: list[Block] = []
    fence, tag, indent = "", "", 0
    lines: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if not fence:
            if bare.startswith(FENCES):
                fence, tag = _opening(bare)
                indent, lines = len(line) - len(line.lstrip()), []
        elif bare.startswith(fence) and not bare.strip(fence[0]):
            blocks.append(Block(tag, "\n".join(lines) + "\n"))
            fence = ""
        else:
            lines.append(line[min(indent, len(line) - len(line.lstrip())) :])
    return blocks


def _opening(line: str) -> tuple[str, str]:
    rest = line.lstrip(line[0])
    words = rest.replace("{", " ").replace("}", " ").split()
    return line[: len(line) - len(rest)], words[0].lower().lstrip(".") if words else ""
