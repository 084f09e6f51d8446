"""Completions that end exactly at the limit, or at once: what the log calls them against their ids."""

import numpy as np
import pytest

from assay.doctor.diagnosis import diagnose
from assay.records.readers.formats import GENERIC
from assay.records.readers.metrics import known_config, table_of_rows
from assay.records.readers.table import frame_of_rows
from assay.records.run_record import RunRecord

ENDS = {"eos_token_id": [2, 4], "pad_token_id": 0}


def findings(lists, config=ENDS, metrics=(), **columns):
    rows = [{"step": n // 8, "token_ids": ids} | columns for n, ids in enumerate(lists)]
    table = table_of_rows(list(metrics))
    run = RunRecord(
        config=known_config(config), raw_config=config, rollouts=frame_of_rows(rows, GENERIC),
        metrics=table.frame, step_order=table.order,
    )  # fmt: skip
    return {found.id: found for found in diagnose(run).findings}


def ids(count=32, length=20, end=2, seed=0):
    rng = np.random.default_rng(seed)
    return [[*rng.integers(5, 50, length - 1).tolist(), end] for _ in range(count)]


@pytest.mark.parametrize("end", [2, 4])
@pytest.mark.parametrize("limit", [{"max_tokens": 20}, {}])
def test_an_end_token_at_the_limit_is_an_end_though_the_log_says_length(end, limit):
    found = findings(ids(end=end), finish_reason="length", **limit)
    assert found["decode.no_eos"].status == "pass"
    assert found["decode.truncated"].status == "warn"
    assert found["decode.truncated"].evidence["count_as_cut"] == 32
    assert "last id is an end token" in found["decode.truncated"].summary


@pytest.mark.parametrize("reason", [{"finish_reason": "length"}, {}])
def test_no_end_token_at_the_limit_is_cut(reason):
    found = findings(ids(end=9), max_tokens=20, **reason)
    assert found["decode.no_eos"].status == "fail"
    for word in ("chat template", "end-token ids", "largest completion length"):
        assert word in found["decode.no_eos"].fix


def test_an_end_token_before_the_limit_leaves_what_the_log_says():
    found = findings(ids(), max_tokens=4000, finish_reason="length")
    assert found["decode.no_eos"].status == "fail"


def test_pads_after_the_end_do_not_make_a_completion_full():
    lists = [[*row[:10], 2, *[0] * 9] for row in ids()]
    assert findings(lists, max_tokens=20)["decode.no_eos"].evidence["late"] == 0
    lists = [[*row[:19], 9, *[0] * 9] for row in ids()]
    assert findings(lists, max_tokens=20)["decode.no_eos"].status == "fail"


def test_metrics_that_say_all_are_cut_against_ids_that_end():
    metrics = [{"step": n, "reward": 0.3, "completions/clipped_ratio": 1.0} for n in range(12)]
    assert findings(ids(), metrics=metrics, max_tokens=20)["decode.no_eos"].status == "pass"
    assert findings(ids(end=9), metrics=metrics, max_tokens=20)["decode.no_eos"].status == "fail"
    assert findings([], metrics=metrics)["decode.no_eos"].status == "fail"


@pytest.mark.parametrize(
    ("lists", "config", "status"),
    [
        ([[2]] * 16, ENDS, "fail"),
        ([[2, 0, 0]] * 16, ENDS, "fail"),
        ([[4]] * 8 + [[5, 2]] * 8, ENDS, "fail"),
        ([[]] * 8 + [[5, 2]] * 8, ENDS, "fail"),
        ([[2]] + [[5, 2]] * 31, ENDS, "pass"),
        ([[5]] * 16, ENDS, "pass"),
        ([[2]] * 16, {}, "pass"),
    ],
)
def test_completions_of_end_tokens_only_are_empty(lists, config, status):
    assert findings(lists, config)["decode.empty"].status == status


def test_one_that_ends_at_once_among_few_is_not_called_empty():
    lists = [[5, 6, 2], [5, 6, 7, 8, 9], [5, 6, 7, 8, 2], [2], [], [5, 6, 7], [5, 6, 4]]
    found = findings(lists, max_tokens=5)
    assert found["decode.empty"].status == "warn"
    assert found["decode.empty"].evidence["rows"] == 1
