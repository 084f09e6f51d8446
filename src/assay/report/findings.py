"""Findings of the doctor and the audit as one page: what is wrong first, then what is fine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.records.finding import Finding, SampleRef, jsonable
from assay.records.run_folder import write_text
from assay.records.run_record import RunRecord
from assay.report.page import asset, document, top_line
from assay.report.run_page import SHOWN_SAMPLES, pictures, run_specs, sample_texts
from assay.report.safe import escape
from assay.report.vega import vega_bundle

ORDER = ("fail", "warn", "skip", "pass")
HEADING = {
    "fail": "Broken",
    "warn": "Worth a look",
    "skip": "Could not be checked",
    "pass": "Checked and fine",
}
STAGES = {
    "1": "1 reward",
    "2": "2 advantage",
    "3": "3 log-probs",
    "4": "4 loss",
    "5": "5 generation and decoding",
}


def write_findings(
    findings: Sequence[Finding], path: Path, title: str, record: RunRecord | None = None
) -> Path:
    """Write findings as one HTML page that works offline.

    Raises :class:`BadInput` where the page cannot be written.

    Args:
        findings: in any order; shown by status, in the given order inside one.
        path: of the page. title: its heading, the verdict in plain words.
        record: the run they are about, for pictures and the texts of samples.
    """
    page = Path(path)
    if page.is_dir():
        raise BadInput(
            f"expected a file for the page, {page} is a folder; write for example {page / 'page.html'}"
        )
    try:
        write_text(page, findings_page(findings, title, record))
    except OSError as error:
        raise BadInput(f"{page} cannot be written ({error.strerror or error}); give another file") from error
    return page


def findings_page(findings: Sequence[Finding], title: str, record: RunRecord | None = None) -> str:
    """The page as text."""
    specs = {} if record is None else run_specs(record)
    texts = {} if record is None else sample_texts(record, findings)
    counts = ", ".join(
        f"{sum(finding.status == status for finding in findings)} {status}"
        for status in ORDER
        if any(finding.status == status for finding in findings)
    )
    broken, *others = (
        _section(status, [f for f in findings if f.status == status], texts) for status in ORDER
    )
    header = (
        f"<header>{top_line('findings')}<h1>{escape(title)}</h1>"
        f"<p class='lead'>{escape(counts or 'Nothing was checked.')}</p></header>"
    )
    body = "".join([header, broken, pictures(specs), *others])
    scripts = [("theme", asset("theme.js"))]
    if specs:
        scripts += [("vega", vega_bundle()), ("charts", asset("charts.js"))]
    return document(title, body, {"specs": specs} if specs else {}, scripts)


def _section(status: str, findings: Sequence[Finding], texts: Mapping[SampleRef, str]) -> str:
    if not findings:
        return ""
    cards = "".join(_card(finding, texts) for finding in findings)
    if status == "pass":
        summary = f"<summary>{HEADING[status]} ({len(findings)})</summary>"
        return f"<section><details>{summary}{cards}</details></section>"
    return f"<section><h2>{HEADING[status]}</h2>{cards}</section>"


def _card(finding: Finding, texts: Mapping[SampleRef, str]) -> str:
    stage = STAGES.get(str(finding.stage), str(finding.stage))
    parts = [
        f"<h3><span class='id'>{escape(finding.id)}</span> "
        f"<span class='chip {escape(finding.status)}'>{escape(finding.status)}</span> "
        f"<small>{escape(stage)}</small></h3><p>{escape(finding.summary)}</p>"
    ]
    if finding.follows_from:
        parts.append(f"<p>Follows from <code>{escape(finding.follows_from)}</code>.</p>")
    if finding.fix:
        parts.append(f"<p class='fix'><b>Fix.</b> {escape(finding.fix)}</p>")
    if finding.needs:
        parts.append(f"<p>To check this, log: {escape(finding.needs)}</p>")
    if finding.exploit:
        parts.append(_exploit(finding))
    if finding.evidence:
        parts.append(_evidence(dict(finding.evidence)))
    if finding.samples:
        parts.append(_samples(finding.samples, texts))
    if finding.regression_test:
        parts.append(
            f"<details><summary>A test that fails until it is fixed</summary>"
            f"<pre>{escape(finding.regression_test)}</pre></details>"
        )
    return f"<article class='card finding'>{''.join(parts)}</article>"


def _evidence(evidence: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(key)}</th><td>{escape(_value(value))}</td></tr>"
        for key, value in evidence.items()
    )
    return (
        f"<details open><summary>Evidence</summary><div class='scroll'><table>{rows}</table></div></details>"
    )


def _value(value: Any) -> str:
    plain = jsonable(value)
    if plain is None:
        return "unknown"
    if isinstance(plain, float):
        return f"{plain:.6g}"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _samples(samples: Sequence[SampleRef], texts: Mapping[SampleRef, str]) -> str:
    shown = "".join(texts[sample] for sample in samples[:SHOWN_SAMPLES] if sample in texts)
    read = f"<details><summary>Samples that show it</summary>{shown}</details>" if shown else ""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_value(value))}</td>' for value in sample.to_json().values())}</tr>"
        for sample in samples[:50]
    )
    more = f"<p>and {len(samples) - 50} more</p>" if len(samples) > 50 else ""
    return read + (
        f"<details><summary>Samples ({len(samples)})</summary><div class='scroll'><table>"
        f"<thead><tr><th>step</th><th>prompt</th><th>sample</th></tr></thead>{rows}</table></div>{more}</details>"
    )


def _exploit(finding: Finding) -> str:
    exploit = finding.exploit
    assert exploit is not None
    task = json.dumps(jsonable(exploit.task), ensure_ascii=False, indent=1)
    return (
        f"<p>This completion scores <b>{escape(_value(exploit.score))}</b>; "
        f"expected: {escape(exploit.expected)}</p>"
        f"<pre>{escape(exploit.completion) or '(the empty text)'}</pre>"
        f"<details><summary>Its task</summary><pre>{escape(task)}</pre></details>"
    )
