"""Runs the passes of a job inside one process: heads, labels, sinks.

A host keeps what can be kept between batches (opened functions, states of key groups) and takes
everything else from the batch. It is driven by a Spark worker or by the direct executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core import codec, fault_points
from millpond.core.bundle import PHASE_RECORD, Bundle
from millpond.core.codec import BlobKind
from millpond.core.key_groups import subtask_of
from millpond.core.labels import make_label, split_label
from millpond.core.record_columns import Values
from millpond.datastream.connectors.base import Source
from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import KeyGroupStorage
from millpond.datastream.stream_graph import ExchangeKind, OperatorKind
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.batch import LanePlan, SplitPlan
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
from millpond.engine.exchange.router import Router, derives_keys
from millpond.engine.operators.user_errors import user_error
from millpond.engine.state_views import StateViews
from millpond.engine.tasks import AnyTask, make_task
from millpond.engine.time.task_valve import advance
from millpond.engine.work_meter import Pass, Surroundings, WorkMeter
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.savepoint.parts import write_part
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.state_tables import Content
from millpond.state import change_log as changelog
from millpond.state.backends import OpenBackend
from millpond.state.change_log import CachedState, LogStore
from millpond.state.key_check import check_keys, key_schema
from millpond.state.key_group_state import KeyGroupState
from millpond.state.timers import earliest
from millpond.state.type_check import check_types, declared_types

_MAX_WAITING = 50_000
_MAX_WAITING_QUERYABLE = 500_000
_WATERMARK_STATE = "_watermark_generator"
_DRIVER_LABEL = make_label(0, 0)


class JobHost:
    """`blob` is the pickled JobPlan: every subtask gets its own copy of the user's functions."""

    def __init__(
        self,
        blob: bytes,
        attempt: int = 0,
        state_folder: str | None = None,
        memory_limit_mb: int | None = None,
        surroundings: Surroundings | None = None,
        views: StateViews | None = None,
    ) -> None:
        self._blob = blob
        self._meter = WorkMeter(surroundings or Surroundings())
        self._attempt = attempt
        self.plan: JobPlan = codec.loads(blob)
        self._opened = OpenBackend(self.plan.settings.state_backend, state_folder, memory_limit_mb)
        self._backend = self._opened.backend
        self._views = views or StateViews()
        self._views.fit_to(self._backend)
        self._waiting = 0  # changes in memory of all key groups, see _keep
        self._frame_records = self.plan.settings.frame_records
        self._tasks: dict[tuple[int, int], AnyTask] = {}
        self._states: dict[tuple[int, int], CachedState] = {}
        self.in_last_batch = False
        self._is_checked = False
        self._reported: set[int] = set()  # tasks that have told what states they declare
        if any(op.kind is OperatorKind.KEYED_COLUMNS for op in self.plan.operators.values()):
            import pyarrow.compute  # noqa: F401 (slow to import; better now than in the first batch)

    # --- heads -----------------------------------------------------------------------------------

    def run_lane(self, batch: LanePlan) -> Iterator[Row]:
        """Read this lane's splits; yield frames, then the time for every label that waits for it."""
        self._check_types(batch.lane)
        ends: list[SplitEnd] = []
        for split in batch.splits:
            head = self.plan.tasks[split.source]
            task = self._task(head, split.split % head.parallelism)
            task.chain.listeners.batch_begins(batch.epoch, split.split)
            with _reset_on_failure(task):
                yield from self._run_split(task, split, batch, ends)
        listening = {
            task.id: task
            for task in self.plan.tasks.values()
            if task.level > 0 and (batch.lane == 0 or self._listens(task, ends))
        }
        for listener in listening.values():
            yield from self._control_rows(listener, batch, ends)
        if batch.last_batch:
            self.close_level(0)

    def _check_types(self, subtask: int) -> None:
        """Once: open what has state from before, and see whether it fits, before anything is read."""
        if self._is_checked:
            return
        stored = self.plan.start.stored_types
        for plan in self.plan.tasks.values():
            types = stored.get(self.plan.operators[plan.root].uid)
            if types is not None and plan.level > 0:
                chain = self._task(plan, subtask % plan.parallelism).chain
                check_types(_where(chain), chain.declared_states(), types)
        self._is_checked = True

    def _run_split(
        self, task: AnyTask, split: SplitPlan, batch: LanePlan, ends: list[SplitEnd]
    ) -> Iterator[Row]:
        chain, router = task.chain, task.chain.router
        work = self._meter.begin(chain.task.id, chain.subtask)
        router.begin(Producer(chain.task.root, split.split), chain.subtask)
        now_ms = batch.processing_time_ms
        chain.clock.watermark = MIN_TIMESTAMP
        chain.clock.processing_time_ms = now_ms
        chain.clock.epoch = batch.epoch
        for operator in chain.assigners.values():
            operator.resume(split.saved.get(operator.plan.id), now_ms)
        source = chain.root.plan.function
        count = 0
        for arguments in split.reads:
            for values, timestamps in self._read(source, arguments, chain):
                sequences = numpy.arange(count, count + len(values), dtype=numpy.int64)
                count += len(values)
                chain.root.process(
                    Bundle(values, timestamps, MIN_TIMESTAMP, PHASE_RECORD, sequences)
                )
                if router.has_packed:
                    work.pause()
                    yield from router.packed()
                    work.resume()
        rows = router.take_rows()
        work.pause()
        yield from rows
        work.resume()
        for operator in chain.assigners.values():
            if batch.event_time is None:
                operator.go_on_when_idle(now_ms)
            else:
                operator.go_to(batch.event_time)
        own_ends = self._split_ends(chain, split, batch)
        ends.extend(own_ends)
        saved = {op.plan.id: op.suspend(now_ms) for op in chain.assigners.values()}
        idle_times = [
            operator.idle_at_ms(now_ms)
            for operator in chain.assigners.values()
            if not split.ended or (source.endless and operator.strategy.goes_on_when_idle)
        ]
        report = Report(
            ends=own_ends,
            generators={(split.source, split.split): saved},
            wakeup_ms=earliest(*idle_times),
            metrics=chain.metrics.take(),
        )
        work.records_in = count
        work.end(router, report)
        yield report.to_row(_DRIVER_LABEL)

    @staticmethod
    def _read(
        source: Source, arguments: Any, chain: OperatorChain
    ) -> Iterator[tuple[Values, list[int | None] | None]]:
        try:
            for values, timestamps in source.read_many(arguments):
                if len(values):
                    yield values, timestamps
        except Exception as problem:
            action = "reading the source"
            raise user_error(problem, chain.root.name, chain.subtask, action, None) from None

    def _split_ends(
        self, chain: OperatorChain, split: SplitPlan, batch: LanePlan
    ) -> list[SplitEnd]:
        now_ms, ends = batch.processing_time_ms, []
        for origin in chain.task.origins:
            operator = chain.assigners.get(origin)
            watermark, active = MIN_TIMESTAMP, True
            if operator is not None:
                watermark = MIN_TIMESTAMP if self.plan.batch_mode else operator.watermark
                active = operator.is_active(now_ms)
            endless = chain.root.plan.function.endless and not batch.last_batch
            if batch.event_time is not None:
                active = True  # all are at the same time now
            elif split.ended and endless:
                active = False  # other splits will come: this one only stops holding them back
            elif split.ended:
                watermark, active = MAX_TIMESTAMP, True
            ends.append(SplitEnd(origin, split.split, watermark, active))
        return ends

    @staticmethod
    def _listens(task: TaskPlan, ends: list[SplitEnd]) -> bool:
        return any(end.origin in task_input.origins for task_input in task.inputs for end in ends)

    def _control_rows(self, task: TaskPlan, batch: LanePlan, ends: list[SplitEnd]) -> Iterator[Row]:
        own = [end for end in ends if any(end.origin in i.origins for i in task.inputs)]
        control = Control(
            batch.processing_time_ms,
            batch.starts[task.id],
            own,
            batch.last_batch,
            batch.savepoint,
            batch.epoch,
        )
        return self._to_all_labels(task, control)

    @staticmethod
    def _to_all_labels(task: TaskPlan, control: Control) -> Iterator[Row]:
        blob = encode_control(control)
        for number in range(task.labels):
            yield task.level, make_label(task.ordinal, number), blob

    # --- tasks -----------------------------------------------------------------------------------

    def run_label(
        self, level: int, label: int, blobs: Iterable[bytes], store: LogStore
    ) -> list[Row]:
        """One batch of one key group (or subtask) of one task."""
        ordinal, number = split_label(label)
        plan = self.plan.tasks_at(level)[ordinal]
        by_key = subtask_of(number, plan.parallelism, plan.max_parallelism)
        subtask = by_key if plan.keyed else number
        work = self._meter.begin(plan.id, subtask)
        frames: list[Frame] = []
        controls: list[Control] = []
        for blob in blobs:
            if codec.kind_of(blob) == BlobKind.FRAME:
                frames.append(decode_frame(blob))
                work.bytes_in += len(blob)
            else:
                controls.append(decode_control(blob))
        control = join_controls(controls)
        self.in_last_batch = control.last_batch
        task = self._task(plan, subtask)
        if not task.chain.has_state:
            task.chain.listeners.batch_begins(control.epoch, number)
            with _reset_on_failure(task):
                empty = KeyGroupState(number)
                rows, report = self._run_task(task, empty, number, frames, control, work)
                work.end(task.chain.router, report)
                return [*rows, report.to_row(_DRIVER_LABEL)] if report else rows
        root = task.chain.root
        where = f"{_where(task.chain)}, key group {number}"
        self._views.begin(plan.id, number, control.epoch)
        # Taken out of the cache: if this attempt fails half-way, it must not be found again.
        cached = self._states.pop((plan.id, number), None)
        if cached is not None:
            self._waiting -= cached.state.waiting_count()
        state, head = changelog.load(
            store, cached, where, lambda: KeyGroupState(number, self._storage(plan, number))
        )
        state.where = where
        as_it_was = cached is not None and cached.head.token == head.token
        if task.chain.operator_state.is_outdated(control.epoch, as_it_was):
            task = self._new_task(plan, task)
        task.chain.listeners.batch_begins(control.epoch, number)
        if head.version == 0 and control.epoch == 0:
            self._restore(state, plan, number)
        if cached is None:
            check_keys(state, plan)
        with self._reset_on_failure(task):
            rows, report = self._run_task(task, state, number, frames, control, work)
        if plan.id not in self._reported:
            self._reported.add(plan.id)
            report.types = {root.plan.uid: declared_types(task.chain.declared_states())}
        if control.savepoint is not None:
            state.clean_all()  # before the log is written, so that memory and log stay the same
        written = changelog.append(store, state, head, self._backend.keeps_log)
        if written.head is not head:
            head = written.head
            report.log_size = LogSize(plan.id, number, head.written_bytes, head.bytes)
        if control.savepoint is not None:
            fault_points.reach("slot before part")
            key = key_schema(self.plan, plan)
            report.part = write_part(control.savepoint, plan.root, number, state, key)
        self._views.finished(plan.id, number, control.epoch, task.chain.clock.watermark)
        self._keep(plan.id, number, written)
        work.end(task.chain.router, report)
        if report:
            rows.append(report.to_row(_DRIVER_LABEL))
        return rows

    def _storage(self, plan: TaskPlan, number: int) -> KeyGroupStorage:
        return self._backend.key_group(plan.id, number)

    def _keep(self, task: int, number: int, written: CachedState) -> None:
        """Until the next batch, which tells whether this one counts. If too much would wait for that in
        memory it is taken for granted: after a failure, state then comes from the log."""
        written.state.rest()
        self._states[task, number] = written
        self._waiting += written.state.waiting_count()
        if self._waiting > _MAX_WAITING:
            self._commit_early(queryable=False)
        if self._waiting > _MAX_WAITING_QUERYABLE:
            self._commit_early(queryable=True)  # who asks for them has to wait for the batch then

    def _commit_early(self, queryable: bool) -> None:
        for place, kept in self._states.items():
            count = kept.state.waiting_count()
            if count and self._views.is_read(place[0]) == queryable:
                self._views.commit_early(*place, kept.state)
                self._states[place] = kept._replace(previous=None)
                self._waiting -= count

    @cached_property
    def _savepoint(self) -> SavepointReader | None:
        savepoint = self.plan.start.savepoint
        return None if savepoint is None else SavepointReader(savepoint)

    def _restore(self, state: KeyGroupState, plan: TaskPlan, number: int) -> None:
        """What a savepoint has for a key group (or subtask), in the first batch of a job. After that all have
        logs, and the savepoint may be gone."""
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

    def _run_task(
        self,
        task: AnyTask,
        state: KeyGroupState,
        number: int,
        frames: list[Frame],
        control: Control,
        work: Pass,
    ) -> tuple[list[Row], Report]:
        """What goes on to other tasks, and what the driver is to know."""
        assert control.start is not None
        chain, plan = task.chain, task.chain.task
        router = chain.router
        start_clock = control.start.clock
        end_clock = advance(plan, control.start, control.ends).clock
        now_ms = control.processing_time_ms
        router.begin(Producer(-1, number), chain.subtask)
        task.bind(state, start_clock, now_ms)
        self._views.loaded(plan.id, number, state, control.epoch, start_clock)
        chain.clock.epoch = control.epoch
        chain.operator_state.begin(control.epoch, control.start.unions)
        self._resume_watermarks(chain, state, now_ms)
        task.advance_processing_time(now_ms)
        exchanges = self.plan.exchanges
        bundle = merge(
            frames,
            lambda frame: exchanges[frame.target].input_index,
            later_input_first=chain.root.later_input_first,
        )
        if bundle is not None:
            exchange = exchanges[plan.inputs[0].exchange]
            if plan.keyed and bundle.keys is None and derives_keys(plan, exchange):
                bundle.keys = keys_in(bundle.values, exchange.key_selector)
            work.records_in = len(bundle)
            if plan.keyed and bundle.keys is not None:
                work.take_keys(number, bundle.keys, self._keyed_count(frames))
            task.run(bundle, end_clock)
        task.advance_watermark(end_clock)
        task.advance_processing_time(now_ms, after_records=True)
        task.finish()
        chain.operator_state.end(control.epoch, now_ms)
        ended = end_clock == MAX_TIMESTAMP
        rows = router.take_rows()
        report = Report(metrics=chain.metrics.take())
        rows.extend(self._suspend_watermarks(chain, state, number, control, ended, report))
        timer_ms = state.processing_timers.next_time_ms()
        report.wakeup_ms = None if ended else earliest(timer_ms, report.wakeup_ms)
        unions = chain.operator_state.changed_unions()
        if unions is not None:
            report.unions = UnionLists(plan.id, number, unions)
        return rows, report

    def _keyed_count(self, frames: list[Frame]) -> int:
        """How many records came by their key; the others are broadcast."""
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
        self,
        chain: OperatorChain,
        state: KeyGroupState,
        number: int,
        control: Control,
        ended: bool,
        report: Report,
    ) -> Iterator[Row]:
        """A watermark assigner behind an exchange tells its listeners how far it has come."""
        root = chain.assigners.get(chain.task.root)
        if root is None:
            return
        now_ms = control.processing_time_ms
        root.go_on_when_idle(now_ms)
        watermark = MIN_TIMESTAMP if self.plan.batch_mode else root.watermark
        watermark = MAX_TIMESTAMP if ended else watermark
        end = SplitEnd(root.plan.id, number, watermark, root.is_active(now_ms))
        report.ends = [end]
        report.wakeup_ms = root.idle_at_ms(now_ms)
        state.table(_WATERMARK_STATE, StateKind.VALUE).set(0, codec.freeze(root.suspend(now_ms)))
        for listener in self.plan.listeners(root.plan.id):
            yield from self._to_all_labels(
                listener, Control(now_ms, None, [end], control.last_batch)
            )

    # --- life cycle ------------------------------------------------------------------------------

    def _task(self, plan: TaskPlan, subtask: int) -> AnyTask:
        task = self._tasks.get((plan.id, subtask))
        if task is None:
            own: JobPlan = codec.loads(self._blob)
            own_plan = own.tasks[plan.id]
            router = Router(own, own_plan, self._frame_records)
            chain = OperatorChain(own, own_plan, subtask, router, self._attempt, self._backend)
            task = make_task(chain)
            chain.clock.declare = partial(self._views.declare, own, plan.id)
            chain.open()
            self._views.check()
            self._tasks[plan.id, subtask] = task
        return task

    def _new_task(self, plan: TaskPlan, old: AnyTask) -> AnyTask:
        """What a function remembers in attributes is not what the log says: it starts anew."""
        del self._tasks[plan.id, old.chain.subtask]
        old.chain.close()
        return self._task(plan, old.chain.subtask)

    @contextmanager
    def _reset_on_failure(self, task: AnyTask) -> Iterator[None]:
        try:
            with _reset_on_failure(task):
                yield
        except BaseException:
            if task.chain.operator_state:
                self._tasks.pop((task.chain.task.id, task.chain.subtask), None)
            raise

    def close_level(self, level: int) -> None:
        """Close the functions of a level at the end of a job, as far as they were opened here."""
        for key, task in list(self._tasks.items()):
            if task.chain.task.level == level:
                del self._tasks[key]
                task.chain.close()

    def close(self) -> None:
        for level in range(self.plan.levels + 1):
            self.close_level(level)
        self._states.clear()
        self._opened.close()


@contextmanager
def _reset_on_failure(task: AnyTask) -> Iterator[None]:
    """A task outlives a failed attempt, and whoever drives it may stop half-way."""
    try:
        yield
    except BaseException:
        task.reset()
        raise


def _where(chain: OperatorChain) -> str:
    """Names the state of a chain's root in errors."""
    return f"state of operator '{chain.root.name}' (uid '{chain.root.plan.uid}')"


def origins_of(plan: JobPlan) -> dict[int, int | None]:
    """origin -> its number of splits if the plan fixes it, None if the source decides."""
    result: dict[int, int | None] = {}
    for task in plan.tasks.values():
        for origin in task.origins:
            fixed = task.level > 0 and plan.operators[origin].kind is not OperatorKind.SOURCE
            result[origin] = task.parallelism if fixed else None
    return result
