"""The page of a foreign run: pictures of what it logged, and the texts of the samples that prove a finding."""

import json
import re

import polars as pl
from typer.testing import CliRunner

from assay.cli.main import app
from assay.records.finding import Finding, SampleRef
from assay.records.run_record import RunRecord
from assay.report.findings import findings_page
from assay.report.run_page import run_specs, sample_texts

ROWS = [
    {"step": step, "prompt_id": "p", "sample": sample, "prompt": "1+1=", "completion": f"<b>{sample}</b>",
     "reward_text": "seen" if sample else f"<b>{sample}</b>", "reward": float(sample), "truth": 0.0}
    for step in range(1, 4) for sample in range(2)
]  # fmt: skip
FOUND = Finding(
    id="decode.wrong_text", stage=5, status="fail", summary="s",
    samples=[SampleRef(2, "p", 1), SampleRef(2, "p", 0), SampleRef(None, "p", 9)],
)  # fmt: skip


def record(metrics=(), rows=ROWS):
    return RunRecord(metrics=pl.DataFrame(list(metrics)), rollouts=pl.DataFrame(rows))


def drawn(specs, title):
    spec = next(spec for spec in specs.values() if spec["title"] == title)
    return {(row["name"], row["step"]): row["value"] for row in spec["data"]["values"]}


def test_reward_and_truth_come_from_the_rollouts_where_no_metric_has_them():
    specs = run_specs(record([{"step": 1, "grad_norm": 0.5}, {"step": 2, "grad_norm": float("nan")}]))
    assert drawn(specs, "reward and truth") == {
        (name, step): value for step in (1, 2, 3) for name, value in (("reward", 0.5), ("truth", 0.0))
    }
    assert drawn(specs, "gradient norm") == {("grad_norm", 1): 0.5}
    assert len(specs) == 2


def test_a_metric_goes_before_the_mean_of_the_rollouts():
    specs = run_specs(record([{"step": 1, "reward": 0.25}]))
    assert drawn(specs, "reward and truth")["reward", 1] == 0.25
    assert drawn(specs, "reward and truth")["truth", 1] == 0.0


def test_a_log_of_nothing_has_no_pictures():
    assert run_specs(record([], [])) == {}
    assert "id='pictures'" not in findings_page([FOUND], "t", record([], []))


def test_long_logs_are_thinned():
    specs = run_specs(record([{"step": step, "kl": 0.1} for step in range(5_000)], []))
    assert 60 <= len(drawn(specs, "KL to the reference")) <= 120


def test_samples_show_their_texts_as_text_and_what_the_reward_saw_if_it_saw_another():
    texts = sample_texts(record(), [FOUND])
    assert set(texts) == {SampleRef(2, "p", 1), SampleRef(2, "p", 0)}
    assert "what the reward saw" in texts[SampleRef(2, "p", 1)]
    assert "what the reward saw" not in texts[SampleRef(2, "p", 0)]
    assert "&lt;b&gt;1&lt;/b&gt;" in texts[SampleRef(2, "p", 1)]
    page = findings_page([FOUND], "t", record())
    assert page.index("Samples that show it") < page.index("What the log shows")
    assert "<b>1</b>" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_doctor_writes_the_page(tmp_path):
    log = tmp_path / "run" / "rollouts.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(row | {"reward": 1.0}) + "\n" for row in ROWS))
    done = CliRunner().invoke(app, ["doctor", str(log.parent), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 1
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "id='run-0'" in page
    assert "reward.constant" in page
    assert "<h2>Broken</h2>" in page
