"""A submitted job as its program sees it: id, status, client, result."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from millpond.errors import ProgramError, UnsupportedFeatureError

T = TypeVar("T")


class JobID:
    """32 hexadecimal digits."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text or uuid.uuid4().hex

    @staticmethod
    def parse(text: str, where: str) -> JobID:
        """Raises ProgramError, naming `where` it comes from, if it is no id."""
        if re.fullmatch("[0-9a-f]{32}", text) is None:
            raise ProgramError(f"{where} must be 32 hexadecimal digits (0-9, a-f), not '{text}'.")
        return JobID(text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"JobID({self._text})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobID) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class JobStatus(Enum):
    """The states of a job, with Flink's names."""

    INITIALIZING = 0
    CREATED = 1
    RUNNING = 2
    FAILING = 3
    FAILED = 4
    CANCELLING = 5
    CANCELED = 6
    FINISHED = 7
    RESTARTING = 8
    SUSPENDED = 9
    RECONCILING = 10

    def is_globally_terminal_state(self) -> bool:
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


# INITIALIZING: the program is being read and laid out. FAILING: the job is given up and cleaned up after.
_ALLOWED_NEXT: dict[JobStatus, set[JobStatus]] = {
    JobStatus.INITIALIZING: {JobStatus.CREATED, JobStatus.FAILING, JobStatus.CANCELLING},
    JobStatus.CREATED: {JobStatus.RUNNING, JobStatus.FAILING, JobStatus.CANCELLING},
    JobStatus.RUNNING: {
        JobStatus.FINISHED,
        JobStatus.FAILING,
        JobStatus.CANCELLING,
        JobStatus.RESTARTING,
    },
    JobStatus.RESTARTING: {JobStatus.RUNNING, JobStatus.FAILING, JobStatus.CANCELLING},
    JobStatus.FAILING: {JobStatus.FAILED},
    JobStatus.CANCELLING: {JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED},
}


def check_transition(old: JobStatus, new: JobStatus) -> None:
    """Raise if a job may not go from `old` to `new`."""
    if new not in _ALLOWED_NEXT.get(old, set()):
        raise RuntimeError(f"A job cannot go from {old.name} to {new.name}")


class CompletableFuture(Generic[T]):
    """A result that may still be on its way."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        future: Future[T] = Future()
        future.set_result(value)
        return CompletableFuture(future)

    def cancel(self) -> bool:
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        return self._future.result()

    def exception(self) -> BaseException | None:
        return self._future.exception()

    def set_result(self, result: T) -> None:
        self._future.set_result(result)

    def set_exception(self, exception: BaseException) -> None:
        self._future.set_exception(exception)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._future.add_done_callback(lambda _: callback(self))


@dataclass
class JobExecutionResult:
    """What is left of a finished job."""

    _job_id: JobID
    _net_runtime_ms: int
    _accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_net_runtime(self) -> int:
        """Milliseconds from submission to the end."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Metrics by name: counters and meters summed over subtasks, the newest gauge, and a
        distribution's (count, sum, min, max)."""
        return dict(self._accumulators)


class JobClient(ABC):
    """A handle on a running job."""

    @abstractmethod
    def get_job_id(self) -> JobID: ...

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]: ...

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop between two batches. The future completes when the job has ended."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]: ...

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]: ...

    def get_checkpoints(self) -> list[dict[str, Any]]:
        """Beyond PyFlink: the newest checkpoints (every batch is one), the oldest first: id, started_ms,
        duration_ms, bytes_written, bytes_full, is_savepoint, records."""
        return []

    def report(self) -> dict[str, Any]:
        """Beyond PyFlink: all that the job tells about itself, as JSON could have it: docs/job-report.md."""
        raise UnsupportedFeatureError("JobClient.report: not with this kind of client.")

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it; the future has its path. With
        `advance_to_end_of_event_time` all timers fire and windows close before."""
        raise UnsupportedFeatureError(
            "JobClient.stop_with_savepoint: not with this kind of client."
        )

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint while the job goes on; the future has its path. Without a directory it is below
        execution.checkpointing.savepoint-dir."""
        raise UnsupportedFeatureError("JobClient.trigger_savepoint: not with this kind of client.")
