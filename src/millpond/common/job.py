"""A submitted job as its program sees it: id, status, client, result."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from millpond.errors import DispatcherError, ProgramError, UnsupportedFeatureError

T = TypeVar("T")


class JobID:
    """The id of a job: 32 hexadecimal digits, random unless given."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text or uuid.uuid4().hex

    @staticmethod
    def parse(text: str, where: str) -> JobID:
        """Return the id that `text` spells; raise ProgramError if it is not one. `where` says where the
        text comes from."""
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
    """The states in the life of a job, with Flink's names."""

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

    @staticmethod
    def of(report: Mapping[str, Any]) -> JobStatus:
        """Return the status that the field `state` of a job's report names; REST's JSON has it as well. Raise
        DispatcherError if this release does not know it. Beyond PyFlink."""
        state = str(report.get("state"))
        if state not in JobStatus.__members__:
            job = report.get("jid", "?")
            raise DispatcherError(
                f"The job {job} is in the state '{state}', which this release of Millpond does not know: its "
                "report was written by another release. Use that one."
            )
        return JobStatus[state]

    def is_globally_terminal_state(self) -> bool:
        """Return True if the job has failed, finished or been cancelled, and will not run again."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Return True if the job has ended, or is suspended."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


# INITIALIZING: the program is being planned. FAILING: the job has been given up and is being cleaned up.
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
    """Raise RuntimeError if a job may not go from `old` to `new`."""
    if new not in _ALLOWED_NEXT.get(old, set()):
        raise RuntimeError(f"A job cannot go from {old.name} to {new.name}.")


class CompletableFuture(Generic[T]):
    """A result that may not be there yet."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    @staticmethod
    def completed(value: T) -> CompletableFuture[T]:
        """Return a future that already has its result."""
        future: Future[T] = Future()
        future.set_result(value)
        return CompletableFuture(future)

    def cancel(self) -> bool:
        """Give up waiting for the result; return False if it is already there. The job itself goes on."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Return True if the future was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Return True if there is a result or an error, or if the future was cancelled."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the result and return it; raise the error if there is one instead."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """Wait for the end and return the error, or None if there is a result."""
        return self._future.exception()

    def set_result(self, result: T) -> None:
        """Complete the future with a result."""
        self._future.set_result(result)

    def set_exception(self, exception: BaseException) -> None:
        """Complete the future with an error."""
        self._future.set_exception(exception)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(future)` when the future is done, or at once if it is. It may run in another
        thread."""
        self._future.add_done_callback(lambda _: callback(self))


@dataclass
class JobExecutionResult:
    """The result of a finished job, returned by `StreamExecutionEnvironment.execute`."""

    _job_id: JobID
    _net_runtime_ms: int
    _accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """Return the milliseconds from the job's submission to its end."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return one of `get_all_accumulator_results`, or None if there is none with this name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return metrics by name: counters and meters summed over subtasks, the newest value of gauges,
        and (count, sum, min, max) of distributions."""
        return dict(self._accumulators)


class JobClient(ABC):
    """A handle on a running job, returned by `StreamExecutionEnvironment.execute_async`."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job. A job that resumes in its job folder has the id it had there, once it
        runs."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return a future with the current status."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop the job between two batches. The future completes when the job has ended."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return a future with the metrics so far, in the form of
        `JobExecutionResult.get_all_accumulator_results`."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return a future that completes when the job ends: with its result, or with the error that made
        it fail."""

    def get_checkpoints(self) -> list[dict[str, Any]]:
        """Return the newest checkpoints, oldest first; every batch is one. Beyond PyFlink.

        Each has the keys id, started_ms, duration_ms, bytes_written, bytes_full, is_savepoint and records.
        """
        return []

    def report(self) -> dict[str, Any]:
        """Return everything the job reports about itself, ready for JSON; see docs/job-report.md. Beyond
        PyFlink."""
        raise UnsupportedFeatureError(f"{type(self).__name__} does not support report().")

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it. The future's result is the path of the savepoint.

        With `advance_to_end_of_event_time`, all event-time timers fire and all windows close first.
        """
        raise UnsupportedFeatureError(
            f"{type(self).__name__} does not support stop_with_savepoint()."
        )

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint while the job continues. The future's result is the path of the savepoint.

        Without a directory it is written below `execution.checkpointing.savepoint-dir`.
        """
        raise UnsupportedFeatureError(
            f"{type(self).__name__} does not support trigger_savepoint()."
        )
