"""Rows of the trainers' dump files brought to flat rows with the columns of the alias table.

Each function takes one logged row and returns flat rows. Everything that is a mere other name is left to
:mod:`assay.records.readers.aliases`; here is only what has another shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def as_text(value: Any) -> str | None:
    """A text of a text, of a message, or of a list of messages; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        content = value.get("content", value.get("text"))
        return as_text(content)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        parts = [text for text in (as_text(item) for item in value) if text is not None]
        return "\n".join(parts) if parts else None
    return None


def number(value: Any) -> float | None:
    """A float of a number; None for anything else."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def mapping(value: Any) -> Mapping[str, Any]:
    """The value when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def generic(row: Row) -> list[Row]:
    """A row that needs no change of shape."""
    return [row]


def verl(row: Row) -> list[Row]:
    """A rollout dump: ``uid`` is ``sample_rollout_output``, its first part the prompt."""
    uid = row.get("uid")
    flat = dict(row)
    if isinstance(uid, str) and uid.count("_") >= 2:
        group, sample, _ = uid.rsplit("_", 2)
        flat.update({"prompt_id": group, "sample": int(sample) if sample.isdigit() else None})
    return [flat]


def trl(row: Row) -> list[Row]:
    """A completions table: a reward function's column is a part; the total is their plain sum."""
    fixed = {
        "step",
        "prompt",
        "completion",
        "advantage",
        "answer",
        "solution",
        "ground_truth",
        "golden_answer",
    }
    parts = {
        name: value
        for name, value in row.items()
        if name not in fixed and isinstance(value, float) and ("reward" in name or "score" in name)
    }
    flat = {name: value for name, value in row.items() if name not in parts}
    if "reward" in row:
        return [row]
    known = [value for value in parts.values() if not math.isnan(value)]
    flat["reward"] = sum(known) if known else None  # NaN in this table is None: nobody scored the sample
    flat.update({f"part:{name}": None if math.isnan(value) else value for name, value in parts.items()})
    return [flat]


def verifiers_legacy(row: Row) -> list[Row]:
    """One result: messages, metrics, and whether it was cut."""
    flat: Row = {
        "prompt_id": row.get("example_id"),
        "prompt": as_text(row.get("prompt")),
        "completion": as_text(row.get("completion")),
        "answer": as_text(row.get("answer")),
        "reward": row.get("reward"),
        "finished": None if row.get("is_truncated") is None else not row["is_truncated"],
    }
    if row.get("error") not in (None, ""):
        flat["reward"], flat["reward_state"] = None, "missing"
    usage = mapping(row.get("token_usage"))
    flat["length"] = number(usage.get("completion_tokens", usage.get("output_tokens")))
    flat.update({f"part:{name}": number(value) for name, value in mapping(row.get("metrics")).items()})
    return [flat]


def episode(row: Row) -> list[Row]:
    """An episode of verifiers 1 or prime-rl: one row a trace; the total reward is the sum of score x weight."""
    task = mapping(mapping(row.get("task")).get("data"))
    work = mapping(mapping(row.get("run")).get("work"))
    group = mapping(row.get("group")).get("id")
    prompt_id = group if group is not None else task.get("idx", mapping(row.get("task")).get("key"))
    return [
        {
            "prompt_id": prompt_id,
            "step": work.get("step"),
            "split": work.get("type"),
            "policy_version": mapping(work.get("policy")).get("start"),
            "answer": as_text(task.get("answer")),
            **_trace(mapping(trace), task),
        }
        for trace in items(row.get("traces"))
    ]


def _trace(trace: Mapping[str, Any], task: Mapping[str, Any]) -> Row:
    nodes = [mapping(node) for node in items(trace.get("nodes"))]
    own = [node for node in nodes if node.get("sampled")]
    scores = {name: mapping(part) for name, part in mapping(trace.get("rewards")).items()}
    known = {name: part for name, part in scores.items() if number(part.get("score")) is not None}
    total = sum(float(part["score"]) * (number(part.get("weight")) or 0.0) for part in known.values())
    stop = trace.get("stop_condition")
    prompts = [
        text for text in (as_text(node.get("message")) for node in nodes if not node.get("sampled")) if text
    ]
    joined = [text for text in (as_text(node.get("message")) for node in own) if text is not None]
    flat: Row = {
        "prompt": prompts[0] if prompts else as_text(task.get("prompt")),
        "completion": "\n".join(joined) if joined else None,
        "reward": total if known else None,
        "advantage": number(mapping(trace.get("info")).get("advantage")),
        "token_ids": _joined(own, "token_ids"),
        "sampler_logprobs": _joined(own, "logprobs"),
        "ref_logprobs": _joined(own, "reference_logprobs"),
        "finish_reason": stop if isinstance(stop, str) else None,
    }
    flat.update({f"part:{name}": float(part["score"]) for name, part in known.items()})
    return flat


