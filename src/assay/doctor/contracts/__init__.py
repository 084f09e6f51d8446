"""A user's own functions against their contracts; each check returns what fails or warns.

``assert not check_advantages(fn)`` is the pytest form.
"""

from assay.doctor.contracts.advantages import check_advantages
from assay.doctor.contracts.compare import Comparison, Move, compare, run_code
from assay.doctor.contracts.decode import check_decode
from assay.doctor.contracts.logprobs import check_logprobs
from assay.doctor.contracts.loss import check_loss
from assay.doctor.contracts.reward import check_reward

__all__ = [
    "Comparison",
    "Move",
    "check_advantages",
    "check_decode",
    "check_logprobs",
    "check_loss",
    "check_reward",
    "compare",
    "run_code",
]
