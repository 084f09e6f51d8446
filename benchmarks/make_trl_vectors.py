"""Make the pinned vectors of the parity tests with TRL's own code: losses, gradients, advantages.

    pip install --no-deps trl==1.16.0 datasets pyarrow dill multiprocess xxhash pandas
    python benchmarks/make_trl_vectors.py tests/algos/trl_vectors.json

TRL's trainers compute their losses in methods; here each is called on a stand-in for the trainer that hands it
the log-probs instead of running a model. Inputs are random and seeded; everything is float64.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import torch
import trl
from trl import DPOTrainer, GRPOTrainer, RLOOTrainer
from trl.experimental.cpo import CPOTrainer
from trl.rewards import get_soft_overlong_punishment
from trl.trainer.utils import nanstd

B, G, T = 8, 4, 5
MAX_LENGTH = 9
GRPO_CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "dapo"},
    "grpo_kl": {"loss_type": "dapo", "beta": 0.04},
    "grpo_paper_loss": {"loss_type": "grpo", "beta": 0.04},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "two_sided": {"loss_type": "dapo", "delta": 1.5},
    "gspo": {"loss_type": "dapo", "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "cispo_capped": {"loss_type": "cispo", "epsilon_high": 1.1},
}
DPO_CASES = {"dpo": ("sigmoid", 0.0), "robust": ("robust", 0.1), "hinge": ("hinge", 0.0), "ipo": ("ipo", 0.0)}


def accelerator() -> Any:
    identity = lambda x, **_: x  # noqa: E731
    return SimpleNamespace(
        num_processes=1,
        gather=identity,
        gather_for_metrics=identity,
        reduce=identity,
        sync_gradients=True,
        device=torch.device("cpu"),
    )


def trainer_like(logp: torch.Tensor, **settings: Any) -> Any:
    """Everything that the trainers' loss methods read from themselves."""
    epsilon = settings.get("epsilon", 0.2)
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, torch.zeros_like(logp), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=settings.get("importance_sampling_level", "token"),
        beta=settings.get("beta", 0.0),
        loss_type=settings.get("loss_type", "dapo"),
        epsilon_low=epsilon,
        epsilon_high=settings.get("epsilon_high", epsilon),
        args=SimpleNamespace(
            delta=settings.get("delta"), use_bias_correction_kl=False, steps_per_generation=1
        ),
        use_vllm=False,
        model=SimpleNamespace(training=True),
        accelerator=accelerator(),
        current_gradient_accumulation_steps=1,
        max_completion_length=MAX_LENGTH,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )


