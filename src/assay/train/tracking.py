"""Trackers of accelerate (tensorboard, wandb, mlflow, ...) for one run, on request; metrics.jsonl is kept always.

Names: every number of metrics.jsonl under its own name, and ``eval/reward``, ``eval/truth`` and
``eval/hacking_rate`` at matched checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay.config import RunConfig
from assay.errors import BadInput, nearest, require


class Tracked:
    """Passes everything a run tells on to ``listener`` and to a tracker; a context manager.

    Args:
        listener: who else listens. name: the tracker's, as accelerate calls it. folder: the run's.

    Raises:
        BadInput: a tracker that accelerate does not know or that is not installed.
    """

    def __init__(self, listener: Any, name: str, folder: Path, config: RunConfig) -> None:
        tracking = require("accelerate.tracking", "train")
        known = tracking.LOGGER_TYPE_TO_CLASS
        if name not in known:
            raise BadInput(f"unknown tracker {name!r}{nearest(name, known)}")
        if name not in [str(one) for one in tracking.get_available_trackers()]:
            raise BadInput(f"tracker={name} is not installed; run: pip install {name}")
        kind = known[name]
        options = {"logging_dir": str(folder / "tracker")} if kind.requires_logging_directory else {}
        self.listener, self.tracker = listener, kind("assay", **options)
        self.tracker.start()
        self.tracker.store_init_configuration(_flat(config.model_dump()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracker.finish()

    def arm_started(self, arm: str, steps: int) -> None:
        """Pass on."""
        self.listener.arm_started(arm, steps)

    def arm_ended(self, arm: str) -> None:
        """Pass on."""
        self.listener.arm_ended(arm)

    def step(self, arm: str, metrics: Mapping[str, Any], of: int) -> None:
        """Log the numbers of a step and pass on."""
        numbers = {
            name: float(value)
            for name, value in metrics.items()
            if name != "step" and isinstance(value, int | float) and math.isfinite(value)
        }
        self.tracker.log(numbers, step=int(metrics["step"]))
        self.listener.step(arm, metrics, of)

    def evaluated(self, arm: str, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Log the means of a matched checkpoint and pass on."""
        means = {name: _mean(columns[name]) for name in ("reward", "truth")}
        means["hacking_rate"] = means["reward"] - means["truth"]
        self.tracker.log({f"eval/{name}": value for name, value in means.items()}, step=step)
        self.listener.evaluated(arm, step, columns)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys with values that every tracker takes."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value if isinstance(value, int | float | str | bool) else str(value)
    return result
