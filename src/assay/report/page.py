"""Put a report together: one HTML page with its data, its pictures and its scripts inside."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay.hacking import Hacking
from assay.report import second_path, tables, words
from assay.report.charts import STATE
from assay.report.load import Arm, Experiment, learned_arms
from assay.report.safe import escape, script_code, script_json
from assay.report.vega import vega_bundle

_ASSETS = Path(__file__).parent / "assets"


def experiment_page(
    experiment: Experiment, specs: Mapping[str, Mapping[str, Any]], reader: Mapping[str, Any]
) -> str:
    """The report of an experiment: the verdict first, then the pictures, then the samples to read."""
    body = "".join(
        (
            _head(experiment),
            _verdicts(experiment),
            _arms(experiment),
            _scripted(experiment),
            _pictures(experiment, specs),
            _choices(experiment),
            second_path.section(learned_arms(experiment)),
            _READER,
            _footer(experiment),
        )
    )
    scripts = [("theme", asset("theme.js")), ("vega", vega_bundle()), ("charts", asset("charts.js")),
               ("reader", asset("reader.js"))]  # fmt: skip
    return document(words.headline(experiment), body, {"specs": specs, "data": reader}, scripts)


def document(title: str, body: str, data: Mapping[str, Any], scripts: list[tuple[str, str]]) -> str:
    """A page that can load nothing: its policy allows only the scripts written here, and no connection.

    Args:
        title: of the window.
        body: ready HTML; every foreign text in it is escaped.
        data: JSON by the id of the element that holds it.
        scripts: names and code, in order.
    """
    held = "".join(
        f"<script type='application/json' id='{name}'>{script_json(value)}</script>\n"
        for name, value in data.items()
    )
    nonce = hashlib.sha256((body + held).encode()).hexdigest()[:24]
    code = "".join(f"<script nonce='{nonce}'>{script_code(text)}</script>\n" for _, text in scripts)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'nonce-{nonce}' 'unsafe-eval'; base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<link rel='icon' href='data:,'>"
        f"<title>{escape(title)}</title><style>{asset('style.css')}</style></head>\n"
        f"<body><main>{body}</main>\n{held}{code}</body></html>\n"
    )


@cache
def asset(name: str) -> str:
    """A script or style of the pages."""
    return (_ASSETS / name).read_text("utf-8")


def top_line(left: str) -> str:
    """The brand, a line about what this is, and the switch between light and dark."""
    return (
        f"<div class='top'><span><span class='brand'>Assay</span> &nbsp; {left}</span>"
        "<button id='theme' type='button'>light / dark</button></div>"
    )


def _head(experiment: Experiment) -> str:
    facts = [experiment.title]
    if experiment.recipe and experiment.recipe != experiment.title:
        facts.append(f"recipe {experiment.recipe}")
    if experiment.seed is not None:
        facts.append(f"seed {experiment.seed}")
    if experiment.status != "done":
        facts.append(f"status: {experiment.status}")
    about = f"<p class='lead'>{escape(experiment.about)}</p>" if experiment.about else ""
    waiting = (
        f"<p class='note'>Not started yet: {escape(', '.join(experiment.absent))}.</p>"
        if experiment.absent
        else ""
    )
    links = "".join(
        f"<a href='#{target}'>{name}</a>"
        for target, name in (
            ("arms", "Table"),
            ("pictures", "Pictures"),
            ("choice", "Which checkpoint"),
            ("apart", "Where reward and truth differ"),
            ("reader", "Read the samples"),
        )
    )
    return (
        f"<header>{top_line(escape(' · '.join(facts)))}"
        f"<h1>{escape(words.headline(experiment))}</h1>{about}{waiting}<nav>{links}</nav></header>"
    )


def _verdicts(experiment: Experiment) -> str:
    cards = "".join(_card(arm, hacking) for arm, hacking in experiment.evaluated)
    glossary = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in words.GLOSSARY)
    return (
        f"<section class='first'><div class='grid'>{cards}</div>"
        "<details><summary>What the words mean</summary>"
        f"<dl class='words'>{glossary}</dl></details></section>"
    )


def _card(arm: Arm, hacking: Hacking) -> str:
    end = hacking.checkpoints[-1]
    figures = "".join(
        f"<div class='{kind}'><b>{tables.number(value)}</b>{name}</div>"
        for kind, value, name in (
            ("reward", end.reward.estimate, "reward at the end"),
            ("truth", end.truth.estimate, "truth at the end"),
            ("", end.hacking_rate.estimate, escape(hacking.gap_name)),
        )
    )
    notes = "".join(f"<p class='why'>{escape(note)}</p>" for note in hacking.notes)
    return (
        f"<div class='card arm {hacking.verdict}'><h3>{escape(arm.name)} {tables.chip(hacking.verdict)}</h3>"
        f"<p>{escape(words.MEANING[hacking.verdict])}</p><div class='figures'>{figures}</div>"
        f"<p class='why'>{escape(hacking.reason)}</p><p class='why'>{escape(words.at_the_end(hacking))}</p>"
        f"{notes}</div>"
    )


def _arms(experiment: Experiment) -> str:
    details = "".join(
        f"<details><summary>Every checkpoint of {escape(arm.name)}</summary>"
        f"{tables.checkpoints_table(hacking)}</details>"
        for arm, hacking in experiment.evaluated
    )
    return (
        "<section><h2 id='arms'>The last checkpoint of each run</h2>"
        "<p>All on the same held-out prompts. In brackets: 95% intervals, clustered by prompt.</p>"
        f"{tables.arms_table(experiment.evaluated)}{details}</section>"
    )


def _scripted(experiment: Experiment) -> str:
    if not experiment.scripted:
        return ""
    rows = [
        [escape(str(row["name"])), escape(str(row["pays"])), escape(str(row["fix"])),
         *(tables.number(float(row[key])) for key in ("weak", "sound", "truth"))]
        for row in experiment.scripted
    ]  # fmt: skip
    header = ("hole", "pays", "mended by", "weak reward", "sound reward", "truth")
    return (
        "<section><h2 id='scripted'>Attacked by scripts</h2><p>A tiny model cannot write these exploits, so no policy "
        "was trained here: a script plays each one, and this is what it earns on average.</p>"
        f"{tables.table(header, rows)}</section>"
    )


def _pictures(experiment: Experiment, specs: Mapping[str, Any]) -> str:
    def places(*names: str) -> str:
        cards = "".join(
            f"<div class='card chart'><div id='{name}'></div></div>" for name in names if name in specs
        )
        return f"<div class='grid'>{cards}</div>"

    count = range(len(experiment.evaluated))
    parts = ["<section id='pictures'>"]
    if "sweep" in specs and experiment.sweep:
        parts += [f"<h2>By {escape(experiment.sweep[0])}</h2>", places("sweep")]
    parts += [
        "<h2>Reward against truth</h2><p>Where the two lines part, the reward is no longer gold.</p>",
        places(*(f"scores-{at}" for at in count)),
        "<h2>The gap</h2><p>Reward minus truth: how much of the pay is not gold.</p>",
        places("gap"),
        "<h2>What the policy became</h2>"
        "<p>A hack often shows here too: entropy falls, one template spreads, lengths drift.</p>",
        places(*(f"state-{key}" for key, _, _ in STATE)),
        "<h2>The Goodhart picture</h2>"
        "<p>The further from the start (√KL), the harder the reward was pressed. Truth that bends down while "
        "reward climbs is over-optimisation.</p>",
        places(*(f"goodhart-{at}" for at in count)),
    ]
    if "training" in specs:
        parts += ["<h2>The training log</h2><p>What training itself saw; truth is not part of it.</p>"]
        parts.append(places("training"))
    return "".join([*parts, "</section>"])


def _choices(experiment: Experiment) -> str:
    lines = "".join(
        f"<li><b>{escape(arm.name)}</b>: {escape(words.choice(hacking))}</li>"
        for arm, hacking in experiment.evaluated
    )
    return (
        "<section><h2 id='choice'>Which checkpoint to keep</h2>"
        "<p>Truth chooses. What choosing by reward alone would have cost is in the last column; the best of "
        "several checkpoints flatters itself a little.</p>"
        f"{tables.selection_table(experiment.evaluated)}<ul>{lines}</ul></section>"
    )


_READER = """<section><h2 id='apart'>Where reward and truth differ</h2>
<p>Every one of these samples is worth a look: it is a flaw of the reward, or of the truth.</p>
<div id='differences'></div></section>
<section><h2 id='reader'>Read the samples</h2>
<p>No number replaces reading a few dozen completions. The random sample is the same at every checkpoint.</p>
<div class='controls'>
<label>arm<select id='reader-arm'></select></label><label>checkpoint<select id='reader-step'></select></label>
<label>show<select id='reader-show'></select></label>
<label>search<input id='reader-search' type='search' placeholder='in prompt or completion'></label></div>
<p id='count' role='status'></p><div id='samples'></div>
<button id='more' type='button' hidden>Show more</button></section>"""


def _footer(experiment: Experiment) -> str:
    from assay import __version__

    return (
        f"<footer>Written by assay {__version__} from {escape(experiment.root.resolve().name)}. "
        "The page holds all its data and loads nothing. The pictures lie beside it as PNG, every sample "
        "in evals/*.parquet.</footer>"
    )
