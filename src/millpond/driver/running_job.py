"""A job while it runs: the thread that runs it, its restarts, its savepoints, its report."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import (
    CompletableFuture,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
)
from millpond.core.key_groups import default_max_parallelism
from millpond.driver.executor import Executor, ExecutorFactory
from millpond.driver.reporting.job_life import JobLife
from millpond.driver.reporting.report import JobFacts, build_report
from millpond.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    JobCancelledError,
    ProgramError,
    SavepointError,
    SparkDriverError,
)
from millpond.plan.physical import JobPlan

_log = logging.getLogger(__name__)
# They are called with every job of this process before it starts.
listeners: list[Callable[[RunningJob], None]] = []


def now_ms() -> int:
    """Return the time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class RunningJob(JobClient):
    """A job and the thread that runs it. Its states and their order are in `common/job.py`."""

    def __init__(
        self,
        plan: JobPlan,
        executors: ExecutorFactory,
        config: ExecutionConfig,
        settings: dict[str, str],
        began_ms: int,
    ) -> None:
        self._plan = plan
        self._executors = executors
        self._restart_strategy = config.get_restart_strategy()
        maximum = config.get_max_parallelism()
        self._facts = JobFacts(
            settings,
            self._restart_strategy.get_description(),
            maximum if maximum > 0 else default_max_parallelism(plan.parallelism),
        )
        self._life = JobLife(began_ms, now_ms)
        self._life.go(JobStatus.CREATED)
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._executor: Executor | None = None
        self._begun = (
            threading.Event()
        )  # set once there is an attempt, or the job ended without one
        self._result: Future[JobExecutionResult] = Future()
        self._metrics: dict[str, Any] = {}
        self._started_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"job-{plan.name}", daemon=True)

    def start(self) -> RunningJob:
        """Start the thread that runs the job, and return the job."""
        self._thread.start()
        return self

    def _run(self) -> None:
        failures_ms: list[int] = []
        timeouts = _Timeouts(self._plan.settings.tolerated_timeouts)
        for attempt in itertools.count():
            try:
                self._attempt(attempt)
                self._finish(JobStatus.FINISHED, None)
                return
            except JobCancelledError as cancelled:
                self._finish(JobStatus.CANCELED, cancelled)
                return
            except BaseException as problem:  # never leave a waiter hanging
                self._note_failure(problem)
                if timeouts.tolerates(problem) and self._set_status(JobStatus.RESTARTING):
                    continue
                failures_ms.append(now_ms())
                delay_ms = self._restart_strategy.next_delay_ms(failures_ms)
                if (
                    delay_ms is None
                    or _is_hopeless(problem)
                    or not self._set_status(JobStatus.RESTARTING)
                ):
                    self._set_status(JobStatus.FAILING)
                    self._finish(JobStatus.FAILED, problem)
                    return
                _log.warning(
                    "Job '%s' has failed and is started again in %.1f s: %s",
                    self._plan.name,
                    delay_ms / 1000,
                    problem,
                )
                self._prepare_and_wait(delay_ms / 1000)

    def _prepare_and_wait(self, delay_s: float) -> None:
        """Wait before the next attempt. What that needs is made ready meanwhile: a new JVM takes seconds."""
        end_s = time.monotonic() + delay_s
        if not self._cancelled.is_set():
            self._executors.prepare()
        self._cancelled.wait(max(0.0, end_s - time.monotonic()))

    def _attempt(self, number: int) -> None:
        if not self._set_status(JobStatus.RUNNING):
            raise JobCancelledError("The job was cancelled.")
        self._life.attempt = number
        executor = self._executors.attempt(number)
        with self._lock:
            self._executor = executor
            self._begun.set()
            if self._cancelled.is_set():
                executor.cancel()
        try:
            executor.run()
        finally:
            self._metrics = executor.metrics()
            self._executors.record.attempt_ends()

    def _note_failure(self, problem: BaseException) -> None:
        with self._lock:
            self._life.failed(problem)

    def _finish(self, status: JobStatus, problem: BaseException | None) -> None:
        try:
            self._executors.close(status)
        except Exception as close_problem:
            self._note_failure(close_problem)
            status, problem = JobStatus.FAILED, problem or close_problem
            self._set_status(JobStatus.FAILING)
        if status is JobStatus.CANCELED:
            self._set_status(JobStatus.CANCELLING)
        self._set_status(status)
        self._begun.set()
        if problem is not None:
            self._result.set_exception(problem)
        else:
            runtime_ms = int((time.monotonic() - self._started_s) * 1000)
            self._result.set_result(
                JobExecutionResult(self.get_job_id(), runtime_ms, dict(self._metrics))
            )

    def _set_status(self, status: JobStatus) -> bool:
        """Change the status. Return False, and change nothing, if a cancelled job would go on with it."""
        with self._lock:
            if status is self._life.status:
                return True
            if self._life.status is JobStatus.CANCELLING and not status.is_terminal_state():
                return False
            if self._cancelled.is_set() and status is JobStatus.RUNNING:
                return False
            self._life.go(status)
            return True

    def get_job_id(self) -> JobID:
        """Return the job's id. A job that goes on in its job folder has its earlier id as soon as it runs."""
        return JobID(self._executors.plan.start.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self._life.status)

    def cancel(self) -> CompletableFuture[None]:
        with self._lock:
            self._cancelled.set()
            if self._life.status in (JobStatus.RUNNING, JobStatus.RESTARTING):
                self._life.go(JobStatus.CANCELLING)
            if self._executor is not None:
                self._executor.cancel()
        ended: Future[None] = Future()
        self._result.add_done_callback(lambda _: ended.set_result(None))
        return CompletableFuture(ended)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._ask_for_savepoint(savepoint_directory)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        return self._ask_for_savepoint(
            savepoint_directory, stop=True, drain=advance_to_end_of_event_time
        )

    def _ask_for_savepoint(
        self, directory: str | None, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        self._begun.wait()
        executor, status = self._executor, self._life.status
        if executor is None or status.is_terminal_state():
            raise SavepointError(f"The job is {status.name}; there is nothing to save.")
        return CompletableFuture(executor.savepoints().ask(directory, stop, drain))

    def get_checkpoints(self) -> list[dict[str, Any]]:
        executor = self._executor
        return (
            []
            if executor is None
            else [record.to_dict() for record in executor.checkpoints().records]
        )

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        executor = self._executor
        metrics = executor.metrics() if executor is not None else self._metrics
        return CompletableFuture.completed(dict(metrics))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return CompletableFuture(self._result)

    def report(self) -> dict[str, Any]:
        """Return the job report as of now. Any thread may ask, at any time, and often."""
        with self._lock:
            life, executor = self._life.copy(), self._executor
        return build_report(
            self._executors.plan,
            self._facts,
            life,
            self._executors.record,
            dict(self._metrics if executor is None else executor.metrics()),
            self._executors.job_folder(),
            self._executors.workers(),
            now_ms(),
        )


def _is_hopeless(problem: BaseException) -> bool:
    """Return whether another attempt would fail in the same way."""
    if isinstance(problem, SparkDriverError):
        return not problem.can_be_replaced
    return isinstance(problem, CheckpointError | ProgramError)


class _Timeouts:
    """Counts how often in a row the same batch was abandoned because it took too long."""

    def __init__(self, tolerated: int) -> None:
        self._tolerated = tolerated
        self._epoch = -1
        self._count = 0

    def tolerates(self, problem: BaseException) -> bool:
        if not isinstance(problem, CheckpointTimeoutError):
            self._count = 0
            return False
        self._count = self._count + 1 if problem.epoch == self._epoch else 1
        self._epoch = problem.epoch
        return self._count <= self._tolerated
