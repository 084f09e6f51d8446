"""Sampling during the update: older weights, recorded and corrected, and a resume that is bit-exact all the same."""

import polars as pl
import pytest

from assay.config import build_config
from assay.errors import BadInput, RunStopped
from assay.records.run_folder import RunFolder
from assay.train.ahead import Ahead
from assay.train.experiment import reload_recipe, run_experiment
from assay.train.recipe import load_recipe
from assay.train.setup import algorithm_of
from tests.train.test_run import same_run


def versions(folder):
    return [
        pl.read_parquet(folder.rollouts(step))["policy_version"].unique().to_list()
        for step in folder.steps("rollouts")
    ]


@pytest.fixture
def run(small, tmp_path, recorder):
    def start(name, *keys):
        root = tmp_path / name
        run_experiment(load_recipe(small, ["eval_every=3", "steps=6", *keys], arms=["weak"]), root, recorder)
        return RunFolder(root / "weak")

    return start


def test_batches_come_from_the_weights_before_the_update_and_say_so(run):
    folder = run("ahead", "overlap=true")
    assert versions(folder) == [[0], [0], [1], [3], [3], [4]], "after a checkpoint the batch is fresh"
    rows = folder.read_metrics()
    fresh, stale = (
        [row["sampler_gap"] for row in rows if (row["step"] - 1) % 3 in places] for places in ((0,), (1, 2))
    )
    assert max(fresh) < 1e-5
    assert min(stale) > 100 * max(fresh)
    assert all("weight_mean" in row for row in rows), sorted(rows[0])
    assert versions(run("usual")) == [[0], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize("when", [1, 2, 5])
def test_an_interrupted_run_goes_on_bit_for_bit(run, small, tmp_path, recorder, when):
    class Stops(type(recorder)):
        def step(self, arm, metrics, of):
            if metrics["step"] == when:
                raise KeyboardInterrupt

    whole, root = run("whole", "overlap=true"), tmp_path / "cut"
    recipe = load_recipe(small, ["eval_every=3", "steps=6", "overlap=true"], arms=["weak"])
    with pytest.raises(RunStopped, match="--resume"):
        run_experiment(recipe, root, Stops())
    run_experiment(reload_recipe(root), root, recorder)
    same_run(whole, RunFolder(root / "weak"))


def test_what_breaks_in_the_thread_is_raised_where_the_batch_is_taken():
    class Weights:
        def frozen_copy(self):
            return self

    def gather(policy, step, version):
        if version != step - 1:
            raise RuntimeError("the reward died")
        return step

    ahead = Ahead(gather)
    assert ahead.take(Weights(), 4) == 4
    ahead.start(Weights(), 5, 3)
    with pytest.raises(RuntimeError, match="the reward died"):
        ahead.take(Weights(), 5)
    assert ahead.take(Weights(), 5) == 5


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"curriculum": {}}, "leave one of them out"),
        ({"algorithm": "online_dpo"}, "has no overlap"),
        ({"recompute_old_logprobs": False}, "importance weights compare"),
    ],
)
def test_what_cannot_overlap_is_refused(keys, words):
    with pytest.raises(BadInput, match=words):
        algorithm_of(build_config({"overlap": True, **keys}))
