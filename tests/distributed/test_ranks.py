"""The arithmetic of sharing out, and what a job of one process does (nothing)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import RunStopped
from assay.records.run_folder import RunFolder
from assay.train import ranks as module
from assay.train.ranks import Ranks, ReadOnlyFolder, connected, ranks


@given(count=st.integers(0, 50), size=st.integers(1, 9))
def test_the_shares_in_order_are_the_whole_and_even(count, size):
    shares = [Ranks(rank, size).share(count) for rank in range(size)]
    assert [i for share in shares for i in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_opens_no_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    ranks.cache_clear()
    alone = ranks()
    assert (alone.rank, alone.size, alone.main) == (0, 1, True)
    assert alone.gather([1, 2]) == [1, 2]
    assert alone.first("x") == "x"
    with alone.main_first():
        pass


def test_a_world_size_without_a_rank_is_another_programs(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.delenv("RANK", raising=False)
    ranks.cache_clear()
    assert ranks().size == 1


def test_only_the_main_process_writes(tmp_path):
    folder = Ranks(1, 2).folder(RunFolder(tmp_path))
    folder.write_run({"status": "running"})
    folder.append_metrics({"step": 1})
    folder.truncate_metrics(0)
    folder.write_table(folder.rollouts(1), {"a": [1]})
    assert list(tmp_path.iterdir()) == []
    Ranks(0, 2).folder(RunFolder(tmp_path)).write_run({"status": "running"})
    assert folder.read_run() == {"status": "running"}
    assert isinstance(folder, ReadOnlyFolder)


def test_a_lost_connection_becomes_one_line_and_other_errors_stay(monkeypatch):
    monkeypatch.setattr(module, "ranks", lambda: Ranks(0, 2))
    with pytest.raises(RunStopped, match="--resume") as stopped, connected():
        raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    assert "\n" not in str(stopped.value)
    with pytest.raises(RuntimeError, match="shapes"), connected():
        raise RuntimeError("shapes differ")


def test_one_process_never_blames_the_others():
    with pytest.raises(RuntimeError, match="gloo"), connected():
        raise RuntimeError("gloo is not built in")