def _joined(nodes: list[Mapping[str, Any]], name: str) -> list[Any] | None:
    lists = [items(node.get(name)) for node in nodes]
    return [value for part in lists for value in part] if any(lists) else None


def token_export(row: Row) -> list[Row]:
    """A sequence of prime-rl's token export; prompt positions (mask 0) are left out."""
    mask = items(row.get("loss_mask"))
    keep = [bool(value) for value in mask]

    def kept(name: str) -> list[Any] | None:
        values = items(row.get(name))
        return (
            [v for v, k in zip(values, keep, strict=False) if k]
            if len(values) == len(keep) and keep
            else None
        )

    advantages = [value for value in (number(v) for v in kept("advantages") or []) if value is not None]
    return [
        {
            "step": row.get("step"),
            "token_ids": kept("token_ids"),
            "sampler_logprobs": kept("inference_logprobs"),
            "old_logprobs": kept("trainer_logprobs"),
            "advantage": advantages[0] if advantages else None,
        }
    ]


def nemo(row: Row) -> list[Row]:
    """A row of NeMo-RL: every value is a batch of one; prompt positions have mask 0."""
    first = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in row.items()
    }
    mask = items(first.get("token_loss_mask"))
    keep = [bool(value) for value in mask]

    def kept(name: str) -> list[Any] | None:
        values = items(first.get(name))
        return (
            [v for v, k in zip(values, keep, strict=False) if k]
            if keep and len(values) == len(keep)
            else None
        )

    ids = items(first.get("token_ids"))
    prompt = [token for token, use in zip(ids, keep, strict=False) if not use]
    advantages = [value for value in (number(v) for v in kept("advantages") or []) if value is not None]
    return [
        {
            "step": row.get("step"),
            "sample": row.get("idx"),
            "prompt_id": repr(prompt) if prompt else None,
            "reward": first.get("rewards"),
            "completion": as_text(first.get("content")),
            "token_ids": kept("token_ids"),
            "prompt_ids": prompt or None,
            "advantage": advantages[0] if advantages else None,
            "sampler_logprobs": kept("generation_logprobs"),
            "old_logprobs": kept("prev_logprobs"),
        }
    ]


def open_instruct(row: Row) -> list[Row]:
    """A trace of open-instruct: token ids without text; log-probs are the sampler's."""
    flat = {name: value for name, value in row.items() if name not in ("logprobs", "request_info")}
    flat["sampler_logprobs"] = row.get("logprobs")
    flat["length"] = float(len(items(row.get("response_tokens"))))
    return [flat]


def skyrl(row: Row) -> list[Row]:
    """An evaluation dump of SkyRL; a list of scores is one per turn."""
    score = row.get("score")
    extras = mapping(mapping(row.get("env_extras")).get("reward_spec"))
    flat = dict(row)
    flat["reward"] = (
        sum(v for v in (number(s) for s in score) if v is not None) if isinstance(score, list) else score
    )
    flat.pop("score", None)
    flat["answer"] = as_text(extras.get("ground_truth"))
    flat["prompt"] = as_text(row.get("input_prompt"))
    flat["split"] = "eval"
    return [flat]


def tinker(row: Row) -> list[Row]:
    """A rollout summary of tinker: numbers without text."""
    steps = [mapping(step) for step in items(row.get("steps"))]
    flat: Row = {
        "step": row.get("iteration"),
        "prompt_id": row.get("group_idx"),
        "sample": row.get("traj_idx"),
        "split": row.get("split"),
        "policy_version": row.get("sampling_client_step"),
        "reward": row.get("total_reward"),
        "length": sum(number(step.get("ac_len")) or 0.0 for step in steps) if steps else None,
    }
    for step in steps:
        flat.update({f"part:{name}": number(value) for name, value in mapping(step.get("metrics")).items()})
    return [flat]
