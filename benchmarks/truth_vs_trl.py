"""GRPO, PPO, DPO and online DPO against TRL's: truth after equal samples from one start, and the time of a step.

    python benchmarks/truth_vs_trl.py [--methods grpo:sorting dpo ...] [--seeds 0 1 2] [--steps N] [--json FILE]

Needs torch and `pip install trl` beside this package: any TRL with DPOTrainer and trl.experimental.online_dpo. TRL
dropped PPO after 1.12, so `--methods ppo` wants an environment with `trl==1.12.0`; a method that the installed TRL does
not have is said and left out. On two cores: minutes.

Both sides get one warm-started tiny model (as a LlamaForCausalLM), the prompts of the recipe `sorting` or `loophole`
(GRPO) or of `padded-v1` (the others), the sound verifier as reward or one set of comparisons (DPO), and the same number
of samples, batch, epochs, learning rate, optimiser constants, beta, KL coefficient, clips, GAE and temperature. Steps
alternate in one process: TRL's ends, ours runs, so the ratio of their times sees one machine. Truth is measured by one
evaluator on the same held-out prompts and random numbers; the interval is paired by prompt, ours minus TRL's. Two
things stay each side's own: which prompts a step draws, and that TRL's online DPO trains on ties while ours leaves them
out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

MAKERS = {
    "grpo:sorting": ("trl", "GRPO"),
    "grpo:proofs": ("trl", "GRPO"),
    "dpo": ("trl", "DPO"),
    "online_dpo": ("trl.experimental.online_dpo", "OnlineDPO"),
    "ppo": ("trl.experimental.ppo", "PPO"),
}
COMPLETIONS, TOKENS, EPOCHS, BETA, NO_PAD = 64, 24, 2, 0.1, -1e4
RECIPES = {"grpo:sorting": ("sorting", "run"), "grpo:proofs": ("loophole", "sound")}
OPTIONS: dict[str, dict[str, Any]] = {
    "dpo": {"algorithm_options": {"beta": BETA}, "learning_rate": 5e-4, "steps": 50},
    "online_dpo": {"algorithm_options": {"beta": BETA}, "learning_rate": 5e-4, "steps": 50, "group_size": 2},
    "ppo": {
        "algorithm_options": {"kl_coef": 0.05, "epochs": EPOCHS}, "learning_rate": 5e-4, "steps": 30, "group_size": 1,
        "max_grad_norm": 1e9,  # TRL's PPO never clips the gradient
    },
}  # fmt: skip


class Result(NamedTuple):
    """Truth of the start, of both sides' end, the paired interval ours - TRL's, and TRL's step over ours in time."""

    method: str
    seed: int
    start: float
    ours: float
    theirs: float
    low: float
    high: float
    reward_ours: float
    reward_theirs: float
    time_ratio: float


def config_of(method: str, seed: int, steps: int | None) -> Any:
    from assay.train.recipe import load_recipe

    keys = [f"seed={seed}", "eval_prompts=128", "task_options.evaluation=128", "reward=sound"]
    if method in RECIPES:
        recipe, arm = RECIPES[method]
        base = load_recipe(
            recipe, [*keys, "algorithm=grpo", "algorithm_options={kl_coef: 0}"], arms=[arm]
        ).base
        changes: dict[str, Any] = {}
    else:
        keys += ["learned_reward.pairs=2500", "learned_reward.raters={correctness: .inf}"]
        base = load_recipe("dpo", keys, arms=["dpo"]).base
        changes = {
            "algorithm": method,
            "batch_size": COMPLETIONS,
            "max_new_tokens": TOKENS,
            **OPTIONS[method],
        }
    return base.model_copy(update=changes | ({"steps": steps} if steps else {}))


def our_trainer(config: Any, start: Any, tasks: Any, reward: Any, pairs: list[Any]) -> Any:
    from assay.models.heads import ScalarModel
    from assay.train.collect import Collector
    from assay.train.dpo import PreferenceTrainer
    from assay.train.ppo import ActorCriticTrainer
    from assay.train.preference_data import PairRows
    from assay.train.setup import algorithm_of
    from assay.train.trainer import Trainer

    parts = (
        config,
        start.trainable_copy(),
        start,
        algorithm_of(config),
        Collector(config, tasks.train, reward),
    )
    if config.algorithm == "ppo":
        return ActorCriticTrainer(*parts, critic=ScalarModel(start))
    if config.algorithm == "grpo":
        return Trainer(*parts)
    return PreferenceTrainer(*parts, pairs=PairRows(start, pairs) if config.algorithm == "dpo" else None)


