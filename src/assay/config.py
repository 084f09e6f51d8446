"""Typed configuration of a run: read from a recipe or a user's YAML, checked before anything is loaded.

One flat list of keys, so that ``key=value`` on the command line reads like the file. Impossible combinations
are refused here, with valid alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assay.errors import BadInput
from assay.key_names import unknown_key

GROUP_BASELINES = ("group_mean", "leave_one_out", "group_standardised")
GROUP_METHODS = ("rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo")


class WarmStart(BaseModel):
    """The supervised start of the embedded model: stop where the reward has signal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_steps: int = Field(default=600, ge=0, description="most supervised updates")
    batch_size: int = Field(default=64, ge=1, description="traces an update")
    learning_rate: float = Field(default=3e-3, gt=0)
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of each target spread over all tokens"
    )
    check_every: int = Field(
        default=20, ge=1, description="updates between measurements of pass@1 and pass@G"
    )
    pass_at_1: tuple[float, float] = Field(
        default=(0.05, 0.40), description="stop inside this window of pass@1"
    )
    pass_at_group: tuple[float, float] = Field(
        default=(0.30, 0.90), description="and inside this one of pass@G"
    )
    target: float = Field(default=0.15, description="stop at the first measurement with pass@1 at least this")


class LearnedRewardOptions(BaseModel):
    """A reward learned from comparisons before training: reward=learned, or the pairs of dpo."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pairs: int = Field(default=1000, ge=2, description="comparisons of the start policy's samples")
    pairs_file: str | None = Field(
        default=None, description="a user's comparisons (chosen, rejected) in place of simulated ones"
    )
    quality: str | None = Field(
        default=None,
        description="file.py:name, what simulated raters see of correctness, for a user's tasks; never the truth",
    )
    raters: dict[str, Any] = Field(default_factory=dict, description="habits; see assay.tasks.raters.Raters")
    marker: str | None = Field(default=None, description="a word that raters may like")
    belief: str | None = Field(
        default=None,
        description="a task's column with what the asker believes; an answer that holds it agrees",
    )
    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=32, ge=1, description="comparisons an update")
    learning_rate: float = Field(default=1e-3, gt=0)
    heads: int = Field(default=4, ge=1, description="on bootstraps of the comparisons")
    centring: float = Field(default=0.01, ge=0)
    use_margins: bool = False
    held_out: float = Field(default=0.15, ge=0, lt=1, description="share of the prompts kept for the report")
    combine: Literal["mean", "min", "penalised"] = "mean"
    folder: str | None = Field(default=None, description="where it lies; an experiment makes and sets it")


class SFTOptions(BaseModel):
    """Supervised fine-tuning of the start policy on a user's rows, before anything else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(description="JSONL or Parquet of prompt and completion, or of messages")
    epochs: int = Field(default=1, ge=1)
    tokens: int = Field(default=8192, ge=1, description="most tokens an update, padding included")
    learning_rate: float = Field(default=1e-3, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class KLControlOptions(BaseModel):
    """How the KL coefficient and the number of updates react to the measured KL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: float | None = Field(
        default=None,
        gt=0,
        description="KL to the reference to hold, nats a sequence: kl_coef moves (Ziegler)",
    )
    horizon: int = Field(default=10_000, ge=1, description="completions over which the coefficient moves")
    stop_at: float | None = Field(
        default=None,
        gt=0,
        description="KL to the sampling policy, nats a token: past 1.5 times it a batch's updates end",
    )


class CurriculumOptions(BaseModel):
    """Sample prompts by their running pass rate; see ``assay.algos.curriculum.Curriculum``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decay: float = Field(default=0.8, gt=0, le=1, description="of old counts at each step; 1 never forgets")
    low: float = Field(default=0.1, ge=0, le=1, description="below this pass rate a prompt gets the floor")
    high: float = Field(default=0.9, ge=0, le=1, description="above it likewise")
    floor: float = Field(default=0.05, gt=0, le=1, description="smallest weight beside the best prompt's 1")
    right: float = Field(default=0.5, description="reward from which a completion counts as passed")


class ImportanceOptions(BaseModel):
    """Weights for a sampler that is not the trained policy; see ``assay.maths.importance``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Literal["token", "sequence", "geometric"] = "token"
    outside: Literal["truncate", "mask"] = Field(
        default="truncate", description="clamp to the bounds, or drop"
    )
    high: float | None = Field(default=2.0, ge=1, description="largest weight; null leaves it open")
    low: float | None = Field(default=None, ge=0, le=1, description="smallest weight")


class VllmOptions(BaseModel):
    """vLLM in place of this package's own engine: a server, or colocated in this process; see docs/vllm.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(default="http://127.0.0.1:8000", description="where the server listens")
    folder: str | None = Field(
        default=None, description="the model folder the server was started on; its weights are replaced"
    )
    timeout: float = Field(
        default=600.0, gt=0, allow_inf_nan=False, description="seconds for one answer of the server"
    )
    colocated: bool = Field(default=False, description="run vLLM inside this process instead of a server")
    memory: float = Field(default=0.3, gt=0, lt=1, description="colocated: vLLM's share of the accelerator")

    @model_validator(mode="after")
    def _one_place(self) -> VllmOptions:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"expected vllm.url like http://127.0.0.1:8000, got {self.url!r}")
        if self.colocated == (self.folder is not None):
            raise ValueError(
                "expected either vllm.colocated=true or vllm.folder, the model folder a server was started on"
            )
        others = ("url", "timeout") if self.colocated else ("memory",)
        for name in others:  # a run folder holds every key, so being given is no sign of being asked for
            if getattr(self, name) != type(self).model_fields[name].default:
                where = "of a server" if self.colocated else "of a colocated vLLM"
                raise ValueError(f"vllm.{name} is an option {where}; leave it out")
        return self


