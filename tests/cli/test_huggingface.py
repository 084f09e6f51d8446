"""``assay run FILE.yaml model=FOLDER`` on a user's own tasks and a model of transformers."""

import json

import polars as pl
import pytest

from assay.records.run_folder import RunFolder
from tests.cli.conftest import one_line_refusal
from tests.hub_models import make_folder, tokenizer_of


@pytest.fixture
def hub(mine):
    """The user's folder with a random Llama in it, as ``base``."""
    make_folder(
        mine.folder / "base", "llama", tokenizer=tokenizer_of(chat=True), generation={"top_p": 0.8, "eos_token_id": 1}
    )  # fmt: skip
    return mine


def recipe_of(mine, **changes):
    keys = {"model": "base", "sizes": None, "warm_start": None, "learning_rate": 1e-2}
    return mine.write(**{**keys, **changes})


def test_a_run_writes_one_document_resumes_to_the_bit_and_eval_repeats_it(hub):
    recipe = recipe_of(hub, model=None, reward="rewards.py:reward")
    done = hub.assay("run", recipe, "model=base", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    last = json.loads(done.stdout)["arms"]["run"]["checkpoints"][-1]
    folder = RunFolder(hub.folder / "out/run")
    assert folder.read_run()["inherited_sampling"] == {"top_p": 0.8}

    again = hub.here("eval", "out/run/checkpoints/step-000002", "--json")
    assert again.returncode == 0, again.stderr
    repeated = json.loads(again.stdout)
    for name in ("reward", "truth", "kl_sequence", "entropy", "length"):
        assert repeated[name] == last[name], name

    whole = (folder.checkpoint(2) / "model.safetensors").read_bytes()
    rollouts = pl.read_parquet(folder.rollouts(2))
    cut_back(folder, hub.folder / "out", last=2)
    resumed = hub.here("run", "--resume", "out", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert (folder.checkpoint(2) / "model.safetensors").read_bytes() == whole
    assert pl.read_parquet(folder.rollouts(2)).equals(rollouts)


def cut_back(folder, root, *, last):
    """As if the run had been killed before its last checkpoint was written."""
    import shutil

    shutil.rmtree(folder.checkpoint(last))
    for path in (folder.run_json, root / "experiment.json"):
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "status": "stopped"}))


def test_the_terminal_says_what_is_inherited_and_how_much_memory_it_takes(hub):
    done = hub.here("run", recipe_of(hub, steps=1, lora={"rank": 2}, chat_template=True), "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "generation_config.json sets top_p=0.8; not applied" in " ".join(done.stdout.split())
    assert "this will need about" in done.stdout
    checkpoint = hub.folder / "out/run/checkpoints/step-000001"
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert not (checkpoint / "model.safetensors").exists(), "an adapter's checkpoint holds no base weights"
    again = hub.here("eval", checkpoint, "--json")
    assert again.returncode == 0, again.stderr


def test_what_a_model_cannot_do_is_one_line(hub):
    changes = {"lora": {"targets": ["nothing_like_this"]}}
    one_line_refusal(
        hub.here("run", recipe_of(hub, **changes), "--out", "out"), "lora.targets", "nothing_like_this"
    )
