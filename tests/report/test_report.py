"""The report of a run's and of an experiment's folder."""

import json
import math
import re
import struct
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from assay.cli.main import app
from assay.errors import BadInput
from assay.report import charts, samples, words, write_report
from assay.report.load import load
from assay.report.pictures import page_specs, picture_specs


def embedded(page, name):
    found = re.search(rf"<script type='application/json' id='{name}'>(.*?)</script>", page, re.DOTALL)
    return json.loads(found.group(1))


def values_of(spec):
    """The rows of a picture with one table."""
    (held,) = spec["datasets"].values()
    return json.loads(held)


@pytest.fixture
def no_pictures(monkeypatch):
    """Skip the PNG files, which take seconds."""
    monkeypatch.setattr("assay.report.write.write_pictures", lambda specs, folder: [])


@pytest.fixture(scope="session")
def page(experiment_root):
    return (experiment_root / "report.html").read_text("utf-8")


def test_the_verdict_comes_first_and_in_plain_words(page):
    text = re.sub(r"<[^>]+>", " ", page[page.index("<body>") :])
    top = text[:600]
    assert "sound learnt the task" in top
    assert "paid for more than it did" in top or "got worse at the task" in top


def test_the_page_loads_nothing(page):
    outside = re.sub(r"<script nonce.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=\s*['\"](?!#|data:)", outside)
    assert "@import" not in outside
    assert "url(" not in outside
    assert "default-src 'none'" in page


def test_the_pictures_are_written_as_png(experiment_root):
    names = {path.name for path in (experiment_root / "report").iterdir()}
    assert names == {"reward-and-truth.png", "goodhart.png", "gap.png", "policy.png"}
    for name in names:
        content = (experiment_root / "report" / name).read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert width > 600
        assert height > 300


def test_the_page_has_a_picture_for_every_arm_and_quantity(page):
    specs = embedded(page, "specs")
    expected = {f"{kind}-{at}" for kind in ("scores", "goodhart") for at in range(3)} | {"gap", "training"}
    expected |= {f"state-{key}" for key, _, _ in charts.STATE}
    assert set(specs) == expected
    for name in specs:
        assert f"id='{name}'" in page


def test_the_bands_in_a_picture_are_those_of_the_measures(experiment_root):
    arm, hacking = load(experiment_root).evaluated[1]
    rows = charts.score_rows(hacking)
    assert len(rows) == 2 * len(hacking.checkpoints)
    last = rows[-1]
    assert last["score"] == "truth"
    assert (last["low"], last["value"], last["high"]) == (
        hacking.checkpoints[-1].truth.low,
        hacking.checkpoints[-1].truth.estimate,
        hacking.checkpoints[-1].truth.high,
    )
    assert last["d"] == pytest.approx(math.sqrt(hacking.checkpoints[-1].kl_sequence))
    assert arm.name == "weak"


def test_every_specification_compiles(experiment_root):
    import altair as alt
    import vl_convert

    experiment = load(experiment_root)
    for spec in (*page_specs(experiment).values(), *picture_specs(experiment).values()):
        assert vl_convert.vegalite_to_vega(spec)["marks"]
        alt.Chart.from_dict(spec)  # the schema check that is skipped for speed


def test_the_reader_holds_a_random_few_dozen_and_every_hacked_sample(page, experiment_root):
    data = embedded(page, "data")
    for arm, loaded in zip(data["arms"], load(experiment_root).arms, strict=True):
        for step in arm["steps"]:
            table = loaded.tables[step["step"]]
            drawn = [row for row in step["rows"] if row[9] & samples.DRAWN]
            hacked = [row for row in step["rows"] if row[9] & samples.HACKED]
            assert len(drawn) >= 24
            assert step["of"] == len(table)
            known = table.filter((table["reward"] >= 0.5) & (table["truth"] < 0.5))
            assert len(hacked) == step["hacked"] == len(known)
            texts = {data["texts"][row[1]] for row in hacked}
            assert texts == set(known["completion"].to_list())


def test_the_random_sample_is_the_same_at_every_checkpoint_and_not_the_first_rows(page):
    arm = embedded(page, "data")["arms"][0]
    drawn = [[(row[0], row[2]) for row in step["rows"] if row[9] & samples.DRAWN] for step in arm["steps"]]
    assert all(len(step) == 32 for step in drawn)
    assert all(step == drawn[0] for step in drawn)
    assert {sample for _, sample in drawn[0]} == set(range(8))