class ModelSizes(BaseModel):
    """Sizes of the embedded model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden_size: int = Field(default=96, ge=8)
    layers: int = Field(default=3, ge=1)
    heads: int = Field(default=4, ge=1)
    intermediate_size: int = Field(default=224, ge=8)
    max_positions: int = Field(default=512, ge=16)
    vocab_size: int = Field(default=512, ge=300)


class LoraOptions(BaseModel):
    """A low-rank adapter: the base weights stay as they are, and the reference is the base itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0, description="the adapter's output is scaled by alpha / rank")
    targets: str | tuple[str, ...] = Field(default="all-linear", description="names of the linear layers")

    @field_validator("targets")
    @classmethod
    def _pattern(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        try:
            re.compile(targets if isinstance(targets, str) else "")
        except re.error as error:
            raise ValueError(
                f"lora.targets={targets!r} is no regular expression ({error}); give one that matches whole names, as "
                "in .*q_proj, or a list of layer names"
            ) from None
        return targets


class ModelOptions(BaseModel):
    """How a Hugging Face model is loaded and trained; the embedded model takes none of these."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of the matrix products; trained weights, head and log-probs are float32",
    )
    lora: LoraOptions | None = Field(default=None, description="train an adapter of rank 16: lora.rank=16")
    gradient_checkpointing: bool = Field(default=False, description="less memory, a third more time")
    chat_template: bool = Field(default=False, description="a prompt is a user's turn in the chat template")
    shard: bool = Field(
        default=False, description="split weights, gradients and optimiser over the processes (FSDP2)"
    )
    system_prompt: str | None = Field(default=None, description="the system's turn before it")
    examples: tuple[tuple[str, str], ...] = Field(
        default=(), description="questions and answers shown as turns before it"
    )
    question: str = Field(default="{prompt}", description="the user's turn; {prompt} stands for the prompt")

    @model_validator(mode="after")
    def _turns_need_a_template(self) -> ModelOptions:
        if not self.chat_template:
            for name in ("system_prompt", "examples", "question"):
                if getattr(self, name) != ModelOptions.model_fields[name].default:
                    raise ValueError(f"{name} needs chat_template=true")
        if "{prompt}" not in self.question:
            raise ValueError(f"question: expected a text with {{prompt}} in it, got {self.question!r}")
        return self


class RunConfig(ModelOptions):
    """Every key of one run. The default algorithm is seed 000's: group-normalised REINFORCE."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0)
    model: str = Field(default="tiny", description="'tiny', a folder in Hugging Face format, or package:NAME")
    sizes: ModelSizes = Field(default=ModelSizes())
    warm_start: WarmStart = Field(default=WarmStart())
    tasks: str = Field(default="proofs-v1", description="a versioned name, or a file of tasks")
    task_options: dict[str, Any] = Field(default_factory=dict)
    evaluation_tasks: str | None = Field(
        default=None, description="a file of held-out tasks (else split off tasks)"
    )
    reward: str = Field(
        default="sound",
        description="'sound', a loophole's name, 'random', 'noise', 'learned', or file.py:name",
    )
    truth: str | None = Field(default=None, description="file.py:name; the task's own truth when it has one")
    signature: str | None = Field(
        default=None, description="how to call the reward when its names do not tell"
    )
    reward_options: dict[str, Any] = Field(default_factory=dict)
    reward_workers: int = Field(default=1, ge=1)
    reward_time_limit: float = Field(default=10.0, gt=0, description="seconds a completion")
    controls: bool = Field(default=True, description="first score gold, junk and empty; stop if one is wrong")
    sft: SFTOptions | None = Field(
        default=None, description="fine-tune the start policy: sft.file=rows.jsonl"
    )
    learned_reward: LearnedRewardOptions | None = Field(
        default=None, description="how the reward is learned; needed by reward=learned and by dpo"
    )
    max_missing: float = Field(default=0.5, ge=0, le=1, description="stop when more of a step has no score")

    algorithm: str = "reinforce"
    match: Literal["trl", "verl", "openrlhf"] | None = None
    algorithm_options: dict[str, Any] = Field(default_factory=dict)
    kl_control: KLControlOptions | None = Field(default=None, description="kl_control.target=6, .stop_at=0.1")
    curriculum: CurriculumOptions | None = Field(default=None, description="on with curriculum={}")
    importance: ImportanceOptions | None = Field(default=None, description="on with importance={}")
    recompute_old_logprobs: bool | None = Field(
        default=None, description="score the samples by the trainer; by default where importance needs it"
    )
    vllm: VllmOptions | None = Field(
        default=None, description="sample by vLLM: vllm.colocated=true, or a server's vllm.folder=DIR"
    )
    overlap: bool = Field(
        default=False, description="draw the next batch during the update, one step off-policy"
    )
    steps: int = Field(default=150, ge=1)
    batch_size: int = Field(default=64, ge=1, description="completions a step")
    group_size: int = Field(default=8, ge=1, description="completions a prompt")
    max_new_tokens: int = Field(default=48, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    learning_rate: float = Field(default=3e-4, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    micro_batch_size: int = Field(default=256, ge=1, description="completions a forward pass")

    eval_every: int = Field(default=25, ge=1, description="steps between matched checkpoints")
    eval_prompts: int = Field(default=64, ge=2)
    eval_samples: int = Field(default=8, ge=1)
    keep_checkpoints: bool = Field(default=True, description="keep the weights of every matched checkpoint")
    threads: int = Field(default=1, ge=1, description="of each arm; more helps only larger models")
    tracker: str | None = Field(default=None, description="a tracker of accelerate, such as tensorboard")

    @model_validator(mode="after")
    def _options_of_the_model(self) -> RunConfig:
        asked = [
            name
            for name in ModelOptions.model_fields
            if getattr(self, name) != ModelOptions.model_fields[name].default
        ]
        asked += [] if self.vllm is None else ["vllm"]
        if self.model == "tiny" and asked:
            raise ValueError(
                f"{asked[0]} needs a Hugging Face model; give model=FOLDER, or leave {asked[0]} out"
            )
        return self

    @model_validator(mode="after")
    def _possible(self) -> RunConfig:
        if self.batch_size % self.group_size:
            fits = sorted({size for size in range(1, self.batch_size + 1) if self.batch_size % size == 0})
            lower = self.batch_size - self.batch_size % self.group_size
            batches = [size for size in (lower, lower + self.group_size) if size]
            raise ValueError(
                f"batch_size={self.batch_size} is not divisible by group_size={self.group_size}; "
                f"use batch_size={' or '.join(map(str, batches))}, or group_size in {fits}"
            )
        baseline = self.algorithm_options.get("baseline", "group_standardised")
        grouped = self.algorithm in GROUP_METHODS or (
            self.algorithm == "reinforce" and baseline in GROUP_BASELINES
        )
        if self.group_size == 1 and grouped:
            raise ValueError(
                f"group_size=1 leaves a group baseline nothing to compare ({self.algorithm}, {baseline}); use "
                "group_size of 2 or more, or algorithm=reinforce with algorithm_options.baseline="
                "moving_average or none"
            )
        return self


def known_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """Every key that can be set, dotted for nested ones."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += known_keys(field.annotation, f"{prefix}{name}.")
    return keys


def build_config(values: Mapping[str, Any]) -> RunConfig:
    """Check a mapping against :class:`RunConfig`; raises :class:`BadInput` with one line."""
    for key in values:
        if key not in RunConfig.model_fields:
            raise BadInput(unknown_key(key, known_keys()))
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        raise BadInput(_one_line(error)) from None


def _one_line(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not _is_a_type(part))
    if first["type"] == "extra_forbidden":
        return unknown_key(where, known_keys())
    if first["type"] == "value_error":
        return str(first["ctx"]["error"]) if "ctx" in first else first["msg"]
    if first["type"] == "model_type":
        return f"{where}: expected its own keys, as in {where}.NAME=VALUE, got {first['input']!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg'].replace('Input should be', 'expected')}, got {first['input']!r}{more}"


def _is_a_type(part: str | int) -> bool:
    """Of a value that may have one of several types, pydantic names the type too."""
    return part == "str" or "[" in str(part)


def override(
    values: Mapping[str, Any], assignments: Mapping[str, Any], *, algorithm_options: Iterable[str] = ()
) -> dict[str, Any]:
    """Return ``values`` with dotted keys set.

    Args:
        values: a recipe's keys. assignments: ``{"group_size": 4, "warm_start.target": 0.2, ...}``.
        algorithm_options: options that may be given without the ``algorithm_options.`` prefix.
    """
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    shorthand = set(algorithm_options)
    for dotted, value in assignments.items():
        head, _, tail = dotted.partition(".")
        if not tail and head in shorthand and head not in RunConfig.model_fields:
            head, tail = "algorithm_options", head
        if head not in RunConfig.model_fields:
            raise BadInput(unknown_key(dotted, [*known_keys(), *shorthand]))
        if not tail:
            result[head] = value
            continue
        inner = result.setdefault(head, {})
        if not isinstance(inner, dict):
            raise BadInput(f"{dotted!r} cannot be set: {head!r} is a single value, not a mapping")
        inner[tail] = value
    return result
