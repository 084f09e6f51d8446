"""Contract of a group-relative advantage: centred in its own group, the sign of the reward, a sane scale.

Any published convention passes: reward minus mean; divided by a standard deviation of either ddof, of the
group or of the batch; leave-one-out. What is tested are laws that all of them share, on small inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from assay.doctor.contracts.advantage_calls import Call, choose_call
from assay.doctor.contracts.calling import Array, Function, Outcome, shown
from assay.doctor.contracts.pairs import Pair, findings
from assay.records.finding import Finding

DENSE = np.array(
    [
        [0.31, 0.74, 0.12, 0.55, 0.93, 0.08, 0.47, 0.66],
        [1.52, 1.07, 1.91, 1.33, 1.18, 1.74, 1.45, 1.29],
        [-0.42, -0.87, -0.11, -0.63, -0.25, -0.98, -0.36, -0.71],
    ]
)
BINARY = np.array([[1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0, 1, 1]], dtype=float)
EQUAL = ((0.7, 7, "float64"), (0.1, 8, "float64"), (1.0, 4, "float64"), (0.0, 8, "float32"))
LOUD = 1.0e4  # rewards this much larger leave any sane epsilon without influence
SMALL_GROUPS = (
    np.array([[1.0, 0.0], [0.2, 0.9], [0.0, 1.0]]),
    np.array([[1.0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 1]]),
)
LINEAR_TOLERANCE = 0.03  # half precision stays inside; another formula does not
EPSILON_WARN, EPSILON_FAIL = 0.01, 0.05  # share by which a binary group's advantages shrink
RESIDUE = 0.01  # an advantage of a group of equal 0s or 1s above this is no rounding
UNIT_NOISE = (
    0.9  # a residue divided by itself is 1 (0.93 with ddof 1); beside an epsilon of 1e-8 it stays below
)
TOO_LOUD = 4.0  # times G: no z-score of G values comes near; a divisor made of residue does


def check_advantages(fn: Function, *, adapt: Function | None = None) -> list[Finding]:
    """Run a user's advantage function against the contract.

    Args:
        fn: ``fn(rewards (P, G))``, ``fn(rewards (B,), group_size=G)`` (groups contiguous), ``fn(rewards,
            group_ids)`` or ``fn(list)`` of one group; numpy, torch or lists, whichever it takes.
        adapt: for any other shape: called as ``adapt(fn, rewards)`` with a (P, G) float64 array, returns the
            (P, G) advantages.

    Returns:
        What fails or warns, so that ``assert not check_advantages(fn)`` is a test.

    Raises:
        BadInput: the function cannot be called in any of these forms.
    """
    return findings(observe_advantages(fn, adapt), fn, "check_advantages")


def observe_advantages(
    fn: Function, adapt: Function | None = None, _literals: Sequence[str] = ()
) -> list[Pair]:
    """Every input tried with its output and the id it breaks, if any."""
    call = choose_call(fn, adapt, DENSE)
    dense, binary = _judge_layout(call, DENSE, "dense rewards"), _judge_layout(call, BINARY, "binary rewards")
    if dense.broken and binary.broken:
        binary = replace(binary, broken=dense.broken)
    wrong = dense.broken or binary.broken
    equal = _judge_no_spread(call, wrong)
    if wrong:
        return [dense, binary, *equal]  # what follows presumes that groups are centred
    scale = _judge_scale(call)
    rest = [*_judge_small_groups(call, scale.broken), *_judge_missing(call)]
    return [dense, binary, *equal, scale, *_judge_offset(call, scale), *rest]


def slopes(rewards: Array, advantages: Array) -> tuple[Array, float]:
    """Least-squares slope of advantage on centred reward, per group; and the relative residual of all."""
    x = rewards - rewards.mean(axis=1, keepdims=True)
    alpha = (x * advantages).sum(axis=1) / np.maximum((x * x).sum(axis=1), 1e-300)
    residual = np.linalg.norm(advantages - alpha[:, None] * x)
    return alpha, float(residual / max(float(np.linalg.norm(advantages)), 1e-300))


def _pair(shape: str, rewards: Array, outcome: Outcome, broken: str | None = None, **more: object) -> Pair:
    came = outcome.error or shown(outcome.value)
    return Pair(shape, shown(rewards), came, broken, **more)  # type: ignore[arg-type]


def _judge_layout(call: Call, rewards: Array, shape: str) -> Pair:
    outcome = call(rewards)
    if outcome.error:
        return _pair(shape, rewards, outcome, "advantage.mismatch", why=outcome.error)
    got = np.asarray(outcome.value, dtype=np.float64)
    if not np.isfinite(got).all():
        why = "expected finite advantages for groups with spread, NaN or infinity came"
        return _pair(shape, rewards, outcome, "advantage.non_finite", why=why)
    loudest, bound = float(np.abs(got).max()), TOO_LOUD * rewards.shape[1]
    if loudest > bound * max(float(np.ptp(rewards)), 1.0):
        why = f"an advantage of {loudest:.3g} in a group of {rewards.shape[1]}: the divisor is float residue"
        return _pair(shape, rewards, outcome, "advantage.noise", why=why)
    broken, why = explain_layout(rewards, got)
    return _pair(shape, rewards, outcome, broken, why=why)


def explain_layout(rewards: Array, got: Array) -> tuple[str | None, str]:
    """Say whether the advantages are centred in their own groups and rise with the reward.

    Args:
        rewards, got: (P, G) float64, finite, every group with spread.

    Returns:
        An id or None, and the sentence that explains it.
    """
    if not np.abs(got).max() > 0:
        return "advantage.collapsed", "every advantage is exactly 0 although the groups have spread"
    alpha, residual = slopes(rewards, got)
    if residual < LINEAR_TOLERANCE:
        if (alpha < 0).any():
            return "advantage.inverted", "a higher reward got a lower advantage than its group's mean"
        return None, ""
    if float(np.abs(got).max()) < 1e-3 * float(rewards.std()):
        return None, ""  # too small to see the form; the scale says why
    other = _wrong_groups(rewards, got)
    if other:
        return "advantage.grouping", other
    if _monotone(rewards, got):
        return None, ""
    if _monotone(rewards, -got):
        return "advantage.inverted", "a higher reward got a lower advantage than its group's mean"
    return "advantage.mismatch", (
        "no known convention (ddof 0 or 1, any epsilon, mean only, leave-one-out) gives these values"
    )


def _wrong_groups(rewards: Array, got: Array) -> str:
    prompts, size = rewards.shape
    flat, out = rewards.reshape(-1), got.reshape(-1)
    whole = slopes(flat[None], out[None])[1]
    if whole < LINEAR_TOLERANCE:
        return "mean and std were taken over the whole batch instead of each prompt's group"
    for columns, name in (
        (size, "across prompts (axis 0)"),
        (prompts, "interleaved (a, b, c, a, b, c, ...)"),
    ):
        mixed, mixed_out = flat.reshape(-1, columns).T, out.reshape(-1, columns).T
        if slopes(mixed, mixed_out)[1] < LINEAR_TOLERANCE:
            return f"groups were taken {name}: completions of different prompts share a mean"
    for shift in range(1, prompts):
        own = rewards - np.roll(rewards, shift, axis=0).mean(axis=1, keepdims=True)
        scale = float((own * got).sum() / (own * own).sum())
        if np.linalg.norm(got - scale * own) < LINEAR_TOLERANCE * np.linalg.norm(got):
            return "each group was centred with another prompt's mean"
    return ""


def _monotone(rewards: Array, got: Array) -> bool:
    """Rises with the reward in each group, with the best not below 0 and the worst not above it."""
    for reward, advantage in zip(rewards, got, strict=True):
        order = np.argsort(reward, kind="stable")
        if (np.diff(advantage[order]) < -1e-6 * np.abs(got).max()).any():
            return False
        if (
            advantage[order[-1]] <= 0
            or advantage[order[0]] > 0
            or (advantage.min() >= 0 and advantage.mean() > 0.5)
        ):
            return False
    return True


def _judge_no_spread(call: Call, wrong: str | None) -> list[Pair]:
    pairs: list[Pair] = []
    for value, size, dtype in EQUAL:
        rewards = np.full((3, size), value)
        shape = f"no spread: {size} times {value:g} in {dtype}"
        pairs += _no_spread(call(rewards, dtype), rewards, shape, value)
    root = wrong or ("advantage.dtype" if any(p.broken == "advantage.dtype" for p in pairs) else None)
    return [replace(p, root=root) if p.broken and p.broken != root else p for p in pairs]


def _no_spread(outcome: Outcome, rewards: Array, shape: str, value: float) -> list[Pair]:
    if outcome.error:
        return [_pair(shape, rewards, outcome, "advantage.zero_spread_groups", why=outcome.error)]
    got = np.asarray(outcome.value, dtype=np.float64)
    if not np.isfinite(got).all():
        why = "the divisor is 0: no epsilon is left in this dtype"
        seen = "expected 0 for a group without spread, NaN or infinity came"
        return [
            _pair(shape, rewards, outcome, "advantage.dtype", why=why),
            _pair(shape, rewards, outcome, "advantage.non_finite", why=seen),
        ]
    exact = value in (0.0, 1.0)
    loudest = float(np.abs(got).max())
    if loudest <= (RESIDUE if exact else UNIT_NOISE):
        return [_pair(shape, rewards, outcome)]
    broken = "advantage.zero_spread_groups" if exact else "advantage.noise"
    why = f"expected 0 for a group without spread, up to {loudest:.4g} came"
    return [_pair(shape, rewards, outcome, broken, why=why)]


def _judge_scale(call: Call) -> Pair:
    """Compare the slope on binary rewards with the one on the same rewards times 10,000."""
    quiet, loud = call(BINARY), call(BINARY * LOUD)
    shape = "binary rewards against the same times 10,000"
    if quiet.error or loud.error or not np.isfinite(np.asarray(loud.value, dtype=float)).all():
        came = loud if quiet.error is None else quiet
        return _pair(shape, BINARY, came, "advantage.dtype", why="rewards of 10,000 overflow in this dtype")
    alpha, _ = slopes(BINARY, np.asarray(quiet.value, dtype=float))
    loud_alpha, _ = slopes(BINARY, np.asarray(loud.value, dtype=float))
    broken, why, warn, measured = explain_scale(alpha, loud_alpha)
    return _pair(shape, BINARY, quiet, broken, why=why, warn=warn, numbers=measured)


def explain_scale(alpha: Array, loud: Array) -> tuple[str | None, str, bool, dict[str, float]]:
    """Find the normalisation from slopes at two reward scales.

    Args:
        alpha: slopes per group on BINARY. loud: slopes, per unit of the quiet reward, on BINARY times LOUD.

    Returns:
        Id or None, sentence, whether it is only a warning, and the measured numbers.
    """
    size, spread = BINARY.shape[1], BINARY.std(axis=1)
    biggest = float(np.abs(alpha).max())
    if biggest == 0 or not np.isfinite(alpha).all():
        return "advantage.collapsed", "the advantages are 0 although the groups have spread", False, {}
    growth = loud / np.where(alpha == 0, np.nan, alpha)
    if np.allclose(growth, LOUD, rtol=0.02):  # proportional to the reward: no division by a std
        known = any(np.allclose(alpha, k, rtol=0.02) for k in (1.0, size / (size - 1)))
        return _plain_scale(known, biggest)
    if (growth < 0.9).any():
        return (
            "advantage.mismatch",
            "larger rewards give smaller advantages: divided by a variance?",
            False,
            {},
        )
    # growth = LOUD (std + epsilon) / (LOUD std + epsilon), solved for epsilon
    epsilon = float(np.nanmean(LOUD * spread * (growth - 1) / (LOUD - growth)))
    shrink = float(np.nanmax(1 - 1 / growth))
    measured = {"epsilon_measured": epsilon, "smallest_binary_std": float(spread.min()), "shrinks_by": shrink}
    if shrink > EPSILON_WARN:
        why = (
            f"epsilon acts like {epsilon:.3g} beside a group std of {spread.min():.2g}: {shrink:.0%} is lost"
        )
        return "advantage.epsilon", why, shrink <= EPSILON_FAIL, measured
    return _normalised_scale(alpha, spread, size)


def _plain_scale(known: bool, alpha: float) -> tuple[str | None, str, bool, dict[str, float]]:
    if known:
        return None, "", False, {}
    broken = "advantage.collapsed" if alpha < 0.01 else "advantage.mismatch"
    why = f"advantage is {alpha:.3g} times (reward - mean), expected 1 or G / (G - 1)"
    return broken, why, False, {"slope": alpha}


def _normalised_scale(
    alpha: Array, spread: Array, size: int
) -> tuple[str | None, str, bool, dict[str, float]]:
    unit = alpha * spread
    bessel = np.sqrt((size - 1) / size)
    if any(np.allclose(unit, k, rtol=0.02) for k in (1.0, bessel, 1 / bessel, size / (size - 1))):
        return None, "", False, {}
    if np.allclose(alpha, alpha[0], rtol=0.02):  # one divisor for the whole batch
        centred = BINARY - BINARY.mean(axis=1, keepdims=True)
        batch = [data.std(ddof=ddof) for data in (BINARY, centred) for ddof in (0, 1)] + [spread.mean()]
        if any(np.isclose(alpha[0] * divisor, 1, rtol=0.03) for divisor in batch):
            return None, "", False, {}
    worst = float(unit[np.argmax(np.abs(np.log(np.abs(unit))))])
    broken = "advantage.collapsed" if worst < 0.01 else "advantage.mismatch"
    why = f"advantage * std is {worst:.3g} * (reward - mean), expected 1 (ddof 0) or {bessel:.3f} (ddof 1)"
    return broken, why, False, {"slope": worst}


def _judge_offset(call: Call, scale: Pair) -> list[Pair]:
    """Rewards around 1,000 with a spread of 0.03, in float32: the sums must keep their digits."""
    small = DENSE * 0.1
    shape = "dense rewards around 1,000 in float32"
    plain, moved = call(small), call(small + 1000.0, "float32")
    if plain.error or moved.error:
        return [_pair(shape, small + 1000, moved, "advantage.dtype", why=str(plain.error or moved.error))]
    expected, got = np.asarray(plain.value, dtype=float), np.asarray(moved.value, dtype=float)
    error = float(np.linalg.norm(got - expected) / max(float(np.linalg.norm(expected)), 1e-300))
    if error < 0.05:
        return [_pair(shape, small + 1000, moved)]
    kind = f" (it returns {call.dtype})" if call.dtype else ""
    why = f"adding 1,000 to every reward changes the advantages by {error:.0%}: digits are lost{kind}"
    if scale.broken:
        return [_pair(shape, small + 1000, moved, "advantage.dtype", why=why, root=scale.broken)]
    if _is_half(call):
        return [_pair(shape, small + 1000, moved, "advantage.dtype", why=why)]
    residue = f"{why}; the variance is a difference of large numbers and what divides is its residue"
    return [
        _pair(shape, small + 1000, moved, "advantage.noise", why=residue),
        _pair(shape, small + 1000, moved, "advantage.dtype", why=why, root="advantage.noise"),
    ]


def _is_half(call: Call) -> bool:
    """Whether it computes in float16 or bfloat16: by its dtype, or by three digits where seven are due."""
    outcome = call(DENSE, "float32")
    if outcome.error or "float16" in call.dtype:
        return True
    return slopes(DENSE, np.asarray(outcome.value, dtype=float))[1] > 1e-4


def _judge_small_groups(call: Call, scale: str | None) -> list[Pair]:
    pairs: list[Pair] = []
    for rewards in SMALL_GROUPS:
        size = rewards.shape[1]
        outcome = call(rewards)
        broken, why = None, ""
        if outcome.error:
            broken, why = "advantage.group_size", outcome.error
        elif not np.isfinite(np.asarray(outcome.value, dtype=float)).all():
            broken, why = (
                "advantage.group_size",
                f"expected finite advantages for G = {size}, NaN or infinity came",
            )
        else:
            broken, why = explain_layout(rewards, np.asarray(outcome.value, dtype=float))
            broken = (scale or "advantage.group_size") if broken else None
        pairs.append(_pair(f"G = {size}", rewards, outcome, broken, why=why))
    return pairs


def _judge_missing(call: Call) -> list[Pair]:
    """A missing score (NaN) must stay in its own group, and must not count as a reward of 0."""
    rewards = np.array([[1.0, np.nan, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    outcome = call(rewards)
    shape = "a missing score (NaN)"
    if outcome.error:
        return [_pair(shape, rewards, outcome)]  # refusing is a clear answer
    got = np.asarray(outcome.value, dtype=float)
    if not np.isfinite(got[1:]).all() and not _one_scale(call):
        why = "a missing score in one group makes the other groups' advantages NaN"
        return [_pair(shape, rewards, outcome, "advantage.non_finite", why=why)]
    others = got[0, [0, 2, 3]]  # a batch-wide std is allowed to refuse the whole batch
    as_zero = call(np.nan_to_num(rewards))
    if as_zero.error is None and np.isfinite(others).all() and np.abs(others).max() > RESIDUE:
        zero = np.asarray(as_zero.value, dtype=float)[0, [0, 2, 3]]
        if np.allclose(others, zero, rtol=1e-3):
            why = "a missing score was counted as a reward of 0"
            return [_pair(shape, rewards, outcome, "advantage.non_finite", why=why, warn=True)]
    return [_pair(shape, rewards, outcome)]


def _one_scale(call: Call) -> bool:
    """Whether all groups share one divisor (a batch std)."""
    outcome = call(DENSE)
    alpha, _ = slopes(DENSE, np.asarray(outcome.value, dtype=float))
    return bool(np.allclose(alpha, alpha[0], rtol=1e-3))
