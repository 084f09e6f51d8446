"""Two checkpoints on the same prompts and seeds, one binary outcome a pair."""

from __future__ import annotations

from scipy import special

from assay.errors import BadInput


def mcnemar(first_only: int, second_only: int) -> float:
    """Exact two-sided p value of McNemar's test: the discordant pairs are a fair coin under the null."""
    if min(first_only, second_only) < 0:
        raise BadInput(f"expected counts of discordant pairs, got {first_only} and {second_only}")
    discordant = first_only + second_only
    if discordant == 0:
        return 1.0
    tail = float(special.bdtr(min(first_only, second_only), discordant, 0.5))
    return min(1.0, 2 * tail)


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment: p values that stay valid for all tests together, in the given order."""
    count = len(p_values)
    order = sorted(range(count), key=lambda at: p_values[at])
    adjusted, running = [0.0] * count, 0.0
    for place, at in enumerate(order):
        running = max(running, (count - place) * p_values[at])
        adjusted[at] = min(1.0, running)
    return adjusted
