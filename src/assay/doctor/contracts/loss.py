"""Contract of a policy loss ``fn(logp, old_logp, advantages, mask) -> scalar``.

Any published objective passes: policy gradient, PPO's clip of any width, GRPO, DAPO, Dr. GRPO, CISPO. What is
tested are laws that all of them share: the sign, the mask, the scale, where the gradient may vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from assay.doctor.contracts.calling import Array, Function, shown
from assay.doctor.contracts.loss_calls import Batch, Call, Result, choose_loss_call, wants_reference
from assay.doctor.contracts.pairs import Pair, findings
from assay.records.finding import Finding

LENGTHS = (6, 4, 2)
ADVANTAGES = np.array([1.0, -1.5, 0.75])
SAME = 1e-4  # relative: float32 sums in another order
DEAD = 1e-7  # share of the largest gradient that counts as none
DRIFT, DOMINATES = 0.1, 10.0  # nats from the reference, and how many times the policy's gradient is too much


def check_loss(fn: Function, *, adapt: Function | None = None) -> list[Finding]:
    """Run a user's policy loss against the contract.

    Args:
        fn: ``fn(logp (B, T), old_logp (B, T), advantages (B,) or (B, T), mask (B, T)) -> scalar`` to be
            minimised; torch (gradient by autograd) or numpy (by differences). A parameter ``ref_logp`` is
            filled and its KL term tested. Of a returned tuple the first element is the loss.
        adapt: for any other shape: called as ``adapt(fn, logp, old_logp, advantages, mask)``.

    Returns:
        What fails or warns, so that ``assert not check_loss(fn)`` is a test.

    Raises:
        BadInput: the function cannot be called with these arguments.
    """
    return findings(observe_loss(fn, adapt), fn, "check_loss")


def observe_loss(fn: Function, adapt: Function | None = None, _literals: Sequence[str] = ()) -> list[Pair]:
    """Every input tried with its output and the id it breaks, if any."""
    call = choose_loss_call(fn, adapt, on_policy())
    first = _judge_gradient(call)
    if first.broken in ("loss.no_gradient", "loss.non_finite", "loss.normalisation"):
        return [first]  # the rest compares gradients
    pairs = [first, *_judge_mask(call), _judge_overflow(call), _judge_padding(call, first)]
    pairs += [_judge_order(call), _judge_repeat(call), _judge_lengths(call), *_judge_clip(call, first)]
    if wants_reference(fn, adapt):
        pairs += _judge_reference(call)
    leak = any(p.broken == "logprob.mask" for p in pairs)
    return [_caused_by_mask(p) if leak else p for p in pairs]


def _caused_by_mask(pair: Pair) -> Pair:
    follows = pair.broken in ("loss.normalisation", "loss.length_bias", "loss.non_finite")
    return replace(pair, root="logprob.mask") if follows else pair


def on_policy() -> Batch:
    """Three rows of 6, 4 and 2 live tokens in 6 columns, with old_logp equal to logp."""
    rows, columns = len(LENGTHS), max(LENGTHS)
    b, t = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    logp = -0.4 - 0.9 * np.abs(np.sin(1.3 * b + 0.7 * t))
    mask = (t < np.array(LENGTHS)[:, None]).astype(np.float64)
    return Batch(logp, logp.copy(), ADVANTAGES.copy(), mask)


def _pair(
    shape: str, batch: Batch, result: Result, broken: str | None = None, why: str = "", **more: object
) -> Pair:
    grad = "none" if result.gradient is None else shown(np.round(result.gradient, 5), 120)
    came = result.error or f"loss {result.value:.6g}, gradient {grad}"
    given = f"advantages {shown(batch.advantages)}, mask rows {batch.mask.sum(axis=1).astype(int).tolist()}"
    return Pair(shape, given, came, broken, why, **more)  # type: ignore[arg-type]


def _judge_gradient(call: Call) -> Pair:
    batch = on_policy()
    result = call(batch)
    shape = "on-policy (ratio 1), advantages of both signs"
    if result.size != 1:
        why = f"expected one scalar, got {result.size} values"
        return _pair(shape, batch, result, "loss.normalisation", why)
    if result.gradient is None:
        why = "no gradient reaches the policy's log-probs although the advantages are not 0"
        return _pair(shape, batch, result, "loss.no_gradient", why)
    if not np.isfinite(result.value) or not np.isfinite(result.gradient).all():
        return _pair(shape, batch, result, "loss.non_finite", "NaN or infinity on ordinary input")
    broken, why = explain_gradient(result.gradient, batch)
    return _pair(shape, batch, result, broken, why)


def explain_gradient(gradient: Array, batch: Batch) -> tuple[str | None, str]:
    """Judge an on-policy gradient (B, T): minus the sign of the advantage on every live token.

    Returns:
        An id or None, and the sentence.
    """
    live = batch.mask > 0
    largest = float(np.abs(gradient[live]).max())
    if largest == 0:
        return "loss.no_gradient", "the gradient is exactly 0 although the advantages are not"
    row = np.array([g[m].mean() for g, m in zip(gradient, live, strict=True)])
    push = -row * np.sign(batch.advantages)
    dead = np.abs(row) <= DEAD * largest
    idle = live & (np.abs(gradient) <= DEAD * largest) & ~dead[:, None]
    if idle.any():
        return (
            "logprob.mask",
            f"{int(idle.sum())} of {int(live.sum())} live tokens get no gradient: they are left out",
        )
    if dead.any():
        side = "above" if (batch.advantages[dead] > 0).all() else "below"
        return "loss.clip_saturated", f"at ratio 1 nothing trains where the advantage is {side} 0"
    if (push < 0).all():
        return "loss.inverted", "minimising it lowers the log-probs of good completions and raises bad ones"
    if (push < 0).any():
        if np.allclose(row / row[0], np.sign(row[0] / row[0]), rtol=0.05) and np.ptp(row) < 0.05 * abs(
            row[0]
        ):
            return "loss.normalisation", "every row gets the same push: advantages are mixed between rows"
        bad = batch.advantages[push < 0].tolist()
        return "loss.inverted", f"completions with advantages {bad} are pushed the wrong way"
    return None, ""


def _judge_mask(call: Call) -> list[Pair]:
    """What stands at masked positions must not matter."""
    batch = on_policy()
    changed = replace(
        batch, logp=np.where(batch.mask > 0, batch.logp, -0.05), old=np.where(batch.mask > 0, batch.old, -0.3)
    )
    a, b = call(batch), call(changed)
    shape = "other values at masked positions"
    hidden = batch.mask == 0
    leak = b.gradient is not None and float(np.abs(b.gradient[hidden]).max()) > DEAD * _largest(b)
    if leak or not np.isclose(a.value, b.value, rtol=SAME, atol=1e-6):
        why = f"masked tokens change the loss ({a.value:.5g} to {b.value:.5g}) or get a gradient"
        return [_pair(shape, changed, b, "logprob.mask", why)]
    return [_pair(shape, changed, b)]


def _largest(result: Result) -> float:
    return 0.0 if result.gradient is None else float(np.nanmax(np.abs(result.gradient)))


def _judge_overflow(call: Call) -> Pair:
    """A masked token whose ratio overflows, and one at minus infinity, must stay without influence."""
    batch = on_policy()
    old, logp = batch.old.copy(), batch.logp.copy()
    old[0, 5], old[1, 4], old[2, 3] = -2.0, -120.0, -120.0
    hidden = replace(batch, old=old, logp=logp, mask=batch.mask.copy())
    result = call(hidden)
    shape = "a masked token with a ratio of e^119"
    if not np.isfinite(result.value):
        why = "a masked token's overflow reaches the loss: 0 * inf is NaN"
        return _pair(shape, hidden, result, "loss.non_finite", why)
    if result.gradient is not None and not np.isfinite(result.gradient).all():
        why = "the loss is finite but a masked token's gradient is NaN: select before exp, not after"
        return _pair(shape, hidden, result, "loss.non_finite", why)
    return _pair(shape, hidden, result)


def _judge_padding(call: Call, first: Pair) -> Pair:
    batch = on_policy()
    wide = batch.padded(4)
    a, b = call(batch), call(wide)
    shape = "four more padding columns"
    if a.gradient is None or b.gradient is None:
        return _pair(shape, wide, b)
    inside = b.gradient[:, : batch.logp.shape[1]]
    if _close(a.value, b.value) and np.allclose(inside, a.gradient, rtol=SAME, atol=SAME * _largest(a)):
        return _pair(shape, wide, b)
    factor = _largest(b) / max(_largest(a), 1e-300)
    why = f"padding the batch changes the gradient by a factor of {factor:.3g}: pads are in the denominator"
    return _pair(shape, wide, b, "loss.normalisation", why)


def _close(a: float, b: float) -> bool:
    return bool(np.isclose(a, b, rtol=SAME, atol=1e-6))


def _judge_order(call: Call) -> Pair:
    batch = on_policy()
    order = np.array([2, 0, 1])
    a, b = call(batch), call(batch.rows(order))
    shape = "the rows in another order"
    if a.gradient is None or b.gradient is None:
        return _pair(shape, batch, b)
    if _close(a.value, b.value) and np.allclose(
        b.gradient, a.gradient[order], rtol=SAME, atol=SAME * _largest(a)
    ):
        return _pair(shape, batch.rows(order), b)
    return _pair(shape, batch.rows(order), b, "loss.normalisation", "the order of the rows changes the loss")


def _judge_repeat(call: Call) -> Pair:
    """The batch twice: a mean stays, a sum doubles; anything else is divided twice or not at all."""
    batch = on_policy()
    twice = batch.rows(np.array([0, 1, 2, 0, 1, 2]))
    a, b = call(batch), call(twice)
    shape = "the same batch twice"
    if a.gradient is None or b.gradient is None:
        return _pair(shape, twice, b)
    total = (b.gradient[:3] + b.gradient[3:]).sum() / a.gradient.sum() if a.gradient.sum() else 1.0
    factor = float(total) if abs(a.gradient.sum()) > 1e-6 else _largest(b) * 2 / max(_largest(a), 1e-300)
    if any(np.isclose(factor, k, rtol=0.01) for k in (1.0, 2.0)):
        return _pair(shape, twice, b)
    why = f"the summed gradient becomes {factor:.3g} times; expected 1 (a mean) or 2 (a sum)"
    return _pair(shape, twice, b, "loss.normalisation", why)


def _judge_lengths(call: Call) -> Pair:
    """Weight of one token against its row's length: alike, or one over the length; nothing else."""
    batch = replace(on_policy(), advantages=np.ones(len(LENGTHS)))
    result = call(batch)
    shape = "equal advantages, rows of 6, 4 and 2 tokens"
    if result.gradient is None or not np.isfinite(result.gradient).all():
        return _pair(shape, batch, result)
    weight = np.abs([row[:n].mean() for row, n in zip(result.gradient, LENGTHS, strict=True)])
    if (weight <= 0).any():
        return _pair(shape, batch, result)
    slope = float(np.polyfit(np.log(np.array(LENGTHS)), np.log(weight), 1)[0])
    measured = {
        "token_weight_by_length": dict(zip(map(str, LENGTHS), weight.tolist(), strict=True)),
        "power": slope,
    }
    if abs(slope) < 0.05 or abs(slope + 1) < 0.05:
        return _pair(shape, batch, result, numbers=measured)
    why = f"a token's weight goes with its row's length to the power {slope:.2g}; expected 0 or -1"
    return _pair(shape, batch, result, "loss.length_bias", why, numbers=measured)


