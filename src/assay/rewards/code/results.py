"""What running the tests of one completion gave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test.

    Attributes:
        id: the test's own id, or its position.
        passed: proved by a record with the right value.
        reason: why not, in one line.
        hidden: whether the prompt does not show this test.
    """

    __test__ = False  # not a test class of pytest

    id: str
    passed: bool
    reason: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class CodeResult:
    """The tests of one completion.

    Attributes:
        outcomes: one for each test, in order; a test that was not reached has not passed.
        breach: the limit that the program broke, which ended it: ``timeout``, ``cpu time``, ``memory``,
            ``disk``, ``output``, or ``forged record``.
        failure: why the sandbox itself did not work; then nothing is known about the program.
        cpu_s: processor seconds of everything the program started.
        stderr_tail: the last characters of what it wrote there.
    """

    outcomes: tuple[TestOutcome, ...]
    breach: str | None = None
    failure: str | None = None
    cpu_s: float = 0.0
    stderr_tail: str = ""

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(outcome.passed for outcome in self.outcomes)

    @property
    def total(self) -> int:
        """How many tests there are."""
        return len(self.outcomes)

    @property
    def all_passed(self) -> bool:
        """Every test passed and no limit was broken; never true without tests."""
        return 0 < self.total == self.passed and self.breach is None and self.failure is None

    def share(self, hidden: bool | None = None) -> float:
        """Passed / total, of all tests or of the hidden or visible ones; NaN where there are none."""
        chosen = [one for one in self.outcomes if hidden is None or one.hidden is hidden]
        return sum(one.passed for one in chosen) / len(chosen) if chosen else float("nan")

    def first_reason(self) -> str | None:
        """The breach, or why the first failed test failed."""
        return (
            self.failure or self.breach or next((one.reason for one in self.outcomes if not one.passed), None)
        )
