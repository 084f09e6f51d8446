"""pass@k and best-of-n."""

from __future__ import annotations

import math

from assay.errors import BadInput


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased probability that at least one of ``k`` samples is correct (Chen et al. 2021).

    1 - C(n - c, k) / C(n, k), as a product so that no binomial overflows.
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise BadInput(
            f"expected 0 <= correct <= samples and 1 <= k <= samples, got {correct}, {samples}, {k}"
        )
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1 - k / i for i in range(samples - correct + 1, samples + 1))