def _judge_clip(call: Call, first: Pair) -> list[Pair]:
    """Where the gradient lives: at ratios 0.5 and 2, for advantages of both signs."""
    if first.broken:
        return []
    live: dict[tuple[float, float], bool] = {}
    for ratio in (0.5, 1.00005, 0.99995, 2.0):
        for sign in (1.0, -1.0):
            batch = replace(on_policy(), advantages=np.full(len(LENGTHS), sign))
            batch = replace(batch, old=batch.logp - np.log(ratio))
            result = call(batch)
            if result.gradient is None or not np.isfinite(result.gradient).all():
                return []
            live[ratio, sign] = _largest(result) > 1e-6
    batch = replace(on_policy(), old=on_policy().logp - np.log(2.0))
    broken, why = explain_clip(live)
    pairs = [_pair("ratios 0.5, 1 and 2", batch, call(batch), broken, why, numbers=_table(live))]
    if broken and "unbounded" in why:
        pairs.append(
            _pair("ratio 2", batch, call(batch), "loss.step_too_large", why, root="loss.clip_saturated")
        )
    return pairs


def _table(live: dict[tuple[float, float], bool]) -> dict[str, bool]:
    return {f"trains at ratio {r:g}, A {'>' if s > 0 else '<'} 0": alive for (r, s), alive in live.items()}


