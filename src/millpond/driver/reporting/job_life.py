"""The states that a job goes through, when it does so, and what went wrong on the way (O2)."""

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
    """One failed attempt at a job. `operator` names the operator if a user's function failed, else it is
    None."""

    at_ms: int
    exception: str
    text: str
    operator: str | None


class JobLife:
    """The life of one job so far. It has no lock of its own: callers in several threads must hold one.
    `clock_ms` returns the time of day."""

    def __init__(self, began_ms: int, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.status = JobStatus.INITIALIZING
        self.times_ms = {JobStatus.INITIALIZING: began_ms}  # when a state was last entered
        self.failures: deque[Failure] = deque(maxlen=_FAILURES)
        self.restarts = 0
        self.attempt = 0

    def go(self, status: JobStatus) -> None:
        """Enter a state. Raises RuntimeError if the job cannot enter it from the current one
        (`common/job.py`)."""
        check_transition(self.status, status)
        self.status = status
        self.times_ms[status] = self._clock_ms()
        if status is JobStatus.RESTARTING:
            self.restarts += 1

    def failed(self, problem: BaseException) -> None:
        """Add a failure to `failures`, of which the newest are kept. The state stays as it is."""
        operator = problem.operator if isinstance(problem, UserFunctionError) else None
        text = str(problem) or repr(problem)
        self.failures.append(
            Failure(self._clock_ms(), type(problem).__name__, text[:_TEXT], operator)
        )

    def copy(self) -> JobLife:
        """Return a copy that does not change any more, to be read without a lock."""
        other = JobLife(0, self._clock_ms)
        other.status = self.status
        other.times_ms = dict(self.times_ms)
        other.failures = self.failures.copy()
        other.restarts = self.restarts
        other.attempt = self.attempt
        return other

    @property
    def began_ms(self) -> int:
        """When the job began."""
        return self.times_ms[JobStatus.INITIALIZING]

    @property
    def ended_ms(self) -> int | None:
        """When the job ended; None while it has not."""
        return self.times_ms[self.status] if self.status.is_terminal_state() else None
