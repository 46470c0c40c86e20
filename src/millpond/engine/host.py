"""Runs source tasks and tasks inside one process. (`sink_pass.py` runs sinks.)

A host keeps what can be kept between batches (opened functions, states of key groups), and takes everything
else from the batch. A slot or the direct executor calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core import codec, fault_points
from millpond.core.bundle import Bundle
from millpond.core.labels import ALL_OF_PARTITION, make_label, partition_label, split_label
from millpond.core.storage import Storage
from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import KeyGroupStorage
from millpond.datastream.stream_graph import ExchangeKind, OperatorKind
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.exchange.controls import (
    Control,
    SplitEnd,
    decode_control,
    encode_control,
    join_controls,
)
from millpond.engine.exchange.field_keys import keys_in
from millpond.engine.exchange.frames import Frame, Producer, Row, decode_frame, merge
from millpond.engine.exchange.reports import LogSize, Report, UnionLists
from millpond.engine.exchange.router import derives_keys
from millpond.engine.kept_states import KeptStates
from millpond.engine.open_tasks import OpenTasks
from millpond.engine.split_pass import run_split
from millpond.engine.state_views import StateViews
from millpond.engine.tasks import AnyTask
from millpond.engine.time.task_valve import advance
from millpond.engine.work_meter import Pass, Surroundings, WorkMeter
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.savepoint.parts import write_part
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.state_tables import Content
from millpond.state import change_log as changelog
from millpond.state.backends import OpenBackend
from millpond.state.change_log import CachedState, LogHead, LogStore
from millpond.state.key_check import check_keys, key_schema
from millpond.state.key_group_state import KeyGroupState
from millpond.state.partition_log import EMPTY, LogPosition, PartitionLog, log_folder
from millpond.state.timers import earliest
from millpond.state.type_check import check_types, declared_types

_WATERMARK_STATE = "_watermark_generator"


@dataclass
class LevelResult:
    """What a batch on a level has given in one partition."""

    rows: list[Row]
    """The rows for later levels, for sinks and for the driver, but for the report."""
    report: Report
    log: PartitionLog
    position: LogPosition = EMPTY
    """How far the log reaches now."""
    is_as_left: bool = False
    """Whether the log is as the newest pass in this process has left it."""


@dataclass
class _Batch:
    """A batch as it concerns one key group (or subtask) of a task."""

    plan: TaskPlan
    number: int
    frames: list[Frame]
    control: Control
    end_clock: int
    work: Pass
    result: LevelResult


class JobHost:
    """Runs the lanes of source tasks, and the levels of tasks.

    `blob` is the pickled JobPlan. Logs are written to `storage`, in segments that have `writer` in their
    names (`state/partition_log.py`)."""

    def __init__(
        self,
        blob: bytes,
        storage: Storage,
        writer: str,
        attempt: int = 0,
        state_folder: str | None = None,
        memory_limit_mb: int | None = None,
        surroundings: Surroundings | None = None,
        views: StateViews | None = None,
    ) -> None:
        self._storage = storage
        self._writer = writer
        self._logs: dict[tuple[int, int], PartitionLog] = {}
        # (level, partition) -> how far its log reaches after the newest pass here
        self._left: dict[tuple[int, int], LogPosition] = {}
        self._meter = WorkMeter(surroundings or Surroundings())
        self.plan: JobPlan = codec.loads(blob)
        self._opened = OpenBackend(self.plan.settings.state_backend, state_folder, memory_limit_mb)
        self._backend = self._opened.backend
        self._views = views or StateViews()
        self._views.fit_to(self._backend)
        self._tasks = OpenTasks(self.plan, blob, attempt, self._backend, self._views)
        self._states = KeptStates(self._views)
        self._is_checked = False
        self._reported: set[int] = set()  # tasks that have reported which states they declare
        if any(op.kind is OperatorKind.KEYED_COLUMNS for op in self.plan.operators.values()):
            import pyarrow.compute  # noqa: F401 (slow to import; better now than in the first batch)

    # --- source tasks ----------------------------------------------------------------------------

    def run_lane(self, batch: LanePlan, report: Report) -> Iterator[Row]:
        """Read the splits of a lane through their source tasks. Yield frames, then a control for every task
        and partition that waits for one from this lane. What the driver is to know is added to `report`."""
        self._check_types(batch.lane)
        clock_ns = self._meter.clock_ns
        end_ns = None if batch.read_ms is None else clock_ns() + batch.read_ms * 1_000_000
        to_read = sum(1 for split in batch.splits if split.reads)
        for split in batch.splits:
            until_ns = None
            if end_ns is not None and split.reads:
                # The time that is left belongs to all splits that are left.
                now_ns = clock_ns()
                until_ns = now_ns + max(0, end_ns - now_ns) // to_read
                to_read -= 1
            plan = self.plan.tasks[split.source]
            task = self._tasks.get(plan, split.split % plan.parallelism)
            task.chain.listeners.batch_begins(batch.epoch, split.split)
            with self._tasks.reset_on_failure(task):
                work = self._meter.begin(task.chain.task.id, task.chain.subtask)
                yield from run_split(task.chain, split, batch, report, work, until_ns)
        ends = list(report.ends)
        listening = {
            task.id: task
            for task in self.plan.tasks.values()
            if task.level > 0 and (batch.lane == 0 or self._listens(task, ends))
        }
        for listener in listening.values():
            yield from self._control_rows(listener, batch, ends)
        if batch.last_batch:
            self._tasks.close_level(0, batch.lane)

    def _check_types(self, subtask: int) -> None:
        """Open the tasks that have state from an earlier run, and check whether its types fit, before
        anything is read. Does so only once."""
        if self._is_checked:
            return
        stored = self.plan.start.stored_types
        for plan in self.plan.tasks.values():
            types = stored.get(self.plan.operators[plan.root].uid)
            if types is not None and plan.level > 0:
                chain = self._tasks.get(plan, subtask % plan.parallelism).chain
                check_types(_where(chain), chain.declared_states(), types)
        self._is_checked = True

    @staticmethod
    def _listens(task: TaskPlan, ends: list[SplitEnd]) -> bool:
        return any(end.origin in task_input.origins for task_input in task.inputs for end in ends)

    def _control_rows(self, task: TaskPlan, batch: LanePlan, ends: list[SplitEnd]) -> Iterator[Row]:
        task_ends = [end for end in ends if any(end.origin in i.origins for i in task.inputs)]
        control = Control(
            batch.processing_time_ms,
            batch.starts[task.id],
            task_ends,
            batch.last_batch,
            batch.savepoint,
            batch.epoch,
        )
        if batch.lane > 0:
            yield from self._to_all_partitions(task, control)
            return
        for partition in self.plan.partitions_of(task):
            log = batch.logs.get((task.level, partition), EMPTY)
            yield _control_row(task, partition, encode_control(control._replace(log=log)))

    def _to_all_partitions(self, task: TaskPlan, control: Control) -> Iterator[Row]:
        blob = encode_control(control)
        for partition in self.plan.partitions_of(task):
            yield _control_row(task, partition, blob)

    # --- tasks -----------------------------------------------------------------------------------

    def run_level(self, level: int, partition: int, rows: Iterable[Row]) -> LevelResult:
        """Run a batch on everything that a level has in a partition. `rows` are all rows that have reached
        the partition; those that are not for this level are passed on.

        What has changed in states is in the level's log when this returns, but does not count yet."""
        passed, frames, controls = _sorted_by_task(rows, level)
        result = LevelResult(passed, Report(), self._log(level, partition))
        joined = {ordinal: join_controls(own) for ordinal, own in controls.items()}
        left = self._left.pop((level, partition), None)
        for control in joined.values():
            assert control.log is not None
            result.log.go_to(control.log)  # they all say the same
            # If the newest pass here did not count, or others have run since, states are to be loaded.
            result.is_as_left = left == control.log
        for plan in self.plan.tasks_at(level):
            if plan.ordinal in joined:
                blobs, control = frames.get(plan.ordinal, {}), joined[plan.ordinal]
                self._run_in_partition(plan, partition, blobs, control, result)
        result.position = result.log.write()
        if any(control.last_batch for control in joined.values()):
            self._tasks.close_level(level, partition)
        self._left[level, partition] = result.position
        return result

    def _log(self, level: int, partition: int) -> PartitionLog:
        log = self._logs.get((level, partition))
        if log is None:
            folder = log_folder(level, partition)
            log = self._logs[level, partition] = PartitionLog(self._storage, folder, self._writer)
        return log

    def _run_in_partition(
        self,
        plan: TaskPlan,
        partition: int,
        blobs: dict[int, list[bytes]],
        control: Control,
        result: LevelResult,
    ) -> None:
        """Run a batch on those key groups (or subtasks) of a task in a partition that have anything to do."""
        assert control.start is not None
        end_clock = advance(plan, control.start, control.ends).clock
        works: dict[int, Pass] = {}
        for number in self.plan.numbers_in(plan, partition):
            subtask = plan.subtask_of(number)
            has_nothing_to_do = (
                number not in blobs
                and result.is_as_left
                and self._may_rest(plan, number, control, end_clock)
            )
            if has_nothing_to_do:
                timer_ms = self._timer_ms(plan, number)
                result.report.wakeup_ms = earliest(result.report.wakeup_ms, timer_ms)
                self._tasks.get(plan, subtask).chain.listeners.batch_begins(control.epoch, number)
                continue
            work = works.get(subtask)
            if work is None:
                work = works[subtask] = self._meter.begin(plan.id, subtask)
            store = result.log.of(make_label(plan.ordinal, number))
            frames = [decode_frame(blob) for blob in blobs.get(number, ())]
            work.bytes_in += sum(map(len, blobs.get(number, ())))
            batch = _Batch(plan, number, frames, control, end_clock, work, result)
            self._run_label(batch, store)
        for subtask, work in works.items():
            task = self._tasks.get(plan, subtask)
            result.report.add_metrics(task.chain.metrics.take())
            work.end(result.report)

    def _timer_ms(self, plan: TaskPlan, number: int) -> int | None:
        """Return the time of the earliest processing-time timer of a state that is kept."""
        kept = self._states.get(plan.id, number)
        return None if kept is None else kept.state.processing_timers.next_time_ms()

    def _may_rest(self, plan: TaskPlan, number: int, control: Control, end_clock: int) -> bool:
        """Return whether nothing can happen to a key group that gets no records."""
        assert control.start is not None
        kept = self._states.get(plan.id, number)
        is_open = self._tasks.find(plan, plan.subtask_of(number)) is not None
        if kept is None or not is_open or not plan.keyed or self._views.is_read(plan.id):
            return False
        timer_ms = self._timer_ms(plan, number)
        return (
            end_clock == control.start.clock
            and control.savepoint is None
            and (timer_ms is None or timer_ms > control.processing_time_ms)
        )

    def _run_label(self, batch: _Batch, store: LogStore) -> None:
        """Run a batch on a key group (or subtask), and put what has changed into its change log."""
        plan, control = batch.plan, batch.control
        task = self._tasks.get(plan, plan.subtask_of(batch.number))
        if task.chain.has_state:
            with self._views.exclusively():
                self._run_on_state(batch, task, store)
        else:
            task.chain.listeners.batch_begins(control.epoch, batch.number)
            with self._tasks.reset_on_failure(task):
                self._run_task(batch, task, KeyGroupState(batch.number))

    def _run_on_state(self, batch: _Batch, task: AnyTask, store: LogStore) -> None:
        """Load the state of a key group (or subtask), run the batch on it, and log what has changed."""
        plan, number, control = batch.plan, batch.number, batch.control
        where = f"{_where(task.chain)}, key group {number}"
        self._views.begin(plan.id, number, control.epoch)
        cached = self._states.take(plan.id, number)
        state, head = changelog.load(
            store, cached, where, lambda: KeyGroupState(number, self._storage_of(plan, number))
        )
        state.where = where
        as_it_was = cached is not None and cached.head.token == head.token
        if task.chain.operator_state.is_outdated(control.epoch, as_it_was):
            task = self._tasks.renew(plan, task)
        task.chain.listeners.batch_begins(control.epoch, number)
        if head.version == 0 and control.epoch == 0:
            self._restore(state, plan, number)
        if cached is None:
            check_keys(state, plan)
        with self._tasks.reset_on_failure(task):
            self._run_task(batch, task, state)
        if plan.id not in self._reported:
            self._reported.add(plan.id)
            types = {task.chain.root.plan.uid: declared_types(task.chain.declared_states())}
            batch.result.report.types |= types
        written = self._write_state(batch, state, head, store)
        self._views.finished(plan.id, number, control.epoch, task.chain.clock.watermark)
        self._states.keep(plan.id, number, written)

    def _write_state(
        self, batch: _Batch, state: KeyGroupState, head: LogHead, store: LogStore
    ) -> CachedState:
        """Append what has changed to the change log and, if there is a savepoint, write its part of it."""
        plan, number, control, report = batch.plan, batch.number, batch.control, batch.result.report
        if control.savepoint is not None:
            state.clean_all()  # before the log is written, so that memory and log stay the same
        written = changelog.append(store, state, head, self._backend.keeps_log)
        if written.head is not head:
            head = written.head
            report.log_sizes.append(LogSize(plan.id, number, head.written_bytes, head.bytes))
        if control.savepoint is not None:
            fault_points.reach("slot before part")
            key = key_schema(self.plan, plan)
            part = write_part(control.savepoint, plan.root, number, state, key)
            if part is not None:
                report.parts.append(part)
        return written

    def _storage_of(self, plan: TaskPlan, number: int) -> KeyGroupStorage:
        return self._backend.key_group(plan.id, number)

    @cached_property
    def _savepoint(self) -> SavepointReader | None:
        savepoint = self.plan.start.savepoint
        return None if savepoint is None else SavepointReader(savepoint)

    def _restore(self, state: KeyGroupState, plan: TaskPlan, number: int) -> None:
        """Take over what a savepoint has for a key group (or subtask), in the first batch of a job. After
        that batch, the logs have everything, and the savepoint may be gone."""
        if self._savepoint is None:
            return
        uid = self.plan.operators[plan.root].uid
        contents: Iterable[Content]
        if plan.keyed:
            contents = self._savepoint.contents(uid, number)
        else:
            content = self._savepoint.subtask_content(uid, number, plan.parallelism)
            contents = () if content is None else [content]
        for content in contents:
            state.apply(content)
            state.is_restored = True

    def _run_task(self, batch: _Batch, task: AnyTask, state: KeyGroupState) -> None:
        """Run a batch on a task that is bound to one key group (or subtask)."""
        control, number, report = batch.control, batch.number, batch.result.report
        assert control.start is not None
        chain, plan = task.chain, task.chain.task
        router, rows = chain.router, batch.result.rows
        start_clock, end_clock = control.start.clock, batch.end_clock
        now_ms = control.processing_time_ms
        router.begin(Producer(-1, number), chain.subtask)
        task.bind(state, start_clock, now_ms)
        self._views.loaded(plan.id, number, state, control.epoch, start_clock)
        chain.clock.epoch = control.epoch
        chain.operator_state.begin(control.epoch, control.start.unions)
        self._resume_watermarks(chain, state, now_ms)
        task.advance_processing_time(now_ms)
        bundle = self._merged_input(chain, batch.frames)
        if bundle is not None:
            batch.work.records_in += len(bundle)
            if plan.keyed and bundle.keys is not None:
                batch.work.take_keys(number, bundle.keys, self._keyed_count(batch.frames))
            task.run(bundle, end_clock)
        task.advance_watermark(end_clock)
        task.advance_processing_time(now_ms, after_records=True)
        task.finish()
        chain.operator_state.end(control.epoch, now_ms)
        rows.extend(router.take_rows())
        batch.work.add_sent(router)
        ended = end_clock == MAX_TIMESTAMP
        rows.extend(self._suspend_watermarks(batch, chain, state, ended))
        if not ended:
            timer_ms = state.processing_timers.next_time_ms()
            report.wakeup_ms = earliest(report.wakeup_ms, timer_ms)
        unions = chain.operator_state.changed_unions()
        if unions is not None:
            report.unions.append(UnionLists(plan.id, number, unions))

    def _merged_input(self, chain: OperatorChain, frames: list[Frame]) -> Bundle | None:
        """Return all records in the order of their places, with their keys; None if there are no records."""
        plan, exchanges = chain.task, self.plan.exchanges
        bundle = merge(
            frames,
            lambda frame: exchanges[frame.target].input_index,
            later_input_first=chain.root.later_input_first,
        )
        if bundle is not None and plan.keyed and bundle.keys is None:
            exchange = exchanges[plan.inputs[0].exchange]
            if derives_keys(plan, exchange):
                bundle.keys = keys_in(bundle.values, exchange.key_selector)
        return bundle

    def _keyed_count(self, frames: list[Frame]) -> int:
        """Return how many records came by their key; the others are broadcast."""
        exchanges = self.plan.exchanges
        return sum(
            len(frame.bundle)
            for frame in frames
            if exchanges[frame.target].kind is ExchangeKind.KEY
        )

    def _resume_watermarks(self, chain: OperatorChain, state: KeyGroupState, now_ms: int) -> None:
        assigner = chain.assigners.get(chain.task.root)
        if assigner is not None:
            saved = state.table(_WATERMARK_STATE, StateKind.VALUE).data.get(0)
            assigner.resume(codec.thaw(saved), now_ms)

    def _suspend_watermarks(
        self, batch: _Batch, chain: OperatorChain, state: KeyGroupState, ended: bool
    ) -> Iterator[Row]:
        """Save the watermark generator if the root is a watermark assigner. Yield controls that tell the
        tasks whose clocks depend on it how far it has come."""
        root = chain.assigners.get(chain.task.root)
        if root is None:
            return
        control, report = batch.control, batch.result.report
        now_ms = control.processing_time_ms
        root.go_on_when_idle(now_ms)
        watermark = MIN_TIMESTAMP if self.plan.batch_mode else root.watermark
        watermark = MAX_TIMESTAMP if ended else watermark
        end = SplitEnd(root.plan.id, batch.number, watermark, root.is_active(now_ms))
        report.ends.append(end)
        if not ended:
            report.wakeup_ms = earliest(report.wakeup_ms, root.idle_at_ms(now_ms))
        state.table(_WATERMARK_STATE, StateKind.VALUE).set(0, codec.freeze(root.suspend(now_ms)))
        for listener in self.plan.listeners(root.plan.id):
            yield from self._to_all_partitions(
                listener, Control(now_ms, None, [end], control.last_batch)
            )

    # --- life cycle ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all functions and the state backend."""
        for level in range(self.plan.levels + 1):
            self._tasks.close_level(level)
        self._states.clear()
        for log in self._logs.values():
            log.close()
        self._opened.close()


