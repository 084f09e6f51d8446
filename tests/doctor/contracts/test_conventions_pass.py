"""What published trainers do is no fault: every known convention passes, in every form of call."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.doctor.contracts import check_advantages, check_logprobs, check_loss, check_reward
from assay.doctor.contracts.advantages import BINARY, explain_layout, explain_scale
from assay.doctor.contracts.loss import explain_clip
from assay.errors import BadInput

torch = pytest.importorskip("torch")


def centred(r):
    return r - r.mean(axis=1, keepdims=True)


def inside_the_root(rewards):
    return centred(rewards) / np.sqrt(rewards.var(axis=1, keepdims=True) + 1e-6)


def leave_one_out(rewards):
    size = rewards.shape[1]
    return rewards - (rewards.sum(axis=1, keepdims=True) - rewards) / (size - 1)


def batch_std(rewards):
    return centred(rewards) / (rewards.std() + 1e-4)


def by_ids(rewards, group_ids):
    rewards, out = np.asarray(rewards, dtype=float), np.zeros(len(rewards))
    for group in {*group_ids}:
        rows = np.array([g == group for g in group_ids])
        out[rows] = (rewards[rows] - rewards[rows].mean()) / (rewards[rows].std() + 1e-8)
    return out


def one_group(rewards):
    values = np.asarray(rewards, dtype=np.float32)
    return (values - values.mean()) / (values.std() + 1e-6)


def torch_only(rewards):
    return (rewards - rewards.mean(dim=-1, keepdim=True)) / (rewards.std(dim=-1, keepdim=True) + 1e-4)


@pytest.mark.parametrize(
    "fn", [centred, inside_the_root, leave_one_out, batch_std, by_ids, one_group, torch_only]
)
def test_every_published_advantage_passes(fn):
    assert check_advantages(fn) == []


@given(epsilon=st.sampled_from([0.02, 0.1, 1.0, 10.0, 1e3]), ddof=st.sampled_from([0, 1]))
def test_an_epsilon_is_measured(epsilon, ddof):
    def fn(rewards):
        return centred(rewards) / (rewards.std(axis=1, keepdims=True, ddof=ddof) + epsilon)

    found = check_advantages(fn)
    assert found[0].id == "advantage.epsilon"
    measured = found[0].evidence["epsilon_measured"]
    assert epsilon * 0.85 < measured < epsilon * 1.1


@given(epsilon=st.floats(1e-9, 5e-4), ddof=st.sampled_from([0, 1]), scale=st.floats(0.1, 3.0))
def test_a_sane_epsilon_passes_whatever_the_ddof(epsilon, ddof, scale):
    def fn(rewards):
        return centred(rewards) / (rewards.std(axis=1, keepdims=True, ddof=ddof) + epsilon)

    assert check_advantages(fn) == []


def test_a_collapse_without_epsilon_is_another_fault():
    assert check_advantages(lambda rewards: centred(rewards) * 1e-6)[0].id == "advantage.collapsed"
    assert check_advantages(lambda rewards: centred(rewards) * 0.0)[0].id == "advantage.collapsed"


def test_a_missing_score_counted_as_wrong_is_a_warning():
    found = check_advantages(lambda rewards: centred(np.nan_to_num(rewards)))
    assert [(f.id, f.status) for f in found] == [("advantage.non_finite", "warn")]


def test_two_completions_without_a_spread_of_the_others():
    def fn(rewards):
        out = np.zeros_like(rewards)
        for i in range(rewards.shape[1]):
            others = np.delete(rewards, i, axis=1)
            std = others.std(axis=1, ddof=1)
            out[:, i] = (rewards[:, i] - others.mean(axis=1)) / np.maximum(std, 0.3)
        return out

    assert "advantage.group_size" in [f.id for f in check_advantages(fn)]


def test_layouts_are_told_apart():
    rewards = np.array([[0.1, 0.9, 0.4], [2.0, 1.0, 1.4]])
    assert explain_layout(rewards, centred(rewards))[0] is None
    assert explain_layout(rewards, -centred(rewards))[0] == "advantage.inverted"
    assert explain_layout(rewards, rewards - rewards.mean())[0] == "advantage.grouping"
    assert explain_layout(rewards, np.abs(centred(rewards)))[0] == "advantage.mismatch"
    assert explain_layout(rewards, 0 * rewards)[0] == "advantage.collapsed"


def test_the_scale_of_a_variance_is_no_convention():
    alpha = 1 / BINARY.var(axis=1)
    assert explain_scale(alpha, alpha / 1e4)[0] == "advantage.mismatch"


def test_a_function_that_cannot_be_called_is_bad_input():
    with pytest.raises(BadInput, match="adapt="):
        check_advantages(lambda: 0)
    with pytest.raises(BadInput, match="adapt="):
        check_logprobs(lambda model, batch, device: 0)
    with pytest.raises(BadInput, match="adapt="):
        check_loss(lambda batch: 0)


def test_adapt_bridges_any_other_shape():
    def keyed(batch):
        return {"advantages": centred(batch["rewards"])}

    assert check_advantages(keyed, adapt=lambda fn, r: fn({"rewards": r})["advantages"]) == []

    def over_sequences(logits, ids):  # the shift is inside: whole sequences are expected
        steps = torch.log_softmax(logits[:, :-1], -1)
        return steps.gather(-1, ids[:, 1:, None])[..., 0]

    def whole(fn, logits, ids):
        shifted = np.concatenate([np.zeros_like(ids[:, :1]), ids], axis=1)
        last = np.concatenate([logits, np.zeros_like(logits[:, :1])], axis=1)
        return fn(torch.tensor(last), torch.tensor(shifted))

    assert check_logprobs(over_sequences)[0].id == "logprob.shifted"
    assert check_logprobs(over_sequences, adapt=whole) == []
    assert check_reward(lambda text: "42" in text, adapt=lambda fn, completion, task: fn(completion)) == []


def pick(values, ids):
    return values.gather(-1, ids[..., None])[..., 0]


@pytest.mark.parametrize(
    "fn",
    [
        lambda logits, ids: pick(torch.log_softmax(logits, -1), ids),
        lambda logits, ids: pick(logits, ids) - logits.logsumexp(-1),
        lambda logits, ids: pick(torch.log_softmax(logits.bfloat16(), -1), ids),
        lambda logits, ids: torch.distributions.Categorical(logits=logits).log_prob(ids),
        lambda logits, ids: torch.stack(
            [pick(torch.log_softmax(a, -1), b) for a, b in zip(logits, ids, strict=True)]
        ),
    ],
)
def test_every_way_to_write_log_softmax_passes(fn):
    assert check_logprobs(fn) == []


@given(temperature=st.sampled_from([0.3, 0.5, 0.6, 0.8, 0.9, 1.2, 1.5, 2.0]))
def test_a_temperature_is_found(temperature):
    found = check_logprobs(lambda logits, ids: pick(torch.log_softmax(logits / temperature, -1), ids))
    assert found[0].id == "logprob.temperature"
    assert f"/ {temperature:g}" in found[0].summary


@pytest.mark.parametrize("shift", [1, -1, 2])
def test_a_shift_is_found_in_either_direction(shift):
    found = check_logprobs(lambda logits, ids: pick(torch.log_softmax(logits, -1).roll(shift, 1), ids))
    assert found[0].id == "logprob.shifted"


def test_a_truncated_vocabulary_is_found():
    def fn(logits, ids):
        kth = logits.topk(4, -1).values[..., -1:]
        return pick(torch.log_softmax(logits.masked_fill(logits < kth, -1e9), -1), ids)

    assert check_logprobs(fn)[0].id == "logprob.truncated_support"


def test_an_overflow_shows_only_on_large_logits():
    found = check_logprobs(
        lambda logits, ids: pick(torch.log(logits.exp() / logits.exp().sum(-1, True)), ids)
    )
    assert [f.id for f in found] == ["logprob.not_normalised"]
    assert "thousand" in found[0].summary


def test_a_row_that_depends_on_its_batch_is_found():
    def fn(logits, ids):
        return pick(torch.log_softmax(logits, -1), ids) - 0.1 * (len(logits) - 3)

    assert check_logprobs(fn)[0].id == "logprob.positions"


def ratio(logp, old, mask):
    return torch.exp(torch.where(mask > 0, logp - old, 0.0))


def policy_gradient(logp, old_logp, advantages, mask):
    return -(torch.where(mask > 0, logp, 0.0) * advantages[:, None]).sum() / mask.sum()


def constant_length(logp, old_logp, advantages, mask):
    r, a = ratio(logp, old_logp, mask), advantages[:, None]
    return -(torch.min(r * a, r.clamp(0.8, 1.28) * a) * mask).sum(1).mean() / 64


def cispo(logp, old_logp, advantages, mask):
    weight = ratio(logp, old_logp, mask).clamp(max=5).detach()
    return -(weight * advantages[:, None] * torch.where(mask > 0, logp, 0.0)).sum() / mask.sum()


def sequence_ratio(logp, old_logp, advantages, mask):
    s = torch.exp((torch.where(mask > 0, logp - old_logp, 0.0)).sum(1) / mask.sum(1))
    return -torch.min(s * advantages, s.clamp(1 - 3e-4, 1 + 4e-4) * advantages).mean()


def with_reference(logp, old_logp, advantages, mask, ref_logp, beta=0.04):
    r, a = ratio(logp, old_logp, mask), advantages[:, None]
    x = torch.where(mask > 0, ref_logp - logp, 0.0)
    k3 = torch.exp(x) - x - 1
    return -((torch.min(r * a, r.clamp(0.8, 1.2) * a) - beta * k3) * mask).sum() / mask.sum()


def in_numpy(logp, old_logp, advantages, mask):
    r = np.exp(np.where(mask > 0, logp - old_logp, 0.0))
    a = advantages[:, None]
    return -(np.minimum(r * a, np.clip(r, 0.8, 1.2) * a) * mask).sum() / mask.sum()


def token_advantages(logp, old_logp, advantages, mask):
    return -(ratio(logp, old_logp, mask) * advantages * mask).sum() / mask.sum()


def with_metrics(logp, old_logp, advantages, mask):
    return constant_length(logp, old_logp, advantages, mask), {"clip": 0.0}


def with_a_bool_mask(logp, old_logp, advantages, mask):
    masked = torch.masked_fill(logp - old_logp, ~mask, 0.0)
    return -(torch.exp(masked) * advantages[:, None])[mask].mean()


@pytest.mark.parametrize(
    "fn",
    [policy_gradient, constant_length, cispo, sequence_ratio, with_reference, in_numpy, token_advantages,
     with_metrics, with_a_bool_mask],
)  # fmt: skip
def test_every_published_loss_passes(fn):
    assert check_loss(fn) == []


def test_the_kl_term_has_a_sign_and_a_size():
    def away(logp, old_logp, advantages, mask, ref_logp):
        return with_reference(logp, old_logp, advantages, mask, ref_logp, beta=-0.04)

    def heavy(logp, old_logp, advantages, mask, ref_logp):
        return with_reference(logp, old_logp, advantages, mask, ref_logp, beta=500.0)

    assert check_loss(away)[0].id == "loss.inverted"
    assert check_loss(heavy)[0].id == "loss.kl_dominates"


def test_faults_of_the_mask_are_told_apart():
    def ignored(logp, old_logp, advantages, mask):
        return -(torch.exp(logp - old_logp).clamp(max=9) * advantages[:, None]).mean()

    def after_exp(logp, old_logp, advantages, mask):
        return -(torch.exp(logp - old_logp) * advantages[:, None])[mask > 0].mean()

    found = check_loss(ignored)
    assert found[0].id == "logprob.mask"
    assert {f.follows_from for f in found[1:]} == {"logprob.mask"}
    assert [f.id for f in check_loss(after_exp)] == ["loss.non_finite"]
    assert "gradient" in check_loss(after_exp)[0].summary


def test_rows_that_share_the_mean_advantage_are_found():
    def fn(logp, old_logp, advantages, mask):
        return -(advantages.mean() * torch.where(mask > 0, logp, 0.0)).sum() / mask.sum()

    assert check_loss(fn)[0].id == "loss.normalisation"


def test_where_a_clip_may_stop_the_gradient():
    def table(**dead):
        live = {(r, s): True for r in (0.5, 1.00005, 0.99995, 2.0) for s in (1.0, -1.0)}
        for key in dead.get("keys", []):
            live[key] = False
        return live

    assert explain_clip(table())[0] is None
    assert explain_clip(table(keys=[(2.0, 1.0), (0.5, -1.0)]))[0] is None
    assert explain_clip(table(keys=[(0.5, 1.0), (2.0, -1.0)]))[0] == "loss.clip_saturated"
    assert explain_clip(table(keys=[(1.00005, 1.0)]))[0] == "loss.clip_saturated"