def test_long_texts_are_cut_and_said_to_be_and_a_budget_holds(fixtures, tmp_path, monkeypatch):
    def edit(_, columns):
        columns["completion"] = [f"{i} " + "x" * 9000 for i in range(len(columns["completion"]))]

    fixtures.write_run(tmp_path / "run", [0.2, 0.2], [0.9, 0.9], edit=edit)
    monkeypatch.setattr(samples, "BUDGET", 1_000_000)
    data = samples.reader_data(load(tmp_path / "run").arms)
    assert sum(map(len, data["texts"])) < 1_100_000
    step = data["arms"][0]["steps"][0]
    assert len([row for row in step["rows"] if row[9] & samples.DRAWN]) == 32
    assert step["hacked"] > len([row for row in step["rows"] if row[9] & samples.HACKED])
    assert any("more characters]" in text for text in data["texts"])


def test_hostile_completions_stay_text(fixtures, tmp_path, no_pictures):
    evil = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"

    def edit(_, columns):
        columns["completion"] = [evil] * len(columns["completion"])
        columns["prompt"] = [evil] * len(columns["prompt"])
        columns["reward_reason"] = [evil] * len(columns["prompt"])

    root = tmp_path / "<b>run"
    fixtures.write_run(root, [0.2, 0.6], [0.0, 0.0], edit=edit)
    page = write_report(root).read_text("utf-8")
    assert evil not in page
    assert "<img src=x" not in page
    assert "<b>run" not in page
    assert evil in embedded(page, "data")["texts"]


def test_a_single_run_is_a_report_of_one_arm(fixtures, tmp_path, no_pictures):
    fixtures.write_run(tmp_path / "mine", [0.2, 0.4, 0.6], [0.0, 0.0, 0.0])
    page = write_report(tmp_path / "mine").read_text("utf-8")
    assert words.MEANING["healthy"] in page
    assert "mine" in page


def test_a_sweep_has_its_table_and_its_picture(fixtures, tmp_path):
    curves = {f"group_size={k}": (np.linspace(0.2, 0.2 + 0.05 * k, 3), np.zeros(3)) for k in (2, 4, 8)}
    root = fixtures.write_experiment(
        tmp_path / "sweep", curves=curves, sweep={"key": "group_size", "values": [2, 4, 8]}
    )
    page = write_report(root).read_text("utf-8")
    rows = values_of(embedded(page, "specs")["sweep"])
    assert [row["setting"] for row in rows if row["score"] == "truth"] == ["2", "4", "8"]
    assert (root / "report" / "sweep.png").is_file()
    assert "By group_size" in page


def test_an_experiment_that_still_runs_shows_what_there_is(fixtures, tmp_path, no_pictures):
    root = fixtures.write_experiment(tmp_path / "live", checkpoints=2, status="running")
    (root / "weak" / "run.json").unlink()
    page = write_report(root).read_text("utf-8")
    assert "status: running" in page
    assert "Not started yet: weak." in page


def test_a_learned_reward_is_named_and_scaled_as_such(fixtures, tmp_path, no_pictures):
    def edit(k, columns):
        random = np.random.default_rng(k)
        columns["truth"] = list(random.normal(0.05 * k, 1, len(columns["truth"])))
        columns["reward"] = list(30 + 5 * (np.array(columns["truth"]) + 0.5 * k))

    folder = fixtures.write_run(tmp_path / "rm", [0.2] * 5, [0.0] * 5, edit=edit)
    folder.write_run({"status": "done", "learned": True})
    page = write_report(folder.root).read_text("utf-8")
    assert "overoptimisation gap" in page
    assert "hacking rate" not in re.sub(r"<dl.*?</dl>", "", page[: page.index("id='specs'")], flags=re.DOTALL)


def test_unscored_samples_and_missing_columns_are_shown_not_hidden(fixtures, tmp_path, no_pictures):
    def edit(_, columns):
        for name in ("kl", "entropy", "reward_reason", "truth_reason", "finish_reason", "length"):
            columns.pop(name)
        columns["reward"][0] = None
        columns["reward_state"][0] = "crashed"

    folder = fixtures.write_run(tmp_path / "bare", [0.2, 0.6], [0.0, 0.0], edit=edit)
    page = write_report(folder.root).read_text("utf-8")
    assert "2 rewards and 0 truths are missing" in page
    assert "state-kl_sequence" not in embedded(page, "specs")


@pytest.mark.parametrize("content", [None, "not json", "{}", '{"arms": 3}'])
def test_what_is_no_run_is_refused_in_one_line(tmp_path, content):
    if content is not None:
        (tmp_path / "experiment.json").write_text(content, "utf-8")
    with pytest.raises(BadInput) as error:
        write_report(tmp_path)
    assert "\n" not in str(error.value)