def batch(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Log-probs far enough from the old ones that some tokens clip on each side; no group without spread."""
    old = -2 * torch.rand(B, T, generator=generator, dtype=torch.float64)
    logp = old + 0.4 * torch.randn(B, T, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([5, 3, 4, 1, 2, 5, 3, 4])
    return {
        "logp": logp,
        "old": old,
        "ref": old + 0.3 * torch.randn(B, T, generator=generator, dtype=torch.float64),
        "mask": torch.arange(T) < lengths[:, None],
        "rewards": torch.rand(B, generator=generator, dtype=torch.float64),
    }


def trl_inputs(b: dict[str, torch.Tensor], advantages: torch.Tensor) -> dict[str, torch.Tensor]:
    ones = torch.ones(B, 1, dtype=torch.long)
    return {
        "prompt_ids": ones,
        "prompt_mask": ones,
        "completion_ids": torch.ones(B, T, dtype=torch.long),
        "completion_mask": b["mask"].long(),
        "advantages": advantages,
        "old_per_token_logps": b["old"],
        "old_logps": (b["old"] * b["mask"]).sum(1),
        "ref_per_token_logps": b["ref"],
        "num_items_in_batch": b["mask"].sum(),
    }


def loss_and_gradient(method: Any, b: dict[str, torch.Tensor], advantages: torch.Tensor, **settings: Any):
    logp = b["logp"].clone().requires_grad_()
    loss = method(trainer_like(logp, **settings), Mock(), trl_inputs(b, advantages))
    (gradient,) = torch.autograd.grad(loss, logp)
    return {"loss": float(loss.detach()), "gradient": gradient.tolist()}


def dpo_losses(generator: torch.Generator) -> dict[str, Any]:
    """Mean losses over three pairs, and their gradient in the log-probs (chosen rows first)."""
    logp = -3 * torch.rand(6, 4, generator=generator, dtype=torch.float64)
    ref = -8 * torch.rand(6, generator=generator, dtype=torch.float64)
    mask = torch.ones(6, 5, dtype=torch.long)
    mask[:, 0] = 0  # one prompt token; four of the completion
    found: dict[str, Any] = {"logp": logp.tolist(), "ref": ref.tolist(), "beta": 0.1}
    for name, (loss_type, smoothing) in DPO_CASES.items():
        rows = logp.clone().requires_grad_()
        trainer = SimpleNamespace(
            aux_loss_enabled=False,
            ld_alpha=None,
            precompute_ref_logps=True,
            f_divergence_type="reverse_kl",
            use_weighting=False,
            loss_types=[loss_type],
            loss_weights=[1.0],
            beta=0.1,
            label_smoothing=smoothing,
            accelerator=accelerator(),
            model=SimpleNamespace(training=True),
            _metrics={"train": defaultdict(list)},
            _total_train_tokens=0,
            _tp_size=1,
        )
        zeros = torch.zeros(6, 4, dtype=torch.float64)
        outputs = SimpleNamespace(log_probs=rows, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
        inputs = {
            "input_ids": torch.ones(6, 5, dtype=torch.long),
            "attention_mask": torch.ones(6, 5, dtype=torch.long),
            "completion_mask": mask,
            "ref_chosen_logps": ref[:3],
            "ref_rejected_logps": ref[3:],
        }
        loss = DPOTrainer._compute_loss(trainer, lambda _o=outputs, **_: _o, inputs, False)
        (gradient,) = torch.autograd.grad(loss, rows)
        found[name] = {"loss": float(loss.detach()), "gradient": gradient.tolist()}
    return found


def main(path: str) -> None:
    generator = torch.Generator().manual_seed(7)
    b = batch(generator)
    groups = b["rewards"].view(-1, G)
    centred = b["rewards"] - groups.mean(1).repeat_interleave(G)
    deviation = torch.stack([nanstd(row) for row in groups]).repeat_interleave(G)
    advantages = {
        "group": centred / (deviation + 1e-4),
        "batch": centred / (nanstd(b["rewards"]) + 1e-4),
        "none": centred,
        "rloo": centred * G / (G - 1),
    }
    used = {"dr_grpo": "none"}
    found: dict[str, Any] = {
        "trl": trl.__version__,
        "max_length": MAX_LENGTH,
        "inputs": {name: tensor.tolist() for name, tensor in b.items()},
        "advantages": {name: tensor.tolist() for name, tensor in advantages.items()},
        "losses": {
            name: loss_and_gradient(
                GRPOTrainer._compute_loss, b, advantages[used.get(name, "group")], **settings
            )
            for name, settings in GRPO_CASES.items()
        },
    }
    found["losses"]["rloo"] = loss_and_gradient(RLOOTrainer._compute_loss, b, advantages["rloo"])
    found["preference"] = dpo_losses(generator)
    chosen, rejected = -torch.rand(2, 3, generator=generator, dtype=torch.float64)
    simpo = SimpleNamespace(
        alpha=0.0,
        beta=2.0,
        simpo_gamma=1.0,
        loss_type="simpo",
        label_smoothing=0.0,
        accelerator=accelerator(),
    )
    found["simpo"] = {
        "chosen": chosen.tolist(),
        "rejected": rejected.tolist(),
        "losses": CPOTrainer.cpo_loss(simpo, chosen, rejected)[0].tolist(),
    }
    lengths = [10, 80, 81, 90, 100, 101]
    found["overlong"] = {
        "lengths": lengths,
        "penalties": get_soft_overlong_punishment(100, 20)([[0] * n for n in lengths]),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
