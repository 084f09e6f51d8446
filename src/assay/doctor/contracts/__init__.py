"""A user's own functions against their contracts; each check returns what fails or warns.

``assert not check_advantages(fn)`` is the pytest form.
"""

from assay.doctor.contracts.advantages import check_advantages
from assay.doctor.contracts.logprobs import check_logprobs
from assay.doctor.contracts.loss import check_loss

__all__ = ["check_advantages", "check_logprobs", "check_loss"]
