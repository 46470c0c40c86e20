"""Runs a job on Spark: a loop that plans a batch, runs it as one Spark job, and makes it count.

While the job waits for work, nothing is polled, and Spark has nothing to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.job import JobStatus
from millpond.core import fault_points
from millpond.driver.coordinator import Coordinator
from millpond.driver.executor import Executor, ExecutorFactory
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.reporting.checkpoint_history import CheckpointHistory
from millpond.driver.reporting.job_record import JobRecord
from millpond.driver.savepoints import Savepoints
from millpond.driver.type_registry import stored_types
from millpond.engine.passes import last_stage, rows_for_driver
from millpond.errors import (
    BatchInconsistentError,
    CheckpointTimeoutError,
    JobCancelledError,
    JobExecutionError,
    MillpondError,
    SparkDriverError,
)
from millpond.executors.slot.settings import SlotSettings, remove_slot_files
from millpond.executors.spark.batch_job import BatchJob
from millpond.executors.spark.driver_process import DriverProcess, DriverWatch
from millpond.executors.spark.error_text import find_error
from millpond.executors.spark.executor_list import ExecutorList
from millpond.executors.spark.job_ref import JobRef
from millpond.executors.spark.main_classes import pack_plan
from millpond.executors.spark.session import get_session, ship_python_files
from millpond.plan.identity import identity_of
from millpond.plan.physical import JobPlan
from millpond.plan.settings import JobStart
from millpond.queryable.files import parse_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_BATCH_TRIES = 4
_CANCEL_EVERY_S = 0.1
_GRACE_S = 0.5  # for the batch that is running when the job is cancelled


class SparkExecutors(ExecutorFactory):
    """Makes the attempts at one job, which share its job folder, the lock on that, and its output."""

    def __init__(
        self,
        plan: JobPlan,
        configuration: Configuration,
        session: SparkSession,
        collect: Callable[[list[Any]], None] | None,
    ) -> None:
        self._plan = plan
        self._configuration = configuration
        self._session = session
        parse_ports(options.QUERYABLE_PORTS.read(configuration))
        self._slots: SlotSettings | None = None
        self._checkpoint_dir = options.CHECKPOINT_DIR.read(configuration)
        self._retain: bool = options.CHECKPOINT_RETAIN.read(configuration)
        self._retention = options.RETENTION.read(configuration)
        self._folder: JobFolder | None = None
        self._output = OutputDelivery(plan, collect)
        self.record = JobRecord(plan)
        self._executor_list = ExecutorList(session)
        self._prepared: bool | Exception | None = None
        """What has become of `prepare` since the last attempt."""

    @property
    def plan(self) -> JobPlan:
        return self._plan

    def attempt(self, number: int) -> SparkExecutor:
        if self._folder is None:
            self._folder = JobFolder.open(self._checkpoint_dir, self._plan.name)
        if number > 0:
            self._use_prepared_session()
        identity = self._folder.check_identity(identity_of(self._plan))
        stored = stored_types(self._folder)
        if stored is None:
            stored = self._plan.start.stored_types
        self._plan = self._plan.starting_from(JobStart(identity.job_id, identity.savepoint, stored))
        self._output.begin_attempt(self._plan)
        run_id, generation = uuid.uuid4().hex, self._folder.start_run()
        self._slots = SlotSettings(
            identity.job_id,
            run_id,
            generation,
            str(self._folder.path),
            self._plan.parallelism,
            options.SLOT_MEMORY_MB.read(self._configuration),
            options.SLOT_HANG_TIMEOUT_S.read(self._configuration),
            options.SLOT_IDLE_TIMEOUT_S.read(self._configuration),
            options.STATE_LOCAL_DIR.read(self._configuration),
            self._look_up_host(),
            options.QUERYABLE_PORTS.read(self._configuration),
            options.SLOT_KEEP_S.read(self._configuration),
        )
        job = JobRef(pack_plan(self._plan), number, self._slots)
        self._executor_list.current()  # so that executors are known, even if Spark goes away
        return SparkExecutor(
            self._plan, self._folder, self._session, self._output, job, self.record
        )

    def prepare(self) -> None:
        """Start Spark again if its driver process has died."""
        try:
            self._renew_session()
            self._prepared = True
        except Exception as problem:
            self._prepared = problem

    def _use_prepared_session(self) -> None:
        """Make sure that there is a session. Raises what `prepare` could not."""
        prepared, self._prepared = self._prepared, None
        if isinstance(prepared, Exception):
            raise prepared
        if prepared is None:
            self._renew_session()

    def _renew_session(self) -> None:
        """Get another session if Spark's driver process has died with the attempt before."""
        try:
            session = get_session(self._configuration, self._plan.parallelism)
            ship_python_files(session, self._configuration)
        except Exception as problem:
            _log.error("Job '%s': Spark could not be started again: %s", self._plan.name, problem)
            raise
        self._session = session
        self._executor_list.use(session)

    def job_folder(self) -> str | None:
        return None if self._folder is None else str(self._folder.path)

    def workers(self) -> list[dict[str, Any]]:
        return self._executor_list.current()

    def _look_up_host(self) -> str:
        """Return the host at which slots answer look-ups; "" on a cluster, where each slot uses its own."""
        host = options.QUERYABLE_HOST.read(self._configuration)
        is_local = self._session.sparkContext.master.startswith("local")
        return str(host) if host is not None else ("127.0.0.1" if is_local else "")

    def close(self, status: JobStatus) -> None:
        if self._slots is not None:
            remove_slot_files(self._slots)  # on this machine; elsewhere slots do it themselves
        if self._folder is not None:
            self._folder.close(delete=self._folder.temporary or not self._is_kept(status))

    def _is_kept(self, status: JobStatus) -> bool:
        if status is JobStatus.FINISHED:
            return self._retain or self._plan.settings.stop_at_end
        return status is not JobStatus.CANCELED or self._retention != "DELETE_ON_CANCELLATION"


