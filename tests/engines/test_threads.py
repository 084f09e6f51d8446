"""Small products run on one thread, large ones on all, and the setting comes back whatever happens."""

import pytest
import torch

from assay.engines.threads import FEW, threads_for


@pytest.fixture(autouse=True)
def two_threads():
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(usual)


@pytest.mark.parametrize(("work", "threads"), [(FEW - 1, 1), (FEW, 2)])
def test_small_products_run_on_one_thread(work, threads):
    with threads_for(work):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_a_failure_leaves_the_threads_as_they_were():
    with pytest.raises(ZeroDivisionError), threads_for(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
