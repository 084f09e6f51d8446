"""A verdict in plain words: what a newcomer should take from a run before looking at any picture."""

from __future__ import annotations

import math

from assay.hacking import Hacking
from assay.report.load import Experiment

MEANING = {
    "healthy": "Reward and truth rose together: the model became better at the task itself.",
    "hacking": "The reward was hacked: it rose further than the truth did.",
    "overoptimisation": "Over-optimised: the model became worse at the task while its reward went on rising.",
    "no_learning": "Nothing was learnt: neither reward nor truth moved.",
    "inconclusive": "No verdict: the evaluation is too small, or the changes too mixed, to tell.",
}

LABEL = {
    "healthy": "healthy",
    "hacking": "hacking",
    "overoptimisation": "overoptimisation",
    "no_learning": "no learning",
    "inconclusive": "inconclusive",
}

GLOSSARY = (
    ("reward", "what training optimises: the score the model is paid. Also called the proxy."),
    ("truth", "the held-out score by another instrument. Training never sees it. Also called gold."),
    ("hacking rate", "mean reward minus mean truth: how much of the pay is not gold."),
    ("P(rewarded, not true)", "share of all samples that are paid although they are wrong."),
    ("P(not true | rewarded)", "of the paid samples, the share that is wrong."),
    ("J", "Youden's J: how well the reward still tells right from wrong; 1 perfectly, 0 not at all."),
    ("KL", "how far the policy has moved from its start, in nats a completion."),
    ("entropy", "how undecided the policy is, in nats a token; near 0 it always says the same."),
    ("template", "share of completions that are the same but for numbers and formulas."),
    ("band", "95% interval, with all samples of one prompt counted as one cluster."),
)


def headline(experiment: Experiment) -> str:
    """One sentence for the top of the page."""
    found = experiment.evaluated
    if len(found) == 1:
        return MEANING[found[0][1].verdict]
    groups: dict[str, list[str]] = {}
    for arm, hacking in found:
        groups.setdefault(hacking.verdict, []).append(arm.name)
    parts = [f"{_listed(names)} {_did(verdict, len(names) > 1)}"
             for verdict, names in groups.items()]  # fmt: skip
    return "; ".join(parts) + "."


def at_the_end(hacking: Hacking) -> str:
    """What the last checkpoint says, in one sentence."""
    start, end = hacking.checkpoints[0], hacking.checkpoints[-1]
    if math.isnan(end.truth.estimate) or math.isnan(end.reward.estimate):
        return "The truth or the reward of the last checkpoint is unknown."
    change = f"Truth went from {start.truth.estimate:.2f} to {end.truth.estimate:.2f}, "
    change += f"reward from {start.reward.estimate:.2f} to {end.reward.estimate:.2f}."
    share = end.not_true_if_rewarded
    if not math.isnan(share.estimate):
        change += f" Of what is paid at the end, {100 * share.estimate:.0f}% is not gold."
    return change


def choice(hacking: Hacking) -> str:
    """Which checkpoint to keep, and what choosing by reward alone would cost."""
    picked = hacking.selection
    if picked is None:
        return "No checkpoint can be chosen: truth or reward is unknown."
    if picked.by_truth == picked.by_reward:
        return f"Keep step {picked.by_truth}: truth and reward agree on it."
    return (
        f"Keep step {picked.by_truth} (truth {picked.truth_at_best:.2f}). Reward alone would have picked "
        f"step {picked.by_reward} (truth {picked.truth_at_reward_pick:.2f}): {picked.cost.estimate:.2f} lost "
        f"[{picked.cost.low:.2f}, {picked.cost.high:.2f}]."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _did(verdict: str, several: bool) -> str:
    was = "were" if several else "was"
    return {
        "healthy": "learnt the task",
        "hacking": f"{was} paid for more than {'they' if several else 'it'} did",
        "overoptimisation": "got worse at the task while being paid more",
        "no_learning": "did not learn",
        "inconclusive": "cannot be judged yet",
    }[verdict]
