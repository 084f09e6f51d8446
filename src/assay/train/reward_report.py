"""What a reward model learned: accuracy where it never looked, calibration, and its prices for what is not quality.

A slope is the margin paid for one unit of a difference between two answers of EQUAL quality; without that
condition it absorbs quality wherever longer answers are also better. A model that scores one answer at a time
has no position, so no position slope exists here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.models.heads import ScalarModel
from assay.records.finding import Finding, jsonable
from assay.stats.binomial import wilson
from assay.stats.clustered import t_interval
from assay.stats.interval import Interval, normal_quantile, t_quantile, unknown
from assay.tasks.raters import Answer
from assay.train.linear_reward import fit_linear_reward
from assay.train.preference_data import Pair, PairRows
from assay.train.reward_model import score_rows

if TYPE_CHECKING:
    from assay.stats.interval import FloatArray

LENGTH_BASELINE = 0.7  # accuracy of "the longer one wins" from which a reward model is read beside it


@dataclass(frozen=True)
class PairReport:
    """What the comparisons themselves say, before any training.

    Attributes:
        pairs: how many. longer_wins: share of the pairs of different length whose longer answer is chosen;
            it is also the accuracy of counting words. longer_wins_equal: among pairs of equal quality.
        quality_wins: share of the pairs of different quality whose better answer is chosen; at 1 correctness
            is separable, and its weight in a fit grows for ever.
    """

    pairs: int
    longer_wins: Interval
    longer_wins_equal: Interval
    quality_wins: Interval

    @property
    def separable(self) -> bool:
        """No comparison ever goes against quality."""
        return self.quality_wins.n > 0 and self.quality_wins.estimate == 1.0


@dataclass(frozen=True)
class RewardReport:
    """What a reward model says of comparisons it was not trained on.

    Attributes:
        accuracy: share of held-out pairs ordered as the raters did, with ``on_shorter_chosen`` and
            ``on_longer_chosen`` apart, because a model of length alone has 0 on the first.
        loss: mean Bradley-Terry loss, nats (ln 2 knows nothing).
        calibration: slope of the log-odds of the choice on the margin; 1 is calibrated, below 1 overconfident.
        length_slope, marker_slope, agreement_slope: margin a token, for the marker, and for agreeing with the asker,
            at equal quality.
        disagreement: mean deviation of the heads.
        data: of the training comparisons. findings, warnings.
    """

    pairs: int
    accuracy: Interval
    on_shorter_chosen: Interval
    on_longer_chosen: Interval
    loss: float
    calibration: float
    length_slope: Interval
    marker_slope: Interval
    agreement_slope: Interval
    disagreement: float
    data: PairReport
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; unknown numbers are null."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["data"] = {name: getattr(self.data, name) for name in self.data.__dataclass_fields__}
        return {name: _json(value) for name, value in values.items()}


def _json(value: Any) -> Any:
    if isinstance(value, Interval | Finding):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _json(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return [_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return jsonable(value)


def report_pairs(pairs: Sequence[Pair]) -> PairReport:
    """Read the comparisons: how far would length alone get?"""
    equal = [pair for pair in pairs if pair.chosen.quality == pair.rejected.quality]
    different = [p for p in pairs if abs(p.chosen.quality - p.rejected.quality) > 0]
    return PairReport(
        pairs=len(pairs),
        longer_wins=_rate([_sign(p, _length) for p in pairs]),
        longer_wins_equal=_rate([_sign(p, _length) for p in equal]),
        quality_wins=_rate([_sign(p, lambda answer: answer.quality) for p in different]),
    )


def _length(answer: Answer) -> float:
    return answer.length


def _sign(pair: Pair, of: Callable[[Answer], float]) -> float:
    return float(np.sign(of(pair.chosen) - of(pair.rejected)))


def _rate(signs: Sequence[float]) -> Interval:
    known = [sign for sign in signs if sign != 0 and not math.isnan(sign)]
    return wilson(sum(sign > 0 for sign in known), len(known)) if known else unknown()


def report_reward_model(
    model: ScalarModel, held_out: Sequence[Pair], trained_on: Sequence[Pair] = ()
) -> RewardReport:
    """Evaluate a model on comparisons it was not trained on; ``trained_on`` are described, not scored."""
    rows = PairRows(model.policy, held_out)
    chosen_NK, rejected_NK = score_rows(model, rows.chosen), score_rows(model, rows.rejected)
    margin_N = (chosen_NK - rejected_NK).mean(1).double().numpy()
    spread = float(chosen_NK.std(1, correction=0).mean())
    data = report_pairs(trained_on or held_out)
    longer = np.array([_sign(pair, _length) for pair in held_out])
    length_slope = _slope(held_out, margin_N, _length)
    findings = length_findings(data, length_slope)
    return RewardReport(
        pairs=len(held_out),
        accuracy=_accuracy(margin_N),
        on_shorter_chosen=_accuracy(margin_N[longer < 0]),
        on_longer_chosen=_accuracy(margin_N[longer > 0]),
        loss=float(np.logaddexp(0.0, -margin_N).mean()),
        calibration=calibration_slope(margin_N),
        length_slope=length_slope,
        marker_slope=_slope(held_out, margin_N, lambda answer: float(answer.marker)),
        agreement_slope=_slope(held_out, margin_N, lambda answer: float(answer.agrees)),
        disagreement=spread,
        data=data,
        findings=findings,
        warnings=_warnings(data),
    )


def _accuracy(margin_N: FloatArray) -> Interval:
    if not len(margin_N):
        return unknown()
    return wilson(float((margin_N > 0).sum() + 0.5 * (margin_N == 0).sum()), len(margin_N))


def calibration_slope(margin_N: FloatArray) -> float:
    """Slope b that maximises the likelihood of the choices under ``sigmoid(b * margin)``; NaN without one.

    The better side is the chosen by construction, so there is no intercept. Newton's method in one dimension.
    """
    if not len(margin_N) or (margin_N >= 0).all() or (margin_N <= 0).all():
        return math.nan
    slope = 0.0
    for _ in range(100):
        chance_N = 1 / (1 + np.exp(np.clip(slope * margin_N, -500, 500)))
        gradient = float((margin_N * chance_N).sum())
        curvature = float((margin_N**2 * chance_N * (1 - chance_N)).sum())
        step = gradient / max(curvature, 1e-12)
        slope += max(-1.0, min(1.0, step))
        if abs(step) < 1e-10:
            break
    return slope


def _slope(pairs: Sequence[Pair], margin_N: FloatArray, of: Callable[[Answer], float]) -> Interval:
    """Least squares through the origin of the margin on a difference, over pairs of equal quality.

    Through the origin, because swapping the two answers turns both signs.
    """
    x_N = np.array([of(p.chosen) - of(p.rejected) for p in pairs])
    kept = np.array([p.chosen.quality == p.rejected.quality for p in pairs], dtype=bool) & (x_N != 0)
    x_N, y_N = x_N[kept], margin_N[kept]
    if len(x_N) < 3:
        return unknown(len(x_N))
    slope = float(x_N @ y_N / (x_N @ x_N))
    # Robust to margins that spread more for larger differences.
    error = math.sqrt(float(((y_N - slope * x_N) ** 2) @ x_N**2)) / float(x_N @ x_N)
    reach = t_quantile(0.975, len(x_N) - 1) * error
    return Interval(slope, slope - reach, slope + reach, len(x_N))


def length_findings(data: PairReport, slope: Interval) -> tuple[Finding, ...]:
    """``pays_length``, where length alone predicts the choices or the model pays for it at equal quality."""
    baseline = data.longer_wins.estimate
    paid = slope.low > 0
    if not (baseline >= LENGTH_BASELINE or paid):
        return ()
    evidence: dict[str, Any] = {
        "length_baseline_accuracy": baseline,
        "length_baseline_accuracy_on_shorter_chosen": 0.0,
        "threshold": LENGTH_BASELINE,
        "margin_per_token_at_equal_quality": slope.to_json(),
    }
    summary = f"Taking the longer answer agrees with {baseline:.0%} of the comparisons"
    if paid:
        summary += f", and the model pays {slope.estimate:+.3g} a token between answers of equal quality"
    fix = (
        "collect pairs balanced in length, subtract the length slope, or report accuracy on pairs whose chosen "
        "answer is the shorter; an accuracy near this baseline is no evidence of quality"
    )
    status = "fail" if baseline >= LENGTH_BASELINE and (paid or math.isnan(slope.low)) else "warn"
    return (Finding("pays_length", "audit", status, summary + ".", evidence, fix=fix),)


def _warnings(data: PairReport) -> tuple[str, ...]:
    if not data.separable:
        return ()
    return (
        "quality is separable: no comparison goes against it, so its weight has no finite best value and grows "
        "for as long as training runs; the margin between right and wrong says how long that was",
    )


def rater_slopes(pairs: Sequence[Pair], *, length_unit: float = 1.0) -> Mapping[str, Interval]:
    """Habits of the raters themselves: log-odds for quality and for a ``length_unit`` of length.

    Both in one fit, so that neither absorbs the other. An infinite interval means separable.
    """
    rows = [
        [p.chosen.quality - p.rejected.quality, (p.chosen.length - p.rejected.length) / length_unit]
        for p in pairs
    ]
    names = ("quality", "length")
    scale = np.abs(np.array(rows)).max(0).clip(1e-9)
    fit = fit_linear_reward(np.array(rows) / scale, names, steps=400, rate=4.0)
    found: dict[str, Interval] = {}
    for name, weight, error, unit in zip(names, fit.weights, fit.errors, scale, strict=True):
        reach = t_quantile(0.975, len(pairs) - 2) * error / unit
        found[name] = Interval(weight / unit, weight / unit - reach, weight / unit + reach, len(pairs))
    return found


def length_controlled_win_rate(
    wins_N: FloatArray, length_difference_N: FloatArray, weights_N: FloatArray | None = None
) -> Interval:
    """Chance to win at equal length: a logistic regression with the length term set to 0.

    Args:
        wins_N: 1 won, 0 lost, between them shares. length_difference_N: own minus the other's, standardised
            or not. weights_N: of the rows.

    Source: Dubois et al. 2404.04475, without the difficulty of the instruction.
    """
    design_N2 = np.stack([np.ones(len(wins_N)), length_difference_N], axis=1)
    weight_N = np.ones(len(wins_N)) if weights_N is None else weights_N
    beta_2 = np.zeros(2)
    for _ in range(100):
        chance_N = 1 / (1 + np.exp(-np.clip(design_N2 @ beta_2, -500, 500)))
        gradient_2 = design_N2.T @ (weight_N * (wins_N - chance_N))
        curvature_22 = (design_N2 * (weight_N * chance_N * (1 - chance_N))[:, None]).T @ design_N2
        step_2 = np.linalg.lstsq(curvature_22, gradient_2, rcond=None)[0]
        beta_2 += np.clip(step_2, -2, 2)
        if np.abs(step_2).max() < 1e-12:
            break
    chance_N = 1 / (1 + np.exp(-np.clip(design_N2 @ beta_2, -500, 500)))
    information_22 = (design_N2 * (weight_N * chance_N * (1 - chance_N))[:, None]).T @ design_N2
    error = math.sqrt(max(float(np.linalg.pinv(information_22)[0, 0]), 0.0))
    reach = normal_quantile(0.975) * error
    low, middle, high = (1 / (1 + math.exp(-(float(beta_2[0]) + side))) for side in (-reach, 0.0, reach))
    return Interval(middle, low, high, float(weight_N.sum()))


def gain_within_lengths(
    after: tuple[FloatArray, FloatArray], before: tuple[FloatArray, FloatArray], *, bins: int = 5
) -> Interval:
    """Reward gained that length does not explain: the change within bins of length, averaged over bins.

    Args:
        after, before: (rewards, lengths) of samples at two checkpoints. Bins are quantiles of both together;
            a bin that one checkpoint never visits cannot be compared and is left out.
    """
    lengths = np.concatenate([after[1], before[1]])
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)[1:-1]))
    places = [np.searchsorted(edges, part[1], side="right") for part in (after, before)]
    changes = [
        float(after[0][places[0] == i].mean() - before[0][places[1] == i].mean())
        for i in range(len(edges) + 1)
        if (places[0] == i).any() and (places[1] == i).any()
    ]
    return t_interval(np.array(changes)) if changes else unknown()
