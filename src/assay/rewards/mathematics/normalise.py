r"""Clean mathematical text: layout commands, delimiters and spellings go, meaning stays. Linear time."""

from __future__ import annotations

import re

_CHARACTERS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "∙": "*", "⋅": "*", "÷": "/", "∕": "/", "⁄": "/",
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "∪": r"\cup ", "∈": r"\in ", "°": r"^\circ ", "±": r"\pm ", "θ": r"\theta ", "α": r"\alpha ",
    "β": r"\beta ", "ℝ": r"\mathbb{R}", "²": "^2 ", "³": "^3 ", "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "∅": r"\emptyset ",
    "\u00a0": " ", "\u2009": r"\,", "\u202f": r"\,", "’": "'", "，": ",", "％": "%",
})  # fmt: skip

_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_LAYOUT = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits"
    r"|nolimits|quad|qquad|hfill|middle)(?![A-Za-z])\.?|\\phantom\{[^{}]*\}|\\tag\{[^{}]*\}"
)
_FRACTION = re.compile(r"\\(?:d|t|c)frac(?![a-z])|\\frac(?![a-z])|\\nicefrac|\\sfrac")
_WRAPPERS = re.compile(r"\\(?:mathbf|mathit|boldsymbol|bm|mathbin|mathop|operatorname\*?)(?=\s*\{)")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|normal)?|mathrm|mbox|hbox)\s*\{")
_UPRIGHT = re.compile(r"\\mathrm\s*\{\s*([eid])\s*\}")
_INNER_FORMULA = re.compile(r"\$([^$]+)\$")
_THIN = re.compile(r"(?<!\\)\\[,;:!> ]|~|\{\}")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{ ?, ?\}|\\,|\\!|~|\{\\,\}|,\\!) ?(?=\d{3}(?!\d))")
_ESCAPED_TWICE = re.compile(
    r"(?<!\\)\\(?=\\(?:[dt]?frac|left|right|sqrt|pi|text|cdot|times|leq?|geq?|infty|begin|end|in)(?![A-Za-z]))"
)
_SPACES = re.compile(r"\s+")
_MULTIPLY = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])")
_SYNONYMS = {
    r"\leq": r"\le", r"\leqslant": r"\le", r"\geq": r"\ge", r"\geqslant": r"\ge", r"\neq": r"\ne",
    r"\lt": "<", r"\gt": ">", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\div": "/", r"\infin": r"\infty",
    r"\degree": r"^\circ", r"\bigcup": r"\cup", r"\land": r"\text{and}", r"\lor": r"\text{or}",
    r"\lvert": "|", r"\rvert": "|", r"\vert": "|", r"\varnothing": r"\emptyset", r"\colon": ":",
    r"\dotsc": r"\dots", r"\ldots": r"\dots", r"\cdots": r"\dots", r"\lbrack": "[", r"\rbrack": "]",
}  # fmt: skip
_COMMAND = re.compile(r"\\[A-Za-z]+")
_APPROXIMATELY = r"\approx"
_NAME = re.compile(r"\\?[A-Za-z]+(?:_(?:\w|\{\w+\}))?")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
LARGEST_TEXT = 20_000
"""Characters of an answer that are read at all; a longer one is unreadable."""


def normalise(text: str) -> str:
    """Clean one answer; the result still is LaTeX-like text, and cleaning it again changes nothing."""
    if len(text) > LARGEST_TEXT:
        return text
    text = text.strip()
    if "\\" not in text and text.isascii() and not any(c in text for c in "$*`~{"):
        return _without_full_stop(_SPACES.sub(" ", text))
    text = _ESCAPED_TWICE.sub("", text.translate(_CHARACTERS))  # a row of a matrix never starts with "frac"
    text = _without_delimiters(_without_full_stop(text.strip()))
    if text.count("$") > 1 and text.count("$") % 2 == 0:
        text = _INNER_FORMULA.sub(r" \1 ", text)
    text = _LAYOUT.sub(" ", text)
    text = _UPRIGHT.sub(r"\1", text)
    text = _FRACTION.sub(r"\\frac", text)
    text = _WRAPPERS.sub("", text)
    text = _TEXT.sub(r"\\text{", text)
    text = text.replace(r"\%", "%").replace(r"\$", "$").replace(r"\#", "#")
    text = _THOUSANDS.sub(",", text)
    text = _THIN.sub(" ", text)
    text = _MULTIPLY.sub("*", text)
    text = _COMMAND.sub(lambda match: _SYNONYMS.get(match.group(), match.group()), text)
    return _without_full_stop(_without_estimate(_SPACES.sub(" ", text).strip()))


def _without_estimate(text: str) -> str:
    """``x = 1/3 \\approx 0.33`` claims 1/3; ``x \\approx 0.33`` claims 0.33."""
    before, sign, after = text.partition(_APPROXIMATELY)
    if not sign:
        return text
    return f"{before.strip()} = {after.strip()}" if _NAME.fullmatch(before.strip()) else before.strip()


def _without_full_stop(text: str) -> str:
    while text.endswith((".", "\\", ",", ";")) and not text.endswith(("...", r"\\")):
        text = text[:-1].rstrip()
    return text


def _without_delimiters(text: str) -> str:
    changed = True
    while changed:
        changed = False
        for left, right in _DELIMITERS:
            inner = text[len(left) : -len(right)]
            if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right):
                if left == "$" and "$" in inner.replace(r"\$", ""):
                    continue
                text, changed = _without_full_stop(inner.strip()), True
    return (
        text.replace("**", "") if text.count("**") % 2 == 0 and "\\" not in text and "*" in text[:2] else text
    )