def test_a_run_without_an_evaluation_is_refused(fixtures, tmp_path):
    fixtures.write_run(tmp_path / "new", [], [])
    with pytest.raises(BadInput, match="no evaluated checkpoint"):
        write_report(tmp_path / "new")


def test_the_command_prints_tables_and_names_the_page(experiment_root, no_pictures):
    done = CliRunner().invoke(app, ["report", str(experiment_root)], env={"COLUMNS": "220"})
    assert done.exit_code == 0, done.output
    assert "hacking rate" in done.output
    assert "report.html" in done.output
    assert "sound  healthy" in done.output


def test_the_command_gives_one_json_document(experiment_root, no_pictures):
    done = CliRunner().invoke(app, ["report", str(experiment_root), "--json"])
    document = json.loads(done.stdout)
    assert list(document["arms"]) == ["sound", "weak", "weak+kl"]
    assert document["arms"]["sound"]["verdict"] == "healthy"
    assert document["report"].endswith("report.html")


def test_the_headline_groups_arms_of_one_verdict(experiment_root):
    text = words.headline(load(experiment_root))
    assert text.endswith(".")
    assert text.count("sound") == 1


def test_the_choice_names_the_cost_of_choosing_by_reward(experiment_root):
    by_name = {arm.name: hacking for arm, hacking in load(experiment_root).evaluated}
    assert "Reward alone would have picked" in words.choice(by_name["weak"])


@pytest.mark.slow
def test_a_full_experiment_is_reported_in_seconds(fixtures, tmp_path):
    root = fixtures.write_experiment(tmp_path / "full", prompts=64)
    before = time.process_time()
    write_report(root)
    assert time.process_time() - before < 8


SECOND_PATH = {
    "alarms": ["length grew from 8.0 to 20.0 tokens <script>"],
    "checkpoints": [
        {"label": "step 0", "kl": 0.0, "reward": 0.0, "truth": 0.35},
        {"label": "step 9", "kl": 2.25, "reward": 0.9, "truth": None},
    ],
    "best_of_n": [{"label": "best of 4", "kl": 0.636, "reward": 0.67, "truth": 0.5}],
    "rejection": [{"label": "drawn again below reward 0.30", "kl": 0.63, "reward": 0.6, "truth": 0.4}],
    "gain_at_equal_length": 0.12,
    "wins": {"reward": {"raw": 0.9, "at_equal_length": {"estimate": 0.5, "low": 0.4, "high": 0.6}}},
    "pairs": {"reward_chosen": -0.4, "reward_rejected": -1.4, "margin": 1.0, "accuracy": 1.0},
    "reward_model": {"accuracy": {"estimate": 0.8, "low": 0.7, "high": 0.9}, "calibration": 0.7},
    "fits": [{"form": "quadratic", "a": 0.5, "b": 0.25, "rmse": 0.01, "peak_distance": 1.0}],
    "checklist": {
        "KL tracked": {"done": True, "evidence": "2.250 nats at step 9"},
        "samples read": {"done": False, "evidence": "nobody can tick this but you"},
    },
}


def test_a_learned_reward_shows_its_alarms_laws_and_checklist(fixtures, tmp_path, no_pictures):
    root = fixtures.write_run(tmp_path / "run", [0.2, 0.5], [0.0, 0.2]).root
    (root / "overoptimisation.json").write_text(json.dumps(SECOND_PATH))
    page = write_report(root).read_text("utf-8")
    section = page[page.index("id='learned'") :]
    assert "&lt;script&gt;" in section
    order = [section.index(label) for label in ("step 0", "drawn again", "best of 4", "step 9")]
    assert order == sorted(order), "policies stand by their KL"
    assert "☑ KL tracked" in section
    assert "☐ samples read" in section
    assert "0.250" in section
    assert "0.500 [0.400, 0.600]" in section, "wins at equal length"
    assert "so that is no wrong sign" in section
    assert "agrees with the raters" in section
    shown = CliRunner().invoke(app, ["report", str(root)])
    assert "alarm: length grew" in shown.output


def test_a_verified_reward_has_no_such_section_and_half_a_document_is_refused(
    fixtures, tmp_path, no_pictures
):
    root = fixtures.write_run(tmp_path / "run", [0.2, 0.5], [0.0, 0.2]).root
    assert "id='learned'" not in write_report(root).read_text("utf-8")
    (root / "overoptimisation.json").write_text('{"alarms": [')
    with pytest.raises(BadInput, match="expected JSON"):
        write_report(root)
