"""Runs source tasks and tasks inside one process. (`sink_pass.py` runs sinks.)

A host keeps what can be kept between batches (opened functions, states of shards), and takes everything
else from the batch. A slot or the direct executor calls it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core import codec, fault_points
from millpond.core.bundle import Bundle
from millpond.core.labels import ALL_OF_PARTITION, make_label, partition_label, split_label
from millpond.core.storage import Storage
from millpond.datastream.state import StateKind
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
from millpond.engine.kept_states import Basis, KeptStates, PassStates
from millpond.engine.open_tasks import OpenTasks
from millpond.engine.split_pass import run_split
from millpond.engine.state_views import StateViews
from millpond.engine.tasks import AnyTask
from millpond.engine.time.task_valve import advance
from millpond.engine.work_meter import Pass, Surroundings, WorkMeter
from millpond.plan.identity import identity_of
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.savepoint.parts import write_part
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.state_tables import Content
from millpond.state import change_log as changelog
from millpond.state.backends import OpenBackend
from millpond.state.grouping import Grouping
from millpond.state.key_check import check_keys, key_schema
from millpond.state.partition_log import EMPTY, LogPosition, PartitionLog, log_folder
from millpond.state.shard_state import ShardState
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
    states: PassStates
    position: LogPosition = EMPTY
    """How far the log reaches now."""


@dataclass
class _Batch:
    """A batch as it concerns one shard of a task."""

    plan: TaskPlan
    shard: int
    frames: list[Frame]
    control: Control
    end_clock: int
    work: Pass
    result: LevelResult


class JobHost:
    """Runs the lanes of source tasks, and the levels of tasks.

    `blob` is the pickled JobPlan. Logs are written to `storage`, in segments that have `writer` in their
    names (`state/partition_log.py`). If there is an `older` host of the same job, whose driver has died, its
    states and logs are taken over; it must not be used any more."""

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
        older: JobHost | None = None,
    ) -> None:
        self._storage = storage
        self._writer = writer
        self._logs: dict[tuple[int, int], PartitionLog] = {}
        self._meter = WorkMeter(surroundings or Surroundings())
        self.plan: JobPlan = codec.loads(blob)
        if older is not None and not self._can_succeed(older):
            older._abandon()
            older = None
        if older is None:
            backend = self.plan.settings.state_backend
            self._opened = OpenBackend(backend, state_folder, memory_limit_mb)
        else:
            self._opened, self._logs = older._opened, older._logs
            with contextlib.suppress(Exception):  # the run that they belong to is over
                older._close_functions()
        self._backend = self._opened.backend
        self._views = views or StateViews()
        self._views.fit_to(self._backend)
        self._tasks = OpenTasks(self.plan, blob, attempt, self._backend, self._views)
        self._states = KeptStates(self._views)
        if older is not None:
            self._states.take_over(older._states)
        self._is_checked = False
        self._reported: set[int] = set()  # tasks that have reported which states they declare
        if any(op.kind is OperatorKind.KEYED_COLUMNS for op in self.plan.operators.values()):
            import pyarrow.compute  # noqa: F401 (slow to import; better now than in the first batch)

    def _can_succeed(self, older: JobHost) -> bool:
        """Return whether states and logs of an older host are where this host would look for them."""
        return (
            identity_of(self.plan).difference(identity_of(older.plan)) is None
            and self.plan.settings.state_backend == older.plan.settings.state_backend
        )

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
        joined = {ordinal: join_controls(own) for ordinal, own in controls.items()}
        position = next((c.log for c in joined.values()), None) or EMPTY  # they all say the same
        log = self._log(level, partition)
        log.go_to(position)
        states = self._states.begin_pass((level, partition), position)
        result = LevelResult(passed, Report(), log, states)
        for plan in self.plan.tasks_at(level):
            if plan.ordinal in joined:
                blobs, control = frames.get(plan.ordinal, {}), joined[plan.ordinal]
                self._run_in_partition(plan, partition, blobs, control, result)
        result.position = result.log.write()
        if any(control.last_batch for control in joined.values()):
            self._tasks.close_level(level, partition)
        states.end(result.position)
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
        """Run a batch on those shards of a task in a partition that have anything to do."""
        assert control.start is not None
        end_clock = advance(plan, control.start, control.ends).clock
        works: dict[int, Pass] = {}
        for shard in self.plan.shards_in(plan, partition):
            subtask = plan.subtask_of(shard)
            has_nothing_to_do = (
                shard not in blobs
                and result.states.basis is Basis.THAT_PASS
                and self._may_rest(plan, shard, control, end_clock, result.states)
            )
            if has_nothing_to_do:
                kept = result.states.get((plan.id, shard))
                timer_ms = None if kept is None else kept.processing_timers.next_time_ms()
                result.report.wakeup_ms = earliest(result.report.wakeup_ms, timer_ms)
                self._tasks.get(plan, subtask).chain.listeners.batch_begins(control.epoch, shard)
                continue
            work = works.get(subtask)
            if work is None:
                work = works[subtask] = self._meter.begin(plan.id, subtask)
            frames = [decode_frame(blob) for blob in blobs.get(shard, ())]
            work.bytes_in += sum(map(len, blobs.get(shard, ())))
            self._run_shard(_Batch(plan, shard, frames, control, end_clock, work, result))
        for subtask, work in works.items():
            task = self._tasks.get(plan, subtask)
            result.report.add_metrics(task.chain.metrics.take())
            work.end(result.report)

    def _may_rest(
        self, plan: TaskPlan, shard: int, control: Control, end_clock: int, states: PassStates
    ) -> bool:
        """Return whether nothing can happen to a shard that gets no records."""
        assert control.start is not None
        kept = states.get((plan.id, shard))
        is_open = self._tasks.find(plan, plan.subtask_of(shard)) is not None
        if kept is None or not is_open or not plan.keyed or self._views.is_read(plan.id):
            return False
        timer_ms = kept.processing_timers.next_time_ms()
        return (
            end_clock == control.start.clock
            and control.savepoint is None
            and (timer_ms is None or timer_ms > control.processing_time_ms)
        )

    def _run_shard(self, batch: _Batch) -> None:
        """Run a batch on a shard, and put what has changed into its change logs."""
        task = self._tasks.get(batch.plan, batch.plan.subtask_of(batch.shard))
        if task.chain.has_state:
            with self._views.exclusively():
                self._run_on_state(batch, task)
        else:
            task.chain.listeners.batch_begins(batch.control.epoch, batch.shard)
            with self._tasks.reset_on_failure(task):
                self._run_task(batch, task, ShardState(batch.shard))

    def _run_on_state(self, batch: _Batch, task: AnyTask) -> None:
        """Load the state of a shard, run the batch on it, and log what has changed."""
        plan, shard, control = batch.plan, batch.shard, batch.control
        self._views.begin(plan.id, shard, control.epoch)
        state, as_it_was = batch.result.states.take((plan.id, shard))
        if state is None:
            state = self._loaded_state(batch, _where(task.chain))
        if task.chain.operator_state.is_outdated(control.epoch, as_it_was):
            task = self._tasks.renew(plan, task)
        task.chain.listeners.batch_begins(control.epoch, shard)
        with self._tasks.reset_on_failure(task):
            self._run_task(batch, task, state)
        if plan.id not in self._reported:
            self._reported.add(plan.id)
            types = {task.chain.root.plan.uid: declared_types(task.chain.declared_states())}
            batch.result.report.types |= types
        self._write_state(batch, state)
        self._views.finished(plan.id, shard, control.epoch, task.chain.clock.watermark)
        batch.result.states.keep((plan.id, shard), state)

    def _loaded_state(self, batch: _Batch, where: str) -> ShardState:
        """Return the state of a shard as its logs, or the savepoint that the job starts from, say it was."""
        plan, shard, stores = batch.plan, batch.shard, self._stores(batch)
        grouping = None
        if plan.keyed and not plan.by_key_group:
            grouping = Grouping(plan.key_groups_of(shard), plan.max_parallelism)
        state = ShardState(shard, self._backend.shard(plan.id, shard), grouping)
        state.where = f"{where}, {'key group' if plan.by_key_group else 'subtask'} {shard}"

        def check(content: Content, number: int) -> None:
            if plan.keyed and number < ALL_OF_PARTITION:
                check_keys(state.where, content, number, plan.max_parallelism)

        if not changelog.is_new(stores, state):
            changelog.load(stores, state, check)
        elif batch.control.epoch == 0:
            self._restore(state, plan, check)
        return state

    @staticmethod
    def _stores(batch: _Batch) -> changelog.Stores:
        log, ordinal = batch.result.log, batch.plan.ordinal
        return lambda number: log.of(make_label(ordinal, number))

    def _write_state(self, batch: _Batch, state: ShardState) -> None:
        """Append what has changed to the change logs and, if there is a savepoint, write its part of it."""
        plan, control, report = batch.plan, batch.control, batch.result.report
        if control.savepoint is not None:
            state.clean_all()  # before the log is written, so that memory and log stay the same
        written = changelog.append(self._stores(batch), state, self._backend.keeps_log)
        if written is not None:
            report.log_sizes.append(LogSize(plan.id, batch.shard, *written))
        if control.savepoint is not None:
            fault_points.reach("slot before part")
            key = key_schema(self.plan, plan)
            part = write_part(control.savepoint, plan.root, batch.shard, state, key)
            if part is not None:
                report.parts.append(part)

    @cached_property
    def _savepoint(self) -> SavepointReader | None:
        savepoint = self.plan.start.savepoint
        return None if savepoint is None else SavepointReader(savepoint)

    def _restore(self, state: ShardState, plan: TaskPlan, check: changelog.Check) -> None:
        """Take over what a savepoint has for a shard, in the first batch of a job. After that batch, the logs
        have everything, and the savepoint may be gone."""
        if self._savepoint is None:
            return
        uid = self.plan.operators[plan.root].uid
        numbers: Iterable[int] = [state.number]
        if plan.keyed:
            numbers = plan.key_groups_of(state.number)
        for number in numbers:
            for content in self._saved(uid, plan, number):
                check(content, number)
                state.apply(content, None if state.grouping is None else number)
                state.is_restored = True

    def _saved(self, uid: str, plan: TaskPlan, number: int) -> Iterable[Content]:
        """Return what the savepoint has for a key group, or a subtask of a task without keys."""
        assert self._savepoint is not None
        if plan.keyed:
            return self._savepoint.contents(uid, number)
        content = self._savepoint.subtask_content(uid, number, plan.parallelism)
        return () if content is None else [content]

    def _run_task(self, batch: _Batch, task: AnyTask, state: ShardState) -> None:
        """Run a batch on a task that is bound to one shard."""
        control, shard, report = batch.control, batch.shard, batch.result.report
        assert control.start is not None
        chain, plan = task.chain, task.chain.task
        router, rows = chain.router, batch.result.rows
        start_clock, end_clock = control.start.clock, batch.end_clock
        now_ms = control.processing_time_ms
        router.begin(Producer(-1, shard), chain.subtask)
        task.bind(state, start_clock, now_ms)
        self._views.loaded(plan.id, shard, state, control.epoch, start_clock)
        chain.clock.epoch = control.epoch
        chain.operator_state.begin(control.epoch, control.start.unions)
        self._resume_watermarks(chain, state, now_ms)
        task.advance_processing_time(now_ms)
        bundle = self._merged_input(chain, batch.frames)
        if bundle is not None:
            batch.work.records_in += len(bundle)
            if plan.keyed and bundle.keys is not None:
                keyed_count = self._keyed_count(batch.frames)
                batch.work.take_keys(shard, state.grouping, bundle.keys, keyed_count)
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
            report.unions.append(UnionLists(plan.id, shard, unions))

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

    def _resume_watermarks(self, chain: OperatorChain, state: ShardState, now_ms: int) -> None:
        assigner = chain.assigners.get(chain.task.root)
        if assigner is not None:
            saved = state.table(_WATERMARK_STATE, StateKind.VALUE).data.get(0)
            assigner.resume(codec.thaw(saved), now_ms)

    def _suspend_watermarks(
        self, batch: _Batch, chain: OperatorChain, state: ShardState, ended: bool
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
        end = SplitEnd(root.plan.id, batch.shard, watermark, root.is_active(now_ms))
        report.ends.append(end)
        if not ended:
            report.wakeup_ms = earliest(report.wakeup_ms, root.idle_at_ms(now_ms))
        state.table(_WATERMARK_STATE, StateKind.VALUE).set(0, codec.freeze(root.suspend(now_ms)))
        for listener in self.plan.listeners(root.plan.id):
            yield from self._to_all_partitions(
                listener, Control(now_ms, None, [end], control.last_batch)
            )

    # --- life cycle ------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Release everything, whatever functions say to it: the run that they belong to is over."""
        with contextlib.suppress(Exception):
            self._close_functions()
        self._opened.close()

    def _close_functions(self) -> None:
        for level in range(self.plan.levels + 1):
            self._tasks.close_level(level)

    def close(self) -> None:
        """Close all functions and the state backend."""
        self._close_functions()
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
