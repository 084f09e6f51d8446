"""Completions are hostile text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report.page import document
from assay.report.safe import escape, script_code, script_json

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</SCRIPT >",
    "<!-- <script>",
    "]]>",
    "<img src=x onerror=alert(1)>",
    "'\"><b>",
    "&lt;b&gt;",
    "line\u2028end\u2029",
    "\x00\x07",
    "\ud800 lone",
)


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_json_in_a_script_reads_back_and_holds_no_tag(text):
    written = script_json({"text": text})
    assert not re.search(r"[<>&\u2028\u2029]", written)
    assert json.loads(written)["text"] == text.encode("utf-8", "replace").decode()


def test_numbers_that_json_lacks_become_null():
    assert script_json([float("nan"), float("inf"), 1.5]) == "[null,null,1.5]"


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_holds_no_markup(text):
    assert not re.search(r"[<>\"']", escape(text))


def test_code_keeps_its_meaning_but_not_an_end_tag():
    assert script_code('a = "</script>"; b = /</g;') == 'a = "<\\/script>"; b = /</g;'
    assert "</ScRiPt" not in script_code("'</ScRiPt>'")


def test_a_page_ends_its_scripts_only_where_it_wrote_them():
    page = document("t </title><b>", "<p>body</p>", {"data": list(HOSTILE)}, [("code", "'</script>'")])
    assert page.count("</script>") == 2
    assert "<b>" not in page
    assert "connect-src" not in page
    assert "default-src 'none'" in page
