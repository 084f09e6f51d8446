"""The shapes that a completion can have for one decoding function, built from the markers it knows.

Markers come from the function's own literals and patterns, and from the families in use; of the latter only
those count that the function visibly removes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["start", "end", "pad", "open", "close", "label"]
Expect = Literal["content", "answer", "anything"]

ANSWER = "42"
PLAIN = "The answer is 42"
LINES = "First add 40 and 2.\nThen the answer is 42"
BYTES = "Größe ≈ 42 €, 日本 🙂 ½"
QUESTION = "How much is 17 plus 25?"

FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("<|im_start|>assistant\n", "<|im_end|>", ("<|endoftext|>", "<|pad|>")),
    ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", ("<|finetune_right_pad_id|>",)),
    ("<start_of_turn>model\n", "<end_of_turn>", ("<pad>", "<eos>")),
    ("<s>", "</s>", ("<pad>", "<unk>")),
    ("[CLS]", "[SEP]", ("[PAD]",)),
)
"""What starts the completion, what ends it, and what pads it, of the chat formats in use."""

_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|\[(?:PAD|CLS|SEP|EOS|BOS|UNK|/?INST)\]"
    r"|</?(?:s|pad|eos|bos|unk|end)>|<(?:start|end)_of_turn>"
)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,30})>")
_LABEL = re.compile(
    r"^[#*\s]*[A-Za-z][A-Za-z #]{0,30}:\s*$|^#{2,}\s*[A-Za-z ]*:?\s*$|^assistant\n$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Markers:
    """What a function knows: special tokens by role, tags by name, labels such as ``Answer:``."""

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    pads: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    named: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def sees_raw_text(self) -> bool:
        """Whether it handles special tokens or chat headers, so that pads and prompts are its business."""
        return bool(self.starts or self.ends or self.pads)


@dataclass(frozen=True, slots=True)
class Shape:
    """One input.

    Attributes:
        name, text: the input. content: what must survive ('' for nothing).
        expect: the whole content, only the answer in it, or no error.
        absent: texts of which none may be left; ``choice``: at least one of these must be handled.
        fault: the id when something absent is left.
    """

    name: str
    text: str
    content: str = ""
    expect: Expect = "content"
    absent: tuple[str, ...] = ()
    fault: str = "decode.special_tokens"


def role_of(token: str) -> Role:
    """Guess the role of a special token from its name."""
    name = token.lower()
    if "pad" in name:
        return "pad"
    if re.search(r"im_end|eot|eos|end|sep|</s>|return|stop", name) and "header" not in name:
        return "end"
    return "start"


def is_special(text: str) -> bool:
    """Whether a text is exactly one special token."""
    return _SPECIAL.fullmatch(text) is not None


def find_markers(literals: Iterable[str], removes: Callable[[str], bool]) -> Markers:
    """Collect markers from literals and patterns, and from the families that ``removes`` reacts to."""
    texts = [_unescape(text) for text in literals]
    special = list(dict.fromkeys(m for text in texts for m in _SPECIAL.findall(text)))
    named = frozenset(special)
    for _, end, pads in FAMILIES:
        special += [token for token in (end, *pads) if token not in special and removes(token)]
    headers = [text for text in texts if _is_header(text)]
    taken = "".join(special)
    tags = [
        n for text in texts for _, n in _TAG.findall(text) if f"<{n}>" not in taken and not _group(n, text)
    ]
    return Markers(
        starts=tuple(
            dict.fromkeys([*headers, *(t for t in special if role_of(t) == "start" and not headers)])
        ),
        ends=tuple(t for t in special if role_of(t) == "end"),
        pads=tuple(t for t in special if role_of(t) == "pad"),
        tags=tuple(dict.fromkeys(tags)),
        labels=tuple(dict.fromkeys(text for text in texts if _LABEL.match(text) and not _is_header(text))),
        named=named,
    )


def _group(name: str, text: str) -> bool:
    return f"?P<{name}>" in text


def _is_header(text: str) -> bool:
    """A chat header, such as ``<|im_start|>assistant`` with its newline, or the bare role line."""
    return len(text) < 60 and bool(re.search(r"assistant|<start_of_turn>model|\[/INST\]", text)) and (
        bool(_SPECIAL.search(text)) or text.strip().lower() in ("assistant", "assistant:", "### assistant:")
    )  # fmt: skip


def _unescape(pattern: str) -> str:
    text = re.sub(r"\\([^\w\s])", r"\1", pattern)
    return text.replace("\\n", "\n").replace("\\s*", "").replace("\\s+", " ").replace("\\b", "")


def shapes(markers: Markers, removed: Collection[str] = ()) -> list[Shape]:
    """Every shape to try: without markers, a prefix or suffix only, both, nested, degenerate, multi-byte.

    Args:
        removed: tags that the function takes away around one line, and then must around several.
    """
    found = [
        Shape("no markers", PLAIN, PLAIN),
        Shape("several lines, no markers", LINES, LINES),
        Shape("multi-byte text", BYTES, BYTES),
        Shape("empty", "", "", "anything"),
        Shape("white space", " \n\t ", "", "anything"),
    ]
    for tag in markers.tags:
        found += _tag_shapes(tag, tag in removed)
    for label in markers.labels:
        found.append(Shape(f"only the prefix {label.strip()!r}", f"{label} {PLAIN}", PLAIN))
        found.append(
            Shape(f"text before {label.strip()!r}", f"I add them. {label} {ANSWER}", ANSWER, "answer")
        )
    found += _special_shapes(markers)
    return found


def _tag_shapes(tag: str, removed: bool) -> list[Shape]:
    a, b = f"<{tag}>", f"</{tag}>"
    if tag.lower() in ("think", "thinking", "reasoning", "scratchpad", "thought"):
        return _thought_shapes(a, b)
    return [
        Shape(f"only the prefix {a}", f"{a}{PLAIN}", PLAIN),
        Shape(f"only the suffix {b}", f"{PLAIN}{b}", PLAIN),
        Shape(f"{a} and {b} nested", f"{a}{a}{PLAIN}{b}{b}", PLAIN, "answer"),
        Shape(f"{b} cut short", f"{a}{PLAIN}{b[:-2]}", PLAIN, "answer"),
        Shape(f"nothing between {a} and {b}", f"{a}{b}", "", "anything"),
        Shape(f"white space around {a}", f"\n {a}\n{PLAIN}\n{b} \n", PLAIN),
        Shape(f"both {a} and {b}", f"{a}{PLAIN}{b}", PLAIN),
        Shape(f"text around {a}", f"I add them. {a}{ANSWER}{b} Done.", ANSWER, "answer"),
        Shape(f"several lines in {a}", f"{a}{LINES}{b}", LINES, "answer", (a, b) if removed else ()),
    ]


def _thought_shapes(a: str, b: str) -> list[Shape]:
    """A thought may go; what stands after it, or a thought that never closes, is all there is."""
    return [
        Shape(f"only the prefix {a}", f"{a}{PLAIN}", PLAIN),
        Shape(f"only the suffix {b}", f"I add them.{b}{PLAIN}", PLAIN),  # the template opened it
        Shape(f"{a} and {b} nested", f"{a}{a}I add them.{b}{b}{PLAIN}", PLAIN, "answer"),
        Shape(f"{b} cut short", f"{a}I add them.{b[:-2]}", "", "anything"),
        Shape(f"nothing between {a} and {b}", f"{a}{b}{PLAIN}", PLAIN),
        Shape(f"white space around {a}", f"\n {a}\nI add them.\n{b} \n{PLAIN}", PLAIN),
        Shape(f"answer after {b}", f"{a}I add them.{b}{PLAIN}", PLAIN),
        Shape(f"a thought and nothing after {b}", f"{a}{PLAIN}{b}", "", "anything"),
    ]


def _special_shapes(markers: Markers) -> list[Shape]:
    found: list[Shape] = []
    for end in markers.ends:
        edge = "".join(dict.fromkeys(c for c in end if c.isalpha()))
        text = f"{edge} gives 42 to {edge}"
        found.append(Shape(f"only the suffix {end}", f"{PLAIN}{end}", PLAIN, absent=(end,)))
        found.append(Shape(f"content of the letters of {end}", f"{text}{end}", text))
        found.append(Shape(f"only {end}", end, "", "anything", absent=(end,)))
    for start in markers.starts:
        found.append(Shape(f"only the prefix {start.strip()!r}", f"{start}{PLAIN}", PLAIN))
        for end in markers.ends[:1]:
            found.append(Shape(f"{start.strip()!r} and {end}", f"{start}{PLAIN}{end}", PLAIN, absent=(end,)))
        if _is_header(start):
            found.append(_with_prompt(start, markers.ends[0] if markers.ends else ""))
    for pad in markers.pads:
        end = markers.ends[0] if markers.ends else ""
        fault = "decode.padding_in_text"
        found.append(
            Shape(f"padding {pad} at the end", f"{PLAIN}{end}{pad * 3}", PLAIN, "content", (pad,), fault)
        )
        found.append(Shape(f"only padding {pad}", pad * 3, "", "anything", (pad,), fault))
    return found


def _with_prompt(header: str, end: str) -> Shape:
    user = header.replace("assistant", "user") if "assistant" in header else f"user: {QUESTION}\n"
    text = f"{user}{QUESTION}{end}\n{header}{PLAIN}{end}"
    return Shape(
        f"a prompt before {header.strip()!r}", text, PLAIN, absent=(QUESTION,), fault="decode.prompt_in_text"
    )


def family_shapes(markers: Markers) -> list[tuple[str, Sequence[Shape]]]:
    """Shapes of which at least one per group must be handled, for functions that see raw text."""
    if not markers.sees_raw_text:
        return []
    groups: list[tuple[str, Sequence[Shape]]] = []
    if not markers.pads and any(_is_header(start) for start in markers.starts):
        end = markers.ends[0] if markers.ends else None
        pads = [(end or e, pad) for _, e, many in FAMILIES for pad in many]
        if end == "</s>":  # the one family that often pads with its end mark
            pads.append((end, end))
        fault = "decode.padding_in_text"
        tried = [
            Shape(f"padding {p} after {e}", f"{PLAIN}{e}{p * 3}", PLAIN, "content", (p,), fault)
            for e, p in pads
        ]
        groups.append((fault, tried))
    if not markers.ends:
        ends = [e for _, e, _ in FAMILIES]
        tried = [Shape(f"the end mark {e}", f"{PLAIN}{e}", PLAIN, absent=(e,)) for e in ends]
        groups.append(("decode.special_tokens", tried))
    return groups
