"""One training step of our trainer against TRL's GRPOTrainer: time by part, peak memory, share of the peak rate.

    python benchmarks/against_trl.py [--shapes a b c] [--lengths full] [--steps 5] [--threads 2] [--contenders ...]

Both train one random Llama with a tied head on the same prompts, group size, completion lengths and reward. Every
completion has all its tokens, or with ``--lengths spread`` the lengths of a batch are spread evenly over 1 to T.
Every contender is a process of its own that waits for its turn, so steps alternate, no two run at once, and each
peak resident size is one contender's. The first step of each warms up and is dropped, and so is a round in which the
machine gave a contender less than half of the time it asked for. Ratios are medians over rounds of (the fastest TRL
contender / ours), in wall time and in processor time; the second is what a busy machine leaves comparable.

TRL's contenders: ``tuned`` is float32 without checkpointing, ``bf16`` autocast without, ``default`` its own defaults.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from floor import Work, floor_of, flops, matmul_rate

PROMPTS, GROUP, PROMPT_TOKENS = 8, 8, 16
TRL = ("trl-tuned", "trl-bf16", "trl-default")
OURS = ("assay-float32", "assay-bfloat16")
PARTS = ("generate", "logprob", "backward")


class Shape(NamedTuple):
    """Sizes of a model and of its completions."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    intermediate: int
    tokens: int


SHAPES = {
    "a": Shape(64, 128, 4, 4, 512, 32),
    "b": Shape(8192, 256, 8, 4, 768, 64),
    "c": Shape(50257, 160, 6, 4, 512, 64),
}


def write_model(folder: Path, shape: Shape) -> None:
    """A random model whose tokenizer has one word a row of the head; the last word ends a completion."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(shape.vocabulary)}
    last = f"w{shape.vocabulary - 1}"
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=last, pad_token=last).save_pretrained(
        folder
    )
    end = shape.vocabulary - 1
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.heads, intermediate_size=shape.intermediate,
        max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=None, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


def prompts_of(shape: Shape, count: int) -> list[str]:
    """Prompts of PROMPT_TOKENS words each, all different."""
    size = shape.vocabulary - 1
    return [
        " ".join(f"w{(31 * row + 7 * column + row * column) % size}" for column in range(PROMPT_TOKENS))
        for row in range(count)
    ]


def reward_of(text: str) -> float:
    """Share of different words: it varies within groups and costs nothing."""
    words = text.split()
    return len(set(words)) / max(len(words), 1)


def spread(rows: int, tokens: int) -> list[int]:
    """One length a row, evenly from 1 to ``tokens``, the long ones among the short."""
    return [1 + (17 * row % rows) * tokens // rows for row in range(rows)]


class Turns:
    """A contender's side of the pipe: waits for its turn, and reports a step by part."""

    def __init__(self, parameters: int) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        print(json.dumps({"parameters": parameters}), flush=True)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time added to a part."""

        @wraps(function)
        def wrapped(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.parts[name] += time.perf_counter() - started

        return wrapped

    def begin(self) -> None:
        """Wait for the turn."""
        if sys.stdin.readline().strip() != "step":
            sys.exit(0)
        self.parts.clear()
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """Report the step."""
        report = {"wall": time.perf_counter() - self.wall, "processor": time.process_time() - self.processor}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**report, **self.parts, "peak": peak}), flush=True)


def run_ours(folder: Path, shape: Shape, dtype: str, lengths: str) -> None:
    """Our trainer's steps."""
    import torch

    from assay.config import ModelOptions, build_config
    from assay.models.checkpoint import load_policy
    from assay.records.score import Score
    from assay.train.collect import Collector
    from assay.train.setup import algorithm_of
    from assay.train.trainer import Trainer

    config = build_config(
        {
            "model": str(folder), "dtype": dtype, "algorithm": "grpo", "algorithm_options": {"kl_coef": 0.0},
            "batch_size": PROMPTS * GROUP, "group_size": GROUP, "max_new_tokens": shape.tokens,
            "learning_rate": 1e-6, "micro_batch_size": PROMPTS * GROUP,
        }
    )  # fmt: skip
    policy: Any = load_policy(folder, ModelOptions.model_validate({"dtype": dtype}))
    policy.forbidden = sorted(policy.eos_ids)
    if lengths == "spread":
        from assay.engines.record import Record

        last, note = torch.tensor(spread(PROMPTS * GROUP, shape.tokens)), Record.note

        def cut(self: Any, active: Any, step: int, drawn: Any, ends: Any) -> Any:
            note(self, active, step, drawn, ends)
            done = active[last[active] == step + 1]
            self.lengths[done], self.ended[done] = step + 1, True
            return ~self.ended[active]

        Record.note = cut
    tasks = [{"prompt_id": str(i), "prompt": text} for i, text in enumerate(prompts_of(shape, 512))]
    collector = Collector(config, tasks, lambda texts, _: [Score(reward_of(text)) for text in texts])
    trainer: Any = Trainer(config, policy.trainable_copy(), None, algorithm_of(config), collector)
    turns = Turns(policy.parameters_count)
    collector.sampler = turns.timed("generate", collector.sampler)
    trainer._with_policy = turns.timed("logprob", trainer._with_policy)
    trainer._backward = turns.timed("backward", trainer._backward)
    while True:
        turns.begin()
        trainer.train_step()
        turns.end()


