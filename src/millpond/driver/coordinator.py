"""The driver's part of a job: plans batches, keeps the clocks, delivers output. It knows nothing of Spark.

A batch is one epoch: `plan` decides what it reads and makes that durable; the executor runs it; `complete`
takes its reports, shows its output and writes down what the next batch starts from. With that, the batch
counts, and `commit_output` makes visible what two-phase sinks have prepared. `attempt_phase.py` draws the
phases in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from millpond.driver.attempt_phase import AttemptPhase, JobEnd, check_transition
from millpond.driver.clocks import Clocks
from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.batch_report import is_consistent, log_positions, report_of
from millpond.driver.epochs.epoch_log import EpochLog
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.job_folder import JobFolder
from millpond.driver.job_state import JobState
from millpond.driver.output import OutputDelivery
from millpond.driver.planner import BatchPlanner
from millpond.driver.reporting.checkpoint_history import CheckpointRecord
from millpond.driver.reporting.job_record import JobRecord
from millpond.driver.savepoint_requests import SavepointRequest
from millpond.driver.savepoints import Savepoints
from millpond.driver.sources import Sources
from millpond.driver.type_registry import TypeRegistry
from millpond.engine.exchange.batch import LanePlan, LogPositions
from millpond.engine.exchange.frames import Row
from millpond.engine.exchange.reports import Prepared, Report
from millpond.engine.metric_group import combine
from millpond.errors import BatchInconsistentError
from millpond.plan.physical import JobPlan
from millpond.queryable.desk import QueryableDesk
from millpond.savepoint.reader import SavepointReader


class Coordinator:
    """Drives one attempt at a job. `clock_ms` returns processing time; it is read once per batch and written
    into the batch's plan. `record` is the job's record, if earlier attempts have written to it already.
    `cuts_by_time`: a batch ends when its time is over, whatever it has read until then."""

    def __init__(
        self,
        plan: JobPlan,
        folder: JobFolder | None,
        output: OutputDelivery,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        record: JobRecord | None = None,
        cuts_by_time: bool = False,
    ) -> None:
        self._plan = plan
        self.record = record or JobRecord(plan)
        self.checkpoints = self.record.checkpoints
        self._statistics = self.record.statistics
        self._folder = folder
        self._output = output
        self._clock_ms = clock_ms
        self._log = EpochLog(folder)
        self._clocks = Clocks(plan)
        wake = threading.Event()
        self._sources = Sources(plan, wake)
        self.planner = BatchPlanner(
            plan, self._sources, self._clocks, self._statistics, clock_ms, wake, cuts_by_time
        )
        self._types = TypeRegistry(plan)
        path = None if folder is None else folder.path
        self.savepoints = Savepoints(plan, path, self.planner.hurry, self.record.savepoint_is_there)
        generation = 0 if folder is None else folder.generation
        self.queries = QueryableDesk(self.record.queryable, path, generation)
        self.metrics: dict[str, Any] = {}
        self._phase = AttemptPhase.OPENING
        self.end: JobEnd | None = None
        """Set once there is no further batch."""
        self._request: SavepointRequest | None = None  # of the batch that runs
        self._prepared: list[Prepared] = []
        self._positions: dict[int, object] = {}
        self._logs: LogPositions = {}
        self._planned: BatchPlan | None = None  # before a crash, and not complete yet
        self._is_last = False  # whether nothing can come after the batch that is planned
        # Of the newest complete batch: then its output must not be held back.
        self._has_savepoint = False
        self._has_recovered = False  # whether the output of earlier attempts has been recovered
        self._initial = JobState.initial(plan)
        self._reset()

    # --- asked by executors ----------------------------------------------------------------------

    @property
    def phase(self) -> AttemptPhase:
        """Where the attempt is in its life."""
        return self._phase

    @property
    def planned_time_ms(self) -> int:
        """The processing time of the newest planned batch."""
        return self.planner.time_ms

    def cancel(self) -> None:
        """End the attempt: a wait for work raises JobCancelledError. Any thread may call this."""
        self.planner.cancel()

    # --- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the sources where the newest planned batch left them."""
        self._sources.open()
        self._begin_with_savepoint()
        record, self._planned = self._log.open(self._plan.levels, self._plan.parallelism)
        if self._folder is not None:
            self._go_back_to(record)
        if record is not None:
            self._positions = record.positions
            self.planner.ended = record.ended
            self.planner.time_ms = record.time_ms
            self._has_savepoint = record.has_savepoint
            if self.savepoints.go_on(record.savepoints) and self.end is None:
                self.end = JobEnd.STOPPED
        # What a planned batch reads has been handed out, whether it has run or not.
        newest = self._planned or record
        if newest is not None:
            self._sources.restore(newest.positions, newest.unread)
        if self._log.newest >= 0 or self._plan.start.savepoint is not None:
            self.checkpoints.restored += 1
        self._sources.start()
        self._enter(AttemptPhase.COMPLETE)

    def _begin_with_savepoint(self) -> None:
        """Take the state before the first batch from a savepoint, if the job is to start from one."""
        savepoint = self._plan.start.savepoint
        # Once the first batch is over, the savepoint is not needed any more, and may be gone.
        if savepoint is None or (self._folder is not None and self._folder.has_counted()):
            return
        self._initial = JobState.from_uids(self._plan, SavepointReader(savepoint).job_state)
        self.planner.time_ms = self._initial.time_ms
        self.planner.ended = dict(self._initial.ended)
        self._sources.restore(self._initial.positions, self._initial.unread)
        self._reset()

    def _reset(self) -> None:
        """Set clocks, metrics and output to where they are before the first batch."""
        self._clocks.set_to_initial(self._initial)
        # A job that starts from a savepoint runs a batch at once: timers may be due, all input may have
        # ended.
        self.planner.wakeup_ms = None if self._plan.start.savepoint is None else 0
        self.metrics.clear()
        self._prepared = []
        self._logs = {}

    def _go_back_to(self, record: EpochRecord | None) -> None:
        """Set everything to what a batch has left behind. None means: to before the first batch."""
        self._reset()
        if record is None:
            self.checkpoints.back_to(-1, {})
            self._statistics.restore({})
            return
        self._clocks.set_to(record.channels, record.starts, record.generators)
        self.planner.wakeup_ms = record.wakeup_ms
        self.metrics.update(record.metrics)
        self._prepared = record.prepared
        self._logs = record.logs
        self._types.load(record)
        self.checkpoints.back_to(record.checkpoint.id, record.log_bytes)
        self._statistics.restore(record.statistics)
        self.end = JobEnd.FINISHED if record.finished else None

    def close(self) -> None:
        """End savepoints, sinks and sources. What sinks and sources raise is logged only, so that it does not
        hide how the job ended."""
        self._enter(AttemptPhase.CLOSED)
        self.savepoints.close(self._request)
        self._output.close()
        self._sources.close()
        self._log.close()

    def _enter(self, phase: AttemptPhase) -> None:
        if phase is not self._phase:
            check_transition(self._phase, phase)
            self._phase = phase

    # --- planning --------------------------------------------------------------------------------

    def plan(self) -> list[LanePlan]:
        """Return the lanes of the next batch: of the one that was planned before a crash, if there is one;
        otherwise wait until there is something to do, and plan it. The output of the batch before is made
        visible first, if it is not yet."""
        if self._phase is AttemptPhase.COMPLETE:
            self.commit_output()
        planned, self._planned = self._planned, None
        if planned is None:
            planned = self._plan_new()
        else:
            self._plan_again(planned)
        self._positions = planned.positions
        self._is_last = planned.lanes[0].last_batch
        self._enter(AttemptPhase.PLANNED)
        return planned.lanes

    @property
    def epoch(self) -> int:
        """The batch that is planned, or that comes next."""
        return self._log.newest + 1

    def _plan_again(self, planned: BatchPlan) -> None:
        self._request = planned.savepoint
        if self._request is not None:
            self.savepoints.requests.go_on(self._request)
            self._request.make_staging()  # an attempt that ends removes it
        self.planner.ended = planned.ended
        self.planner.stops = planned.stops
        self.planner.time_ms = planned.time_ms
        self._clocks.add_new_splits(self._sources)
        self._statistics.batch_begins()

    def _plan_new(self) -> BatchPlan:
        planner, requests, epoch = self.planner, self.savepoints.requests, self.epoch
        reads = planner.await_work(epoch, requests, self.queries, self._tick)
        self._statistics.batch_begins()
        planner.time_ms = max(self._clock_ms(), planner.time_ms)  # processing time never goes back
        planner.ended = self._sources.ended()
        self.queries.batch_planned()
        # A batch that may be cut takes no savepoint: one that asks meanwhile waits for the next batch.
        self._request = None if reads and planner.cuts_by_time else requests.take()
        if self._request is not None:
            self._request.make_staging()
            if self._request.drain:
                planner.ended = {
                    source: [True] * len(splits) for source, splits in planner.ended.items()
                }
        self._clocks.drop_old_splits(self._sources)
        self._clocks.add_new_splits(self._sources)
        drains = self._request is not None and self._request.drain
        # A batch that may be cut is not the last one, for something may be left of it.
        is_over = self._sources.are_over(planner.ended) and not (reads and planner.cuts_by_time)
        lanes = planner.lanes(epoch, reads, self._request, drains or is_over, self._logs)
        plan = BatchPlan(
            self._sources.positions(),
            planner.ended,
            planner.time_ms,
            self._request,
            planner.stops,
            lanes,
            self._sources.unread,
        )
        self._log.write_plan(epoch, plan)
        return plan

    # --- completing ------------------------------------------------------------------------------

    def complete(self, rows: list[Row]) -> None:
        """Take the reports of a batch that ran, make the epoch durable, and show its output.

        Steps: 1. take what tasks and sinks report and advance all clocks, 2. write the epoch, with which the
        batch counts, 3. print and collect. Two-phase sinks commit later (`commit_output`). Raises
        BatchInconsistentError, before anything has changed, if the batch has to run again."""
        report, epoch = report_of(rows), self.epoch
        if not is_consistent(report.runs, epoch):
            raise BatchInconsistentError(
                f"Batch {epoch}: Spark lost results after some tasks had read them, or kept those of an "
                "earlier batch, so not all tasks have worked on the same input."
            )
        self._take(epoch, report)
        records = self._statistics.batch_completes(
            report.works,
            self._clocks.watermarks(),
            self.checkpoints.state_bytes(),
            is_cut=bool(report.unread),
        )
        finished = self._is_last
        self.end = JobEnd.FINISHED if finished else None
        self.queries.learn()
        self.planner.completed_ms = self._clock_ms()
        checkpoint = self.checkpoints.complete(
            epoch,
            self.planned_time_ms,
            self.planner.completed_ms,
            self._request is not None,
            records,
        )
        self._end_if_asked(epoch, report)
        self._log.write(epoch, self._epoch_record(report, finished, checkpoint))
        self._output.show(epoch, rows)
        self._enter(AttemptPhase.COMPLETE)

    def _take(self, epoch: int, report: Report) -> None:
        """Bring everything that tasks report about up to date, and advance all clocks."""
        self._clocks.generators.update(report.generators)
        for metrics in report.metrics:
            combine(self.metrics, metrics)
        self._types.add([report.types])
        checkpoint = self.checkpoints.begin()
        for log_size in report.log_sizes:
            checkpoint.add(log_size)
        self._clocks.advance(sorted(report.ends), self.metrics)
        unions: dict[int, dict[int, bytes]] = {}
        for task, subtask, lists in report.unions:
            unions.setdefault(task, {})[subtask] = lists
        for task, changed in unions.items():
            start = self._clocks.starts[task]
            self._clocks.set_unions(task, self._log.add_unions(epoch, task, start, changed))
        self.planner.wakeup_ms = report.wakeup_ms
        self._prepared = report.prepared
        self._logs = self._logs | log_positions(report.runs)
        self._sources.give_back(report.unread)
        for source, split in report.unread:
            self.planner.ended[source][split] = False

    def _epoch_record(
        self, report: Report, finished: bool, checkpoint: CheckpointRecord
    ) -> EpochRecord:
        return EpochRecord(
            self._clocks.generators,
            self._clocks.channels,
            self._clocks.starts,
            self.planner.wakeup_ms,
            self.metrics,
            report.prepared,
            finished,
            checkpoint,
            self.checkpoints.log_bytes,
            self._statistics.totals(),
            self._positions,
            self.planner.ended,
            self.planned_time_ms,
            self._logs,
            self.savepoints.unfinished(),
            self._has_savepoint,
            self._sources.unread,
            self._types.state_types(),
            self._types.key_types(),
        )

    def _end_if_asked(self, epoch: int, report: Report) -> None:
        """Hand on the parts of a savepoint. Set `end` if the job stops with it, or at the end of the
        input."""
        stops = self.planner.stops and self._plan.settings.stop_at_end
        if self._request is not None:
            request, self._request = self._request, None
            if self.savepoints.batch_done(request, self._job_state(), epoch, report.parts):
                stops = True
            self._has_savepoint = True
        if stops and self.end is None:
            self.end = JobEnd.STOPPED

    def commit_output(self) -> None:
        """Make the output of the newest complete batch visible. Doing it again changes nothing."""
        epoch = self._log.newest
        self.queries.committed(epoch)
        self._output.commit(epoch, self._prepared)
        self._prepared = []
        self._sources.committed(epoch)
        self._recover_output(epoch)
        self.planner.learn()
        if self.end is not None or self._has_savepoint:
            self._output.finish(epoch)
            self._has_savepoint = False
        self.planner.output_due_ms = self._tick(self._clock_ms())
        self.savepoints.write_what_is_done()
        self._enter(AttemptPhase.BETWEEN)

    def _recover_output(self, epoch: int) -> None:
        """Have sinks undo what earlier attempts prepared after `epoch`. This is done once per attempt."""
        if not self._has_recovered:
            self._output.recover(epoch)
            self._has_recovered = True

    def _tick(self, now_ms: int) -> int | None:
        return self._output.tick(self._log.newest, now_ms)

    def _job_state(self) -> JobState:
        """Return what the driver knows about the job between two batches."""
        return JobState(
            self._positions,
            dict(self.planner.ended),
            self._clocks.generators,
            self._clocks.channels,
            self._clocks.starts,
            self.planned_time_ms,
            self._sources.unread,
        )
