"""The doctor beside a running training: it warns at the step when it happens, and writes down every rollout.

:class:`RunWatch` serves any loop: ``watch.on_step(metrics, rollouts)``. ``TRLCallback`` is the same for TRL's
trainers, built when it is first used. Neither ever raises into the training, blocks it, or changes it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from assay.doctor.live_step import StepLook
from assay.records.finding import Finding

log = logging.getLogger("assay.doctor")
Truth = Callable[[str, Mapping[str, Any]], float]


class RunWatch:
    """Watches a run as it goes.

    Args:
        folder: where ``config.json``, ``metrics.jsonl`` and ``rollouts.jsonl`` are written, in the form that
            ``assay doctor`` reads; None keeps nothing.
        config: settings of the trainer.
        truth: ``truth(completion, row)``, a held-out score; it is recorded and never given to the training.
        every: steps between two full diagnoses of the record (0: never).
        on_warning: called with each new finding; default: a line of the logger ``assay.doctor``.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        truth: Truth | None = None,
        every: int = 25,
        on_warning: Callable[[Finding], None] | None = None,
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.truth, self.every = truth, every
        self.findings: list[Finding] = []
        self._on_warning = on_warning or _log_warning
        self._look, self._steps, self._seen = StepLook(), 0, set[str]()
        self._broken: set[str] = set()
        self._config = dict(config or {})
        self.configure({})

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Add settings of the trainer to those given (which stay), and write them."""
        self._config = {**settings, **self._config}
        self.guarded("writing the configuration", self._write_config)

    def _write_config(self) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self._config, default=str, indent=1)
            (self.folder / "config.json").write_text(text + "\n", "utf-8")

    def on_step(self, metrics: Mapping[str, Any], rollouts: Iterable[Any] = ()) -> list[Finding]:
        """Look at one finished step; returns what is new (each id is reported once).

        Args:
            metrics: the step's numbers, with ``step`` (else counted here).
            rollouts: mappings in the generic form, or :class:`assay.records.rollout.Rollout`.
        """
        before = len(self.findings)
        self.guarded("watching a step", lambda: self._one_step(metrics, rollouts))
        return self.findings[before:]

    def _one_step(self, metrics: Mapping[str, Any], rollouts: Iterable[Any]) -> None:
        self._steps += 1
        step = int(metrics.get("step", self._steps))
        rows = [self._row(rollout, step) for rollout in rollouts]
        self._append("metrics.jsonl", [{"step": step, **metrics}])
        self._append("rollouts.jsonl", rows)
        self._report(self._look.look(metrics, rows, step))
        if self.every and self.folder is not None and self._steps % self.every == 0:
            self.guarded("the diagnosis", self._diagnose)

    def _row(self, rollout: Any, step: int) -> dict[str, Any]:
        row = _as_row(rollout)
        row.setdefault("step", step)
        if self.truth is not None and row.get("truth") is None:
            truth, completion = self.truth, str(row.get("reward_text") or row.get("completion") or "")
            self.guarded("the truth", lambda: row.update(truth=float(truth(completion, row))))
        return row

    def _append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.folder is None or not rows:
            return
        with (self.folder / name).open("a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(row, default=_plain) + "\n" for row in rows))

    def _diagnose(self) -> None:
        from assay.doctor.diagnosis import diagnose

        if self.folder is not None:
            self._report([f for f in diagnose(self.folder).findings if f.status == "fail"])

    def _report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.id not in self._seen:
                self._seen.add(finding.id)
                self.findings.append(finding)
                self._on_warning(finding)

    def guarded(self, what: str, action: Callable[[], object]) -> None:
        """Do something for the doctor's sake only; whatever goes wrong is logged once and forgotten."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - an observer must never break what it observes
            if what not in self._broken:
                self._broken.add(what)
                log.warning("%s failed and is left out: %s: %s", what, type(error).__name__, error)


def _log_warning(finding: Finding) -> None:
    log.warning("%s: %s; %s", finding.id, finding.summary, finding.fix)


def _as_row(rollout: Any) -> dict[str, Any]:
    if isinstance(rollout, Mapping):
        return dict(rollout)  # pyright: ignore[reportUnknownVariableType]
    if is_dataclass(rollout) and not isinstance(rollout, type):
        row = asdict(rollout)
        row["finished"] = row.get("finish_reason") != "length"
        row["length"] = len(row.get("token_ids") or ())
        if row.get("truth") is None:
            row.pop("truth", None)
        return row
    raise TypeError(f"expected a mapping or a rollout, got {type(rollout).__name__}")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def __getattr__(name: str) -> Any:
    if name == "TRLCallback":
        from assay.doctor.live_trl import trl_callback

        return trl_callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
