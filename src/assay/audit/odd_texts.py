"""Texts that a model can write and that careless parsers fail on; none is longer than 4,096 characters."""

from __future__ import annotations

from collections.abc import Sequence

from assay.audit.patterns import pumps

LONGEST = 4096
ODD = (
    "4²", "①", "٣", "½", "Ⅷ", "−", "-", "+", ".", ",", "/", "1/0", "0/0", "1e999", "-1e999", "inf", "-inf", "nan",
    "NaN", "Infinity", "1_000", "--5", "5-", "1.2.3", "1,2,3", "3 / 0", "\\frac{1}{0}", "\\frac{}{}", "\\frac12",
    "\\sqrt{}", "{", "}", "{}", "}{", "[", "]", "[]", "()", ")(", "\\", "\\\\", "\\boxed{", "\\boxed", "\\boxed{}",
    "\\boxed{{{{", "<answer>", "</answer>", "</answer><answer>", "<answer></answer>", "<think>", "</think>",
    "<answer>5", "####", "#### ", "####5", "null", "true", '"5"', '{"answer": null}', '{"answer": []}',
    '{"answer": {"value": 5}}', '{"answer": true}', '{"answer": NaN}', '{"answer": 1e999}', "[1, 2", "[[5]]",
    '["5"]', "%s", "%d%%", "{0}", "{answer}", "${x}", "\x00", "5\x00", "\ufeff5", "\u202e5", "é", "数", "🙂", "\t",
    "None", "...", "?", "(?P<", "*", "a|b", "^$", "'", '"', "`", "```", "```python\n```", "Answer:", "The answer is",
    "9" * 400, "0." + "3" * 400, "(" * 200, "[" * 1000, "{" * 1000, "-" * 300, "1+" * 300 + "1", "x" * 4000,
    "9" * 4090, "\n" * 2000, " " * 4000, "<" * 500, "\\boxed{" * 300, '{"a":' * 400,
)  # fmt: skip
SLOW = (
    "9**9**9", "9^9^9", "10^(10^10)", "1e999999999", "1E+99999999", "99999!", "0" * 2000 + "1", "1/" + "9" * 4000,
    "(" * 2000, "((((1+" * 400, "a" * 4090, "1 " * 2000, "\\frac{" * 600, "<a>" * 1300, "aA1 " * 1000 + "!",
)  # fmt: skip


def slow_texts(patterns: Sequence[str]) -> list[str]:
    """Texts that keep a careless parser or pattern busy: huge powers, deep nesting, backtracking."""
    return [text[:LONGEST] for text in (*pumps(patterns), *SLOW)]
