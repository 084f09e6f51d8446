"""A reward learned before training: comparisons, reward model and its report, in an experiment's folder.

    ROOT/reward-model/<key>/pairs.jsonl   the comparisons, in TRL's form
    ROOT/reward-model/<key>/model/        the reward model, Hugging Face format with its head beside
    ROOT/reward-model/<key>/report.json   accuracy, calibration, slopes, findings; hash of the prompts used

Simulated raters see correctness by the task's sound reward; the held-out truth and the evaluation prompts play
no part, and the report says so by hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from assay.config import LearnedRewardOptions, RunConfig
from assay.engines.request import SamplingSettings
from assay.errors import BadInput
from assay.models.policy import Policy
from assay.records.run_folder import write_text
from assay.tasks.raters import Raters
from assay.tasks.task_set import TaskSet
from assay.train.forward import TokenRows
from assay.train.preference_data import Pair, PairRows, rated_pairs, read_pairs, write_pairs
from assay.train.reward_model import (
    RewardModelSettings,
    calibrate,
    save_reward_model,
    split_by_prompt,
    train_reward_model,
)
from assay.train.reward_report import RewardReport, report_reward_model
from assay.train.setup import checkable, open_scoring

LEARNED = "learned"


def needs_pairs(config: RunConfig) -> bool:
    """Whether a run needs comparisons before it starts."""
    return config.reward == LEARNED or config.algorithm == "dpo"


def with_learned_reward(
    config: RunConfig,
    tasks: TaskSet,
    start: Policy,
    root: Path,
    *,
    note: Callable[[str], None] = lambda text: None,
) -> RunConfig:
    """The configuration with the folder of its reward model, which is made when it is not there yet.

    ``note`` hears what is being done and what came of it.
    """
    options = expect_learnable(config)
    if options is None:
        return config
    folder = root / "reward-model" / learned_key(config, tasks, start)
    if not (folder / "report.json").is_file():
        note("learning a reward from comparisons")
        note(summary(make_learned_reward(config, options, tasks, start, folder)))
    known = options.model_copy(update={"folder": str(folder)})
    return config.model_copy(update={"learned_reward": known})


def expect_learnable(config: RunConfig) -> LearnedRewardOptions | None:
    """The options of what is learned, None where nothing is; raises :class:`BadInput` before anything is trained."""
    if not needs_pairs(config):
        return None
    options = config.learned_reward
    if options is None:
        raise BadInput(
            f"reward={config.reward} with algorithm={config.algorithm} needs learned_reward: how many pairs, "
            "from which raters"
        )
    if options.pairs_file is None:
        raters_of(options)
    else:
        read_pairs(options.pairs_file)
    return options


def raters_of(options: LearnedRewardOptions) -> Raters:
    """The simulated raters; raises :class:`BadInput` for a habit that is none, or is no number."""
    for name, value in options.raters.items():
        if value is not None and (not isinstance(value, int | float) or value != value):
            raise BadInput(f"learned_reward.raters: expected a number for {name}, got {value!r}")
    try:
        return Raters(**options.raters)
    except (TypeError, BadInput) as error:
        raise BadInput(f"learned_reward.raters: {error}") from None


def summary(report: RewardReport) -> str:
    """One line for the terminal: how good it is, and what length alone would reach."""
    line = (
        f"the reward model agrees with {report.accuracy.estimate:.0%} of {report.pairs} held-out comparisons; "
        f"taking the longer answer with {report.data.longer_wins.estimate:.0%}"
    )
    if report.length_slope.low > 0:
        line += f"; at equal quality it pays {report.length_slope.estimate:+.3g} a token"
    return line


def learned_key(config: RunConfig, tasks: TaskSet, start: Policy) -> str:
    """A hash of what determines the comparisons and the model."""
    options = config.learned_reward
    weights = hashlib.sha256()
    for name, value in sorted(start.module.state_dict().items()):
        weights.update(name.encode() + value.cpu().numpy().tobytes())
    parts: dict[str, Any] = {
        "options": None
        if options is None
        else options.model_dump(mode="json", exclude={"combine", "folder"}),
        "file": _file_hash(options),
        "seed": config.seed,
        "data": tasks.data_hash(),
        "start": weights.hexdigest(),
        "sampling": [config.max_new_tokens, config.temperature],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _file_hash(options: LearnedRewardOptions | None) -> str | None:
    if options is None or options.pairs_file is None or not Path(options.pairs_file).is_file():
        return None
    return hashlib.sha256(Path(options.pairs_file).read_bytes()).hexdigest()


def make_learned_reward(
    config: RunConfig, options: LearnedRewardOptions, tasks: TaskSet, start: Policy, folder: Path
) -> RewardReport:
    """Collect comparisons, train and calibrate the model, write everything and the report last."""
    pairs = comparisons(config, options, tasks, start)
    settings = RewardModelSettings(
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        heads=options.heads,
        centring=options.centring,
        use_margins=options.use_margins,
        held_out=options.held_out,
        seed=config.seed,
    )
    train, held_out = split_by_prompt(pairs, options.held_out, config.seed)
    if not held_out or not train:
        raise BadInput(f"{len(pairs)} comparisons leave none to train on or to hold out; give more prompts")
    model = train_reward_model(start, train, settings)
    report = report_reward_model(model, held_out, train)
    rows = PairRows(start, train)
    calibrate(
        model,
        TokenRows(
            [*rows.chosen.prompt_ids, *rows.rejected.prompt_ids],
            [*rows.chosen.completion_ids, *rows.rejected.completion_ids],
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "pairs.jsonl", pairs)
    save_reward_model(folder / "model", model)
    document = report.to_json() | {"evaluation": untouched(pairs, tasks)}
    write_text(folder / "report.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return report


def comparisons(
    config: RunConfig, options: LearnedRewardOptions, tasks: TaskSet, start: Policy
) -> list[Pair]:
    """The user's comparisons, or simulated raters' on the start policy's samples."""
    if options.pairs_file is not None:
        return read_pairs(options.pairs_file)
    raters = raters_of(options)
    settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)
    with ExitStack() as stack:
        quality = open_scoring(checkable(config), tasks, stack).reward
        return rated_pairs(
            start,
            tasks.train,
            quality,
            raters,
            settings,
            count=options.pairs,
            marker=options.marker,
            belief=options.belief,
        )


def untouched(pairs: list[Pair], tasks: TaskSet) -> dict[str, Any]:
    """Whether the evaluation prompts were kept out of the comparisons, with the hashes of both sets."""
    used = sorted({pair.prompt for pair in pairs})
    kept = sorted({str(task["prompt"]) for task in tasks.evaluation})
    return {
        "shared_prompts": len(set(used) & set(kept)),
        "comparison_prompts_sha256": hashlib.sha256("\0".join(used).encode()).hexdigest(),
        "evaluation_prompts_sha256": hashlib.sha256("\0".join(kept).encode()).hexdigest(),
    }


def pairs_of(config: RunConfig) -> list[Pair]:
    """The comparisons that a prepared configuration points to."""
    options = config.learned_reward
    if options is None or options.folder is None:
        raise BadInput("algorithm=dpo needs learned_reward and an experiment; start it with: assay run dpo")
    return read_pairs(Path(options.folder) / "pairs.jsonl")
