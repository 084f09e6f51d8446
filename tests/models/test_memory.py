"""Freed memory goes back to the system where much of it is kept."""

import pytest

from assay.models import memory


@pytest.fixture
def heap():
    library = memory._heap()
    if library is None:
        pytest.skip("this C library does not say how much it keeps")
    return library


def blocks():
    """Blocks too small to be mapped one by one, half of them freed so that the heap's end stays in use."""
    kept = [b"x" * (100_000 + i) for i in range(400)]
    del kept[::2]
    return kept


def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096


def test_freed_blocks_go_back_once_there_are_many(heap, monkeypatch):
    kept = blocks()
    before = resident()
    memory.give_back()
    assert resident() > before - 4_000_000, "little is kept: nothing to do"
    monkeypatch.setattr(memory, "KEPT_FREED", 1 << 20)
    memory.give_back()
    assert resident() < before - 10_000_000
    again, before = blocks(), resident()
    memory.give_back()
    assert resident() < before - 10_000_000, "every time, not the first time alone"
    assert len(kept) == len(again) == 200


def test_a_library_that_does_not_say_is_left_alone(monkeypatch):
    monkeypatch.setattr(memory, "_heap", lambda: None)
    memory.give_back()
