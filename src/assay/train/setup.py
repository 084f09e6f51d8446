"""From a configuration to the parts of a run: tasks, reward, truth, algorithm, start policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.algos.algorithm import Algorithm
from assay.algos.dpo import Preference
from assay.algos.kl_control import KLControl
from assay.algos.parts import Correction
from assay.algos.ppo import ActorCritic
from assay.algos.recipes import make_algorithm
from assay.config import ImportanceOptions, RunConfig
from assay.engines.request import Request, SamplingSettings
from assay.engines.sample import sample
from assay.errors import BadInput, nearest
from assay.models.policy import Policy
from assay.rewards.checking import controls_check
from assay.rewards.controls import NoisyReward, RandomReward
from assay.rewards.load import load_function
from assay.rewards.running import RewardRunner
from assay.tasks.catalogue import CATALOGUE, build_task_set
from assay.tasks.files import file_task_set, read_tasks
from assay.tasks.loopholes.table import LOOPHOLES
from assay.tasks.proofs.loophole import WeakProofReward
from assay.tasks.task_set import Task, TaskSet
from assay.train.collect import ScoreBatch
from assay.train.warm_start import PassRates

FILE_TYPES = (".jsonl", ".json", ".parquet", ".csv")

RewardSpec = Callable[..., Any] | str


@dataclass(frozen=True)
class Scoring:
    """The two instruments of a run; only evaluation may hold ``truth``."""

    reward: ScoreBatch
    truth: ScoreBatch


def algorithm_of(config: RunConfig) -> Algorithm:
    """The algorithm a configuration names, with its options, preset and importance weights.

    Raises:
        BadInput: what the run's keys ask for and this method cannot have.
    """
    algorithm = make_algorithm(config.algorithm, match=config.match, **config.algorithm_options)
    asked = config.importance
    others = config.vllm is not None or config.overlap  # other kernels than the trainer's, or older weights
    if asked is None and others and algorithm.correction is None:
        asked = ImportanceOptions()
    if asked is not None:
        algorithm = replace(algorithm, correction=Correction(**asked.model_dump()))
    _refuse_impossible(config, algorithm)
    return algorithm


def kl_control_of(config: RunConfig, algorithm: Algorithm) -> KLControl:
    """How the run's KL coefficient and number of updates react to the measured KL; by default not at all.

    The run's keys, over what a method with an option of its own (``kl_target`` of ppo) asks for.
    """
    asked = config.kl_control
    own = algorithm.kl_control if isinstance(algorithm, ActorCritic) else KLControl()
    if asked is None:
        return own
    if asked.target is None:
        return replace(own, horizon=asked.horizon, stop_at=asked.stop_at)
    return KLControl(kind="adaptive", target=asked.target, horizon=asked.horizon, stop_at=asked.stop_at)


def _refuse_impossible(config: RunConfig, algorithm: Algorithm) -> None:
    name, control = algorithm.name, kl_control_of(config, algorithm)
    if isinstance(algorithm, Preference):
        asked = [
            key
            for key in ("kl_control", "curriculum", "importance", "recompute_old_logprobs", "vllm", "overlap")
            if getattr(config, key)
        ]
        if asked:
            raise BadInput(
                f"{name} learns from pairs and has no {asked[0]}; leave it out, or use algorithm=grpo"
            )
        return
    twice = isinstance(algorithm, ActorCritic) and algorithm.kl_control.kind == "adaptive"
    if twice and config.kl_control is not None and config.kl_control.target is not None:
        raise BadInput(f"kl_control.target and the option kl_target of {name} are the same; leave one out")
    if control.kind == "adaptive" and not algorithm.kl.coef:
        raise BadInput(
            f"kl_control.target moves kl_coef, which is 0 for {name}; set kl_coef=0.05, for example"
        )
    if control.stop_at is not None and algorithm.single_update:
        raise BadInput(
            f"kl_control.stop_at ends the updates on a batch early, and {name} makes one; set minibatches or "
            "epochs above 1, or leave it out"
        )
    if config.overlap and config.curriculum is not None:
        raise BadInput("a curriculum chooses prompts by the last batch's pass rates, which overlap does not wait for; "
                       "leave one of them out")  # fmt: skip
    if algorithm.correction is not None and config.recompute_old_logprobs is False:
        raise BadInput(
            "importance weights compare the trainer's log-probs with the sampler's; expected "
            "recompute_old_logprobs true or left out, got false; or leave importance and importance_cap out"
        )


def task_set_of(config: RunConfig) -> TaskSet:
    """The tasks a configuration names: an embedded set, or a user's file with reward and truth."""
    if config.tasks in CATALOGUE:
        return build_task_set(config.tasks, seed=config.seed, **config.task_options)
    if Path(config.tasks).suffix not in FILE_TYPES:
        raise BadInput(
            f"unknown tasks {config.tasks!r}{nearest(config.tasks, CATALOGUE)}, or a file ({', '.join(FILE_TYPES)})"
        )
    if config.truth is None:
        raise BadInput(
            f"tasks={config.tasks} needs truth=file.py:name: another instrument than the reward, held out from "
            "training; without it the gap between reward and truth cannot be measured"
        )
    reward = checkable(config).reward
    if ".py:" not in reward:
        wanted = "learned_reward.quality" if config.reward == "learned" else "reward"
        raise BadInput(f"tasks={config.tasks} needs {wanted}=file.py:name, got {config.reward!r}")
    share = min(0.5, config.eval_prompts / max(len(read_tasks(config.tasks)), 1))
    found = file_task_set(
        config.tasks,
        load_function(reward),
        load_function(config.truth),
        evaluation=config.evaluation_tasks,
        evaluation_share=share,
        seed=config.seed,
        **config.task_options,
    )
    return replace(found, traces=_traces(found.train)) if config.model == "tiny" else found


