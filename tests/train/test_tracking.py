"""A tracker gets every number of a step under its own name, and the means of matched checkpoints."""

import pytest

from assay.errors import BadInput
from assay.records.run_folder import RunFolder
from assay.train.experiment import run_experiment
from assay.train.recipe import load_recipe


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside tensorboard
def test_tensorboard_on_request(small, tmp_path, recorder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_experiment(load_recipe(small, ["tracker=tensorboard"], arms=["weak"]), tmp_path / "run", recorder)
    folder = RunFolder(tmp_path / "run" / "weak")
    read = EventAccumulator(str(folder.root / "tracker" / "assay")).Reload()
    rows = folder.read_metrics()
    logged = {event.step: event.value for event in read.Scalars("reward")}
    assert logged == pytest.approx({row["step"]: row["reward"] for row in rows})
    assert [event.step for event in read.Scalars("eval/truth")] == [0, 2, 4]


@pytest.mark.parametrize(
    ("name", "words"), [("tensorbord", "did you mean 'tensorboard'"), ("comet_ml", "not installed")]
)
def test_a_tracker_that_cannot_be_used_is_refused(small, tmp_path, recorder, name, words):
    with pytest.raises(BadInput, match=words):
        run_experiment(load_recipe(small, [f"tracker={name}"], arms=["weak"]), tmp_path / "run", recorder)