def run_trl(folder: Path, shape: Shape, variant: str, lengths: str) -> None:
    """The steps of TRL's trainer."""
    import torch
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        StoppingCriteria,
        StoppingCriteriaList,
        TrainerCallback,
    )
    from trl import GRPOConfig, GRPOTrainer

    half = variant != "tuned"
    with tempfile.TemporaryDirectory() as scratch:
        arguments = GRPOConfig(
            output_dir=scratch, per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP,
            max_completion_length=shape.tokens, max_steps=10_000, learning_rate=1e-6, beta=0.0, temperature=1.0,
            bf16=half, gradient_checkpointing=variant == "default", use_cpu=True, report_to="none",
            logging_strategy="no", save_strategy="no", disable_tqdm=True,
            generation_kwargs={"min_new_tokens": shape.tokens},
        )  # fmt: skip
        model = AutoModelForCausalLM.from_pretrained(folder)
        turns = Turns(model.num_parameters())
        last = torch.tensor(spread(PROMPTS * GROUP, shape.tokens))

        class Cut(StoppingCriteria):
            """Ends each row at its length; the row's last token is its own, what follows is padding."""

            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                return last <= input_ids.shape[1] - PROMPT_TOKENS

        if lengths == "spread":
            generate = model.generate
            model.generate = lambda *given, **named: generate(
                *given, **{**named, "stopping_criteria": StoppingCriteriaList([Cut()])}
            )

        class Alternate(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                turns.begin()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                turns.end()

        def reward(completions: list[str], **_: Any) -> list[float]:
            return [reward_of(text) for text in completions]

        trainer: Any = GRPOTrainer(
            model=model, reward_funcs=reward, args=arguments,
            train_dataset=Dataset.from_dict({"prompt": prompts_of(shape, 512)}),
            processing_class=AutoTokenizer.from_pretrained(folder), callbacks=[Alternate()],
        )  # fmt: skip
        trainer._generate_single_turn = turns.timed("generate", trainer._generate_single_turn)
        trainer.compute_loss = turns.timed("logprob", trainer.compute_loss)
        trainer.accelerator.backward = turns.timed("backward", trainer.accelerator.backward)
        trainer.train()


def run_contender(name: str, folder: Path, shape: Shape, lengths: str) -> None:
    """Be a contender until stdin ends; everything but the reports goes to stderr."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    whose, _, variant = name.partition("-")
    (run_trl if whose == "trl" else run_ours)(folder, shape, variant, lengths)


class Contender:
    """The parent's side of the pipe."""

    def __init__(self, name: str, shape: str, folder: Path, threads: int, lengths: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
        environment.setdefault("GOMP_SPINCOUNT", "1000")
        self.name, self.steps = name, list[dict[str, float]]()
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--contender", name, "--folder", str(folder), "--shapes", shape,
             "--lengths", lengths],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.parameters = int(self._read()["parameters"])

    def _read(self) -> dict[str, float]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.name} ended with exit code {self.process.wait()}; see its messages above")

    def step(self) -> None:
        """Let it do one step."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.steps.append(self._read())
        print(f"{self.name}: {self.steps[-1]}", file=sys.stderr)

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def median(self, key: str, rounds: list[int]) -> float:
        """Of the given rounds."""
        return statistics.median(self.steps[i].get(key, math.nan) for i in rounds)


def parts_of(shape: Shape, lengths: str) -> dict[str, Work]:
    """Work of our two parts: prompts once, each step of sampling with the rows that have not ended."""
    rows, prompts = PROMPTS * GROUP, PROMPTS * PROMPT_TOKENS
    last = spread(rows, shape.tokens) if lengths == "spread" else [shape.tokens] * rows
    active = [sum(length > step for length in last) for step in range(shape.tokens)]
    drawn = sum(last)
    seen = sum(rows * (PROMPT_TOKENS + step) for step, rows in enumerate(active[1:], 1))
    return {
        "generate": Work([prompts, *active[1:]], active, seen, 1, optimiser=False),
        "update": Work([prompts + drawn], [drawn], 0, 3, optimiser=True),
    }


def undisturbed(contenders: list[Contender], threads: int) -> list[int]:
    """Rounds (the first is dropped) in which every contender got at least half of the processors it used elsewhere."""
    count = len(contenders[0].steps)

    def share(contender: Contender, i: int) -> float:
        return contender.steps[i]["processor"] / contender.steps[i]["wall"] / threads

    usual = {c.name: max(share(c, i) for i in range(1, count)) for c in contenders}
    kept = [i for i in range(1, count) if all(share(c, i) > 0.5 * usual[c.name] for c in contenders)]
    return kept or list(range(1, count))


def compare(name: str, contenders: list[Contender], threads: int, lengths: str) -> None:
    """Print one shape's table."""
    import torch

    torch.set_num_threads(threads)
    shape, rounds = SHAPES[name], undisturbed(contenders, threads)
    rates = {dtype: matmul_rate(dtype) for dtype in ("float32", "bfloat16")}
    sizes = f"{contenders[0].parameters / 1e6:.1f} M parameters, vocabulary {shape.vocabulary}"
    kept = f"{len(rounds)} rounds kept of {len(contenders[0].steps) - 1}"
    print(f"\nshape {name}: {sizes}, {PROMPTS * GROUP} x {shape.tokens} tokens, lengths {lengths}; {kept}")
    titles = ("wall s", "cpu s", *PARTS, "rest", "peak MB", "MFU")
    needed = parts_of(shape, lengths)
    print(" " * 16 + "".join(f"{title:>10}" for title in titles))
    for one in contenders:
        wall = one.median("wall", rounds)
        parts = [one.median(part, rounds) for part in PARTS]
        dtype = "float32" if one.name in ("trl-tuned", "assay-float32") else "bfloat16"
        share = sum(flops(shape, work) for work in needed.values()) / wall / rates[dtype]
        peak = max(step["peak"] for step in one.steps)
        numbers = (wall, one.median("processor", rounds), *parts, wall - sum(parts))
        print(f"{one.name:16}" + "".join(f"{n:10.3f}" for n in numbers) + f"{peak:10.0f}{share:10.0%}")
    theirs = [one for one in contenders if one.name in TRL]
    for ours in (one for one in contenders if one.name in OURS):
        if not theirs:
            break
        ratios = {
            key: statistics.median(min(t.steps[i][key] for t in theirs) / ours.steps[i][key] for i in rounds)
            for key in ("wall", "processor")
        }
        least = min(max(step["peak"] for step in t.steps) for t in theirs)
        memory = max(step["peak"] for step in ours.steps) / least
        speed = f"{ratios['wall']:.2f}x the best TRL's speed by wall time, {ratios['processor']:.2f}x by processor time"
        print(f"{ours.name}: {speed}; {memory:.2f} of the least TRL's peak memory")
    for ours in (one for one in contenders if one.name in OURS):
        generate = ours.median("generate", rounds)
        times = {"generate": generate, "update": ours.median("wall", rounds) - generate}
        for part, work in needed.items():
            floor = floor_of(shape, work, ours.name.removeprefix("assay-"))
            least = f"peak {floor.peak:.3f}, bare products {floor.products:.3f}, memory {floor.memory:.3f}"
            print(
                f"{ours.name} {part}: {times[part]:.3f} s; floor: {least}; bound by {floor.bound(times[part])}"
            )


def main() -> None:
    """Run the shapes one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--contenders", nargs="+", choices=[*TRL, *OURS], default=[*TRL, *OURS])
    parser.add_argument("--lengths", choices=("full", "spread"), default="full")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--contender", choices=[*TRL, *OURS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.contender:
        run_contender(asked.contender, asked.folder, SHAPES[asked.shapes[0]], asked.lengths)
        return
    for name in asked.shapes:
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), SHAPES[name])
            contenders = [
                Contender(one, name, Path(folder), asked.threads, asked.lengths) for one in asked.contenders
            ]
            for _ in range(asked.steps + 1):
                for one in contenders:
                    one.step()
            for one in contenders:
                one.close()
            compare(name, contenders, asked.threads, asked.lengths)


if __name__ == "__main__":
    main()
