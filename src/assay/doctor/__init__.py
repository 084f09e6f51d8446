"""The doctor: why does this run not improve?"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "diagnose": "assay.doctor.diagnosis",
    "Diagnosis": "assay.doctor.diagnosis",
    "check_advantages": "assay.doctor.contracts",
    "check_logprobs": "assay.doctor.contracts",
    "check_loss": "assay.doctor.contracts",
    "check_decode": "assay.doctor.contracts",
    "check_reward": "assay.doctor.contracts",
    "TRLCallback": "assay.doctor.live",
    "RunWatch": "assay.doctor.live",
}


def __getattr__(name: str) -> Any:
    """Load an exported name at its first use, so that importing the package stays cheap."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