def checkable(config: RunConfig) -> RunConfig:
    """The configuration whose reward is what can be checked: the user's own, what raters see, or the task's sound one.

    The warm start is measured by it and simulated raters know correctness from it, whatever reward is trained on.
    """
    if ".py:" in config.reward:
        return config
    quality = config.learned_reward.quality if config.learned_reward else None
    return config.model_copy(update={"reward": quality or "sound", "reward_options": {}})


def _traces(tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """What the tiny model learns from before the reward: each task's ``completion``, else its ``answer``."""
    pairs = [(str(task["prompt"]), task.get("completion", task.get("answer"))) for task in tasks]
    traces = [(prompt, str(completion)) for prompt, completion in pairs if completion is not None]
    if not traces:
        raise BadInput(
            "model=tiny knows nothing before its warm start: expected a column 'completion' (or 'answer') in the "
            "tasks, got neither; add one, or give model=FOLDER"
        )
    return traces


def reward_of(config: RunConfig, tasks: TaskSet) -> RewardSpec:
    """The reward a configuration names: sound, a loophole, a control, or ``file.py:name``.

    Raises:
        BadInput: an unknown name or option.
    """
    name, loophole = config.reward, LOOPHOLES.get(tasks.name.removeprefix("loophole-").removesuffix("-v1"))
    if ".py:" in name:
        return name
    sound = tasks.reward if loophole is None else loophole.sound
    kinds: dict[str, Callable[..., RewardSpec]] = {
        "sound": lambda: sound,
        "marker": partial(WeakProofReward, sound=sound),
        "random": RandomReward,
        "noise": partial(NoisyReward, tasks.reward),
    }
    if loophole is not None:
        kinds["weak"] = lambda: loophole.weak
    if name not in kinds:
        raise BadInput(f"unknown reward {name!r}{nearest(name, kinds)}, or give file.py:name")
    try:
        return kinds[name](**config.reward_options)
    except TypeError as error:
        raise BadInput(f"reward_options of {name!r}: {error}") from None


def truth_of(config: RunConfig, tasks: TaskSet) -> RewardSpec:
    """The truth: the user's, or the task's own."""
    return config.truth if config.truth is not None else tasks.truth


def open_scoring(config: RunConfig, tasks: TaskSet, stack: ExitStack) -> Scoring:
    """Start the workers of both instruments; they end with ``stack``.

    Rewards of this package bound themselves and run in the process; a user's run in workers.
    """

    def runner(spec: RewardSpec) -> ScoreBatch:
        own = not isinstance(spec, str)
        started = RewardRunner(
            spec,
            workers=config.reward_workers,
            time_limit=config.reward_time_limit,
            signature=None if own else config.signature,
            in_process=own,
        )
        stack.enter_context(started)
        if not own and config.controls:
            _check_controls(started, tasks, taught=config.model == "tiny")
        return started.score

    truth = runner(truth_of(config, tasks))
    reward = learned_scorer(config) if config.reward == "learned" else runner(reward_of(config, tasks))
    return Scoring(reward, truth)


def learned_scorer(config: RunConfig) -> ScoreBatch:
    """The reward model that the experiment trained; see ``assay.train.learned``."""
    from assay.models.heads import ScalarModel
    from assay.train.reward_model import LearnedReward

    options = config.learned_reward
    if options is None or options.folder is None:
        raise BadInput("reward=learned needs learned_reward and an experiment; start it with: assay run rlhf")
    model = ScalarModel.load(Path(options.folder) / "model")
    model.requires_grad_(False).eval()
    return LearnedReward(model, options.combine)


CONTROL_TASKS = 8


def _check_controls(runner: RewardRunner, tasks: TaskSet, *, taught: bool) -> None:
    """Score gold, junk and empty in the workers of the run.

    The gold is the tasks' ``completion``; where the policy is ``taught`` their ``answer`` instead, that.
    """
    some = list(tasks.train)[:CONTROL_TASKS]
    columns = [name for name in ("completion", "answer")[: 1 + taught] if all(name in task for task in some)]
    try:
        controls_check(runner, some, (lambda task: str(task[columns[0]])) if columns else None)
    except BadInput as error:
        raise BadInput(f"{error}, or set controls=false to train against it as it is") from None


def pass_rates(
    policy: Policy, tasks: Sequence[Task], score: ScoreBatch, *, samples: int, settings: SamplingSettings
) -> PassRates:
    """Pass@1 and pass@G of a policy under ``score``; the random numbers are the same at every call."""
    repeated = [task for task in tasks for _ in range(samples)]
    requests = [
        Request(policy.encode_prompt(str(task["prompt"])), ("warm", str(task["prompt_id"]), i % samples))
        for i, task in enumerate(repeated)
    ]
    drawn = sample(policy, requests, settings)
    values = [one.value for one in score([policy.decode(d.token_ids) for d in drawn], repeated)]
    groups = [values[first : first + samples] for first in range(0, len(values), samples)]
    passed = [value >= 0.5 for value in values]
    return PassRates(sum(passed) / len(passed), sum(max(group) >= 0.5 for group in groups) / len(groups))
