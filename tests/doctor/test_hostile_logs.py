"""Whatever bytes lie in a run's folder: a diagnosis or one clear error, never another exception."""

import gzip
import json
import random

import pytest

from assay.doctor.diagnosis import diagnose
from assay.errors import AssayError, BadInput
from assay.records.finding import jsonable
from assay.records.readers import read_run

VALUES = (
    None, True, False, 0, 1, -1, 2**70, -(2**70), 1e308, float("nan"), float("inf"), "", "x", "NaN", "0.5", [],
    [1], ["a", None],
    [[1]], {}, {"a": 1}, {"score": None}, "<|im_end|>", "half \ud800 a pair",
    "a" * 5000, [2**70], [-0.1, None],
)  # fmt: skip


def mutated(rng, row):
    row = dict(row)
    for _ in range(rng.randint(0, 4)):
        name = rng.choice(
            [*row, "step", "reward", "prompt_id", "advantage", "mask", "data", "config", "reward_parts", "kl"]
        )
        if rng.random() < 0.3:
            row.pop(name, None)
        else:
            row[name] = rng.choice(VALUES)
    return row


def hostile(rng, log):
    """Bytes of a rollout or metrics file with some rows, lines or bytes spoilt."""
    rows = rng.choice([log.metrics, log.rollouts])
    start = rng.randrange(len(rows))
    lines = [json.dumps(mutated(rng, row)).encode() for row in rows[start : start + rng.randint(1, 24)]]
    if rng.random() < 0.2:
        lines.insert(
            rng.randrange(len(lines) + 1),
            rng.choice([b"", b"[]", b"nul", b"\x00\xff\xfe", b"{" * 3000, b'"x"']),
        )
    data = b"\n".join(lines) + rng.choice([b"", b"\n"])
    if rng.random() < 0.3:
        data = data[: rng.randrange(len(data) + 1)]
    if rng.random() < 0.2:
        spoilt = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            if spoilt:
                spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        data = bytes(spoilt)
    return data


def survives(path):
    try:
        diagnosis = diagnose(path)
    except AssayError as error:
        if "\n" in str(error):
            raise
        return False
    json.dumps(jsonable(diagnosis.to_json()), allow_nan=False)
    return True


def check(tmp_path, make_log, count, seed):
    rng = random.Random(seed)
    log = make_log(steps=12, groups=2, size=4, batch=4, logged_every=2)
    config = {"algorithm": "grpo", "num_generations": 4}
    path = tmp_path / "log.jsonl"
    read = 0
    for _ in range(count):
        (tmp_path / "config.json").write_text(json.dumps(mutated(rng, config)))
        path.write_bytes(hostile(rng, log))
        read += survives(path)
    assert read > 0.3 * count  # most of them are still logs


def test_spoilt_logs(tmp_path, make_log):
    check(tmp_path, make_log, 60, 0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_spoilt_logs(tmp_path, make_log):
    check(tmp_path, make_log, 10_000, 1)


@pytest.mark.parametrize(
    "name", ["logits.npz", "step-000001.parquet", "config.json", "trainer_state.json", "x.csv", "a.log"]
)
@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04junk", b"PAR1junk", b"{}", b"[1]", b"\xff\xfe\x00", b'{"log_history": 3}']
)
def test_spoilt_files_beside_a_good_one(tmp_path, make_log, name, data):
    log = make_log(steps=12, groups=2, size=4, batch=4)
    log.write(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(data)
    survives(tmp_path / "run")


def test_a_folder_that_links_to_itself(tmp_path, make_log):
    folder = make_log(steps=12).write(tmp_path / "run")
    (folder / "loop").symlink_to(folder)
    assert survives(folder)


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept(tmp_path):
    rows = [
        {"step": 1, "prompt": "p", "completion": r"\ud83d\ude00", "reward": 1.0},
        {"step": 1, "prompt": "p", "completion": r"a\udc00b", "reward": 0.0, r"\ud800": 1},
    ]
    lines = "\n".join(json.dumps(row) for row in rows).replace(r"\\u", r"\u")
    (tmp_path / "rollouts.jsonl").write_text(lines + "\n")
    assert read_run(tmp_path).rollouts["completion"].to_list() == ["\U0001f600", "a\ufffdb"]


def test_a_compressed_log_is_named_as_such(tmp_path, make_log):
    log = tmp_path / "metrics.jsonl.gz"
    log.write_bytes(gzip.compress(b'{"step": 1, "reward": 0.5}\n'))
    for path in (log, tmp_path):
        with pytest.raises(BadInput, match="compressed; unpack it first"):
            diagnose(path)


def test_two_runs_in_one_folder_are_not_called_healthy(tmp_path, make_log):
    rising = [
        {
            "step": s,
            "reward": 0.1 + 0.01 * s + 0.01 * (s % 3),
            "entropy": 1.0 + s % 5,
            "kl": 0.1 * s,
            "grad_norm": 1.0,
        }
        for s in range(60)
    ]
    flat = [
        {**row, "reward": 0.02, "entropy": 9.0 + row["step"] % 2, "kl": 7.0, "grad_norm": 5.0}
        for row in rising
    ]
    for name, rows in {"a": rising, "b": flat}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert diagnose(tmp_path / "a.jsonl").verdict == "healthy"
    mixed = diagnose(tmp_path)
    assert mixed.verdict == "cannot_tell"
    (found,) = [found for found in mixed.of("warn") if found.id == "run.data"]
    assert "two files disagree about 4 metrics" in found.summary


def test_a_reward_that_gives_no_number_says_so(tmp_path):
    rows = [
        {"step": 1, "prompt": "1+1?", "completion": str(n), "reward": 0.0, "answer": "2"} for n in range(4)
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(
        "def pay(prompts, completions, **_):\n    raise RuntimeError('boom')\n"
    )
    with pytest.raises(BadInput, match=r"no number for any of .* boom"):
        diagnose(tmp_path / "rollouts.jsonl", reward=f"{tmp_path / 'reward.py'}:pay")
