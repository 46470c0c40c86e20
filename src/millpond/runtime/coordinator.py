"""The driver's part of a job: plans batches, keeps the clocks, delivers output. No Spark here.

A batch is one epoch: `plan` decides what it reads and makes that durable; the executor runs it;
`complete` takes its messages, shows its output and writes down what the next batch starts from. What
two-phase sinks prepared becomes visible once Spark has committed the batch (`commit_output`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream.connectors.base import SplitEnumerator
from millpond.errors import IncompatibleCheckpointError, JobCancelledError, ProgramError
from millpond.plan.physical import JobPlan
from millpond.queryable.desk import LOOK_EVERY_MS, QueryableDesk
from millpond.runtime.alignment import Alignment
from millpond.runtime.batch_size import sizer_of
from millpond.runtime.job_folder import JobFolder
from millpond.runtime.job_record import JobRecord
from millpond.runtime.job_state import JobState, watermarks_of
from millpond.runtime.messages import Messages
from millpond.runtime.output import OutputDelivery
from millpond.runtime.savepoint_desk import SavepointDesk
from millpond.runtime.savepoint_orders import SavepointOrder
from millpond.runtime.state_types import StateTypes
from millpond.runtime.task.batch import LanePlan, SplitPlan
from millpond.runtime.task.context import TaskClock, TaskRuntimeContext
from millpond.runtime.task.frames import Row, SplitEnd, Start
from millpond.runtime.task.metric_group import TaskMetrics, combine
from millpond.runtime.task.task_valve import advance
from millpond.savepoint.reader import SavepointReader

_IDLE_POLL_S = 0.5
_log = logging.getLogger(__name__)


class Coordinator:
    """`clock_ms` gives processing time; it is read once per batch and written into its plan. `record` is
    that of the job, if other attempts have written to it already."""

    def __init__(
        self,
        plan: JobPlan,
        folder: JobFolder | None,
        output: OutputDelivery,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        record: JobRecord | None = None,
    ) -> None:
        self._plan = plan
        self.record = record or JobRecord(plan)
        self._statistics = self.record.statistics
        self._folder = folder
        self._output = output
        self._clock_ms = clock_ms
        self._alignment = Alignment(plan)
        self._size = sizer_of(plan.settings)
        self._statistics.set_credits(self._size.limit)
        self._interval_ms: int = plan.settings["trigger_interval_ms"]
        self._min_pause_ms: int = plan.settings["min_pause_ms"]
        self._completed_ms = 0
        self.lanes: int = plan.settings["lanes"]
        self.metrics: dict[str, Any] = {}
        self.finished = False
        self.planned_time_ms = 0
        self.is_last_batch = False
        self._last_epoch = -1
        self._cancelled = threading.Event()
        self._wake = threading.Event()
        self._enumerators: dict[int, SplitEnumerator] = {}
        self._ended: dict[int, list[bool]] = {}
        self._initial = JobState.initial(plan)
        self.checkpoints = self.record.checkpoints
        self._types = StateTypes(plan)
        folder_path = None if folder is None else folder.path
        self.savepoints = SavepointDesk(
            plan, folder_path, self._wake.set, self.record.savepoint_is_there
        )
        generation = 0 if folder is None else folder.generation
        self.queries = QueryableDesk(plan, folder_path, generation)
        self._order: SavepointOrder | None = None  # of the batch that runs
        self.stopped = (
            False  # by a savepoint, or at the end of the input; there is no further batch
        )
        self._stops_at_end: bool = plan.settings["stop_at_end"]
        self._stops_now = False  # after the batch that runs
        self._has_recovered = False
        self._has_savepoint = False  # the newest complete batch; its output must not be held back
        self._output_due_ms: int | None = None  # in so many milliseconds a sink has something to do
        self._reset()

    def _reset(self) -> None:
        """As before the first batch."""
        initial = self._initial
        self._saved = {split: dict(saved) for split, saved in initial.saved.items()}
        self._starts = dict(initial.starts)
        self._channels = {origin: list(own) for origin, own in initial.channels.items()}
        # What starts from a savepoint has a first batch at once: timers may be due, all may have ended.
        self._wakeup_ms: int | None = 0 if self._plan.settings.get("savepoint") else None
        self.metrics.clear()
        self._prepared: list[tuple[int, int, Any]] = []

    # --- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the sources where the newest planned batch left them."""
        for head in self._plan.heads:
            operator = self._plan.operators[head.root]
            context = TaskRuntimeContext(
                operator, TaskClock(), TaskMetrics(), 0, False, self._plan.job_parameters
            )
            enumerator = operator.function.create_enumerator(head.parallelism, context)
            enumerator.available = self._wake
            enumerator.stops_at_end = self._stops_at_end
            self._enumerators[head.root] = enumerator
        self._begin_with_savepoint()
        if self._folder is not None:
            self._last_epoch = self._folder.last_epoch()
            self._load_epoch(self._last_epoch)
            # The batch after that one may be planned already; what it reads has been handed out.
            plans = [self._folder.read_plan(self._last_epoch + i) for i in (0, 1)]
            if self._last_epoch >= 0 and plans[0] is None:
                raise self._folder.incomplete(
                    f"plans/{self._last_epoch}.plan",
                    f"which says where the sources are after batch {self._last_epoch}",
                )
            newest = plans[1] or plans[0]
            if newest is not None:
                self._take_positions(newest)
            self._has_savepoint = plans[0] is not None and plans[0].get("savepoint") is not None
            self.savepoints.go_on(self._folder)
        if self._last_epoch >= 0 or self._plan.settings.get("savepoint") is not None:
            self.checkpoints.restored += 1
        for enumerator in self._enumerators.values():
            enumerator.start()

    def _begin_with_savepoint(self) -> None:
        """What is before the first batch comes from a savepoint, if the job is to start from one."""
        savepoint = self._plan.settings.get("savepoint")
        is_over = self._folder is not None and self._folder.is_first_batch_over()
        if savepoint is None or is_over:  # then it may be gone
            return
        self._initial = JobState.from_uids(self._plan, SavepointReader(savepoint).job_state)
        self.planned_time_ms = self._initial.time_ms
        self._ended = dict(self._initial.ended)
        for source, position in self._initial.positions.items():
            self._enumerators[source].restore(position)
        self._reset()

    def _load_epoch(self, epoch: int) -> None:
        """What batch `epoch` left behind; -1: nothing yet."""
        self._reset()
        if epoch < 0:
            self.checkpoints.back_to(epoch, {})
            self._statistics.restore({})
            return
        assert self._folder is not None
        left = self._folder.read_epoch(epoch)
        if left is None:
            raise self._folder.incomplete(
                f"epochs/{epoch}.epoch", "which the next batch builds upon"
            )
        self._saved = left["saved"]
        self._channels = left["channels"]
        self._starts = {task: Start(*start) for task, start in left["starts"].items()}
        for task, start in self._starts.items():
            if isinstance(start.unions, str):
                here = self._folder.unions_path(start.unions)
                self._starts[task] = start._replace(unions=here)
        self._wakeup_ms = left["wakeup_ms"]
        self.metrics.update(left["metrics"])
        self._prepared = left["prepared"]
        self._types.load(left)
        self.checkpoints.back_to(epoch, left.get("log_bytes", {}))
        self._statistics.restore(left.get("statistics", {}))
        self.finished = left["finished"]

    def _take_positions(self, plan: dict[str, Any]) -> None:
        for source, position in plan["positions"].items():
            self._enumerators[source].restore(position)
        self._ended = plan["ended"]

    def commit_output(self) -> None:
        """Make the output of the newest completed batch visible. Spark has committed that batch;
        doing it again changes nothing."""
        self.queries.committed(self._last_epoch)
        self._output.commit(self._last_epoch, self._prepared)
        self._prepared = []
        for enumerator in self._enumerators.values():
            enumerator.committed(self._last_epoch)
        self._recover_output(self._last_epoch)
        done = self._statistics.batch_is_committed()
        if done is not None:
            self._size.took(*done)
            self._statistics.set_credits(self._size.limit)
        if self.finished or self.stopped or self._has_savepoint:
            self._output.finish(self._last_epoch)
            self._has_savepoint = False
        self._output_due_ms = self._output.tick(self._last_epoch, self._clock_ms())
        self.savepoints.write_what_is_done()

    def _recover_output(self, epoch: int) -> None:
        """Once: what attempts before this one left behind after `epoch`."""
        if not self._has_recovered:
            self._output.recover(epoch)
            self._has_recovered = True

    @property
    def last_epoch(self) -> int:
        """The newest batch that is complete; -1 if none."""
        return self._last_epoch

    def cancel(self) -> None:
        self._cancelled.set()
        self._wake.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def close(self) -> None:
        """Close every source, whatever one of them raises. That is logged, not raised: the job has
        ended already, and how it ended must not be hidden."""
        self.savepoints.close(self._order)
        self._output.close()
        for source, enumerator in self._enumerators.items():
            try:
                enumerator.close()
            except Exception as problem:
                name = self._plan.operators[source].name
                _log.warning("Source '%s' failed while it was closed: %r", name, problem)

    # --- planning --------------------------------------------------------------------------------

    def plan(self, epoch: int) -> list[LanePlan] | None:
        """Wait for something to do and plan it. None if a plan for this epoch was there already."""
        if epoch not in (self._last_epoch, self._last_epoch + 1):
            raise IncompatibleCheckpointError(
                f"Spark wants to run batch {epoch}, but the newest batch this job knows of is "
                f"{self._last_epoch}. The job folder was changed; start afresh in another one."
            )
        planned = None if self._folder is None else self._folder.read_plan(epoch)
        if self._folder is not None and planned is not None:
            self._folder.check_lanes(epoch, self.lanes)
        if epoch == self._last_epoch:
            # It ran, but Spark did not commit it: it runs again, from what was before it.
            self._load_epoch(epoch - 1)
            self.queries.committed(epoch - 1)
            self.finished = self.stopped = self._stops_now = False
            self.savepoints.forget(epoch)
            self._recover_output(epoch - 1)
        else:
            self.commit_output()
        if planned is not None:
            order = planned.get("savepoint")
            self._order = None if order is None else SavepointOrder(**order)
            if self._order is not None:
                self.savepoints.orders.go_on(self._order)
            self._ended = planned["ended"]
            self._stops_now = planned.get("stops", False)
            self.planned_time_ms = planned["time_ms"]
            self.is_last_batch = self._all_ended()
            self._announce_splits()
            self._statistics.batch_begins()
            return None
        reads = self._await_work(epoch)
        self._statistics.batch_begins()
        now_ms = max(self._clock_ms(), self.planned_time_ms)  # processing time never goes back
        self.planned_time_ms = now_ms
        self._ended = {source: e.ended() for source, e in self._enumerators.items()}
        self.queries.batch_planned()
        self._order = self.savepoints.orders.take()
        if self._order is not None:
            self._order.make_staging()
        if self._order is not None and self._order.drain:
            self._ended = {source: [True] * len(own) for source, own in self._ended.items()}
        self.is_last_batch = self._all_ended()
        self._announce_splits()
        lanes = self._lane_plans(epoch, now_ms, reads)
        if self._folder is not None:
            positions = {source: e.position() for source, e in self._enumerators.items()}
            order = None if self._order is None else self._order.to_plan()
            content = {
                "positions": positions,
                "ended": self._ended,
                "time_ms": now_ms,
                "savepoint": order,
                "stops": self._stops_now,
            }
            self._folder.write_plan(epoch, lanes, content)
        return lanes

    def _lane_plans(
        self, epoch: int, now_ms: int, reads: dict[tuple[int, int], list[Any]]
    ) -> list[LanePlan]:
        staging = None if self._order is None else str(self._order.staging)
        goes_to_newest = self._stops_now and self._plan.settings["advance_at_end"]
        event_time = self._newest_time() if goes_to_newest else None
        lanes = [
            LanePlan(epoch, lane, now_ms, [], self._starts, self.is_last_batch, staging, event_time)
            for lane in range(self.lanes)
        ]
        number = 0
        for source, enumerator in self._enumerators.items():
            for split in range(enumerator.split_count()):
                lanes[number % self.lanes].splits.append(
                    SplitPlan(
                        source,
                        split,
                        reads.get((source, split), []),
                        self._ended[source][split],
                        self._saved.get((source, split), {}),
                    )
                )
                number += 1
        return lanes

    def _await_work(self, epoch: int) -> dict[tuple[int, int], list[Any]]:
        """Block until a source has something, a timer is due, everything has ended, or cancel."""
        while True:
            self._wake.clear()
            if self._cancelled.is_set():
                raise JobCancelledError("The job was cancelled.")
            now_ms = self._clock_ms()
            pause_ms = max(
                self._interval_ms - abs(now_ms - self.planned_time_ms),
                self._min_pause_ms - abs(now_ms - self._completed_ms),
            )
            if pause_ms <= 0:
                reads: dict[tuple[int, int], list[Any]] = {}
                paused = self._alignment.paused(self._channels, self._ended)
                for source, enumerator in self._enumerators.items():
                    enumerator.paused = paused.get(source, set())
                    enumerator.checkpoint = (epoch, now_ms)
                    if len(enumerator.paused) == enumerator.split_count():
                        continue
                    for work in enumerator.poll(self._size.limit):
                        reads.setdefault((source, work.split), []).append(work.arguments)
                self._statistics.note_backlog(e.backlog() for e in self._enumerators.values())
                ended = {source: e.ended() for source, e in self._enumerators.items()}
                due = self._wakeup_ms is not None and now_ms >= self._wakeup_ms
                asked = self.savepoints.orders.is_waiting() or self.queries.wants_batch()
                self._stops_now = (
                    self._stops_at_end
                    and not reads
                    and all(e.caught_up() for e in self._enumerators.values())
                    and not self._are_all_ended(ended)
                )
                if reads or due or asked or self._newly_ended(ended) or self._stops_now:
                    return reads
            if self._output_due_ms is not None:
                self._output_due_ms = self._output.tick(self._last_epoch, now_ms)
            self._wake.wait(self._pause_s(now_ms, pause_ms))

    def _newest_time(self) -> int | None:
        """Of all records that were read, if they have event time."""
        newest = [
            own[3]
            for saved in self._saved.values()
            for own in saved.values()
            if own is not None and len(own) > 3
        ]
        return None if max(newest, default=MIN_TIMESTAMP) == MIN_TIMESTAMP else max(newest)

    def _all_ended(self) -> bool:
        if self._order is not None and self._order.drain:
            return True
        return self._are_all_ended(self._ended)

    def _are_all_ended(self, ended: dict[int, list[bool]]) -> bool:
        return all(
            all(own) and not self._plan.operators[source].function.endless
            for source, own in ended.items()
        )

    def _newly_ended(self, ended: dict[int, list[bool]]) -> bool:
        for source, flags in ended.items():
            known = self._ended.get(source, [])
            if any(flag and known[i : i + 1] != [True] for i, flag in enumerate(flags)):
                return True
        return False

    def _pause_s(self, now_ms: int, pause_ms: int) -> float:
        polls = [e.next_poll_in_ms() for e in self._enumerators.values()]
        waits = [poll for poll in polls if poll is not None]
        if self._wakeup_ms is not None:
            waits.append(max(0, self._wakeup_ms - now_ms))
        if self.queries.has_states:
            waits.append(LOOK_EVERY_MS)
        if self._output_due_ms is not None:
            waits.append(self._output_due_ms)
        if pause_ms > 0:
            waits = [pause_ms]
        return min(waits) / 1000 if waits else _IDLE_POLL_S

    def _announce_splits(self) -> None:
        """New splits hold every clock back until they have been read."""
        for head in self._plan.heads:
            count = self._enumerators[head.root].split_count()
            if count < 1:
                name = self._plan.operators[head.root].name
                raise ProgramError(f"Source '{name}' has no split; a source has at least one.")
            for origin in head.origins:
                channels = self._channels.setdefault(origin, [])
                channels.extend([(MIN_TIMESTAMP, True)] * (count - len(channels)))
        for task in self._plan.tasks.values():
            if task.level > 0:
                origins = {origin for i in task.inputs for origin in i.origins}
                known = {origin: list(self._channels[origin]) for origin in sorted(origins)}
                self._starts[task.id] = self._starts[task.id]._replace(origins=known)

    # --- completing ------------------------------------------------------------------------------

    def complete(self, epoch: int, rows: list[Row]) -> None:
        """Take in the messages of a batch that ran, show its output, and make the epoch durable.

        Steps: 1. collect what tasks and sinks report, 2. advance all clocks, 3. print and collect,
        4. write the epoch. Two-phase sinks commit after Spark has committed (`commit_output`)."""
        told = Messages.of(rows)
        self._saved.update(told.splits)
        for metrics in told.metrics:
            combine(self.metrics, metrics)
        self._types.take(told.types)
        checkpoint = self.checkpoints.begin()
        for state in told.states:
            checkpoint.add(*state)
        self._advance_clocks(sorted(told.ends))
        for task, lists in told.unions.items():
            self._keep_unions(epoch, task, lists)
        self._wakeup_ms = min(told.wakeups, default=None)
        self._prepared = told.prepared
        self._output.show(epoch, rows)
        records = self._statistics.batch_completes(
            told.works,
            watermarks_of(self._plan, self._starts, self._channels),
            checkpoint.state_bytes(),
        )
        self.finished = self._all_ended()
        self._last_epoch = epoch
        self.queries.learn()
        self._completed_ms = self._clock_ms()
        record = self.checkpoints.complete(
            epoch, self.planned_time_ms, self._completed_ms, self._order is not None, records
        )
        if self._order is not None:
            self.stopped = self.savepoints.batch_done(
                self._order, self._job_state(), epoch, told.parts
            )
            self._has_savepoint = True
            self._order = None  # its batch is complete
        if self._stops_now and self._stops_at_end:
            self.stopped = True
        if self._folder is not None:
            self._folder.write_epoch(
                epoch,
                {
                    "saved": self._saved,
                    "channels": self._channels,
                    "starts": {task: tuple(start) for task, start in self._starts.items()},
                    "wakeup_ms": self._wakeup_ms,
                    "metrics": self.metrics,
                    "prepared": told.prepared,
                    "finished": self.finished,
                    "checkpoint": record.to_dict(),
                    "log_bytes": self.checkpoints.log_bytes,
                    "parts": told.parts,
                    "statistics": self._statistics.totals(),
                    "types": self._types.content(),
                },
            )
            self._folder.drop_batches_before(epoch)
            self._folder.drop_unions()

    def _keep_unions(self, epoch: int, task: int, changed: dict[int, bytes]) -> None:
        """In a file, if there is a folder: only who starts anew reads them."""
        start, known = self._starts[task], self._starts[task].unions
        if isinstance(known, str):
            assert self._folder is not None
            known = self._folder.read_unions(known)
        unions = known | changed
        if self._folder is None:
            self._starts[task] = start._replace(unions=unions)
        else:
            path = self._folder.write_unions(epoch, task, unions)
            self._starts[task] = start._replace(unions=path)

    def _job_state(self) -> JobState:
        """As it is between two batches."""
        return JobState(
            {source: e.position() for source, e in self._enumerators.items()},
            dict(self._ended),
            self._saved,
            self._channels,
            self._starts,
            self.planned_time_ms,
        )

    def _advance_clocks(self, ends: list[SplitEnd]) -> None:
        for task, start in self._starts.items():
            plan = self._plan.tasks[task]
            self._starts[task] = advance(plan, start, ends)
            name = self._plan.operators[plan.root].name
            self.metrics[f"{name}.currentInputWatermark"] = self._starts[task].clock
        for end in ends:
            channels = self._channels[end.origin]
            channels[end.split] = (max(channels[end.split][0], end.watermark), end.active)