class Judge:
    """The reward as TRL's GRPO and online DPO call it, and by text, for a model that only looks like one."""

    def __init__(self, reward: Any, tasks: Any) -> None:
        self.reward, self.task_of = reward, {str(task["prompt"]): task for task in tasks.train}

    def __call__(self, prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        tasks = [self.task_of[prompt.removeprefix("<bos>")] for prompt in prompts]
        return [score.value for score in self.reward(completions, tasks)]


def reward_module(judge: Judge, tokenizer: Any) -> Any:
    """A reward model for TRL's PPO, which takes no function: its "backbone" decodes the ids and asks the judge."""
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    class Backbone(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
            texts = [
                tokenizer.decode(row[kept.bool()], skip_special_tokens=True)
                for row, kept in zip(input_ids, attention_mask, strict=True)
            ]
            cut = [
                text.index("\n") + 1 for text in texts
            ]  # prompts of these tasks end at their first line end
            scores = judge(
                [t[:c] for t, c in zip(texts, cut, strict=True)],
                [t[c:] for t, c in zip(texts, cut, strict=True)],
            )
            return BaseModelOutput(
                hidden_states=(torch.tensor(scores)[:, None, None].expand(*input_ids.shape, 1),)
            )

    class Model(torch.nn.Module):
        base_model_prefix = "backbone"

        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.score = Backbone(), torch.nn.Identity()

    return Model()


def policy_of(folder: Path, pad: int) -> Any:
    """The start policy as TRL takes it. Padding has probability 0 on our side, so it has on this one."""
    import torch
    from transformers import LlamaForCausalLM

    def no_padding(module: Any, given: Any, output: Any) -> Any:
        logits = getattr(
            output, "logits", None
        )  # TRL's DPO has a forward of its own without them, and never samples
        if logits is not None:
            output.logits = logits.index_fill(-1, torch.tensor([pad]), NO_PAD)
        return output

    model = LlamaForCausalLM.from_pretrained(folder)
    model.register_forward_hook(no_padding)
    return model


def trl_trainer(
    config: Any, folder: Path, tasks: Any, judge: Judge, pairs: list[Any], callback: Any, out: str
) -> Any:
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaForSequenceClassification

    place, name = next(maker for method, maker in MAKERS.items() if method.startswith(config.algorithm))
    module = importlib.import_module(place)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    common = {
        "output_dir": out, "max_steps": config.steps, "seed": config.seed, "bf16": False, "use_cpu": True,
        "learning_rate": config.learning_rate, "lr_scheduler_type": "constant", "weight_decay": 0.0,
        "max_grad_norm": config.max_grad_norm, "adam_beta1": 0.9, "adam_beta2": 0.99, "gradient_checkpointing": False,
        "report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    parts: dict[str, Any] = {
        "model": policy_of(folder, tokenizer.pad_token_id),
        "processing_class": tokenizer,
        "callbacks": [callback],
    }
    # Online DPO does not add the first token that our prompts begin with.
    prompts = [
        tokenizer.bos_token * (config.algorithm == "online_dpo") + str(task["prompt"]) for task in tasks.train
    ]
    if config.algorithm == "dpo":
        own = {
            "beta": BETA,
            "per_device_train_batch_size": COMPLETIONS // 2,
            "precompute_ref_log_probs": True,
        }
        rows = [
            {"prompt": p.prompt, "chosen": p.chosen.completion, "rejected": p.rejected.completion}
            for p in pairs
        ]
        parts["train_dataset"] = Dataset.from_list(rows)
    elif config.algorithm == "grpo":
        own = {
            "per_device_train_batch_size": config.batch_size, "num_generations": config.group_size, "beta": 0.0,
            "max_completion_length": config.max_new_tokens, "temperature": 1.0, "loss_type": "grpo",
        }  # fmt: skip
        parts |= {"train_dataset": Dataset.from_dict({"prompt": prompts}), "reward_funcs": judge}
    elif config.algorithm == "online_dpo":
        own = {
            "beta": BETA, "per_device_train_batch_size": COMPLETIONS // 2, "max_new_tokens": TOKENS, "temperature": 1.0,
        }  # fmt: skip
        parts |= {"train_dataset": Dataset.from_dict({"prompt": prompts}), "reward_funcs": judge}
    else:
        own = {
            "per_device_train_batch_size": COMPLETIONS, "num_ppo_epochs": EPOCHS, "kl_coef": 0.05, "temperature": 1.0,
            "response_length": TOKENS, "stop_token": "eos", "total_episodes": COMPLETIONS * config.steps,
            "num_sample_generations": 0, "local_rollout_forward_batch_size": COMPLETIONS,
        }  # fmt: skip
        critic = LlamaForSequenceClassification.from_pretrained(folder, num_labels=1)
        critic.score.weight.data.zero_()  # ours starts at 0 too
        parts |= {
            "train_dataset": Dataset.from_dict({"input_ids": [tokenizer(text)["input_ids"] for text in prompts]}),
            "ref_model": policy_of(folder, tokenizer.pad_token_id), "value_model": critic,
            "reward_model": reward_module(judge, tokenizer), "eval_dataset": Dataset.from_dict({"input_ids": [[0]]}),
        }  # fmt: skip
    return getattr(module, f"{name}Trainer")(args=getattr(module, f"{name}Config")(**common, **own), **parts)


def alternate(ours: Any, every: int) -> Any:
    """A callback that does one step of ours after each of TRL's, and times both."""
    from transformers import TrainerCallback

    class Alternate(TrainerCallback):
        def __init__(self) -> None:
            self.theirs, self.own, self.last = list[float](), list[float](), 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.last = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.theirs.append(time.perf_counter() - self.last)
            started = time.perf_counter()
            found = ours.train_step().metrics
            self.own.append(time.perf_counter() - started)
            if len(self.own) % every == 0:
                times = f"{ours.algorithm.name}: TRL {self.theirs[-1]:.2f} s, ours {self.own[-1]:.2f} s"
                print(f"  step {len(self.own)}: {times}, loss {found['loss']:.4f}", flush=True)
            self.last = time.perf_counter()

    return Alternate()


def compare(method: str, seed: int, steps: int | None, root: Path) -> Result:
    """Train both sides from one start and measure them with one evaluator."""
    import numpy as np

    from assay.cli.progress import Silent
    from assay.stats.clustered import paired_difference
    from assay.train.arms import load_start
    from assay.train.experiment import start_policy
    from assay.train.learned import comparisons
    from assay.train.run import evaluator_of
    from assay.train.setup import open_scoring, task_set_of

    config = config_of(method, seed, steps)
    tasks = task_set_of(config)
    folder = start_policy(config, tasks, root, Silent())
    start = load_start(folder, config)
    with ExitStack() as stack:
        scoring = open_scoring(config, tasks, stack)
        pairs = comparisons(config, config.learned_reward, tasks, start) if method == "dpo" else []
        ours = our_trainer(config, start, tasks, scoring.reward, pairs)
        callback = alternate(ours, 20)
        theirs = trl_trainer(
            config, folder, tasks, Judge(scoring.reward, tasks), pairs, callback, str(root / "trl")
        )
        theirs.train()
        trained = start.trainable_copy()
        state = getattr(theirs.model, "policy", theirs.model).state_dict()
        trained.module.load_state_dict({k: v for k, v in state.items() if k != "lm_head.weight"})
        evaluator = evaluator_of(config, tasks, scoring, start)
        found = [evaluator.evaluate(policy) for policy in (start, ours.policy, trained)]
    truth = [np.array(one["truth"]).reshape(-1, config.eval_samples) for one in found]
    gap = paired_difference(truth[1], truth[2])
    ratio = statistics.median(t / o for t, o in list(zip(callback.theirs, callback.own, strict=True))[1:])
    rewards = [float(np.mean(one["reward"])) for one in found]
    return Result(
        method, seed, *(float(t.mean()) for t in truth), gap.low, gap.high, rewards[1], rewards[2], ratio
    )


TITLE = """| method | seed | truth: start | ours | TRL's | ours minus TRL's | reward: ours | TRL's | TRL's time / ours |
|---|---|---|---|---|---|---|---|---|"""


def row(r: Result) -> str:
    """One line of the table."""
    gap = f"{r.ours - r.theirs:+.3f} [{r.low:+.3f}, {r.high:+.3f}]"
    rewards = f"{r.reward_ours:.3f} | {r.reward_theirs:.3f}"
    truths = f"{r.start:.3f} | {r.ours:.3f} | {r.theirs:.3f}"
    return f"| {r.method} | {r.seed} | {truths} | {gap} | {rewards} | {r.time_ratio:.1f} |"


def print_table(results: list[Result], version: str) -> None:
    """One row a method and seed, and the means over seeds with Student's interval over them."""
    import numpy as np

    from assay.stats.clustered import t_interval

    print(f"\nTRL {version}\n\n{TITLE}")
    for result in results:
        print(row(result))
    for method in dict.fromkeys(r.method for r in results):
        own = [r for r in results if r.method == method]
        gap = t_interval(np.array([r.ours - r.theirs for r in own]))
        ratio = statistics.median(r.time_ratio for r in own)
        found = f"{gap.estimate:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}] over {len(own)} seeds"
        print(f"{method}: {found}; {ratio:.1f} times as fast")


def main() -> None:
    """Run what the installed TRL has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="for trying the script out")
    parser.add_argument("--json", type=Path, help="write the results here too")
    asked = parser.parse_args()
    import torch
    import trl

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    results: list[Result] = []
    for method in [name for name in asked.methods if importlib.util.find_spec(MAKERS[name][0]) is None]:
        print(f"TRL {trl.__version__} has no {MAKERS[method][1]}Trainer; install trl==1.12.0 for it")
        asked.methods.remove(method)
    print(TITLE, flush=True)
    for seed in asked.seeds:
        for method in asked.methods:
            with tempfile.TemporaryDirectory() as folder:
                results.append(compare(method, seed, asked.steps, Path(folder)))
            print(row(results[-1]), flush=True)
    print_table(results, trl.__version__)
    if asked.json:
        asked.json.write_text(json.dumps([r._asdict() for r in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
