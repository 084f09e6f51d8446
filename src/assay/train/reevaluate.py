"""Evaluate a checkpoint of a run again, exactly as the run did."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from assay.models.checkpoint import load_policy
from assay.records.run_folder import RunFolder
from assay.train.run import config_of, evaluator_of, expect_same_tasks
from assay.train.setup import open_scoring, task_set_of

if TYPE_CHECKING:
    import polars as pl


def evaluate_checkpoint(checkpoint: Path) -> tuple[int, pl.DataFrame]:
    """Return the step and the table of ``evals/*.parquet`` for RUN/checkpoints/step-NNNNNN.

    Raises:
        BadInput: the tasks are not those the run was trained on.
    """
    import polars as pl

    folder = RunFolder(checkpoint.parent.parent)
    config = config_of(folder)
    torch.set_num_threads(config.threads)  # sums depend on it in their last bits
    tasks = task_set_of(config)
    expect_same_tasks(folder, tasks)
    start = load_policy(folder.checkpoint(0))
    start.module.requires_grad_(False).eval()
    with ExitStack() as stack:
        columns = evaluator_of(config, tasks, open_scoring(config, tasks, stack), start).evaluate(
            load_policy(checkpoint)
        )
    return int(checkpoint.name.removeprefix("step-")), pl.DataFrame(columns, strict=False)
