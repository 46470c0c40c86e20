"""Runs a job as one Spark Structured Streaming query.

The query, from top to bottom:

    ticks      rate-micro-batch: as many rows per batch as there are lanes; the value of a row names batch
               and lane
    sources    mapInArrow: reads the lane's plan, runs the source tasks, yields frames
    level 1..n groupBy(label).transformWithState(...): tasks, key group by key group
    output     foreachBatch: plans the batch before it runs, delivers its output afterwards

The batch is planned inside `foreachBatch`, just before Spark is made to compute it. By then Spark has
committed the batch before it. Nothing is polled, and an idle job costs nothing.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.job import JobStatus
from millpond.core import fault_points
from millpond.driver.attempt_phase import JobEnd
from millpond.driver.coordinator import Coordinator
from millpond.driver.executor import Executor, ExecutorFactory
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.reporting.checkpoint_history import CheckpointHistory
from millpond.driver.reporting.job_record import JobRecord
from millpond.driver.savepoints import Savepoints
from millpond.driver.type_registry import stored_types
from millpond.engine.exchange.frames import SINK_LEVEL, Row
from millpond.engine.sink_pass import has_worker_sinks, sinks_stay_where_records_are
from millpond.engine.state_views import NEEDS_SLOTS, has_queryable_sinks
from millpond.errors import (
    CheckpointTimeoutError,
    JobExecutionError,
    MillpondError,
    ProgramError,
    SparkDriverError,
)
from millpond.executors.slot.settings import SlotSettings, remove_slot_files, worker_folder
from millpond.executors.spark.driver_process import DriverProcess
from millpond.executors.spark.error_text import find_error
from millpond.executors.spark.executor_list import ExecutorList
from millpond.executors.spark.job_ref import JobRef
from millpond.executors.spark.level import SCHEMA, LevelProcessor
from millpond.executors.spark.main_classes import pack_plan
from millpond.executors.spark.session import get_session, job_session, ship_python_files
from millpond.executors.spark.worker import run_lane, run_sinks, wake
from millpond.plan.identity import identity_of
from millpond.plan.physical import JobPlan
from millpond.plan.settings import JobStart
from millpond.queryable.files import parse_ports

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger(__name__)


class _Ended(Exception):
    """Raised to leave the query's callback when there is no further batch to run."""


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
        self._use_slots = _slots_wanted(configuration)
        if not self._use_slots and has_queryable_sinks(plan):
            raise ProgramError(NEEDS_SLOTS)
        parse_ports(options.QUERYABLE_PORTS.read(configuration))
        self._slots: SlotSettings | None = None
        self._checkpoint_dir = options.CHECKPOINT_DIR.read(configuration)
        self._retain: bool = options.CHECKPOINT_RETAIN.read(configuration)
        self._retention = options.RETENTION.read(configuration)
        self._worker_folders: list[str] = []
        self._folder: JobFolder | None = None
        self._output = OutputDelivery(plan, collect)
        self.record = JobRecord(plan)
        self._executor_list = ExecutorList(session)

    @property
    def plan(self) -> JobPlan:
        return self._plan

    def attempt(self, number: int) -> SparkExecutor:
        if self._folder is None:
            self._folder = JobFolder.open(self._checkpoint_dir, self._plan.name)
            kept: int = options.CHECKPOINTS_KEPT.read(self._configuration)
            if kept < 1:
                raise ProgramError(f"{options.CHECKPOINTS_KEPT.key} must be 1 or more, not {kept}.")
            self._folder.kept_batches = kept
        if number > 0:
            self._renew_session()
        identity = self._folder.check_identity(identity_of(self._plan))
        stored = stored_types(self._folder)
        if stored is None:
            stored = self._plan.start.stored_types
        self._plan = self._plan.starting_from(JobStart(identity.job_id, identity.savepoint, stored))
        self._output.begin_attempt(self._plan)
        run_id, generation = uuid.uuid4().hex, self._folder.start_run()
        if self._use_slots:
            self._slots = SlotSettings(
                identity.job_id,
                run_id,
                generation,
                str(self._folder.run_file),
                self._plan.parallelism,
                options.SLOT_MEMORY_MB.read(self._configuration),
                options.SLOT_HANG_TIMEOUT_S.read(self._configuration),
                options.SLOT_IDLE_TIMEOUT_S.read(self._configuration),
                options.STATE_LOCAL_DIR.read(self._configuration),
                self._look_up_host(),
                options.QUERYABLE_PORTS.read(self._configuration),
            )
        job = JobRef(
            run_id,
            pack_plan(self._plan),
            number,
            str(self._folder.path),
            self._plan.settings.lanes,
            self._slots,
            worker_folder(options.STATE_LOCAL_DIR.read(self._configuration), run_id),
        )
        self._worker_folders.append(job.worker_folder)
        self._executor_list.current()  # so that executors are known, even if Spark goes away
        return SparkExecutor(
            self._plan, self._folder, self._session, self._output, job, self.record
        )

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
        for folder in self._worker_folders:
            shutil.rmtree(folder, ignore_errors=True)
        if self._folder is not None:
            self._folder.close(delete=self._folder.temporary or not self._is_kept(status))

    def _is_kept(self, status: JobStatus) -> bool:
        if status is JobStatus.FINISHED:
            return self._retain or self._plan.settings.stop_at_end
        return status is not JobStatus.CANCELED or self._retention != "DELETE_ON_CANCELLATION"


