"""Submits jobs: plan, choose an executor, run in a thread, restart, report."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import (
    CompletableFuture,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
)
from millpond.datastream.connectors.base import TwoPhaseSink
from millpond.datastream.data_stream import CloseableIterator
from millpond.errors import (
    CheckpointError,
    CheckpointTimeoutError,
    JobCancelledError,
    ProgramError,
    SavepointError,
    SparkDriverError,
)
from millpond.plan.graph import OperatorKind, StreamGraph
from millpond.plan.physical import JobPlan, build_plan
from millpond.plan.validate import validate
from millpond.runtime.checkpoint_history import CheckpointHistory
from millpond.runtime.job_life import JobLife
from millpond.runtime.job_record import JobRecord
from millpond.runtime.report import JobFacts, build_report
from millpond.runtime.savepoint_desk import SavepointDesk
from millpond.runtime.task.key_groups import default_max_parallelism
from millpond.savepoint.restore import check_fit, open_savepoint, saved_maxima, saved_types
from millpond.state.backends import backend_settings

Collect = Callable[[list[Any]], None]
DEFAULT_JOB_NAME = "Millpond Streaming Job"
# Called by `submit` with every job of this process, before it starts.
listeners: list[Callable[[RunningJob], None]] = []


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Executor(Protocol):
    """Runs one attempt at a job."""

    def run(self) -> None: ...

    def cancel(self) -> None: ...

    def metrics(self) -> dict[str, Any]: ...

    def savepoints(self) -> SavepointDesk: ...

    def checkpoints(self) -> CheckpointHistory: ...


class ExecutorFactory(Protocol):
    """Makes the attempts at one job and keeps what outlives them."""

    @property
    def record(self) -> JobRecord: ...

    def job_folder(self) -> str | None:
        """Where the job's durable state is; None if it has none, or not yet."""

    def workers(self) -> list[dict[str, Any]]:
        """The `executors` of the job report. May be asked often, and by any thread."""

    def attempt(self, number: int) -> Executor: ...

    def close(self, status: JobStatus) -> None:
        """The job has ended in this way; nothing of it will be tried again."""


def plan_job(
    graph: StreamGraph,
    configuration: Configuration,
    config: ExecutionConfig,
    job_name: str | None,
) -> JobPlan:
    """Validate a program and lay it out."""
    parallelism = config.get_parallelism() or default_parallelism(configuration)
    maximum = config.get_max_parallelism()
    max_parallelism = maximum if maximum > 0 else None
    validate(graph, parallelism, max_parallelism, config.has_auto_generated_uids_enabled())
    savepoint = open_savepoint(options.SAVEPOINT_PATH.read(configuration))
    plan = build_plan(
        graph,
        job_name or DEFAULT_JOB_NAME,
        parallelism,
        max_parallelism,
        _is_batch(graph, configuration),
        None if savepoint is None else saved_maxima(savepoint),
    )
    plan.job_parameters = config.get_global_job_parameters()
    plan.settings = {
        "frame_records": options.FRAME_RECORDS.read(configuration),
        "max_batch_records": options.MAX_BATCH_RECORDS.read(configuration),
        "target_batch_ms": options.TARGET_BATCH_MS.read(configuration),
        "target_latency_ms": options.TARGET_LATENCY.read_ms_if_set(configuration),
        "trigger_interval_ms": options.TRIGGER_INTERVAL_MS.read(configuration),
        "lanes": parallelism,
        "job_id": str(_job_id(configuration)),
        "checkpoint_timeout_ms": options.CHECKPOINT_TIMEOUT_MS.read(configuration),
        "stop_at_end": options.STOP_AT_END.read(configuration),
        "advance_at_end": options.ADVANCE_AT_END.read(configuration),
        "tolerated_timeouts": options.TOLERATED_TIMEOUTS.read(configuration),
        "min_pause_ms": options.MIN_PAUSE_MS.read(configuration),
        "state_backend": backend_settings(configuration),
        "savepoint_dir": options.SAVEPOINT_DIR.read(configuration),
    }
    if savepoint is not None:
        check_fit(plan, savepoint, options.ALLOW_NON_RESTORED.read(configuration))
        plan.settings["savepoint"] = str(savepoint.path)
        plan.settings["stored_types"] = saved_types(savepoint)
    for sink in plan.sinks.values():
        if isinstance(sink.function, TwoPhaseSink):
            sink.function.validate()
    return plan


def _job_id(configuration: Configuration) -> JobID:
    given = options.JOB_ID.read(configuration)
    return JobID() if given is None else JobID.parse(given, options.JOB_ID.key)