class SparkExecutor(Executor):
    """One attempt at a job."""

    def __init__(
        self,
        plan: JobPlan,
        folder: JobFolder,
        session: SparkSession,
        output: OutputDelivery,
        job: JobRef,
        record: JobRecord,
    ) -> None:
        self._plan = plan
        self._driver = DriverProcess.of(session)
        self.coordinator = Coordinator(plan, folder, output, record=record, cuts_by_time=True)
        self._batches = BatchJob(session.sparkContext, job, plan.parallelism, last_stage(plan))
        self._cancelled = False
        self._timed_out: CheckpointTimeoutError | None = None
        self._is_over = threading.Event()

    def cancel(self) -> None:
        self._cancelled = True
        self.coordinator.cancel()
        threading.Thread(target=self._cut_short_soon, daemon=True).start()

    def _cut_short_soon(self) -> None:
        """Make the batch that is running fail, unless it ends by itself in a moment, as most do. Workers
        complain if Spark hangs up on them."""
        if not self._is_over.wait(_GRACE_S):
            self._cut_short(self._is_over)

    def _cut_short(self, is_over: threading.Event) -> None:
        """Make the batch that is running fail; or the one that is about to begin, which is why this tries
        until `is_over` is set."""
        while not is_over.is_set():
            with contextlib.suppress(Exception):  # the JVM may be gone; the batch then ends anyway
                self._batches.cancel()
            is_over.wait(_CANCEL_EVERY_S)

    def metrics(self) -> dict[str, Any]:
        return self.coordinator.metrics

    def savepoints(self) -> Savepoints:
        return self.coordinator.savepoints

    def checkpoints(self) -> CheckpointHistory:
        return self.coordinator.checkpoints

    def run(self) -> None:
        coordinator = self.coordinator
        try:
            coordinator.start()
            # If there was a crash after a batch, its output may not be visible yet.
            coordinator.commit_output()
            if coordinator.end is None:
                with DriverWatch(self._driver, coordinator.cancel):
                    self._run_batches()
        finally:
            self._is_over.set()
            self._batches.close()
            coordinator.close()

    def _run_batches(self) -> None:
        waker = threading.Thread(target=self._wake_slots, daemon=True)
        waker.start()
        try:
            while self.coordinator.end is None:
                self._run_batch()
        except Exception as problem:
            raise self._failure(problem) from None
        finally:
            self._end_waking(waker)

    def _end_waking(self, waker: threading.Thread) -> None:
        """Do not let an attempt that is over wait for slots on executors that may never come."""
        while waker.is_alive():
            with contextlib.suppress(Exception):  # the JVM may be gone; the thread then ends anyway
                self._batches.cancel()
            waker.join(_CANCEL_EVERY_S)

    def _failure(self, problem: Exception) -> Exception:
        """Return why the attempt has failed."""
        if self._cancelled:
            return JobCancelledError("The job was cancelled.")
        if self._timed_out is not None:
            return self._timed_out
        if isinstance(problem, MillpondError) and not isinstance(problem, JobCancelledError):
            return problem
        death = self._driver.how_it_died()
        if death is None:
            return explain(problem)
        # Whatever was raised is only a consequence of the process's death.
        return SparkDriverError(
            f"{death}. A job with a restart strategy (restart-strategy.type) goes on from its newest "
            "checkpoint in a new JVM. If the JVM ran out of memory, raise spark.driver.memory."
        )

    def _wake_slots(self) -> None:
        """Start Python processes and slots while the first batch is planned."""
        # Whatever is wrong, the first batch will report it.
        with contextlib.suppress(Exception):
            self._batches.wake_slots()

    def _run_batch(self) -> None:
        coordinator = self.coordinator
        fault_points.reach("driver before plan")
        lanes = [lane.encode() for lane in coordinator.plan()]
        fault_points.reach("driver after plan")
        with self._time_limit(coordinator.epoch):
            self._complete(lanes)
        fault_points.reach("driver after complete")
        coordinator.commit_output()

    def _complete(self, lanes: list[bytes]) -> None:
        """Run the batch until all of it has built upon the same results."""
        for tries_left in reversed(range(_BATCH_TRIES)):
            try:
                rows = rows_for_driver(self._run_stages(lanes))
                fault_points.reach("driver before complete")
                self.coordinator.complete(rows)
                return
            except BatchInconsistentError as problem:
                if not tries_left:
                    raise
                _log.warning("Job '%s': %s It runs again.", self._plan.name, problem)
                self._batches.prepare_anew()

    def _run_stages(self, lanes: list[bytes]) -> list[bytes]:
        """Run the Spark job of a batch. Raises BatchInconsistentError if a stage got results of another
        batch."""
        try:
            return self._batches.run(self.coordinator.epoch, lanes)
        except Exception as problem:
            found = find_error(str(problem))
            if isinstance(found, BatchInconsistentError):
                raise found from None
            raise

    @contextlib.contextmanager
    def _time_limit(self, epoch: int) -> Iterator[None]:
        limit_ms = self._plan.settings.checkpoint_timeout_ms
        if not limit_ms:
            yield
            return
        is_over = threading.Event()
        timer = threading.Timer(limit_ms / 1000, self._give_up, (epoch, limit_ms, is_over))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            is_over.set()
            timer.cancel()
            timer.join()
        self._timed_out = None  # if it was too late, it was complete after all

    def _give_up(self, epoch: int, limit_ms: int, is_over: threading.Event) -> None:
        self._timed_out = CheckpointTimeoutError(
            epoch,
            f"Batch {epoch} was not complete after {limit_ms} ms ({options.CHECKPOINT_TIMEOUT.key}) and "
            "was abandoned. It will read the same when it runs again: allow it more time. A lower "
            "millpond.batch.max-records makes the batches after it smaller.",
        )
        self._cut_short(is_over)


def explain(failure: BaseException) -> Exception:
    """Return the error to show: Millpond's own if the failure contains one, otherwise a JobExecutionError
    with the beginning of Spark's message."""
    if isinstance(failure, MillpondError):
        return failure
    text = str(failure)
    found = find_error(text)
    if found is not None:
        return found
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return JobExecutionError("The job failed in Spark: " + "\n".join(lines[:25]))
