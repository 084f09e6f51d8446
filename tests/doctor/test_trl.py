"""Real traces: TRL's trainers on a tiny model, healthy and with one fault in the user's code; the doctor reads both
what the callback wrote and the trainer's own state."""

import json
import random

import pytest

from assay.doctor import TRLCallback
from assay.doctor.diagnosis import diagnose

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
trl, datasets, torch = (pytest.importorskip(name) for name in ("trl", "datasets", "torch"))

WORDS = ["<pad>", "<eos>", *map(str, range(10)), "+", "="]
SUMS = [{"prompt": f"{a} + {b} =", "answer": str((a + b) % 10)} for a in range(8) for b in range(8)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with an untrained model and its tokenizer: some trainers load the reference from there."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("base")
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>").save_pretrained(
        folder
    )
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1,
                         bos_token_id=None)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


# rewards: columns of the data set come by name --------------------------------------------------------


def right(completion, answer):
    return float(answer in completion.split())


def ends_right(completion, answer):
    return float((completion.split() or [""])[-1] == answer)


def good(completions, answer, **_):
    return [right(c, a) for c, a in zip(completions, answer, strict=True)]


def constant(completions, **_):
    return [0.0] * len(completions)


def sees_nothing(completions, **_):
    return [None] * len(completions)


def often_silent(completions, answer, **_):
    return [None if random.random() < 0.6 else s for s in good(completions, answer)]


def inverted(completions, answer, **_):
    return [1.0 - s for s in good(completions, answer)]


def a_coin(completions, **_):
    return [float(random.random() < 0.5) for _ in completions]


def of_the_neighbour(completions, answer, **_):
    return good([*completions[1:], completions[0]], answer)


def marker(completions, answer, **_):
    return [
        float("+" in c.split() or s > 0) for c, s in zip(completions, good(completions, answer), strict=True)
    ]


def style(completions, **_):
    return [12 * random.random() for _ in completions]


# faults in the user's trainer -------------------------------------------------------------------------


def loss_times(factor, name="_compute_loss"):
    def spoil(trainer):
        inner = getattr(trainer, name)

        def outer(*args, **kwargs):
            out = inner(*args, **kwargs)
            return (out[0] * factor, *out[1:]) if isinstance(out, tuple) else out * factor

        setattr(trainer, name, outer)

    return spoil


def advantages(change):
    def spoil(trainer):
        inner = trainer._generate_and_score_completions

        def outer(inputs):
            output = inner(inputs)
            return {**output, "advantages": change(output["advantages"])}

        trainer._generate_and_score_completions = outer

    return spoil


def shuffled(values):
    return values[torch.randperm(len(values))]


def seeded():
    torch.manual_seed(0)
    random.seed(0)


def tokenizer_of(base):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


def common(folder, steps, **settings):
    return dict(output_dir=str(folder / "out"), max_steps=steps, logging_steps=1, report_to=[], use_cpu=True,
                save_strategy="no", bf16=False, disable_tqdm=True, **settings)  # fmt: skip


def watched(folder, trainer, spoil, truth=None):
    """Train, and return the diagnoses of the callback's folder and of the trainer's own state."""
    if spoil:
        spoil(trainer)
    callback = TRLCallback(folder / "watch", every=0, truth=truth).attach(trainer)
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    return callback, diagnose(folder / "watch"), diagnose(folder / "trainer_state.json")


def online(kind, base, folder, reward, spoil=None, *, steps=12, judge=right, **settings):
    from transformers import LlamaForCausalLM

    seeded()
    options = {"per_device_train_batch_size": 32, "num_generations": 4, "max_completion_length": 16,
               "learning_rate": 5e-3, **settings}  # fmt: skip
    trainer = getattr(trl, f"{kind}Trainer")(
        model=LlamaForCausalLM.from_pretrained(base), reward_funcs=reward,
        args=getattr(trl, f"{kind}Config")(**common(folder, steps, **options)),
        train_dataset=datasets.Dataset.from_list(SUMS), processing_class=tokenizer_of(base),
    )  # fmt: skip
    return watched(folder, trainer, spoil, lambda completion, row: judge(completion, row["answer"]))


def preferences(kind, base, folder, spoil=None, *, steps=60, **settings):
    """The first number of the prompt is preferred to another one."""
    from transformers import LlamaForCausalLM, LlamaForSequenceClassification

    seeded()
    rows = []
    for _ in range(256):
        prompt = random.choice(SUMS)["prompt"]
        wrong = (int(prompt[0]) + random.randint(1, 9)) % 10
        rows.append({"prompt": prompt, "chosen": f" {prompt[0]} <eos>", "rejected": f" {wrong} <eos>"})
    model = (LlamaForCausalLM.from_pretrained(base) if kind == "DPO"
             else LlamaForSequenceClassification.from_pretrained(base, num_labels=1))  # fmt: skip
    options = {"per_device_train_batch_size": 16, "learning_rate": 1e-2, **settings}
    trainer = getattr(trl, f"{kind}Trainer")(
        model=model, args=getattr(trl, f"{kind}Config")(**common(folder, steps, **options)),
        train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer_of(base),
    )  # fmt: skip
    return watched(folder, trainer, spoil)


