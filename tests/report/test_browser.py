"""The page in a real browser: it draws, filters, searches, and asks the network for nothing."""

import html
import json
import re
import shutil
import subprocess

import pytest

from assay.records.finding import Finding
from assay.report import write_report
from assay.report.findings import write_findings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr",
         "--virtual-time-budget=10000")  # fmt: skip


def visit(path, tmp_path, fragment="", flags=()):
    """Open a page; returns its DOM, its console lines and the addresses it asked for."""
    log = tmp_path / "net.json"
    command = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}",
               "--dump-dom", f"{path.as_uri()}{fragment}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    starts = re.findall(
        r'"initiator":"([^"]*)"[^{}]*"url":"((?:https?|wss?)://[^"]+)"', log.read_text("utf-8")
    )
    asked = [url for initiator, url in starts if initiator != "not an origin"]  # those are the browser's own
    return done.stdout, console, asked


def cards(dom):
    return re.findall(r'<article class="sample.*?</article>', dom[dom.index('id="samples"') :], re.DOTALL)


def text(markup):
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def test_the_page_draws_every_picture_without_an_error_or_a_request(experiment_root, tmp_path):
    dom, console, asked = visit(experiment_root / "report.html", tmp_path)
    assert console == []
    assert asked == []
    assert "data-error" not in dom
    assert 'data-drawn="light"' in dom
    assert 'data-reader="ready"' in dom
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', dom, re.DOTALL).group(1))
    assert len(re.findall(r"<svg[^>]*marks", dom)) == len(specs)
    assert len(cards(dom)) >= 24


def test_the_page_follows_the_dark_theme(experiment_root, tmp_path):
    dom, console, _ = visit(
        experiment_root / "report.html", tmp_path, flags=("--blink-settings=preferredColorScheme=0",)
    )
    assert console == []
    assert 'data-theme="dark"' in dom


def test_the_filter_shows_only_samples_that_are_rewarded_and_not_true(experiment_root, tmp_path):
    dom, _, _ = visit(experiment_root / "report.html", tmp_path, "#arm=weak&hacked=1")
    shown = cards(dom)
    assert len(shown) == 24
    assert all('class="sample hacked"' in card for card in shown)
    assert all("reward 1" in text(card) and "truth 0" in text(card) for card in shown)


def test_the_search_finds_text_and_marks_it(experiment_root, tmp_path):
    dom, _, _ = visit(
        experiment_root / "report.html", tmp_path, "#arm=weak&hacked=1&step=all&q=DOUBLE%20negation"
    )
    shown = cards(dom)
    assert shown
    assert all("<mark>double negation</mark>" in card for card in shown)
    nothing, _, _ = visit(experiment_root / "report.html", tmp_path, "#arm=weak&q=no-such-text")
    assert cards(nothing) == []
    assert "0 samples" in nothing


def test_an_arm_and_a_step_can_be_chosen(experiment_root, tmp_path):
    dom, _, _ = visit(experiment_root / "report.html", tmp_path, "#arm=sound&step=10&show=all")
    assert all("step 10," in text(card) for card in cards(dom))
    dom, _, _ = visit(experiment_root / "report.html", tmp_path, "#arm=nobody&step=77&show=nothing")
    assert cards(dom)


def test_a_hostile_completion_cannot_run(fixtures, tmp_path):
    evil = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

    def edit(_, columns):
        for name in ("completion", "prompt", "reward_reason"):
            columns[name] = [f"{evil} {i}" for i in range(len(columns["completion"]))]

    fixtures.write_run(tmp_path / "run", [0.2, 0.6], [0.0, 0.0], edit=edit)
    page = write_report(tmp_path / "run")
    dom, console, asked = visit(page, tmp_path, "#show=all&q=onerror")
    assert "<title>owned" not in dom
    assert (console, asked) == ([], [])
    assert len(cards(dom)) == 24
    assert all(evil.split(" ")[0] in text(card) for card in cards(dom))


def test_the_page_of_findings_opens_without_an_error(tmp_path):
    finding = Finding("reward.constant", 1, "fail", "<script>document.title='owned'</script>", fix="Vary it.")
    page = write_findings([finding], tmp_path / "doctor.html", "Broken at stage 1")
    dom, console, asked = visit(page, tmp_path)
    assert (console, asked) == ([], [])
    assert "<title>Broken at stage 1" in dom
    assert "Vary it." in dom
