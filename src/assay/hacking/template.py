"""How many different things a policy still says: distinct completions, and the commonest template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_READ = 4000  # characters: longer texts are told apart by their start
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FORMULA = re.compile(
    r"(?:[(\[]\s*|(?:[!~¬]|not\b)\s*)*(?<![^\W_])[A-Z](?![^\W_])"
    r"(?:[)\]\s]*(?:<->|->|=>|[&|∧∨→↔^])\s*(?:[(\[!~¬]\s*)*(?<![^\W_])[A-Z](?![^\W_]))*[)\]]*"
)
_SPACE = re.compile(r"\s+")


def template(completion: str) -> str:
    """Replace what differs from task to task: numbers become ``#``, formulas and single atoms ``F``."""
    text = _FORMULA.sub("F", completion[:_READ])
    text = _NUMBER.sub("#", text)
    return _SPACE.sub(" ", text).strip()


def commonest_template(completions: Sequence[Sequence[str]]) -> tuple[str, float]:
    """Return the commonest template among all completions, and its share."""
    counts = Counter(template(text) for group in completions for text in group)
    if not counts:
        return "", float("nan")
    text, count = counts.most_common(1)[0]
    return text, count / counts.total()


def distinct_share(completions: Sequence[Sequence[str]]) -> float:
    """Share of different texts among the samples of one prompt, averaged over the prompts."""
    shares = [len(set(group)) / len(group) for group in completions if len(group)]
    return sum(shares) / len(shares) if shares else float("nan")
