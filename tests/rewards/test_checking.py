"""Controls before the first step: gold is paid, junk is not, in the workers that training uses."""

from pathlib import Path

import pytest

from assay.errors import BadInput, RunStopped
from assay.records.score import crashed, missing, scored
from assay.rewards.checking import JUNK, controls_check, require_scores
from assay.rewards.running import RewardRunner

FOREIGN = Path(__file__).with_name("foreign_rewards.py")
TASKS = [{"prompt_id": f"p{i}", "prompt": "q", "answer": str(i)} for i in range(3)]


def gold(task):
    return task["answer"]


def pays_all(completion, task):
    return 1.0


def pays_none(completion, task):
    return 0.0


def pays_unreadable_gold(completion, task):
    return 1.0 if not task["answer"] else float(completion == task["answer"])


def fails_on_empty(completion, task):
    return float(completion.split()[0] == task["answer"])


def test_a_sound_reward_passes():
    with RewardRunner(f"{FOREIGN}:ours") as runner:
        controls = controls_check(runner, TASKS, gold)
    assert len(controls.checked) == 9
    assert not controls.failed


@pytest.mark.parametrize(
    ("reward", "role", "finding"),
    [(pays_none, "gold", "rejects_gold"), (pays_all, "junk", "accepts_unreadable")],
)
def test_a_broken_reward_stops_the_run_and_shows_the_sample(reward, role, finding):
    with RewardRunner(reward) as runner:
        with pytest.raises(BadInput, match=f"the {role} completion .* of prompt_id 'p0' should score"):
            controls_check(runner, TASKS, gold)
        controls = controls_check(runner, TASKS, gold, stop=False)
    assert controls.findings[0].id == finding
    assert controls.findings[0].exploit is not None


def test_an_exception_hidden_in_the_worker_is_found():
    with (
        RewardRunner(f"{FOREIGN}:alarm_hidden") as runner,
        pytest.raises(BadInput, match="gold completion '0'"),
    ):
        controls_check(runner, TASKS, gold)


def test_a_crash_on_the_empty_text_is_found_and_explained():
    with RewardRunner(fails_on_empty) as runner:
        controls = controls_check(runner, TASKS[:1], gold, stop=False)
    assert [(c.role, c.score.state) for c in controls.failed] == [("empty", "crashed")]
    assert controls.findings[0].id == "crashes"
    assert "IndexError" in controls.findings[0].summary


def test_an_unreadable_gold_that_pays_is_found():
    tasks = [*TASKS, {"prompt_id": "bad", "prompt": "q", "answer": ""}]
    with RewardRunner(pays_unreadable_gold) as runner, pytest.raises(BadInput, match="'bad'"):
        controls_check(runner, tasks, gold)


def test_without_a_gold_only_the_negative_controls_are_made():
    with RewardRunner(pays_none) as runner:
        controls = controls_check(runner, TASKS)
    assert {c.completion for c in controls.checked} == {JUNK, ""}


def test_too_many_without_a_score_stop_the_run():
    require_scores([scored(1), missing("slow")])
    require_scores([])
    with pytest.raises(RunStopped, match=r"2 of 3 .*1 crashed, 1 missing.* the first: slow"):
        require_scores([scored(1), missing("slow"), crashed("no")])
