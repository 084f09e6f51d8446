"""Every option, preset and metric has its line in the documentation."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.algos.algorithm import TokenBatch, combine_metrics
from assay.algos.parts import Correction, KLPenalty
from assay.algos.recipes import ALL, make_algorithm, option_names

DOCS = Path(__file__).parents[2] / "docs" / "algorithms"


def code_words(page: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", (DOCS / page).read_text("utf-8")))


SECTIONS = ["## Options", "## Metrics", "## The same name elsewhere", "## Measured"]


@pytest.mark.parametrize("name", ALL)
def test_each_page_names_every_option_and_preset(name: str):
    assert set(option_names(name)) <= code_words(f"{name}.md")
    assert set(ALL[name][1]) <= code_words(f"{name}.md")
    text = (DOCS / f"{name}.md").read_text("utf-8")
    assert [line for line in text.splitlines() if line in SECTIONS] == SECTIONS
    assert "\n    " in text.split("## Options")[0]  # the formula
    assert f"[{name}]({name}.md)" in (DOCS / "index.md").read_text("utf-8")


def test_the_common_table_defines_every_metric():
    algorithm = make_algorithm("dr_grpo")
    batch = TokenBatch(*[torch.zeros(1, 2)] * 2, torch.zeros(1), torch.ones(1, 2, dtype=torch.bool))
    full = batch._replace(**dict.fromkeys(batch._fields[4:], torch.zeros(1, 2)))
    measured = replace(algorithm, correction=Correction(), kl=KLPenalty(coef=0.1)).loss(full, 2.0)
    assert set(combine_metrics([measured.metrics])) <= code_words("index.md")
