"""The second path on a user's own files: fine-tuning rows, tasks with raters who like agreement, comparisons."""

import json

import pytest
import yaml

from assay.errors import BadInput, RunStopped
from assay.records.run_folder import RunFolder
from assay.train.experiment import reload_recipe, run_experiment
from assay.train.preference_data import read_pairs
from assay.train.recipe import load_recipe
from tests.train.test_second_path import SMALL, Silent

FUNCTIONS = """
def right(completion, answer):
    return float(str(answer) in completion)

def read(completion, answer):
    return float(completion.strip() == str(answer))
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A recipe on own tasks whose askers believe something, with its files beside it."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    tasks = [
        {"prompt": f"{a} and {b}\n", "answer": f"{a + b}", "completion": f"{a + b}", "asker": str(a)}
        for a in range(8)
        for b in range(8)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (tmp_path / "f.py").write_text(FUNCTIONS)
    rows = [{"messages": [{"role": "user", "content": "1 and 1"}, {"role": "assistant", "content": "2"}]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 8))
    own = {
        "tasks": "tasks.jsonl",
        "truth": "f.py:read",
        "task_options": {},
        "learned_reward": {
            "pairs": 60,
            "raters": {"correctness": 1.0, "agreement": 4.0},
            "belief": "asker",
            "heads": 1,
            "held_out": 0.3,
            "quality": str(tmp_path / "f.py:right"),
        },
        "steps": 1,
        "arms": {"dpo": {"algorithm": "dpo"}},
    }
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **own}))
    return path


def learned(root):
    (folder,) = (root / "reward-model").iterdir()
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sft": {"file": "nope.jsonl"}}, r"nope\.jsonl"),
        ({"learned_reward": None}, "needs learned_reward"),
        ({"learned_reward": {"raters": {"longer_wins": 2}}}, r"learned_reward\.raters: expected longer_wins"),
        ({"learned_reward": {"raters": {"correctness": "x"}}}, "expected a number for correctness, got 'x'"),
        ({"learned_reward": {"raters": {"taste": 1}}}, r"learned_reward\.raters: .*taste"),
        ({"learned_reward": {"pairs_file": "nope.jsonl"}}, r"nope\.jsonl"),
    ],
)
def test_what_cannot_be_learned_is_said_before_anything_is_trained(files, tmp_path, change, words):
    document = yaml.safe_load(files.read_text())
    if change.get("learned_reward"):
        change = {"learned_reward": document["learned_reward"] | change["learned_reward"]}
    document |= change
    files.write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput, match=words):
        run_experiment(load_recipe(str(files)), tmp_path / "out", Silent())
    assert not list(tmp_path.glob("**/model.safetensors"))


def test_raters_who_like_agreement_on_own_tasks(files, tmp_path):
    run_experiment(load_recipe(str(files)), tmp_path / "run", Silent())
    pairs = read_pairs(learned(tmp_path / "run") / "pairs.jsonl")
    differs = [pair for pair in pairs if pair.chosen.agrees != pair.rejected.agrees]
    assert sum(pair.chosen.agrees for pair in differs) > 0.8 * len(differs) > 0
    report = json.loads((learned(tmp_path / "run") / "report.json").read_text())
    assert set(report["agreement_slope"]) >= {"estimate", "low", "high"}
    # The same comparisons as a file of the user's own need no raters.
    keys = [f"learned_reward.pairs_file={learned(tmp_path / 'run') / 'pairs.jsonl'}"]
    run_experiment(load_recipe(str(files), keys), tmp_path / "again", Silent())
    assert read_pairs(learned(tmp_path / "again") / "pairs.jsonl") == pairs
    with pytest.raises(BadInput, match=r"needs learned_reward\.quality"):
        run_experiment(load_recipe(str(files), ["learned_reward.quality=null"]), tmp_path / "no", Silent())
    with pytest.raises(BadInput, match="'mood' is not one"):
        run_experiment(load_recipe(str(files), ["learned_reward.belief=mood"]), tmp_path / "no2", Silent())


@pytest.mark.parametrize("stage", ["assay.train.learned.calibrate", "assay.train.sft.save_checkpoint"])
def test_a_stage_that_is_cut_is_done_again_bit_for_bit(files, tmp_path, stage):
    """Fine-tuning and the reward model are each kept whole or not at all; what comes after is the same."""
    recipe = load_recipe(str(files), [f"sft.file={tmp_path / 'rows.jsonl'}"])
    run_experiment(recipe, tmp_path / "whole", Silent())

    def cut(*values):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, cut)
        with pytest.raises(RunStopped, match="--resume"):
            run_experiment(recipe, tmp_path / "cut", Silent())
    assert not list((tmp_path / "cut").glob("reward-model/*/report.json"))
    run_experiment(reload_recipe(tmp_path / "cut"), tmp_path / "cut", Silent())
    for pattern in ("start/sft-*/model.safetensors", "reward-model/*/model/*.safetensors"):
        one, other = (sorted((tmp_path / name).glob(pattern)) for name in ("whole", "cut"))
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other] != []
    weights = [
        RunFolder(tmp_path / name / "dpo").checkpoint(1) / "model.safetensors" for name in ("whole", "cut")
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    base, tuned = (
        sorted((tmp_path / "whole" / "start").glob(f"{kind}/model.safetensors"))[0]
        for kind in ("[0-9a-f]*", "sft-*")
    )
    assert base.read_bytes() != tuned.read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"margin": "big"}, r"row 2: expected a finite number as margin, got 'big'"),
        ({"margin": float("nan")}, "row 2: expected a finite number as margin"),
        ({"chosen_quality": "good"}, "row 2: expected a finite number as chosen_quality, got 'good'"),
        ({"rejected_length": float("inf")}, "row 2: expected a finite number as rejected_length"),
        ({"chosen": 3}, r"row 2: expected a text or a list of messages as 'chosen', got 3"),
        ({"rejected": None}, "row 2: expected a text or a list of messages as 'rejected'"),
    ],
)
def test_a_bad_comparison_is_named_by_its_row(tmp_path, change, words):
    good = {"prompt": "p", "chosen": "a\u2028line of its own", "rejected": "b", "margin": 1}
    rows = tmp_path / "pairs.jsonl"
    rows.write_text(json.dumps(good, ensure_ascii=False) + "\n", "utf-8")
    assert [pair.margin for pair in read_pairs(rows)] == [1.0]
    rows.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in (good, good | change)), "utf-8"
    )
    with pytest.raises(BadInput, match=words):
        read_pairs(rows)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "edit", [lambda rows: rows[1:], lambda rows: [rows[0] | {"answer": "99"}, *rows[1:]]]
)
def test_a_run_does_not_go_on_with_other_tasks(files, tmp_path, edit):
    root = tmp_path / "run"
    run_experiment(load_recipe(str(files)), root, Silent())
    folder = RunFolder(root / "dpo")
    folder.write_run(folder.read_run() | {"status": "running"})
    before = contents(folder.root)
    tasks = tmp_path / "tasks.jsonl"
    rows = [json.loads(line) for line in tasks.read_text().splitlines()]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in edit(rows)))
    with pytest.raises(BadInput, match="have changed since the run began"):
        run_experiment(reload_recipe(root), root, Silent())
    assert contents(folder.root) == before
