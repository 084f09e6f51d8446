"""One run: train with matched checkpoints, keep everything, go on after a kill.

At a matched checkpoint the order is: metrics line, rollouts, evaluation, checkpoint. A checkpoint therefore
vouches for everything before it, and resume cuts what came after.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

import assay
from assay.algos.algorithm import Algorithm
from assay.algos.dpo import Preference
from assay.algos.ppo import ActorCritic
from assay.config import RunConfig
from assay.engines.uniforms import keyed_integer
from assay.errors import BadInput
from assay.models.checkpoint import load_policy, load_state, save_checkpoint
from assay.models.heads import ScalarModel
from assay.models.locate import model_folder
from assay.models.policy import Policy
from assay.models.sampling_settings import inherited_sampling
from assay.records.rollout import Rollout
from assay.records.run_folder import RunFolder
from assay.tasks.task_set import TaskSet
from assay.train.collect import MOST_ROUNDS, Collector, ScoreBatch
from assay.train.dpo import PreferenceTrainer
from assay.train.evaluate import Evaluator
from assay.train.learned import pairs_of
from assay.train.ppo import ActorCriticTrainer
from assay.train.preference_data import PairRows
from assay.train.ranks import asked_to_shard, connected, ranks
from assay.train.setup import Scoring, algorithm_of, open_scoring
from assay.train.trainer import Trainer


class Listener(Protocol):
    """Who wants to know how a run goes; every method may do nothing."""

    def step(self, arm: str, metrics: Mapping[str, Any], of: int) -> None:
        """A step ended."""

    def evaluated(self, arm: str, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """A matched checkpoint was measured."""


def train_run(
    config: RunConfig,
    folder: RunFolder,
    start: Policy,
    tasks: TaskSet,
    listener: Listener,
    *,
    arm: str = "run",
) -> None:
    """Train from ``start``, or from the last checkpoint in ``folder``, to the end.

    Raises:
        RunStopped, ContractBroken, BadInput: see the trainer; what is on disk can be resumed.
    """
    folder = ranks().folder(folder)
    expect_same_tasks(folder, tasks)
    with ExitStack() as stack:
        stack.enter_context(connected())
        scoring = open_scoring(config, tasks, stack)
        evaluator = evaluator_of(config, tasks, scoring, start)
        trainer = _trainer(config, start, tasks, scoring)
        step = _take_up(folder, trainer)
        document = run_document(config, tasks, trainer)
        folder.write_run(document | {"status": "running"})
        if step is None:
            _checkpoint(folder, trainer, evaluator, listener, arm)
        try:
            with connected():
                while trainer.step < config.steps:
                    _one_step(folder, trainer, config, listener, arm)
                    if trainer.step % config.eval_every == 0 or trainer.step == config.steps:
                        _checkpoint(folder, trainer, evaluator, listener, arm)
        except BaseException as error:
            folder.write_run(
                document | {"status": "stopped", "stopped_by": f"{type(error).__name__}: {error}"}
            )
            raise
        folder.write_run(document | {"status": "done"})


def evaluator_of(config: RunConfig, tasks: TaskSet, scoring: Scoring, start: Policy) -> Evaluator:
    """The evaluator of a run: its first held-out prompts, its seed, its instruments."""
    from assay.engines.request import SamplingSettings

    settings = SamplingSettings(config.max_new_tokens, config.temperature, config.seed)
    held_out = list(tasks.evaluation)[: config.eval_prompts]
    rows = min(128, config.micro_batch_size)
    return Evaluator(held_out, config.eval_samples, scoring.reward, scoring.truth, start, settings, rows)


def _trainer(config: RunConfig, start: Policy, tasks: TaskSet, scoring: Scoring) -> Trainer:
    algorithm = algorithm_of(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_integer(config.seed, "adapter"))  # peft draws its first matrices
        policy = start.trainable_copy()
    rounds = MOST_ROUNDS if algorithm.dynamic_sampling else 1
    reference = start if algorithm.needs_reference else None
    if ranks().size > 1:
        return _distributed(config, policy, reference, algorithm, tasks, scoring.reward)
    collector = Collector(config, tasks.train, scoring.reward, rounds)
    if config.vllm is not None and config.vllm.colocated:
        from assay.engines.vllm_colocated import ColocatedVllm

        collector.sampler = ColocatedVllm(config.vllm)
    elif config.vllm is not None:
        from assay.engines.vllm import VllmSampler

        collector.sampler = VllmSampler(config.vllm)
    if isinstance(algorithm, ActorCritic):
        critic = ScalarModel(start)
        return ActorCriticTrainer(config, policy, reference, algorithm, collector, critic=critic)
    if isinstance(algorithm, Preference):
        pairs = None if algorithm.online else PairRows(policy, pairs_of(config))
        return PreferenceTrainer(config, policy, reference, algorithm, collector, pairs=pairs)
    return Trainer(config, policy, reference, algorithm, collector)


def _distributed(
    config: RunConfig,
    policy: Policy,
    reference: Policy | None,
    algorithm: Algorithm,
    tasks: TaskSet,
    reward: ScoreBatch,
) -> Trainer:
    alone = isinstance(algorithm, ActorCritic | Preference) or config.reward == "learned"
    if alone or config.vllm is not None or config.overlap:
        raise BadInput(
            f"{algorithm.name} with reward={config.reward} trains in one process; start it without torchrun or "
            "accelerate launch, or use a method without a critic or pairs, a reward that is not learned, no vllm and "
            "no overlap"
        )
    from assay.train.distributed import Collective, DistributedTrainer

    rounds = MOST_ROUNDS if algorithm.dynamic_sampling else 1
    collector = Collective(config, tasks.train, reward, rounds)
    sharded = config.shard or (config.model != "tiny" and asked_to_shard())
    return DistributedTrainer(config, policy, reference, algorithm, collector, sharded=sharded)


def _take_up(folder: RunFolder, trainer: Trainer) -> int | None:
    """Restore the last checkpoint and cut what came after it; None when there is none."""
    steps = folder.steps("checkpoints")
    if not steps:
        return None
    last = steps[-1]
    path = folder.checkpoint(last)
    loaded = load_policy(path)
    trainer.policy.module.load_state_dict(loaded.module.state_dict())
    trainer.restore(load_state(path))
    folder.truncate_metrics(last)
    for kind, name in (("rollouts", folder.rollouts), ("evals", folder.evaluation)):
        for step in folder.steps(kind):
            if step > last and ranks().main:
                name(step).unlink()
    return last


def _one_step(folder: RunFolder, trainer: Trainer, config: RunConfig, listener: Listener, arm: str) -> None:
    result = trainer.train_step(on_batch=lambda rollouts: _write_rollouts(folder, rollouts))
    folder.append_metrics(result.metrics)
    listener.step(arm, result.metrics, config.steps)


def _write_rollouts(folder: RunFolder, rollouts: Sequence[Rollout]) -> None:
    rows = [asdict(rollout) for rollout in rollouts]
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
    parts = columns.pop("reward_parts")
    for name in sorted({name for part in parts for name in part}):
        columns[f"reward_parts/{name}"] = [part.get(name) for part in parts]
    folder.write_table(folder.rollouts(rollouts[0].step), columns)


def _checkpoint(
    folder: RunFolder, trainer: Trainer, evaluator: Evaluator, listener: Listener, arm: str
) -> None:
    columns = evaluator.evaluate(trainer.policy)
    folder.write_table(folder.evaluation(trainer.step), columns)
    state = trainer.state()
    if ranks().main:
        save_checkpoint(folder.checkpoint(trainer.step), trainer.policy, state)
    listener.evaluated(arm, trainer.step, columns)
    if ranks().main and not trainer.config.keep_checkpoints:
        for step in folder.steps("checkpoints")[:-1]:
            _remove(folder.checkpoint(step))


def _remove(path: Path) -> None:
    import shutil

    shutil.rmtree(path)


def run_document(config: RunConfig, tasks: TaskSet, trainer: Trainer) -> dict[str, Any]:
    """What run.json holds beside its status."""
    algorithm = trainer.algorithm
    return {
        "format": 1,
        "config": config.model_dump(),
        "learned": config.reward == "learned",
        "algorithm": asdict(algorithm),
        "advantage_epsilon": algorithm.credit.epsilon,
        "advantage_ddof": algorithm.credit.ddof,
        "advantage_dtype": "float64",
        "logprob_dtype": "float32",
        "group_size": config.group_size,
        "processes": ranks().size,
        "seeds": {"run": config.seed},
        "tasks": {"name": tasks.name, "train": len(tasks.train), "evaluation": len(tasks.evaluation)},
        "data_hash": tasks.data_hash(),
        "parameters": trainer.policy.parameters_count,
        "inherited_sampling": {}
        if config.model == "tiny"
        else inherited_sampling(model_folder(config.model)),
        "versions": {
            "assay": assay.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


def expect_same_tasks(folder: RunFolder, tasks: TaskSet) -> None:
    """Refuse to go on with, or to measure, a run on other tasks than it was begun with.

    Raises:
        BadInput: the data hash in run.json is another.
    """
    if not folder.run_json.is_file():
        return
    known, found = folder.read_run().get("data_hash"), tasks.data_hash()
    if known != found:
        raise BadInput(
            f"the tasks of {folder.root} have changed since the run began: expected data hash {known}, got {found}; "
            "bring the tasks back as they were, or begin a new run"
        )


def config_of(folder: RunFolder) -> RunConfig:
    """The configuration a run was started with."""
    document = folder.read_run()
    if "config" not in document:
        raise BadInput(f"{folder.run_json} has no 'config'; it was not written by assay run")
    return RunConfig.model_validate(document["config"])
