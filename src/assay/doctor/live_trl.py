"""TRL's trainers seen from inside: what they score, generate and log, written down beside the training."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.doctor.live import RunWatch
from assay.records.finding import Finding

log = logging.getLogger("assay.doctor")


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


class Watcher:
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

    def attach(self, trainer: Any) -> Watcher:
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
            log.info("%s has no %s: rollouts are not recorded", type(trainer).__name__, name)
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


@functools.cache
def trl_callback() -> type:
    """Build ``TRLCallback``; transformers is imported here and nowhere before."""
    from assay.errors import require

    base: Any = require("transformers", "train").TrainerCallback
    return type("TRLCallback", (Watcher, base), {"__doc__": Watcher.__doc__})
