"""Under ``match=`` an algorithm computes what the library computes: TRL's pinned vectors, others' formulas.

``trl_vectors.json`` is made by ``benchmarks/make_trl_vectors.py`` with TRL's own loss methods.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.algos.algorithm import Algorithm, TokenBatch
from assay.algos.recipes import make_algorithm
from assay.maths.preference import (
    dpo_margin,
    hinge_loss,
    ipo_loss,
    robust_dpo_loss,
    simpo_loss,
    smoothed_sigmoid_loss,
)
from assay.maths.rewards import soft_overlong_penalty

TRL: dict[str, Any] = json.loads((Path(__file__).parent / "trl_vectors.json").read_text("utf-8"))
INPUTS = {name: torch.tensor(values, dtype=torch.float64) for name, values in TRL["inputs"].items()}
MASK = INPUTS["mask"].bool()
GROUPS = torch.arange(8) // 4
MAX_LENGTH = TRL["max_length"]

TRL_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {}),
    "grpo_kl": ("grpo", {"kl_coef": 0.04}),
    "dr_grpo": ("dr_grpo", {}),
    "dapo": ("dapo", {}),
    "gspo": ("gspo", {}),
    "cispo": ("cispo", {}),
    "cispo_capped": ("cispo", {"cap": 1.1}),
    "rloo": ("rloo", {"kl_coef": 0.0}),
}


def run(algorithm: Algorithm, advantages: Tensor, dtype: torch.dtype = torch.float64) -> tuple[float, Tensor]:
    logp = INPUTS["logp"].to(dtype).requires_grad_()
    batch = TokenBatch(logp, INPUTS["old"].to(dtype), advantages, MASK, ref_logp_BT=INPUTS["ref"].to(dtype))
    loss = algorithm.loss(batch, algorithm.denominator(MASK, MAX_LENGTH)).loss
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("case", TRL_CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_losses_and_gradients_of_trl(case: str, dtype: torch.dtype, tolerance: float):
    name, options = TRL_CASES[case]
    algorithm = make_algorithm(name, match="trl", **options)
    advantages, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {})
    loss, gradient = run(algorithm, advantages, dtype)
    expected = TRL["losses"][case]
    assert loss == pytest.approx(expected["loss"], abs=tolerance)
    assert torch.allclose(gradient.double(), torch.tensor(expected["gradient"]).double(), atol=tolerance)


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        (
            "grpo_paper_loss",
            {"kl_coef": 0.04, "ddof": 1, "epsilon": 1e-4},
        ),  # our default with TRL's deviation
        ("two_sided", None),
    ],
)
def test_other_settings_of_trl(case: str, parts: dict[str, Any] | None):
    if parts is None:  # TRL's delta is our dual clip
        algorithm = make_algorithm("grpo", match="trl")
        algorithm = replace(algorithm, surrogate=replace(algorithm.surrogate, dual_clip=1.5))
    else:
        algorithm = make_algorithm("grpo", **parts)
    loss, gradient = run(algorithm, torch.tensor(TRL["advantages"]["group"]).double())
    assert loss == pytest.approx(TRL["losses"][case]["loss"], abs=1e-8)
    assert torch.allclose(gradient, torch.tensor(TRL["losses"][case]["gradient"]).double(), atol=1e-8)


@pytest.mark.parametrize(
    ("scale", "name", "options"),
    [
        ("group", "grpo", {}),
        ("none", "dr_grpo", {}),
        ("rloo", "rloo", {}),
        ("batch", "cispo", {"batch_scale": True}),
    ],
)
def test_advantages_of_trl(scale: str, name: str, options: dict[str, Any]):
    algorithm = make_algorithm(name, match="trl", **options)
    found, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {})
    # TRL's factor n / (n - 1) is a float32 even in float64, hence 1e-7; the exact values are in test_advantages.
    assert found.tolist() == pytest.approx(TRL["advantages"][scale], abs=1e-7)


def test_preference_losses_of_trl():
    pairs = TRL["preference"]
    logp = torch.tensor(pairs["logp"], dtype=torch.float64).requires_grad_()
    ref = torch.tensor(pairs["ref"], dtype=torch.float64)
    margin = dpo_margin(logp[:3].sum(1), logp[3:].sum(1), ref[:3], ref[3:], beta=1.0)
    ours = {
        "dpo": smoothed_sigmoid_loss(0.1 * margin),
        "robust": robust_dpo_loss(0.1 * margin, label_smoothing=0.1),
        "hinge": hinge_loss(0.1 * margin),
        "ipo": ipo_loss(margin / 4, tau=0.1),  # TRL divides the log ratios by their 4 tokens
    }
    for name, losses in ours.items():
        (gradient,) = torch.autograd.grad(losses.mean(), logp, retain_graph=True)
        assert float(losses.detach().mean()) == pytest.approx(pairs[name]["loss"], abs=1e-8)
        assert torch.allclose(gradient, torch.tensor(pairs[name]["gradient"]).double(), atol=1e-8)


def test_simpo_and_overlong_of_trl():
    chosen, rejected = (torch.tensor(TRL["simpo"][k]).double() for k in ("chosen", "rejected"))
    assert simpo_loss(chosen, rejected, beta=2.0, gamma=1.0).tolist() == pytest.approx(TRL["simpo"]["losses"])
    lengths = torch.tensor(TRL["overlong"]["lengths"])
    found = soft_overlong_penalty(lengths, max_length=100, cache=20)
    assert found.tolist() == pytest.approx(TRL["overlong"]["penalties"])


# verl and OpenRLHF, from their published formulas, written here a second time without this project's functions.


def verl_policy_loss(logp: Tensor, advantage_BT: Tensor, high: float = 0.2) -> Tensor:
    """Vanilla loss: clip 0.2, dual clip 3 for A < 0, mean over all tokens."""
    ratio = (logp - INPUTS["old"]).clamp(-20, 20).exp()
    first = torch.max(-advantage_BT * ratio, -advantage_BT * ratio.clamp(0.8, 1 + high))
    second = torch.where(advantage_BT < 0, torch.min(-3 * advantage_BT, first), first)
    return second[MASK].mean()


def groupwise(function) -> Tensor:
    return torch.cat([function(INPUTS["rewards"][g == GROUPS]) for g in (0, 1)])


VERL = {
    "grpo": lambda r: (r - r.mean()) / (r.std() + 1e-6),
    "rloo": lambda r: r * 4 / 3 - r.mean() * 4 / 3,
    "dapo": lambda r: (r - r.mean()) / (r.std() + 1e-6),
}


@pytest.mark.parametrize("name", VERL)
def test_verl(name: str):
    algorithm = make_algorithm(name, match="verl", **({"overlong": "keep"} if name == "dapo" else {}))
    advantages, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {})
    expected = groupwise(VERL[name])
    assert torch.allclose(advantages, expected, atol=1e-10)
    logp = INPUTS["logp"].clone().requires_grad_()
    reference = verl_policy_loss(
        logp, expected[:, None].expand_as(logp), high=0.28 if name == "dapo" else 0.2
    )
    loss, gradient = run(algorithm, advantages)
    assert loss == pytest.approx(float(reference.detach()), abs=1e-10)
    assert torch.allclose(gradient, torch.autograd.grad(reference, logp)[0], atol=1e-10)


def test_verl_reinforce_pp_whitens_with_the_unbiased_variance():
    algorithm = make_algorithm("reinforce_pp", match="verl")
    found, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {}, mask_BT=MASK)
    returns = INPUTS["rewards"][:, None].expand(MASK.shape)
    values = returns[MASK]
    assert torch.allclose(found[MASK], (values - values.mean()) * (values.var() + 1e-8).rsqrt(), atol=1e-10)


def test_verl_gspo_token_form_and_k3_clamp():
    algorithm = make_algorithm("gspo", match="verl", kl_coef=0.1)
    advantages, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {})
    logp = INPUTS["logp"].clone().requires_grad_()
    log_ratio = torch.where(MASK, logp - INPUTS["old"], 0.0)
    mean = (log_ratio.sum(1) / MASK.sum(1)).detach()[:, None]
    ratio = (logp - logp.detach() + mean).exp()
    a = advantages[:, None]
    loss_BT = torch.max(-a * ratio, -a * ratio.clamp(0.8, 1.2))
    x = (INPUTS["ref"] - logp).clamp(-20, 20)
    loss_BT = loss_BT + 0.1 * (x.exp() - x - 1).clamp(-10, 10)
    reference = (torch.where(MASK, loss_BT, 0.0).sum(1) / MASK.sum(1)).mean()
    loss, gradient = run(algorithm, advantages)
    assert loss == pytest.approx(float(reference.detach()), abs=1e-10)
    assert torch.allclose(gradient, torch.autograd.grad(reference, logp)[0], atol=1e-10)


def openrlhf_returns(centred: Tensor, kl: Tensor) -> Tensor:
    """Reward on the last token minus 0.01 k1 at each, summed from the end."""
    token = torch.where(MASK, -0.01 * kl.clamp(-10, 10), 0.0)
    last = MASK.sum(1) - 1
    token[torch.arange(8), last] += centred.clamp(-10, 10)
    return torch.where(MASK, token.flip(1).cumsum(1).flip(1), 0.0)


@pytest.mark.parametrize(
    ("name", "centre"),
    [
        ("grpo", lambda r: (r - r.mean()) / (r.std() + 1e-9)),
        ("dr_grpo", lambda r: r - r.mean()),
        ("rloo", lambda r: r - (r.sum() - r) / 3),
    ],
)
def test_openrlhf(name: str, centre):
    algorithm = make_algorithm(name, match="openrlhf")
    kl = INPUTS["old"] - INPUTS["ref"]
    kl[0, 0], kl[5, 2] = 40.0, -25.0  # beyond its clamp
    found, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {}, mask_BT=MASK, token_kl_BT=kl)
    expected = openrlhf_returns(groupwise(centre), kl)
    assert torch.allclose(found, expected, atol=1e-10)
    logp = INPUTS["logp"].clone().requires_grad_()
    ratio = (logp - INPUTS["old"]).clamp(-20, 20).exp()
    reference = torch.max(-expected * ratio, -expected * ratio.clamp(0.8, 1.2))[MASK].mean()
    loss, gradient = run(algorithm, found)
    assert loss == pytest.approx(float(reference.detach()), abs=1e-10)
    assert torch.allclose(gradient, torch.autograd.grad(reference, logp)[0], atol=1e-10)


def test_openrlhf_reinforce_pp_uses_the_biased_variance():
    algorithm = make_algorithm("reinforce_pp", match="openrlhf")
    kl = INPUTS["old"] - INPUTS["ref"]
    found, _ = algorithm.advantages(INPUTS["rewards"], GROUPS, {}, mask_BT=MASK, token_kl_BT=kl)
    values = openrlhf_returns(INPUTS["rewards"], kl)[MASK]
    expected = (values - values.mean()) * values.var(correction=0).clamp(min=1e-8).rsqrt()
    assert torch.allclose(found[MASK], expected, atol=1e-10)


@pytest.mark.parametrize("library", ["trl", "verl", "openrlhf"])
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.6, 0.9])
def test_groups_without_spread_are_zero_under_every_preset(library: str, reward: float):
    algorithm = make_algorithm("grpo", match=library, **({"kl_coef": 0.0} if library == "openrlhf" else {}))
    rewards = torch.full((8,), reward, dtype=torch.float32)
    mask = torch.ones(8, 3, dtype=torch.bool)
    advantages, _ = algorithm.advantages(rewards, torch.zeros(8, dtype=torch.long), {}, mask_BT=mask)
    assert float(advantages.abs().max()) == 0.0
