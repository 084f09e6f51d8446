"""Code rewards: untrusted programs against function tests and stdin/stdout tests, in a sandbox.

The programs may be hostile; a pass needs positive proof. :func:`sandbox_report` tells what the sandbox covers
on this machine, :mod:`assay.rewards.code.sandbox` what it never covers.
"""

from assay.rewards.code.compare import EXACT, Comparison
from assay.rewards.code.extract import extract_code
from assay.rewards.code.isolation import Isolation, require_isolation
from assay.rewards.code.limits import Limits
from assay.rewards.code.probe import SandboxReport, sandbox_report
from assay.rewards.code.results import CodeResult, TestOutcome
from assay.rewards.code.reward import FunctionTestsReward, StdioReward
from assay.rewards.code.stdio import StdioTest, run_stdio_tests
from assay.rewards.code.unit_tests import FunctionTest, run_function_tests

__all__ = [
    "EXACT",
    "CodeResult",
    "Comparison",
    "FunctionTest",
    "FunctionTestsReward",
    "Isolation",
    "Limits",
    "SandboxReport",
    "StdioReward",
    "StdioTest",
    "TestOutcome",
    "extract_code",
    "require_isolation",
    "run_function_tests",
    "run_stdio_tests",
    "sandbox_report",
]