def default_parallelism(configuration: Configuration) -> int:
    if options.EXECUTOR.read(configuration) == "direct":
        return 1
    from millpond.runtime.spark.session import default_parallelism as of_spark

    return of_spark(configuration)


def _is_batch(graph: StreamGraph, configuration: Configuration) -> bool:
    mode = str(options.RUNTIME_MODE.read(configuration)).upper()
    if mode not in ("STREAMING", "BATCH", "AUTOMATIC"):
        raise ProgramError(f"{options.RUNTIME_MODE.key} must be STREAMING or BATCH, not '{mode}'.")
    sources = [n.function for n in graph.nodes.values() if n.kind is OperatorKind.SOURCE]
    if mode == "AUTOMATIC":
        return all(source.bounded for source in sources)
    if mode == "BATCH" and any(source.endless for source in sources):
        raise ProgramError("BATCH mode needs sources that end; use STREAMING for this program.")
    return mode == "BATCH"


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
        self._begun = threading.Event()  # the first attempt, or the job has ended without one
        self._result: Future[JobExecutionResult] = Future()
        self._metrics: dict[str, Any] = {}
        self._started_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"job-{plan.name}", daemon=True)

    def start(self) -> RunningJob:
        self._thread.start()
        return self

    def _run(self) -> None:
        failures_ms: list[int] = []
        timeouts = _Timeouts(self._plan.settings["tolerated_timeouts"])
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
                self._cancelled.wait(delay_ms / 1000)

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
        """False if a cancelled job would start anew."""
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
        """A job that goes on in its folder keeps the id it had, once it runs."""
        return JobID(self._plan.settings["job_id"])

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
        return [] if executor is None else [own.to_dict() for own in executor.checkpoints().records]

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        executor = self._executor
        metrics = executor.metrics() if executor is not None else self._metrics
        return CompletableFuture.completed(dict(metrics))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return CompletableFuture(self._result)

    def report(self) -> dict[str, Any]:
        """The job as it is now. Any thread may ask, at any time, and often."""
        with self._lock:
            life, executor = self._life.copy(), self._executor
        return build_report(
            self._plan,
            self._facts,
            life,
            self._executors.record,
            dict(self._metrics if executor is None else executor.metrics()),
            self._executors.job_folder(),
            self._executors.workers(),
            now_ms(),
        )


def _is_hopeless(problem: BaseException) -> bool:
    """True if another attempt would meet the same."""
    if isinstance(problem, SparkDriverError):
        return not problem.can_be_replaced
    return isinstance(problem, CheckpointError)


class _Timeouts:
    """Counts how often in a row the same batch was given up."""

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


def submit(
    graph: StreamGraph,
    configuration: Configuration,
    config: ExecutionConfig,
    job_name: str | None,
    collect: Collect | None = None,
) -> RunningJob:
    """Start a job. Everything that is wrong with the program is raised here, before it runs."""
    began_ms = now_ms()
    plan = plan_job(graph, configuration, config, job_name)
    executors = _executors(plan, configuration, collect)
    job = RunningJob(plan, executors, config, configuration.to_dict(), began_ms)
    for listener in list(listeners):
        listener(job)
    return job.start()


def _executors(
    plan: JobPlan, configuration: Configuration, collect: Collect | None
) -> ExecutorFactory:
    kind = options.EXECUTOR.read(configuration)
    if kind == "direct":
        from millpond.runtime.direct.executor import DirectExecutors

        return DirectExecutors(plan, collect)
    if kind == "spark":
        from millpond.runtime.spark.executor import SparkExecutors
        from millpond.runtime.spark.session import get_session, ship_python_files

        session = get_session(configuration, plan.parallelism)
        ship_python_files(session, configuration)
        return SparkExecutors(plan, configuration, session, collect)
    raise ProgramError(f"{options.EXECUTOR.key} must be spark or direct, not '{kind}'.")


_END = object()


def submit_and_collect(
    graph: StreamGraph,
    configuration: Configuration,
    config: ExecutionConfig,
    job_name: str | None,
) -> CloseableIterator:
    results: queue.Queue[Any] = queue.Queue()
    job = submit(graph, configuration, config, job_name, results.put)
    job.get_job_execution_result().add_done_callback(lambda _: results.put(_END))

    def values() -> Iterator[Any]:
        while (batch := results.get()) is not _END:
            yield from batch
        job.get_job_execution_result().result()

    def close() -> None:
        if not job.get_job_execution_result().done():
            job.cancel().result()

    return CloseableIterator(values(), close)
