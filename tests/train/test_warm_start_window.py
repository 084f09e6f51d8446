"""A warm start that misses its window says on which side, and what to do."""

import pytest

from assay.config import WarmStart
from assay.errors import ContractBroken
from assay.models.tiny_policy import TinyPolicy
from assay.train.warm_start import PassRates, warm_start

TRACES = [("sort 31:\n", "13\n"), ("sort 52:\n", "25\n")] * 4
SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "max_positions": 48}


@pytest.mark.parametrize(
    ("rates", "advice"),
    [
        (PassRates(0.95, 1.0), r"after 4 updates; they are easy .*check_every=1"),
        (PassRates(0.0, 0.1), "after 8 updates; raise"),
    ],
)
def test_the_advice_fits_the_side(rates, advice):
    policy = TinyPolicy.create([a + b for a, b in TRACES] * 20, seed=0, vocab_size=270, **SIZES)
    settings = WarmStart(max_steps=8, check_every=4, batch_size=4)
    with pytest.raises(ContractBroken, match=advice):
        warm_start(policy, TRACES, settings, measure=lambda: rates, seed=0)
