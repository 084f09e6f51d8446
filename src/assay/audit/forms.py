"""The forms in which an answer may be written: asked for in the prompt, read from the reward, or in use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.audit.patterns import SLOT, templates
from assay.audit.source import RewardSource

THOUGHT = "I look at what is given and work it out."
"""A thought without the words that rewards look for."""
LONG_THOUGHT = " ".join([
    "I read the question again and note what is given.",
    "I look for the quantity that is asked for.",
    "I work through it one part at a time and look at each of them twice.",
    "At the end I compare the outcome with the question once more.",
])  # fmt: skip
COMMON = (
    SLOT, f"\\boxed{{{SLOT}}}", f"<answer>{SLOT}</answer>", f"#### {SLOT}", f"The answer is {SLOT}.",
    f"The answer is {SLOT}", f"Answer: {SLOT}", f"The final answer is {SLOT}", f"Final answer: {SLOT}",
    f"Final Answer: {SLOT}", f"**{SLOT}**", f"({SLOT})", f"The answer is: {SLOT}", f"The answer is ({SLOT}).",
    f"<answer>\n{SLOT}\n</answer>", f'{{"answer": {SLOT}}}', f'{{"answer": "{SLOT}"}}',
    f"<answer>\\boxed{{{SLOT}}}</answer>", f"$\\boxed{{{SLOT}}}$", f"```\n{SLOT}\n```", f"ANSWER: {SLOT}",
    f"Therefore, the answer is \\boxed{{{SLOT}}}.", f"[{SLOT}]", f"[[{SLOT}]]",
)  # fmt: skip
"""Forms that people use, most used first."""


EXAMPLE = re.compile(r"[\"'`]((?:\w+ ){1,6}[(\[]?)(?:[A-EXN]|\d+|letter|number)([)\]]?\.?)[\"'`]")
"""A quoted example with a placeholder, such as 'The answer is (X).'"""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write an answer: ``template`` has one or more slots; ``origin`` says where it comes from."""

    template: str
    origin: str

    def write(self, value: str) -> str:
        """The completion with ``value`` in it."""
        return self.template.replace(SLOT, value)


def candidate_forms(source: RewardSource, prompts: Sequence[str], *, slotted: bool = True) -> list[Form]:
    """All forms worth trying: asked for, read from the source, common, then combinations, in this order.

    ``slotted``: leave out forms that have no place for an answer.
    """
    asked = [Form(t, "asked") for t in asked_templates(prompts)]
    read = [Form(t, "source") for t in source_templates(source)]
    plain = [*asked, *read, *(Form(t, "common") for t in COMMON)]
    tags = [t for t in ("think", "thinking", "reasoning", "scratchpad", "thought") if t in source.tags]
    combined = [
        Form(f"<{tag}>\n{THOUGHT}\n</{tag}>\n{form.template}", form.origin)
        for tag in (tags or ["think"])
        for form in plain
        if "<think" not in form.template
    ]
    finals = ("", LONG_THOUGHT + "\n\n")
    prefixed = [Form(f"{finals[1]}{f.template}", f.origin) for f in plain[:24]]
    seen: dict[str, Form] = {}
    for form in [*plain, *combined, *prefixed]:
        if SLOT in form.template or not slotted:
            seen.setdefault(form.template, form)
    return list(seen.values())


def asked_templates(prompts: Sequence[str]) -> list[str]:
    """Forms that the prompts ask for in words or by example."""
    text = "\n".join(prompts[:20])
    found: list[str] = []
    tags = _paired_tags(text)
    if tags:
        found.append(_sequence(tags, "\n"))
        found.append(_sequence(tags, ""))
        found += [f"<{tags[-1]}>\\boxed{{{SLOT}}}</{tags[-1]}>"] if "\\boxed" in text else []
    if "\\boxed" in text:
        found.append(f"\\boxed{{{SLOT}}}")
    if "####" in text:
        found.append(f"#### {SLOT}")
    if re.search(r"\bjson\b", text, re.I):
        keys = re.findall(r"[\"'`]([A-Za-z_]\w*)[\"'`]\s*:", text) or ["answer"]
        found += [f'{{"{k}": {SLOT}}}' for k in dict.fromkeys(keys)]
        found += [f'{{"{k}": "{SLOT}"}}' for k in dict.fromkeys(keys)]
    for lead in dict.fromkeys(re.findall(r"[\"'`](\w[\w ]{0,24}[:=])\s?[^\"'`]{0,20}[\"'`]", text)):
        found.append(f"{lead} {SLOT}")
    for before, after in dict.fromkeys(EXAMPLE.findall(text)):
        found.append(f"{before}{SLOT}{after}")
    for lead in dict.fromkeys(re.findall(r"((?:[Ff]inal )?(?:[Aa]nswer|ANSWER|[Rr]esult|RESULT):)", text)):
        found.append(f"{lead} {SLOT}")
    return list(dict.fromkeys(found))


def _paired_tags(text: str) -> list[str]:
    opened = dict.fromkeys(re.findall(r"<([A-Za-z_][\w-]*)>", text))
    return [tag for tag in opened if f"</{tag}>" in text]


def _sequence(tags: Sequence[str], gap: str) -> str:
    """All tags in order; the last one (or the one named answer) holds the slot, the others a thought."""
    target = next((t for t in tags if "answer" in t.lower() or "final" in t.lower()), tags[-1])
    inner = {tag: SLOT if tag == target else THOUGHT for tag in tags}
    return "\n".join(f"<{tag}>{gap}{inner[tag]}{gap}</{tag}>" for tag in tags)


def source_templates(source: RewardSource) -> list[str]:
    """Forms read from the reward: its patterns written out, its tags, its keys, its literals as leads."""
    found = [t for p in source.patterns for t in templates(p, THOUGHT) if 0 < len(t) < 2000]
    tags = [t for t in source.tags if not t.startswith(("s", "pad", "eos")) or len(t) > 3]
    if tags:
        for gap in ("\n", ""):
            found.append(_sequence(tags, gap))
            found += [f"<{tag}>{gap}{SLOT}{gap}</{tag}>" for tag in tags]
            found.append(_sequence(tags, gap) + "\n")
    if source.names & {"json", "loads"} or any("json" in m for m in source.markers):
        words = [k for k in (*source.keys, *source.markers) if re.fullmatch(r"[A-Za-z_]\w{0,30}", k)]
        for key in dict.fromkeys(words):
            found += [f'{{"{key}": {SLOT}}}', f'{{"{key}": "{SLOT}"}}']
            found.append(f'```json\n{{"{key}": {SLOT}}}\n```')
        if len(words) > 1:
            pairs = ", ".join(f'"{k}": "{THOUGHT}"' for k in words[:-1])
            found.append(f'{{{pairs}, "{words[-1]}": "{SLOT}"}}')
    marks = source.markers[:30]
    for mark in marks:
        found += [f"{mark} {SLOT}", f"{mark}{SLOT}"]
    found += [f"{a}{SLOT}{b}" for a, b in itertools.pairwise(marks)]
    fences = [m for m in marks if m.startswith("```")]
    found += [f"{m}\n{SLOT}\n```" for m in fences]
    return list(dict.fromkeys(found))
