"""Ids and log-probs that differ in number, and the start token of the prompts."""

import numpy as np
import pytest

from assay.doctor.diagnosis import diagnose
from assay.records.readers.formats import GENERIC
from assay.records.readers.metrics import known_config
from assay.records.readers.table import frame_of_rows
from assay.records.run_record import RunRecord


def found(rows, id, config=None):
    config = config or {}
    frame = frame_of_rows([{"step": 0} | row for row in rows], GENERIC)
    run = RunRecord(config=known_config(config), raw_config=config, rollouts=frame)
    return next(item for item in diagnose(run).findings if item.id == id)


def of_prompts(more, prompts=6, size=4, seed=0, **columns):
    """Rows of several completions a prompt; ``more(prompt ids, completion ids)`` gives (ids, number of log-probs)."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(prompts):
        asked = [1, *rng.integers(10, 50, 4 + number).tolist()]
        for sample in range(size):
            own = rng.integers(10, 50, int(rng.integers(3, 9))).tolist()
            ids, count = more(asked, own)
            row = {"step": 0, "prompt_id": f"p{number}", "sample": sample, "token_ids": ids}
            row["logprobs"] = (-rng.random(count) - 0.1).tolist()
            rows.append(row | {name: make(asked, own) for name, make in columns.items()})
    return rows


ID = "logprob.retokenised"


@pytest.mark.parametrize("count", [1, 3, 4, 5, 20])
@pytest.mark.parametrize(("ids", "logps"), [(3, 4), (4, 3), (3, 5)])
def test_a_surplus_on_either_side_fails_however_many_rows_have_it(count, ids, logps):
    rows = [{"id": n, "token_ids": [2, 3, 4, 2][:ids], "logprobs": [-0.5] * logps} for n in range(count)]
    item = found(rows, ID)
    assert item.status == "fail"
    assert item.evidence["rows"] == count


def test_a_surplus_that_varies_fails():
    rows = [
        {"id": n, "token_ids": [2, 3, 4] * (1 + n % 3), "logprobs": [-0.7] * (2 + n % 3)} for n in range(20)
    ]
    assert found(rows, ID).status == "fail"


@pytest.mark.parametrize("length", [3, 4])
def test_a_length_does_not_excuse_more_logprobs_than_ids(length):
    rows = [{"id": n, "token_ids": [2, 3, 4], "logprobs": [-0.5] * 4, "length": length} for n in range(8)]
    assert found(rows, ID).status == "fail"


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        (lambda asked, own: (asked + own, len(own)), {"prompt_ids": lambda asked, own: asked}),
        (lambda asked, own: (asked + own, len(own)), {"prompt_length": lambda asked, own: len(asked)}),
        (lambda asked, own: (asked + own, len(own)), {}),
        (lambda asked, own: (asked + own, len(own)), {"length": lambda asked, own: len(own)}),
        (lambda asked, own: (asked + own, len(asked + own) - 1), {"prompt_ids": lambda asked, own: asked}),
    ],
)
def test_ids_that_hold_the_prompt_are_said_to(more, columns):
    item = found(of_prompts(more, **columns), ID)
    assert item.status == "pass"
    assert item.summary == "the ids hold the prompt too; each other id has its log-prob"


def test_a_prompt_with_one_completion_goes_with_the_others():
    rows = of_prompts(lambda asked, own: (asked + own, len(own)))
    alone = [row | {"prompt_id": f"alone{n}"} for n, row in enumerate(rows[:2])]
    item = found([*rows, *alone], ID)
    assert (item.status, item.evidence["with_prompt"]) == ("pass", len(rows) + 2)


def test_a_common_start_does_not_hide_ids_that_were_encoded_again():
    start = [5, 6, 7, 8, 9, 5, 6, 7, 8]
    rows = of_prompts(lambda asked, own: ([*start, *own, *own[: len(own) // 2]], len(start) + len(own)))
    assert found(rows, ID).status == "fail"


def test_padding_needs_no_logprob():
    rows = of_prompts(lambda asked, own: ([*own, 2, *[0] * (12 - len(own))], len(own) + 1))
    config = {"pad_token_id": 0, "eos_token_id": 2}
    assert found(rows, ID, config).status == "pass"
    assert found(rows, ID).status == "fail"
    rows = of_prompts(lambda asked, own: ([*own, *[2] * (12 - len(own))], len(own) + 1))
    assert found(rows, ID, {"pad_token_id": 2, "eos_token_id": 2}).status == "pass"


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        (lambda asked, own: ([*own, 9], len(own)), {}),
        (lambda asked, own: ([7, 8, *own], len(own) + 1), {}),
        (lambda asked, own: (asked + own, len(asked + own) + 2), {"prompt_ids": lambda asked, own: asked}),
        (lambda asked, own: ([5, 6, 7, *own], len(own)), {"length": lambda asked, own: len(own) + 3}),
        (lambda asked, own: (own + own[: len(own) // 2], len(own)), {}),
        (lambda asked, own: (own + own[:2], len(own)), {"prompt_length": lambda asked, own: len(asked)}),
    ],
)
def test_no_prompt_explains_these(more, columns):
    assert found(of_prompts(more, **columns), ID).status == "fail"


def test_one_completion_a_prompt_leaves_it_open():
    text = {"prompt": lambda asked, own: " ".join(f"w{token}" for token in asked)}
    rows = of_prompts(lambda asked, own: (asked + own, len(own)), prompts=12, size=1, **text)
    item = found(rows, ID)
    assert item.status == "warn"
    assert "may hold the prompt" in item.summary


def test_one_row_in_many_is_a_warning_and_no_pass():
    rows = of_prompts(lambda asked, own: (own, len(own)), prompts=50)
    rows[7]["token_ids"] = rows[7]["token_ids"][:-1]
    item = found(rows, ID)
    assert item.status == "warn"
    assert item.evidence["rows"] == 1


def prompts(*lists, count=16, **more):
    return [
        {"step": 0, "prompt_id": f"p{n}", "sample": 0, "reward": 0.5, "prompt_ids": lists[n % len(lists)]}
        | more
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize(
    ("ids", "start", "status"),
    [
        ([1, 1, 5, 6], 1, "fail"),
        ([1, 5, 6], 1, "pass"),
        ([5, 6], 1, "fail"),
        ([0, 0, 1, 5, 6], 1, "pass"),
        ([0, 0, 1, 1, 5, 6], 1, "fail"),
        ([1, 5, 1, 6], 1, "warn"),
        ([5, 6], None, "pass"),
    ],
)
def test_start_tokens(count, ids, start, status):
    item = found(prompts(ids, count=count), "decode.double_bos", {"bos_token_id": start, "pad_token_id": 0})
    assert item.status == status
    if ids == [5, 6]:
        assert item.summary == (
            "no prompt begins with the start token 1" if start else "the configuration names no start token"
        )


@pytest.mark.parametrize(
    ("ids", "config", "status"),
    [
        (
            [5, 6],
            {"bos_token_id": 2, "eos_token_id": 2},
            "pass",
        ),  # models whose end token is called a start token
        ([5, 6], {"bos_token_id": 2, "pad_token_id": 2}, "pass"),
        ([5, 6], {"bos_token_id": 151643, "model_name": "Qwen/Qwen3-0.6B"}, "pass"),
        ([5, 6], {"bos_token_id": 1, "add_bos_token": False}, "pass"),
        ([1, 5, 2, 1, 6], {"bos_token_id": 1, "eos_token_id": [2, 9]}, "pass"),  # each turn has its own
        ([1, 5, 2, 9, 1, 6], {"bos_token_id": 1, "eos_token_id": 2}, "pass"),
        ([1, 5, 9, 9, 1, 6], {"bos_token_id": 1, "eos_token_id": 2}, "warn"),
        ([5, 6], {}, "skip"),
    ],
)
def test_start_tokens_that_are_none_or_begin_a_turn(ids, config, status):
    assert found(prompts(ids), "decode.double_bos", config).status == status


def test_some_prompts_without_the_start_token_of_the_others():
    item = found(prompts([1, 5, 6], [1, 7], [6, 7]), "decode.double_bos", {"bos_token_id": 1})
    assert item.status == "warn"
    assert item.evidence["rows"] == 5


def test_start_tokens_as_padding_are_not_doubled():
    config = {"bos_token_id": 1, "pad_token_id": 1}
    assert found(prompts([1, 1, 1, 5], [1, 1, 5, 6]), "decode.double_bos", config).status == "pass"
    assert found(prompts([1, 1, 5], [1, 1, 5, 6]), "decode.double_bos", config).status == "fail"


def test_a_run_that_learns_without_start_tokens_is_warned(make_log):
    log = make_log()
    log.config.update({"bos_token_id": 1, "pad_token_id": 0})
    for row in log.rollouts:
        row["prompt_ids"] = [5, 6]
    item = next(item for item in log.diagnose().findings if item.id == "decode.double_bos")
    assert item.status == "warn"
    assert "bos_token_id" in item.fix


@pytest.mark.parametrize("start", ["<s>", "<|bos|>", "[BOS]", "<|begin_of_text|>"])
def test_two_start_tokens_in_text(start):
    rows = [{"prompt_id": f"p{n}", "reward": 0.5, "prompt": f"{start} {start}Add 2."} for n in range(8)]
    assert found(rows, "decode.double_bos").status == "fail"
    rows = [row | {"prompt": f"{start}Add 2."} for row in rows]
    assert found(rows, "decode.double_bos").status == "pass"
