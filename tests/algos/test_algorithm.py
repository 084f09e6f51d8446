"""An algorithm on batches: laws of the step's loss, shaping, masks, state, metrics."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.algos.algorithm import Algorithm, TokenBatch, combine_metrics
from assay.algos.parts import Correction, KLPenalty
from assay.algos.recipes import RECIPES, make_algorithm
from assay.errors import BadInput


def random_batch(seed: int, B: int = 6, T: int = 4) -> tuple[TokenBatch, Tensor, Tensor]:
    """A batch with drifted log-probs, its rewards and its groups of three."""
    g = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(B, T, generator=g, dtype=torch.float64) - 0.1
    drift = 0.3 * torch.randn(3, B, T, generator=g, dtype=torch.float64)
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    mask = torch.arange(T) < lengths[:, None]
    entropy = torch.rand(B, T, generator=g, dtype=torch.float64)
    batch = TokenBatch(
        old + drift[0], old, torch.zeros(B), mask, old + drift[1], old + drift[2], entropy, entropy / 2
    )
    return batch, torch.rand(B, generator=g, dtype=torch.float64), torch.arange(B) % 2


def prepared(algorithm: Algorithm, seed: int) -> TokenBatch:
    batch, rewards, groups = random_batch(seed)
    kl = batch.old_logp_BT - batch.ref_logp_BT
    shaped = algorithm.shape_rewards(
        rewards, sequence_kl_B=(kl * batch.mask_BT).sum(1), lengths_B=batch.mask_BT.sum(1), max_length=4
    )
    advantages, _ = algorithm.advantages(shaped, groups, {}, mask_BT=batch.mask_BT, token_kl_BT=kl)
    return batch._replace(advantages_B=advantages)


def gradient(algorithm: Algorithm, batch: TokenBatch, denominator: float) -> tuple[float, Tensor]:
    logp = batch.logp_BT.detach().requires_grad_()
    loss = algorithm.loss(batch._replace(logp_BT=logp), denominator).loss
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0]


def rows(batch: TokenBatch, index: Tensor) -> TokenBatch:
    return TokenBatch(*(None if x is None else x[index] for x in batch))


VARIANTS = [(name, match) for name, (_, presets) in RECIPES.items() for match in (None, *presets)]


@pytest.mark.parametrize(("name", "match"), VARIANTS)
@settings(max_examples=8)
@given(seed=st.integers(0, 999))
def test_micro_batches_order_and_padding_do_not_matter(name: str, match: str | None, seed: int):
    algorithm = replace(make_algorithm(name, match=match), entropy_coef=0.1)
    batch = prepared(algorithm, seed)
    total = algorithm.denominator(batch.mask_BT, 4)
    loss, whole = gradient(algorithm, batch, total)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    parts = [(i, *gradient(algorithm, rows(batch, i), total)) for i in (order[:2], order[2:5], order[5:])]
    assert sum(value for _, value, _ in parts) == pytest.approx(loss, abs=1e-10)
    for index, _, part in parts:
        assert torch.allclose(part, whole[index], atol=1e-10)
    poison = [math.nan, math.inf, -math.inf, math.nan]

    def pad(x: Tensor | None) -> Tensor | None:
        if x is None or x.ndim == 1:
            return x
        if x.dtype == torch.bool:
            return torch.cat([x, torch.zeros(6, 4, dtype=torch.bool)], 1)
        return torch.cat([x, torch.tensor(poison, dtype=x.dtype).expand(6, 4)], 1)

    padded = TokenBatch(*(pad(x) for x in batch))
    assert algorithm.denominator(padded.mask_BT, 4) == total
    padded_loss, padded_gradient = gradient(algorithm, padded, total)
    assert padded_loss == pytest.approx(loss, abs=1e-10)
    assert torch.allclose(padded_gradient[:, :4], whole, atol=1e-10)
    assert padded_gradient[:, 4:].abs().max() == 0.0


@pytest.mark.parametrize(("name", "match"), VARIANTS)
@settings(max_examples=5)
@given(seed=st.integers(0, 999))
def test_a_single_update_has_the_reinforce_gradient(name: str, match: str | None, seed: int):
    algorithm = make_algorithm(name, match=match).with_kl_coef(0.0)
    algorithm = replace(algorithm, correction=None)
    batch = prepared(algorithm, seed)
    batch = batch._replace(old_logp_BT=batch.logp_BT)  # ratio 1
    total = algorithm.denominator(batch.mask_BT, 4)
    plain = replace(algorithm, surrogate=replace(algorithm.surrogate, kind="reinforce"))
    _, expected = gradient(plain, batch, total)
    _, found = gradient(algorithm, batch, total)
    if algorithm.surrogate.level == "sequence_sum":  # one ratio for the sequence, mean over its tokens
        expected = expected * batch.mask_BT.sum(1, keepdim=True)
    if algorithm.surrogate.level == "sequence" and algorithm.credit.spread != "sequence":
        expected = torch.where(
            batch.mask_BT, expected.sum(1, keepdim=True) / batch.mask_BT.sum(1, keepdim=True), 0
        )
    assert torch.allclose(found, expected, atol=1e-10)


def test_reinforce_equals_the_policy_gradient_on_a_softmax():
    """Two tokens a completion, all completions enumerated: the mean loss gradient is -dJ/dlogits."""
    logits = torch.tensor([[0.3, -0.2, 0.1], [0.5, 0.0, -0.4]], dtype=torch.float64, requires_grad=True)
    logp_all = torch.log_softmax(logits, 1)
    reward = torch.rand(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    joint = logp_all[0].exp()[:, None] * logp_all[1].exp()
    (expected,) = torch.autograd.grad((joint * reward).sum(), logits, retain_graph=True)
    algorithm = make_algorithm("reinforce", baseline="none")
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    mask = torch.ones(1, 2, dtype=torch.bool)
    total = torch.zeros_like(logits)
    for a, b in pairs.tolist():
        logp = torch.stack([logp_all[0, a], logp_all[1, b]])[None]
        advantage, _ = algorithm.advantages(reward[a, b][None], torch.zeros(1, dtype=torch.long), {})
        loss = algorithm.loss(
            TokenBatch(logp, logp.detach(), advantage, mask), algorithm.denominator(mask, 2)
        ).loss
        total += float(joint.detach()[a, b]) * torch.autograd.grad(loss, logits, retain_graph=True)[0]
    assert torch.allclose(-total, expected, atol=1e-12)


def test_scores_that_are_missing_are_not_trained():
    algorithm = make_algorithm("grpo")
    rewards = torch.tensor([1.0, 0.0, math.nan, 1.0]).double()
    advantages, _ = algorithm.advantages(rewards, torch.zeros(4, dtype=torch.long), {})
    assert float(advantages[2]) == 0.0
    mask = algorithm.training_mask(torch.ones(4, 2, dtype=torch.bool), rewards)
    assert mask.any(1).tolist() == [True, True, False, True]
    assert algorithm.denominator(mask, 2) == 3.0


def test_truncated_completions_can_be_masked_and_stay_in_the_statistics():
    algorithm = make_algorithm("dapo", overlong="mask")
    rewards, truncated = torch.tensor([1.0, 0.0, 0.0]).double(), torch.tensor([False, False, True])
    mask = algorithm.training_mask(torch.ones(3, 2, dtype=torch.bool), rewards, truncated_B=truncated)
    assert mask.any(1).tolist() == [True, True, False]
    assert algorithm.denominator(mask, 2) == 4.0
    advantages, _ = algorithm.advantages(rewards, torch.zeros(3, dtype=torch.long), {})
    assert float(advantages[0]) == pytest.approx(math.sqrt(2), abs=1e-5)  # of three, not of two
    with pytest.raises(BadInput, match="pass truncated_B"):
        algorithm.training_mask(mask, rewards)


def test_shaping():
    rewards, kl = torch.tensor([1.0, math.nan]).double(), torch.tensor([2.0, 1.0])
    shaped = make_algorithm("rloo", kl_coef=0.1).shape_rewards(rewards, sequence_kl_B=kl)
    assert float(shaped[0]) == pytest.approx(0.8)
    assert math.isnan(float(shaped[1]))
    dapo = make_algorithm("dapo")
    punished = dapo.shape_rewards(rewards[:1], lengths_B=torch.tensor([90]), max_length=100)
    assert float(punished[0]) == pytest.approx(0.5)
    with pytest.raises(BadInput, match="sequence_kl_B"):
        make_algorithm("rloo").shape_rewards(rewards)
    with pytest.raises(BadInput, match="lengths_B and max_length"):
        dapo.shape_rewards(rewards)


def test_moving_average_state_is_plain_and_carried():
    algorithm = make_algorithm("reinforce", baseline="moving_average", decay=0.5)
    groups = torch.zeros(2, dtype=torch.long)
    _, state = algorithm.advantages(torch.tensor([1.0, 0.0]).double(), groups, {"other": 7.0})
    assert state == {"other": 7.0, "moving_average": 0.5}
    advantages, state = algorithm.advantages(torch.tensor([1.0, 1.0]).double(), groups, state)
    assert advantages.tolist() == [0.5, 0.5]
    assert state["moving_average"] == 0.75


@pytest.mark.parametrize(
    "baseline",
    [
        "none",
        "constant",
        "group_mean",
        "leave_one_out",
        "group_standardised",
        "group_mean_batch_scaled",
        "batch_standardised",
    ],
)
def test_every_baseline_of_reinforce(baseline: str):
    algorithm = make_algorithm("reinforce", baseline=baseline, baseline_value=0.5)
    found, _ = algorithm.advantages(
        torch.tensor([1.0, 0.0, 0.0, 0.0]).double(), torch.tensor([0, 0, 1, 1]), {}
    )
    first, second = found[:2].tolist(), found[2:].tolist()
    expected = {
        "none": ([1.0, 0.0], [0.0, 0.0]),
        "constant": ([0.5, -0.5], [-0.5, -0.5]),
        "group_mean": ([0.5, -0.5], [0.0, 0.0]),
        "leave_one_out": ([1.0, -1.0], [0.0, 0.0]),
        "group_standardised": ([1.0, -1.0], [0.0, 0.0]),
        "group_mean_batch_scaled": ([0.5 / 0.4330127, -0.5 / 0.4330127], [0.0, 0.0]),
        "batch_standardised": ([1.7320508, -0.5773503], [-0.5773503, -0.5773503]),
    }[baseline]
    assert (first, second) == (pytest.approx(expected[0], abs=1e-6), pytest.approx(expected[1], abs=1e-6))


def test_reinforce_pp_charges_each_token_for_the_kl_that_follows():
    algorithm = make_algorithm("reinforce_pp", kl_coef=0.5)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    kl = torch.tensor([[0.1, 0.2, 9.0], [0.0, 0.0, 0.4]]).double()
    found, _ = algorithm.advantages(
        torch.tensor([1.0, 0.0]).double(), torch.arange(2), {}, mask_BT=mask, token_kl_BT=kl
    )
    returns = torch.tensor([0.85, 0.9, -0.2, -0.2, -0.2], dtype=torch.float64)
    assert found[mask].tolist() == pytest.approx(
        ((returns - returns.mean()) / returns.std()).tolist(), abs=1e-6
    )
    with pytest.raises(BadInput, match="pass mask_BT"):
        algorithm.advantages(torch.zeros(2).double(), torch.arange(2), {})
    with pytest.raises(BadInput, match="needs token_kl_BT"):
        algorithm.advantages(torch.zeros(2).double(), torch.arange(2), {}, mask_BT=mask)


def test_a_flat_group_stays_zero_after_whitening():
    algorithm = make_algorithm("reinforce_pp", group_baseline=True, kl_coef=0.0)
    rewards = torch.tensor([1.0, 1.0, 1.0, 0.0]).double()
    mask = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
    found, _ = algorithm.advantages(rewards, torch.tensor([0, 0, 1, 1]), {}, mask_BT=mask)
    assert found[:2].abs().max() == 0.0
    assert float(found[2, 0]) > 0 > float(found[3, 0])


@pytest.mark.parametrize(
    ("change", "missing", "message"),
    [
        ({"kl": KLPenalty(coef=0.1)}, "ref_logp_BT", "needs ref_logp_BT"),
        ({"kl": KLPenalty(coef=0.1, estimator="exact")}, "kl_BT", "needs kl_BT"),
        ({"entropy_coef": 0.1}, "entropy_BT", "needs entropy_BT"),
        ({"correction": Correction()}, "sampler_logp_BT", "needs sampler_logp_BT"),
    ],
)
def test_what_a_batch_lacks_is_named(change: dict, missing: str, message: str):
    algorithm = replace(make_algorithm("dr_grpo"), **change)
    batch = prepared(algorithm, 0)
    algorithm.loss(batch, 1.0)
    with pytest.raises(BadInput, match=message):
        algorithm.loss(batch._replace(**{missing: None}), 1.0)


def test_bad_shapes():
    algorithm, batch = make_algorithm("dr_grpo"), prepared(make_algorithm("dr_grpo"), 0)
    with pytest.raises(BadInput, match="expected advantages of shape"):
        algorithm.loss(batch._replace(advantages_B=torch.zeros(5)), 1.0)
    with pytest.raises(BadInput, match="boolean mask"):
        algorithm.loss(batch._replace(mask_BT=batch.mask_BT.long()), 1.0)


def test_terms_add_up_and_the_weights_touch_only_the_policy_loss():
    algorithm = replace(
        make_algorithm("grpo", kl_coef=0.3),
        entropy_coef=0.2,
        correction=Correction(level="sequence", high=1.5),
    )
    batch = prepared(algorithm, 1)
    total = algorithm.denominator(batch.mask_BT, 4)
    terms = algorithm.loss(batch, total)
    parts = float(terms.policy_loss + terms.kl_loss + terms.entropy_loss)
    assert float(terms.loss) == pytest.approx(parts, abs=1e-12)
    without = replace(algorithm, correction=None).loss(batch, total)
    assert float(without.kl_loss) == float(terms.kl_loss)
    assert float(without.policy_loss) != float(terms.policy_loss)
    mean_entropy = (torch.where(batch.mask_BT, batch.entropy_BT, 0).sum(1) / batch.mask_BT.sum(1)).mean()
    assert float(terms.entropy_loss) == pytest.approx(-0.2 * float(mean_entropy))


def test_truncated_importance_gradient_is_the_closed_form():
    algorithm = replace(make_algorithm("reinforce", baseline="none"), correction=Correction(high=1.1))
    batch = prepared(algorithm, 2)
    weight = (batch.old_logp_BT - batch.sampler_logp_BT).exp().clamp(max=1.1)
    _, found = gradient(algorithm, batch, 6.0)
    expected = torch.where(batch.mask_BT, -weight * batch.advantages_B[:, None] / 6, 0.0)
    assert torch.allclose(found, expected, atol=1e-12)


def test_half_precision_is_computed_in_float32():
    algorithm = make_algorithm("grpo")
    batch = prepared(algorithm, 3)
    half = TokenBatch(*(x if x is None or x.dtype == torch.bool else x.bfloat16() for x in batch))
    terms = algorithm.loss(half, algorithm.denominator(batch.mask_BT, 4))
    assert terms.loss.dtype == torch.float32


def test_metrics_of_a_step_do_not_depend_on_its_micro_batches():
    algorithm = replace(make_algorithm("grpo"), correction=Correction(high=1.2))
    batch = prepared(algorithm, 4)
    whole = combine_metrics([algorithm.loss(batch, 6.0).metrics])
    parts = [algorithm.loss(rows(batch, torch.tensor(i)), 6.0).metrics for i in ([0, 3], [1, 2, 5], [4])]
    assert combine_metrics(parts) == pytest.approx(whole)
    mask, ratio = batch.mask_BT, (batch.logp_BT - batch.old_logp_BT).exp()
    assert whole["tokens"] == float(mask.sum())
    assert whole["ratio_max"] == pytest.approx(float(ratio[mask].max()))
    assert whole["ratio_min"] == pytest.approx(float(ratio[mask].min()))
    k1 = (batch.logp_BT - batch.ref_logp_BT)[mask]
    assert whole["kl_k1"] == pytest.approx(float(k1.mean()))
    assert whole["kl_sequence"] == pytest.approx(float(k1.sum()) / 6)
    assert whole["kl"] >= 0
    assert whole["kl"] == pytest.approx(float((torch.exp(-k1) - 1 + k1).mean()))
    a = batch.advantages_B[:, None].expand_as(ratio)
    clipped = ((ratio < 0.8) & (a < 0) | (ratio > 1.2) & (a > 0)) & mask
    assert whole["clip_fraction"] == pytest.approx(float(clipped.sum() / mask.sum()))
    assert whole["entropy"] == pytest.approx(float(batch.entropy_BT[mask].mean()))
    assert 0 < whole["weight_effective"] <= 1


def test_metrics_where_nothing_is_trained_are_nan():
    algorithm = make_algorithm("dr_grpo")
    batch = prepared(algorithm, 5)
    terms = algorithm.loss(batch._replace(mask_BT=batch.mask_BT & False), 0.0)
    assert float(terms.loss) == 0.0
    metrics = combine_metrics([terms.metrics])
    assert metrics["tokens"] == 0.0
    assert math.isnan(metrics["clip_fraction"])
    assert math.isnan(metrics["ratio_max"])


def test_a_bounded_ratio_is_counted():
    algorithm = make_algorithm("dr_grpo")
    logp, old = torch.tensor([[-1.0, -2.0, -1.5]]), torch.tensor([[-1.0, -95.0, -1.5]])
    terms = algorithm.loss(TokenBatch(logp, old, torch.ones(1), torch.ones(1, 3, dtype=torch.bool)), 3.0)
    assert math.isfinite(float(terms.loss))
    assert combine_metrics([terms.metrics])["ratio_bounded"] == pytest.approx(1 / 3)
