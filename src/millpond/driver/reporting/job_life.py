"""The states a job goes through, when, and what went wrong on the way (O2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from millpond.common.job import JobStatus, check_transition
from millpond.errors import UserFunctionError

_FAILURES = 20
_TEXT = 4000


@dataclass(frozen=True)
class Failure:
    """One attempt at a job that failed. `operator` is set if a function of the user's did."""

    at_ms: int
    exception: str
    text: str
    operator: str | None


class JobLife:
    """Whoever uses it from several threads guards it. `clock_ms` gives the time of day."""

    def __init__(self, began_ms: int, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.status = JobStatus.INITIALIZING
        self.times_ms = {JobStatus.INITIALIZING: began_ms}  # of a state's newest time
        self.failures: deque[Failure] = deque(maxlen=_FAILURES)
        self.restarts = 0
        self.attempt = 0

    def go(self, status: JobStatus) -> None:
        """Raises if that is not allowed (common/job.py)."""
        check_transition(self.status, status)
        self.status = status
        self.times_ms[status] = self._clock_ms()
        if status is JobStatus.RESTARTING:
            self.restarts += 1

    def failed(self, problem: BaseException) -> None:
        operator = problem.operator if isinstance(problem, UserFunctionError) else None
        text = str(problem) or repr(problem)
        self.failures.append(
            Failure(self._clock_ms(), type(problem).__name__, text[:_TEXT], operator)
        )

    def copy(self) -> JobLife:
        """As it is now, for whoever wants to look at it in peace."""
        other = JobLife(0, self._clock_ms)
        other.status = self.status
        other.times_ms = dict(self.times_ms)
        other.failures = self.failures.copy()
        other.restarts = self.restarts
        other.attempt = self.attempt
        return other

    @property
    def began_ms(self) -> int:
        return self.times_ms[JobStatus.INITIALIZING]

    @property
    def ended_ms(self) -> int | None:
        return self.times_ms[self.status] if self.status.is_terminal_state() else None