def failed(diagnosis):
    return [found.id for found in diagnosis.of("fail")]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"steps": 30}, {"beta": 0.04}, {"num_iterations": 2},
     {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}],
    ids=str,
)  # fmt: skip
def test_a_healthy_run_is_left_in_peace(base, tmp_path, kind, settings):
    callback, watch, state = online(kind, base, tmp_path, good, **settings)
    assert [callback.findings, failed(watch), failed(state)] == [[], [], []]
    rows = [json.loads(line) for line in (tmp_path / "watch" / "rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 32 * settings.get("steps", 12) // settings.get(
        "num_iterations", 1
    )  # once a generation
    assert all(len(row["token_ids"]) == row["length"] for row in rows)
    assert {tuple(row["reward_parts"]) for row in rows} == {("good",)}


FAULTS = {
    "constant": ({"reward": constant}, "reward.constant"),
    "sees_nothing": ({"reward": sees_nothing}, "reward.missing"),
    "often_silent": ({"reward": often_silent}, "reward.missing"),
    "inverted": ({"reward": inverted}, "reward.inverted"),
    "a_coin": ({"reward": a_coin}, "reward.unrelated_to_truth"),
    "of_the_neighbour": ({"reward": of_the_neighbour}, "reward.unrelated_to_truth"),
    "style": ({"reward": [good, style]}, "reward.component_dominates"),
    "marker": ({"reward": marker, "steps": 40, "judge": ends_right}, "hacking.reward_without_truth"),
    "detached": ({"reward": good, "spoil": loss_times(0.0)}, "loss.no_gradient"),
    "maximised": ({"reward": good, "spoil": loss_times(-1.0), "steps": 30}, "loss.inverted"),
    "no_rate": ({"reward": good, "learning_rate": 0.0}, "loss.nothing_trains"),
    "wild": (
        {"reward": good, "learning_rate": 2.0, "beta": 0.01, "max_grad_norm": 1e9, "steps": 30},
        "loss.step_too_large",
    ),
    "cut": ({"reward": good, "max_completion_length": 1}, "decode.truncated"),
    "turned": ({"reward": good, "spoil": advantages(lambda a: -a)}, "advantage.inverted"),
    "tiny": ({"reward": good, "spoil": advantages(lambda a: a * 1e-5)}, "advantage.collapsed"),
    "shuffled": ({"reward": good, "spoil": advantages(shuffled)}, "advantage.grouping"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_grpo_run_is_the_root_cause(base, tmp_path, name):
    settings, expected = FAULTS[name]
    _, watch, _ = online("GRPO", base, tmp_path, **settings)
    assert watch.root_cause is not None
    assert watch.root_cause.id == expected


@pytest.mark.parametrize("name", ["constant", "inverted", "detached", "turned"])
def test_a_fault_of_an_rloo_run_is_the_root_cause(base, tmp_path, name):
    settings, expected = FAULTS[name]
    _, watch, _ = online("RLOO", base, tmp_path, **settings)
    assert watch.root_cause is not None
    assert watch.root_cause.id == expected


@pytest.mark.parametrize("kind", ["DPO", "Reward"])
def test_learning_from_preferences_is_healthy(base, tmp_path, kind):
    callback, watch, state = preferences(kind, base, tmp_path)
    assert callback.findings == []
    assert [watch.verdict, state.verdict] == ["healthy", "healthy"]


@pytest.mark.parametrize("kind", ["DPO", "Reward"])
@pytest.mark.parametrize(
    ("spoil", "settings", "expected"),
    [(loss_times(-1.0, "compute_loss"), {}, "loss.inverted"),
     (loss_times(0.0, "compute_loss"), {}, "loss.no_gradient"),
     (None, {"learning_rate": 0.0}, "loss.nothing_trains")],
    ids=["maximised", "detached", "no_rate"],
)  # fmt: skip
def test_a_fault_of_a_preference_run_is_the_root_cause(base, tmp_path, kind, spoil, settings, expected):
    for diagnosis in preferences(kind, base, tmp_path, spoil, steps=25, **settings)[1:]:
        assert diagnosis.root_cause is not None
        assert diagnosis.root_cause.id == expected
