"""The doctor beside a running training: it warns at the step when it happens, and writes down every rollout.

:class:`RunWatch` serves any loop: ``watch.on_step(metrics, rollouts)``. ``TRLCallback`` is the same for TRL's
trainers, built when it is first used. Neither ever raises into the training, blocks it, or changes it.
"""

from __future__ import annotations

import functools
import hashlib
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


class _Pending:
    """Rollouts of a TRL trainer between their generation and the log of their step."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.fresh: list[dict[str, Any]] = []

    def scored(
        self, trainer: Any, inputs: Any, prompts: Any, completions: Any, ids: Any, rewards: Any
    ) -> None:
        """Note what the reward functions were called on, and what they gave."""
        values = rewards.detach().double().cpu().tolist()
        if len(values) != len(prompts):  # gathered over ranks: this process holds only a part
            return
        weights = [float(w) for w in trainer.reward_weights]
        step, size = int(trainer.state.global_step) + 1, int(trainer.num_generations)
        self.fresh = []
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            text, seen = _text(prompt), _text(completion)
            parts = dict(zip(trainer.reward_func_names, values[i], strict=True))
            known = [w * v for w, v in zip(weights, values[i], strict=True) if v == v]
            row = {
                "step": step,
                "prompt_id": f"{hashlib.sha256(text.encode()).hexdigest()[:10]}-{i // size}",
                "sample": i % size,
                "prompt": text,
                "completion": trainer.processing_class.decode(ids[i]),
                "reward_text": seen,
                "reward": sum(known) if known else None,
                "reward_parts": parts,
                "token_ids": list(ids[i]),
                "length": len(ids[i]),
            }
            for name in ("answer", "solution", "ground_truth"):
                if name in inputs[i]:
                    row.setdefault("answer", str(inputs[i][name]))
            self.fresh.append(row)

    def computed(self, trainer: Any, output: Mapping[str, Any]) -> None:
        """Add advantages, log-probs and how each completion ended."""
        advantages = output["advantages"].detach().double().cpu().reshape(len(self.fresh), -1)[:, 0].tolist()
        names = {
            "old_logprobs": "old_per_token_logps",
            "ref_logprobs": "ref_per_token_logps",
            "sampler_logprobs": "sampling_per_token_logps",
        }
        ends = _end_ids(trainer)
        for i, row in enumerate(self.fresh):
            row["advantage"] = advantages[i]
            ids = row["token_ids"]
            row["finished"] = bool(ids) and ids[-1] in ends
            row["finish_reason"] = "eos" if row["finished"] else "length"
            for ours, theirs in names.items():
                if output.get(theirs) is not None:
                    row[ours] = output[theirs][i, : len(ids)].detach().double().cpu().tolist()
        self.rows += self.fresh
        self.fresh = []

    def take(self) -> list[dict[str, Any]]:
        """Return what was collected since the last log."""
        rows, self.rows = self.rows, []
        return rows


def _text(value: Any) -> str:
    """Return a prompt or completion as text; messages are joined by lines."""
    if isinstance(value, str):
        return value
    return "\n".join(str(message.get("content", "")) for message in value)


def _end_ids(trainer: Any) -> set[int]:
    found = getattr(trainer.generation_config, "eos_token_id", None)
    found = trainer.processing_class.eos_token_id if found is None else found
    return set(found) if isinstance(found, list | tuple) else {found}


_SETTINGS = (
    "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "max_completion_length", "beta",
    "learning_rate", "epsilon", "epsilon_high", "loss_type", "scale_rewards", "num_iterations", "max_steps",
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "mask_truncated_completions", "bf16", "seed",
)  # fmt: skip


@functools.cache
def _trl_callback() -> type:
    """Build the class; transformers is imported here and nowhere before."""
    from assay.errors import require

    base: Any = require("transformers", "train").TrainerCallback

    class TRLCallback(base):
        """Watch a TRL trainer: ``callback = TRLCallback("runs/watch"); callback.attach(trainer)``.

        Given to ``callbacks=[...]`` alone it sees the metrics of every log. After :meth:`attach` it also
        writes every rollout of every step with its reward parts, advantage and log-probs, which the trainer
        itself keeps only in part. Arguments are those of :class:`RunWatch`.
        """

        def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
            self.watch = RunWatch(folder, **options)
            self._pending, self._attached = _Pending(), False
            self._method: dict[str, str] = {}

        @property
        def findings(self) -> list[Finding]:
            """What has been reported so far."""
            return self.watch.findings

        def attach(self, trainer: Any) -> TRLCallback:
            """Add the callback to a trainer and listen to its scoring; the results pass through unchanged."""
            if self not in trainer.callback_handler.callbacks:
                trainer.add_callback(self)
            if not self._attached:
                self._attached = True
                self._method = {"algorithm": type(trainer).__name__.removesuffix("Trainer").lower()}
                self._listen(trainer, "_calculate_rewards", self._scored)
                self._listen(trainer, "_generate_and_score_completions", self._computed)
            return self

        def _listen(self, trainer: Any, name: str, note: Callable[..., None]) -> None:
            inner = getattr(trainer, name, None)
            if inner is None:  # another version or another trainer: the metrics alone are watched
                log.warning("%s has no %s: rollouts are not recorded", type(trainer).__name__, name)
                return

            @functools.wraps(inner)
            def outer(*args: Any, **kwargs: Any) -> Any:
                result = inner(*args, **kwargs)
                if trainer.model.training and trainer.accelerator.is_main_process:
                    self.watch.guarded(f"recording {name}", lambda: note(trainer, args, result))
                return result

            setattr(trainer, name, outer)

        def _scored(self, trainer: Any, args: tuple[Any, ...], rewards: Any) -> None:
            inputs, prompts, completions, ids = args
            self._pending.scored(trainer, inputs, prompts, completions, ids, rewards)

        def _computed(self, trainer: Any, _args: tuple[Any, ...], output: Mapping[str, Any]) -> None:
            self._pending.computed(trainer, output)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Write the settings that matter to the doctor."""
            settings = {name: getattr(args, name) for name in _SETTINGS if hasattr(args, name)}
            self.watch.configure({"trainer": "trl", **self._method, **settings})

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
        ) -> None:
            """Look at the step that was just logged."""
            if logs and "train_runtime" not in logs and not any(k.startswith("eval_") for k in logs):
                self.watch.on_step({"step": int(state.global_step), **logs}, self._pending.take())

    return TRLCallback


def __getattr__(name: str) -> Any:
    if name == "TRLCallback":
        return _trl_callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