def _slots_wanted(configuration: Configuration) -> bool:
    wanted = str(options.SLOTS.read(configuration)).lower()
    if wanted not in ("on", "off", "true", "false"):
        raise ProgramError(f"{options.SLOTS.key} must be on or off, not '{wanted}'.")
    return wanted in ("on", "true")


class SparkExecutor(Executor):
    """One attempt at a job, which is one execution of the query."""

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
        self._folder = folder
        self._session = session
        self.coordinator = Coordinator(plan, folder, output, record=record)
        self._job = job
        self._worker_sinks = has_worker_sinks(plan)
        self._sinks_in_place = sinks_stay_where_records_are(plan)
        self._failure: BaseException | None = None
        self._query: Future[StreamingQuery] = Future()
        self._in_batch = threading.Lock()
        self._takes_batches = True

    def cancel(self) -> None:
        self.coordinator.cancel()

    def metrics(self) -> dict[str, Any]:
        return self.coordinator.metrics

    def savepoints(self) -> Savepoints:
        return self.coordinator.savepoints

    def checkpoints(self) -> CheckpointHistory:
        return self.coordinator.checkpoints

    def run(self) -> None:
        try:
            self.coordinator.start()
            if self.coordinator.end is not JobEnd.FINISHED:
                self._run_query()
            # The last batch is complete. If there was a crash after it, its output may not be visible yet.
            self.coordinator.commit_output()
        finally:
            self.coordinator.close()

    def _run_query(self) -> None:
        driver = DriverProcess.of(self._session)
        try:
            self._await_query()
        except Exception as problem:
            death = driver.how_it_died()
            if death is None:
                raise
            self._failure = self._failure or problem
        else:
            death = None if isinstance(self._failure, _Ended) else driver.how_it_died()
        if death is not None:
            self._leave_dead_driver(death)
        failure = self._failure
        if failure is None:
            raise JobExecutionError(
                "The Spark query was stopped from outside the job. Use JobClient.cancel() to stop a job. "
                "When the job is started again, it goes on where it was."
            )
        if not isinstance(failure, _Ended):
            raise explain(failure) from None

    def _await_query(self) -> None:
        from pyspark.errors import PySparkException

        session = job_session(self._session, self._plan.parallelism, self._folder.kept_batches)
        waker = threading.Thread(target=self._wake_workers, args=(session,), daemon=True)
        waker.start()
        query = self._start_query(session)
        self._query.set_result(query)
        try:
            query.awaitTermination()
        except PySparkException as problem:
            if self._failure is None:
                self._failure = problem
        waker.join()

    def _leave_dead_driver(self, death: str) -> None:
        """Note that Spark's driver process is gone, and let no further batch in. A batch that the process had
        called for may still be running here; it must not plan or deliver anything once the next attempt has
        begun."""
        lost = SparkDriverError(
            f"{death}. A job with a restart strategy (restart-strategy.type) goes on from its newest "
            "checkpoint in a new JVM. If the JVM ran out of memory, raise spark.driver.memory."
        )
        # Any other failure is only a consequence of the process's death.
        if not isinstance(self._failure, (MillpondError, _Ended)):
            self._failure = lost
            _log.error("Job '%s': %s", self._plan.name, lost)
        self.coordinator.cancel()  # so that it stops waiting, whatever for
        with self._in_batch:
            self._takes_batches = False

    def _wake_workers(self, session: SparkSession) -> None:
        """Start Python processes and slots while Spark still prepares the query. This is not done on a
        cluster, where it is not known yet which machines will need them."""
        if not session.sparkContext.master.startswith("local"):
            return
        job, count = self._job, self._plan.parallelism
        with contextlib.suppress(Exception):  # whatever is wrong, the query will report it
            session.range(0, count, 1, count).mapInArrow(
                lambda batches: _wake(job, batches), SCHEMA
            ).collect()

    def _start_query(self, session: SparkSession) -> StreamingQuery:
        job = self._job
        rows: DataFrame = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", job.lanes)
            .option("numPartitions", job.lanes)
            .load()
            .select("value")
            .mapInArrow(lambda batches: _sources(job, batches), SCHEMA)
        )
        for level in range(1, self._plan.levels + 1):
            rows = rows.groupBy("label").transformWithState(
                LevelProcessor(job, level), SCHEMA, outputMode="append", timeMode="none"
            )
        return (
            rows.writeStream.queryName(f"{self._plan.name} {job.run_id[:8]}")
            .outputMode("append")
            .option("checkpointLocation", self._folder.spark_checkpoint.as_uri())
            .foreachBatch(self._run_batch)
            .start()
        )

    def _run_batch(self, frame: DataFrame, epoch: int) -> None:
        """Run one batch. Spark calls this for each batch, before it computes anything of the batch."""
        try:
            with self._in_batch:
                if not self._takes_batches:
                    raise _Ended
                self._plan_and_complete(frame, epoch)
        except BaseException as problem:
            self._failure = self._failure or problem
            # Spark only needs to know that the batch ended; long texts make its error handling overflow.
            raise RuntimeError("millpond: batch ended") from None

    def _plan_and_complete(self, frame: DataFrame, epoch: int) -> None:
        if self.coordinator.end is not None and epoch > self.coordinator.last_epoch:
            raise _Ended
        fault_points.reach("driver before plan")
        self.coordinator.plan(epoch)
        fault_points.reach("driver after plan")
        with self._time_limit(epoch):
            rows = self._collect_rows(frame, epoch)
        fault_points.reach("driver before complete")
        self.coordinator.complete(epoch, rows)
        fault_points.reach("driver after complete")

    @contextlib.contextmanager
    def _time_limit(self, epoch: int) -> Iterator[None]:
        limit_ms = self._plan.settings.checkpoint_timeout_ms
        if not limit_ms:
            yield
            return
        timer = threading.Timer(limit_ms / 1000, self._give_up, (epoch, limit_ms))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, epoch: int, limit_ms: int) -> None:
        self._failure = CheckpointTimeoutError(
            epoch,
            f"Batch {epoch} was not complete after {limit_ms} ms ({options.CHECKPOINT_TIMEOUT_MS.key}) and "
            "was abandoned. If it has too much to do, lower millpond.batch.max-records, or allow more time.",
        )
        self._query.result().stop()

    def _collect_rows(self, frame: DataFrame, epoch: int) -> list[Row]:
        """Make Spark compute the batch; return the rows that are for the driver."""
        if self._worker_sinks:
            job, time_ms = self._job, self.coordinator.planned_time_ms
            last = self.coordinator.is_last_batch
            in_place = self._sinks_in_place
            if not in_place:
                frame = frame.repartition(self._plan.parallelism, "label")
            frame = frame.mapInArrow(
                lambda batches: _sinks(job, batches, in_place, epoch, time_ms, last), SCHEMA
            )
        table = frame.toArrow()
        columns = (table.column(i).to_pylist() for i in range(3))
        return [row for row in zip(*columns, strict=True) if row[0] == SINK_LEVEL]


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


def _wake(job: JobRef, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        for partition in batch.column(0).to_pylist():
            wake(job, partition)
    return iter(())


def _sources(job: JobRef, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        for tick in batch.column(0).to_pylist():
            yield from _to_arrow(run_lane(job, tick))


def _sinks(
    job: JobRef,
    batches: Iterator[RecordBatch],
    in_place: bool,
    epoch: int,
    time_ms: int,
    last: bool,
) -> Iterator[RecordBatch]:
    rows: list[Row] = []
    for batch in batches:
        rows.extend(zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True))
    yield from _to_arrow(run_sinks(job, rows, in_place, epoch, time_ms, last))


def _to_arrow(rows: Iterable[Row], rows_per_batch: int = 256) -> Iterator[RecordBatch]:
    import pyarrow

    types = (pyarrow.int32(), pyarrow.int32(), pyarrow.binary())
    pending: list[Row] = []

    def pack() -> RecordBatch:
        columns = zip(*pending, strict=True)
        arrays = [pyarrow.array(c, t) for c, t in zip(columns, types, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, ["level", "label", "payload"])

    for row in rows:
        pending.append(row)
        if len(pending) >= rows_per_batch:
            yield pack()
            pending.clear()
    if pending:
        yield pack()
