"""Runs source tasks and tasks inside one process. (Sinks run in a pass of their own, see `sink_pass.py`.)

A host keeps what can be kept between batches (opened functions, states of key groups), and takes everything
else from the batch. A slot, a Spark worker or the direct executor calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core import codec, fault_points
from millpond.core.bundle import Bundle
from millpond.core.codec import BlobKind
from millpond.core.key_groups import subtask_of
from millpond.core.labels import make_label, split_label
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
from millpond.engine.exchange.reports import DRIVER_LABEL, LogSize, Report, UnionLists
from millpond.engine.exchange.router import Router, derives_keys
from millpond.engine.split_pass import run_split
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
from millpond.state.change_log import CachedState, LogHead, LogStore
from millpond.state.key_check import check_keys, key_schema
from millpond.state.key_group_state import KeyGroupState
from millpond.state.timers import earliest
from millpond.state.type_check import check_types, declared_types

_MAX_WAITING = 50_000
_MAX_WAITING_QUERYABLE = 500_000
_WATERMARK_STATE = "_watermark_generator"


class JobHost:
    """Runs the lanes of source tasks, and the labels of tasks.

    `blob` is the pickled JobPlan, from which every subtask gets its own copy of the user's functions."""

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
        self._waiting = 0  # number of uncommitted changes in memory, in all key groups (see _keep)
        self._frame_records = self.plan.settings.frame_records
        self._tasks: dict[tuple[int, int], AnyTask] = {}
        self._states: dict[tuple[int, int], CachedState] = {}
        self.in_last_batch = False
        self._is_checked = False
        self._reported: set[int] = set()  # tasks that have reported which states they declare
        if any(op.kind is OperatorKind.KEYED_COLUMNS for op in self.plan.operators.values()):
            import pyarrow.compute  # noqa: F401 (slow to import; better now than in the first batch)

    # --- source tasks ----------------------------------------------------------------------------

    def run_lane(self, batch: LanePlan) -> Iterator[Row]:
        """Read the splits of a lane through their source tasks. Yield frames and reports, then a control for
        every label that waits for one from this lane."""
        self._check_types(batch.lane)
        ends: list[SplitEnd] = []
        for split in batch.splits:
            plan = self.plan.tasks[split.source]
            task = self._task(plan, split.split % plan.parallelism)
            task.chain.listeners.batch_begins(batch.epoch, split.split)
            with _reset_on_failure(task):
                work = self._meter.begin(task.chain.task.id, task.chain.subtask)
                yield from run_split(task.chain, split, batch, ends, work)
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
        """Open the tasks that have state from an earlier run, and check whether its types fit, before
        anything is read. Does so only once."""
        if self._is_checked:
            return
        stored = self.plan.start.stored_types
        for plan in self.plan.tasks.values():
            types = stored.get(self.plan.operators[plan.root].uid)
            if types is not None and plan.level > 0:
                chain = self._task(plan, subtask % plan.parallelism).chain
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
        """Run a batch on one label, which is a key group or a subtask of a task of the level.

        `blobs` are the frames and controls for the label, and `store` holds its change log, to which the
        changes of the batch are appended. Returns the rows for later levels, for sinks and for the driver."""
        ordinal, number = split_label(label)
        plan = self.plan.tasks_at(level)[ordinal]
        by_key = subtask_of(number, plan.parallelism, plan.max_parallelism)
        subtask = by_key if plan.keyed else number
        work = self._meter.begin(plan.id, subtask)
        frames, control = _decode_input(blobs, work)
        self.in_last_batch = control.last_batch
        task = self._task(plan, subtask)
        if task.chain.has_state:
            rows, report = self._run_on_state(plan, task, number, frames, control, work, store)
        else:
            task.chain.listeners.batch_begins(control.epoch, number)
            with _reset_on_failure(task):
                empty = KeyGroupState(number)
                rows, report = self._run_task(task, empty, number, frames, control, work)
                work.end(task.chain.router, report)
        if report:
            rows.append(report.to_row(DRIVER_LABEL))
        return rows

    def _run_on_state(
        self,
        plan: TaskPlan,
        task: AnyTask,
        number: int,
        frames: list[Frame],
        control: Control,
        work: Pass,
        store: LogStore,
    ) -> tuple[list[Row], Report]:
        """Load the state of a label, run the batch on it, and write what has changed."""
        where = f"{_where(task.chain)}, key group {number}"
        self._views.begin(plan.id, number, control.epoch)
        # Taken out of the cache, so that it is not found again if this attempt fails half-way.
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
            uid = task.chain.root.plan.uid
            report.types = {uid: declared_types(task.chain.declared_states())}
        written = self._write_state(plan, state, head, control, store, report)
        self._views.finished(plan.id, number, control.epoch, task.chain.clock.watermark)
        self._keep(plan.id, number, written)
        work.end(task.chain.router, report)
        return rows, report

    def _write_state(
        self,
        plan: TaskPlan,
        state: KeyGroupState,
        head: LogHead,
        control: Control,
        store: LogStore,
        report: Report,
    ) -> CachedState:
        """Append what has changed to the change log and, if there is a savepoint, write its part of it."""
        number = state.key_group
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
        return written

    def _storage(self, plan: TaskPlan, number: int) -> KeyGroupStorage:
        return self._backend.key_group(plan.id, number)

    def _keep(self, task: int, number: int, written: CachedState) -> None:
        """Keep a state until the next batch, which tells whether this one counts.

        If too many changes would wait in memory for that, the batch is assumed to count: after a failure, the
        state then has to be loaded from the log."""
        written.state.rest()
        self._states[task, number] = written
        self._waiting += written.state.waiting_count()
        if self._waiting > _MAX_WAITING:
            self._commit_early(queryable=False)
        if self._waiting > _MAX_WAITING_QUERYABLE:
            self._commit_early(queryable=True)  # look-ups then have to wait for the batch

    def _commit_early(self, queryable: bool) -> None:
        for (task, number), kept in self._states.items():
            count = kept.state.waiting_count()
            if count and self._views.is_read(task) == queryable:
                self._views.commit_early(task, number, kept.state)
                self._states[task, number] = kept._replace(previous=None)
                self._waiting -= count

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

    def _run_task(
        self,
        task: AnyTask,
        state: KeyGroupState,
        number: int,
        frames: list[Frame],
        control: Control,
        work: Pass,
    ) -> tuple[list[Row], Report]:
        """Run a batch on a task. Return the rows for other tasks and for sinks, and the report."""
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
        bundle = self._merged_input(chain, frames)
        if bundle is not None:
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
        self,
        chain: OperatorChain,
        state: KeyGroupState,
        number: int,
        control: Control,
        ended: bool,
        report: Report,
    ) -> Iterator[Row]:
        """Save the watermark generator if the root is a watermark assigner. Yield controls that tell the
        tasks whose clocks depend on it how far it has come."""
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
            job: JobPlan = codec.loads(self._blob)
            task_plan = job.tasks[plan.id]
            router = Router(job, task_plan, self._frame_records)
            chain = OperatorChain(job, task_plan, subtask, router, self._attempt, self._backend)
            task = make_task(chain)
            chain.clock.declare = partial(self._views.declare, job, plan.id)
            chain.open()
            self._views.check()
            self._tasks[plan.id, subtask] = task
        return task

    def _new_task(self, plan: TaskPlan, old: AnyTask) -> AnyTask:
        """Replace a task whose function remembers, in its attributes, something else than the log says."""
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
        """Close those functions of a level that were opened here. Called at the end of a job."""
        for key, task in list(self._tasks.items()):
            if task.chain.task.level == level:
                del self._tasks[key]
                task.chain.close()

    def close(self) -> None:
        """Close all functions and the state backend."""
        for level in range(self.plan.levels + 1):
            self.close_level(level)
        self._states.clear()
        self._opened.close()


def _decode_input(blobs: Iterable[bytes], work: Pass) -> tuple[list[Frame], Control]:
    """Return the frames for a label, and its controls joined into one."""
    frames: list[Frame] = []
    controls: list[Control] = []
    for blob in blobs:
        if codec.kind_of(blob) == BlobKind.FRAME:
            frames.append(decode_frame(blob))
            work.bytes_in += len(blob)
        else:
            controls.append(decode_control(blob))
    return frames, join_controls(controls)


@contextmanager
def _reset_on_failure(task: AnyTask) -> Iterator[None]:
    """Reset the task if the block fails, or is left half-way: the task will be used again."""
    try:
        yield
    except BaseException:
        task.reset()
        raise


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