def _control_row(task: TaskPlan, partition: int, blob: bytes) -> Row:
    return task.level, partition_label(task.ordinal, partition), blob


def _sorted_by_task(
    rows: Iterable[Row], level: int
) -> tuple[list[Row], dict[int, dict[int, list[bytes]]], dict[int, list[Control]]]:
    """Return the rows for other levels; the frames for this one, by ordinal and number; and its controls, by
    ordinal."""
    passed: list[Row] = []
    frames: dict[int, dict[int, list[bytes]]] = {}
    controls: dict[int, list[Control]] = {}
    for row in rows:
        if row[0] != level:
            passed.append(row)
            continue
        ordinal, number = split_label(row[1])
        if number >= ALL_OF_PARTITION:
            controls.setdefault(ordinal, []).append(decode_control(row[2]))
        else:
            frames.setdefault(ordinal, {}).setdefault(number, []).append(row[2])
    return passed, frames, controls


def _where(chain: OperatorChain) -> str:
    """Return how error messages name the state of a chain's root."""
    return f"state of operator '{chain.root.name}' (uid '{chain.root.plan.uid}')"


def origins_of(plan: JobPlan) -> dict[int, int | None]:
    """Return the number of splits of each watermark origin, or None where the source decides it."""
    result: dict[int, int | None] = {}
    for task in plan.tasks.values():
        for origin in task.origins:
            fixed = task.level > 0 and plan.operators[origin].kind is not OperatorKind.SOURCE
            result[origin] = task.parallelism if fixed else None
    return result