def explain_clip(live: dict[tuple[float, float], bool]) -> tuple[str | None, str]:
    """Judge where the gradient is alive, by (ratio, sign of the advantage)."""
    near = [live[r, s] for r in (1.00005, 0.99995) for s in (1.0, -1.0)]
    if not all(near):
        return "loss.clip_saturated", "the clip range is so narrow that a ratio of 1.00005 is outside it"
    recover = [live[0.5, 1.0], live[2.0, -1.0]]  # the policy has moved the wrong way and must come back
    beyond = [live[2.0, 1.0], live[0.5, -1.0]]  # it has moved far enough
    if all(recover):
        return None, ""
    if any(beyond):
        return "loss.clip_saturated", (
            "the clip is on the wrong side: no gradient where the policy went the wrong way "
            "(ratio 0.5 with A > 0), an unbounded one where it went far enough (ratio 2 with A > 0)"
        )
    return "loss.clip_saturated", (
        "outside the clip range nothing trains, also where the policy went the wrong way "
        "(ratio 0.5 with A > 0): the minimum with the unclipped term is missing"
    )


def _judge_reference(call: Call) -> list[Pair]:
    """With advantage 0 the KL term alone acts: it must pull the policy back to the reference."""
    batch = on_policy()
    off = replace(batch, advantages=np.zeros(len(LENGTHS)), reference=batch.logp - DRIFT)
    result = call(off)
    policy = call(replace(batch, reference=batch.logp.copy()))
    shape = f"policy {DRIFT} nats above the reference, advantage 0"
    if result.gradient is None or policy.gradient is None:
        return [_pair(shape, off, result)]
    pull = float(result.gradient[off.mask > 0].mean())
    if pull < -DEAD:
        why = "the KL term pushes the policy away from the reference: its sign is flipped"
        return [_pair(shape, off, result, "loss.inverted", why)]
    share = pull / max(float(np.abs(policy.gradient[batch.mask > 0]).mean()), 1e-300)
    if share > DOMINATES:
        why = f"at a drift of {DRIFT} nats the KL gradient is {share:.3g} times the policy's"
        return [_pair(shape, off, result, "loss.kl_dominates", why, numbers={"ratio": share})]
    return [_pair(shape, off, result)]
