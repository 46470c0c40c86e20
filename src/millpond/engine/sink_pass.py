"""Gives records to the sinks on workers; everything for the driver passes through."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from millpond.common.typeinfo import PickledBytesTypeInfo
from millpond.core import codec
from millpond.core.bundle import Bundle
from millpond.core.codec import BlobKind
from millpond.core.key_groups import default_max_parallelism
from millpond.core.labels import split_label
from millpond.core.record_columns import is_columns
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import Function, SinkContext
from millpond.datastream.stream_graph import ExchangeKind, OperatorKind, SinkKind
from millpond.engine.context import TaskClock, TaskRuntimeContext
from millpond.engine.exchange.chunks import BatchInfo
from millpond.engine.exchange.frames import Frame, Row, decode_frame, merge
from millpond.engine.exchange.reports import Prepared, Report
from millpond.engine.metric_group import TaskMetrics
from millpond.engine.operators.user_errors import close_function, user_error
from millpond.engine.work_meter import Surroundings, WorkMeter
from millpond.plan.physical import JobPlan, OperatorPlan, SinkPlan

_ON_WORKERS = (SinkKind.FUNCTION, SinkKind.TWO_PHASE)


class _Context(SinkContext):
    def __init__(self, epoch: int, processing_time_ms: int) -> None:
        self._epoch = epoch
        self._processing_time_ms = processing_time_ms
        self.record_timestamp: int | None = None
        self.watermark = 0

    def timestamp(self) -> int | None:
        return self.record_timestamp

    def current_watermark(self) -> int:
        return self.watermark

    def current_processing_time(self) -> int:
        return self._processing_time_ms

    def epoch(self) -> int:
        return self._epoch


def has_worker_sinks(plan: JobPlan) -> bool:
    """Return True if some sink runs on the workers, so that records must be brought to it."""
    return any(sink.kind in _ON_WORKERS for sink in plan.sinks.values())


def sinks_stay_where_records_are(plan: JobPlan) -> bool:
    """Return True if sinks can take their records where they are: partition n is then subtask n, without a
    shuffle. Records of one key are in one partition, so they stay in order.

    That is so if every sink on the workers has as many subtasks as the job has partitions, and the program
    does not ask for another distribution."""
    routes = [route for operator in plan.operators.values() for route in operator.routes]
    return all(
        plan.sinks[route.sink].kind not in _ON_WORKERS
        or (
            route.sink_exchange.kind is ExchangeKind.FORWARD
            and plan.sinks[route.sink].parallelism == plan.parallelism
        )
        for route in routes
        if route.sink is not None
    )


class SinkHost:
    """The sinks of a job inside one process, opened once per subtask."""

    def __init__(self, blob: bytes, surroundings: Surroundings | None = None) -> None:
        self._blob = blob
        self._meter = WorkMeter(surroundings or Surroundings())
        self.plan: JobPlan = codec.loads(blob)
        self._opened: dict[tuple[int, int], tuple[SinkPlan, TaskMetrics]] = {}

    def run(
        self, rows: Iterable[Row], subtask: int | None, batch: BatchInfo, report: Report
    ) -> list[Row]:
        """Write the records that are for sinks on the workers. Return all other rows. What the driver is to
        know about each sink that got records is added to `report`.

        `subtask` is the subtask of the sinks, if records stay where they are. If it is None, the labels of
        the rows say it. If writing fails, what two-phase sinks have prepared is aborted."""
        passed: list[Row] = []
        frames: dict[tuple[int, int], list[Frame]] = {}
        for row in rows:
            blob = row[2]
            if codec.kind_of(blob) != BlobKind.FRAME:
                passed.append(row)
                continue
            frame = decode_frame(blob)
            if self.plan.sinks[frame.target].kind not in _ON_WORKERS:
                passed.append(row)
            else:
                sink_subtask = split_label(row[1])[1] if subtask is None else subtask
                frames.setdefault((frame.target, sink_subtask), []).append(frame)
        context = _Context(batch.epoch, batch.processing_time_ms)
        writers: list[SinkWriter] = []
        try:
            for (sink_id, sink_subtask), sink_frames in sorted(frames.items()):
                sink, metrics = self._open(sink_id, sink_subtask)
                since_ns = self._meter.clock_ns()
                message = self._write(sink, sink_subtask, sink_frames, context, writers)
                self._meter.add_time(sink_id, sink_subtask, self._meter.clock_ns() - since_ns)
                report.prepared.append(Prepared(sink_id, sink_subtask, message))
                report.add_metrics(metrics.take())
                report.works.append(self._meter.sink_work(sink_id, sink_subtask))
        except BaseException:
            for writer in writers:
                with suppress(Exception):  # the first error is the one to report
                    writer.abort()
            raise
        return passed

    def _write(
        self,
        sink: SinkPlan,
        subtask: int,
        frames: list[Frame],
        context: _Context,
        writers: list[SinkWriter],
    ) -> object:
        writer = value = None
        try:
            if isinstance(sink.function, TwoPhaseSink):
                epoch = Epoch(context.epoch(), self.plan.start.job_id, sink.uid)
                writer = sink.function.create_writer(subtask, epoch)
                writers.append(writer)
            write = writer.write if writer is not None else sink.function.invoke
            bundle = merge(frames, lambda frame: 0)
            if bundle is not None and not (writer and _write_many(writer, bundle)):
                for value, timestamp, watermark in zip(  # noqa: B905 (some are endless)
                    bundle.open_values(), bundle.each_timestamp(), bundle.each_watermark()
                ):
                    context.record_timestamp = timestamp
                    context.watermark = watermark
                    write(value, context)
            value = None
            return writer.prepare() if writer is not None else None
        except Exception as problem:
            raise user_error(problem, sink.name, subtask, "writing to the sink", value) from None

    def _open(self, sink_id: int, subtask: int) -> tuple[SinkPlan, TaskMetrics]:
        opened = self._opened.get((sink_id, subtask))
        if opened is None:
            job: JobPlan = codec.loads(self._blob)
            sink, metrics = job.sinks[sink_id], TaskMetrics()
            if isinstance(sink.function, Function):
                operator = _as_operator(sink)
                context = TaskRuntimeContext(
                    operator, TaskClock(), metrics, subtask, False, job.job_parameters
                )
                try:
                    sink.function.open(context)
                except Exception as problem:
                    raise user_error(problem, sink.name, subtask, "open()", None) from None
            opened = self._opened[sink_id, subtask] = (sink, metrics)
        return opened

    def close(self, partition: int | None = None) -> None:
        """Close the functions of the sinks that were opened, in a partition or in all of them."""
        for key, (sink, _) in list(self._opened.items()):
            if partition in (None, key[1] % self.plan.parallelism):
                del self._opened[key]
                close_function(sink.function, sink.name, key[1])


def _write_many(writer: SinkWriter, bundle: Bundle) -> bool:
    if writer.takes_columns and is_columns(bundle.values):
        return writer.write_many(bundle.values)
    return writer.write_many(bundle.open_values())


def _as_operator(sink: SinkPlan) -> OperatorPlan:
    """Return a sink as an operator, which is what its RuntimeContext describes."""
    return OperatorPlan(
        sink.id,
        OperatorKind.SINK,
        sink.name,
        sink.uid,
        None,
        PickledBytesTypeInfo(),
        {},
        sink.parallelism,
        default_max_parallelism(sink.parallelism),
    )
