"""Supervised fine-tuning: cross-entropy on responses only, never on prompts, other roles or padding.

A row is ``prompt`` and ``completion``, or ``messages``: each assistant turn becomes one example whose prompt is
everything before it. Batches are drawn by a token budget from rows of like length, which wastes as little on
padding as packing does for rows of one kind; several rows never share one sequence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from assay.config import RunConfig, SFTOptions
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput, ContractBroken
from assay.models.checkpoint import load_policy, save_checkpoint
from assay.models.policy import Policy
from assay.train.forward import TokenRows, supervised_loss
from assay.train.preference_data import as_text, message_text, read_rows


class Example(NamedTuple):
    """What is read and what is trained on."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class SFTSettings:
    """Sizes of a fine-tuning run.

    Attributes:
        epochs: passes over the rows. tokens: most tokens a batch, padding included.
        learning_rate: at the start; it falls linearly to a tenth. label_smoothing: see ``supervised_loss``.
    """

    epochs: int = 1
    tokens: int = 8192
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    max_grad_norm: float = 1.0
    seed: int = 0


def fine_tuned(
    config: RunConfig, options: SFTOptions, base: Path, root: Path, note: Callable[[str], None]
) -> Path:
    """The folder of ``base`` after fine-tuning, made when it is not there yet; its name says what determines it.

    Raises:
        BadInput: no rows, a row without a response, or one longer than the model.
    """
    examples = read_examples(options.file)
    parts = [base.name, repr(examples), options.model_dump_json(exclude={"file"}), config.seed]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    folder = root / "start" / f"sft-{key}"
    if (folder / "config.json").is_file():
        return folder
    note(f"fine-tuning on {len(examples)} responses")
    policy = load_policy(base, config.model_copy(update={"lora": None}))
    policy.module.requires_grad_(True)
    values = options.model_dump(exclude={"file"})
    losses = fine_tune(policy, examples, SFTSettings(**values, seed=config.seed))
    save_checkpoint(folder, policy)
    note(f"fine-tuned in {len(losses)} updates: loss {losses[0]:.3f} to {losses[-1]:.3f} nats a token")
    return folder


def examples_of_row(row: Mapping[str, Any], where: str) -> list[Example]:
    """Examples of one row; raises BadInput when nothing in it is a response."""
    if "messages" in row:
        return _turns(row["messages"], where)
    if "prompt" in row and "completion" in row:
        return [Example(as_text(row["prompt"]), as_text(row["completion"]))]
    raise BadInput(f"{where}: expected 'prompt' and 'completion', or 'messages', got {', '.join(row)}")


def _turns(messages: Any, where: str) -> list[Example]:
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) and "content" in m for m in messages):  # pyright: ignore[reportUnknownVariableType]
        raise BadInput(f"{where}: expected a list of messages with role and content")
    examples: list[Example] = []
    before = ""
    for message in messages:  # pyright: ignore[reportUnknownVariableType]
        text = message_text(message)  # pyright: ignore[reportUnknownArgumentType]
        if message.get("role") == "assistant":  # pyright: ignore[reportUnknownMemberType]
            examples.append(Example(before, text))
            text += "\n"
        before += text
    if not examples:
        raise BadInput(f"{where}: no message of an assistant, so nothing to train on")
    return examples


def read_examples(path: str | Path) -> list[Example]:
    """Read JSONL or Parquet of prompt/completion or chat rows."""
    rows = read_rows(path)
    found = [e for n, row in enumerate(rows, 1) for e in examples_of_row(row, f"{path} row {n}")]
    if not found:
        raise BadInput(f"{path}: expected rows with 'prompt' and 'completion' or 'messages', got none")
    return found


def encode_examples(policy: Policy, examples: Sequence[Example]) -> TokenRows:
    """Prompt and response ids; the response ends with the end token. Too long rows are refused."""
    rows = TokenRows(
        [policy.encode_prompt(example.prompt) for example in examples],
        [policy.encode_completion(example.completion) for example in examples],
    )
    for number, length in enumerate(_lengths(rows), 1):
        if length > policy.max_positions:
            raise BadInput(f"row {number} needs {length} positions, the model has {policy.max_positions}")
    return rows


def _lengths(rows: TokenRows) -> list[int]:
    return [len(p) + len(c) for p, c in zip(rows.prompt_ids, rows.completion_ids, strict=True)]


def token_batches(lengths: Sequence[int], *, tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Rows of like length together, at most ``tokens`` with padding; every row once, in a keyed order."""
    generator = np.random.default_rng(keyed_integer(seed, "sft", epoch))
    shuffled = generator.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for row in sorted(shuffled, key=lambda index: lengths[index]):
        # Rows come shortest first, so the new row sets the width of the batch it joins.
        if not batches or (len(batches[-1]) + 1) * lengths[row] > tokens:
            batches.append([])
        batches[-1].append(row)
    return [batches[index] for index in generator.permutation(len(batches)).tolist()]


def fine_tune(
    policy: Policy,
    examples: Sequence[Example],
    settings: SFTSettings,
    *,
    progress: Callable[[int, int, float], None] = lambda update, of, loss: None,
) -> list[float]:
    """Train ``policy`` in place; returns the loss of each update, nats a response token.

    Raises:
        BadInput: no rows, or a row longer than the model. ContractBroken: a loss that is not finite.
    """
    if not examples:
        raise BadInput("expected examples to train on, got none")
    rows = encode_examples(policy, examples)
    lengths = _lengths(rows)
    plan = [
        batch
        for epoch in range(settings.epochs)
        for batch in token_batches(lengths, tokens=settings.tokens, seed=settings.seed, epoch=epoch)
    ]
    trained = [parameter for parameter in policy.module.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(
        trained, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    losses: list[float] = []
    for update, batch in enumerate(plan):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * (1 - 0.9 * update / len(plan))
        losses.append(_update(policy, rows.select(batch), optimiser, settings, update))
        progress(update + 1, len(plan), losses[-1])
    return losses


def _update(
    policy: Policy, rows: TokenRows, optimiser: torch.optim.Optimizer, settings: SFTSettings, update: int
) -> float:
    loss = supervised_loss(policy, rows, label_smoothing=settings.label_smoothing)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(policy.module.parameters(), settings.max_grad_norm)
    if not (bool(loss.isfinite()) and bool(norm.isfinite())):
        raise ContractBroken(f"update {update + 1}: loss {float(loss.detach())}; no step was taken")
    optimiser.step()
    return float(loss.detach())
