"""One policy decides what counts as the program."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.rewards.code import extract_code
from assay.rewards.code.extract import fenced_blocks

CASES = {
    "tagged": ("text\n```python\nx = 1\n```\nmore", "x = 1\n"),
    "short tag": ("```py\nx = 1\n```", "x = 1\n"),
    "capital tag": ("```Python\nx = 1\n```", "x = 1\n"),
    "tag with attributes": ("``` {.python .numberLines}\nx = 1\n```", "x = 1\n"),
    "last of several": ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
    "tagged wins over a later untagged": ("```python\nx = 1\n```\n```\noutput\n```", "x = 1\n"),
    "untagged when none is tagged": ("```\nx = 1\n```", "x = 1\n"),
    "other languages never": ("```bash\npip install x\n```", None),
    "output block beside": ("```\nx = 1\n```\n```text\n1\n```", "x = 1\n"),
    "tildes": ("~~~python\nx = '```'\n~~~", "x = '```'\n"),
    "longer fence": ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
    "not closed": ("```python\nx = 1\n", None),
    "closed, then one not closed": ("```python\nx = 1\n```\n```python\nx = ", "x = 1\n"),
    "indented in a list": ("1. do\n   ```python\n   if x:\n       y()\n   ```", "if x:\n    y()\n"),
    "after thinking": ("<think>```python\nx = 0\n```</think>\n```python\nx = 1\n```", "x = 1\n"),
    "only in thinking": ("<think>\n```python\nx = 0\n```\n</think>\nno code", "\nno code"),
    "no fence": ("def f():\n    return 1", "def f():\n    return 1"),
    "empty": ("", None),
    "blank": ("  \n ", None),
    "empty block": ("```python\n```", "\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_program_of(name):
    completion, expected = CASES[name]
    assert extract_code(completion) == expected


def test_the_first_block_when_asked():
    assert extract_code("```python\nx = 1\n```\n```python\nx = 2\n```", which="first") == "x = 1\n"


def test_without_bare_a_fence_is_needed():
    assert extract_code("def f(): pass", bare=False) is None


@given(st.text(st.sampled_from("`~ \npyx{}</think>"), max_size=200))
def test_any_text_has_a_program_or_none(text):
    found = extract_code(text)
    assert found is None or isinstance(found, str)


def test_a_long_completion_takes_linear_time():
    text = "```\n" * 200_001
    assert len(fenced_blocks(text)) == 100_000
