"""Findings as a page."""

import re

from assay.records.finding import Exploit, Finding, SampleRef
from assay.report.findings import findings_page, write_findings

BROKEN = Finding(
    id="advantage.epsilon",
    stage=2,
    status="fail",
    summary="Advantages are a tenth of what they should be.",
    evidence={"epsilon": 0.1, "spread": float("nan"), "groups": [1, 2]},
    samples=[SampleRef(3, "p<1>", 0)] * 60,
    fix="Set epsilon to 1e-6.",
    regression_test="def test_epsilon():\n    assert 1 < 2\n",
)
FOLLOWS = Finding(
    id="loss.flat", stage=4, status="fail", summary="The loss is flat.", follows_from="advantage.epsilon"
)
SKIPPED = Finding(
    id="logprob.shifted", stage=3, status="skip", summary="Not logged.", needs="sampler_logprobs"
)
FINE = Finding(id="reward.constant", stage=1, status="pass", summary="The reward varies.")
EXPLOIT = Finding(
    id="accepts_marker",
    stage="audit",
    status="fail",
    summary="One word pays.",
    exploit=Exploit({"prompt": "1+1"}, "</pre><script>alert(1)</script>", 1.0, "0"),
)


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<body>") :]))


def test_what_is_broken_comes_first_and_what_is_fine_last():
    text = text_of(findings_page([FINE, SKIPPED, BROKEN], "Broken at stage 2"))
    places = [text.index(word) for word in ("Broken at stage 2", "advantage.epsilon", "logprob.shifted",
                                            "reward.constant")]  # fmt: skip
    assert places == sorted(places)
    assert "1 fail, 1 skip, 1 pass" in text


def test_everything_a_finding_says_is_on_the_page():
    text = text_of(findings_page([BROKEN, FOLLOWS, SKIPPED], "t"))
    for words in ("Set epsilon to 1e-6.", "unknown", "[1, 2]", "p&lt;1&gt;", "and 10 more", "def test_epsilon",
                  "Follows from", "sampler_logprobs", "2 advantage", "3 log-probs"):  # fmt: skip
        assert words in text


def test_an_exploit_is_text_and_never_markup():
    page = findings_page([EXPLOIT], "</title><script>alert(2)</script>")
    assert "alert(1)</script>" not in page
    assert "alert(2)</script>" not in page
    assert "&lt;/pre&gt;&lt;script&gt;alert(1)" in page


def test_an_empty_exploit_is_named():
    empty = Finding("accepts_empty", "audit", "fail", "s", exploit=Exploit({}, "", None, "0"))
    text = text_of(findings_page([empty], "t"))
    assert "(the empty text)" in text
    assert "scores unknown" in text


def test_no_finding_is_said_too(tmp_path):
    path = write_findings([], tmp_path / "sub" / "doctor.html", "Healthy")
    assert "Nothing was checked." in path.read_text("utf-8")
