"""Streams: what a program is built from. Every method adds to the graph; nothing runs before `execute`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from millpond.common.typeinfo import (
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    TypeLike,
    to_type_info,
)
from millpond.common.watermark_strategy import WatermarkStrategy
from millpond.datastream.aggregations import Aggregation, FieldAggregation
from millpond.datastream.columns import KeyedColumnFunction
from millpond.datastream.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from millpond.datastream.connectors.base import Sink, TwoPhaseSink
from millpond.datastream.data_stream_sink import CloseableIterator, DataStreamSink
from millpond.datastream.functions import (
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from millpond.datastream.joins import IntervalJoinable, Joinable
from millpond.datastream.key_partitioner import KeyGroupPartitioner
from millpond.datastream.operator_state import keeps_operator_state
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.queryable_stream import KeyedQueryable, Queryable
from millpond.datastream.slot_sharing_group import SlotSharingGroup
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.stream_graph import (
    Chaining,
    Edge,
    Exchange,
    ExchangeKind,
    Node,
    OperatorKind,
    SinkKind,
)
from millpond.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    GlobalWindows,
    PurgingTrigger,
    WindowAssigner,
)
from millpond.datastream.windowed_stream import AllWindowedStream, WindowedStream
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import module_getattr

if TYPE_CHECKING:
    from millpond.common.execution_config import ExecutionConfig
    from millpond.datastream.stream_execution_environment import StreamExecutionEnvironment


def _require(function: object, kind: type[Function], method: str) -> None:
    if not isinstance(function, kind) and not callable(function):
        raise TypeError(
            f"{method} takes a {kind.__name__} or a function, not {type(function).__name__}."
        )


class DataStream(Joinable, Queryable):
    """A stream of records: usually the output of one operator; after `union`, of several.

    Methods that configure the operator which produces the stream (`name`, `uid`, `set_parallelism`, ...)
    return the stream itself. `output_type` declares the type of results, as `Types` or as a type hint: every
    result is checked and brought into that form; without it, anything that can be pickled will do.
    """

    def __init__(
        self, environment: StreamExecutionEnvironment, edges: list[Edge], type_info: TypeInformation
    ) -> None:
        self._environment = environment
        self._edges = edges
        self._type = type_info

    # --- about the operator that produces this stream ----------------------------------------------

    @property
    def _node(self) -> Node:
        if len(self._edges) != 1:
            raise ProgramError(
                "A union of streams has no operator of its own: set name, uid or parallelism on the streams "
                "before it or on the operator after it."
            )
        return self._environment._graph.nodes[self._edges[0].source]

    def get_name(self) -> str:
        """Return the name of the operator that produces this stream."""
        return self._node.name

    def name(self, name: str) -> DataStream:
        """Name the operator, for the plan, metrics and errors."""
        self._node.name = name
        return self

    def uid(self, uid: str) -> DataStream:
        """Give the operator a stable id, by which its state is found again after the program has changed.

        It must be unique within the job.
        """
        if self._source is None:
            self._node.uid = uid
        else:
            self._source.uid, self._node.uid = uid, f"{uid}.watermarks"
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStream:
        """Set the id of the operator's state as 32 hexadecimal digits; raise ProgramError if it is
        anything else."""
        if len(uid_hash) != 32 or any(c not in "0123456789abcdef" for c in uid_hash.lower()):
            raise ProgramError(f"A uid hash must be 32 hexadecimal digits, not '{uid_hash}'.")
        self._node.uid_hash = uid_hash.lower()
        return self

    def set_parallelism(self, parallelism: int) -> DataStream:
        """Set the number of subtasks of the operator."""
        self._node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream:
        """Set the number of key groups of the operator. It cannot change once there is state."""
        self._node.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self) -> DataStream:
        """Run the operator in a single subtask."""
        return self.set_parallelism(1)

    def set_description(self, description: str) -> DataStream:
        """Describe the operator in the plan."""
        self._node.description = description
        return self

    def start_new_chain(self) -> DataStream:
        """Show the operator as the start of a new chain in the plan. How it runs does not change."""
        self._node.chaining = Chaining.HEAD
        return self

    def disable_chaining(self) -> DataStream:
        """Show the operator outside any chain in the plan. How it runs does not change."""
        self._node.chaining = Chaining.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStream:
        """Show the operator in this group in the plan. Spark decides where it runs."""
        group = slot_sharing_group
        self._node.slot_sharing_group = group if isinstance(group, str) else group.get_name()
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> DataStream:
        """Raise UnsupportedFeatureError: records travel in whole frames per batch."""
        raise UnsupportedFeatureError(
            "Millpond does not have DataStream.set_buffer_timeout: records travel in whole frames per "
            "batch. Set millpond.batch.interval-ms for the pace of batches."
        )

    def cache(self) -> DataStream:
        """Raise UnsupportedFeatureError: write to a file sink and read it again."""
        raise UnsupportedFeatureError(
            "Millpond does not have DataStream.cache: write to a file sink and read it again."
        )

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records."""
        return self._type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment in which this stream was built."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the settings of the environment."""
        return self._environment.get_config()

    # --- transformations -----------------------------------------------------------------------------

    def map(
        self, func: Callable[[Any], Any] | MapFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Turn each record into exactly one result, with a function or a MapFunction. A result of None is
        a record too."""
        _require(func, MapFunction, "map")
        return self._add(OperatorKind.MAP, "Map", func, output_type)

    def flat_map(
        self,
        func: Callable[[Any], Any] | FlatMapFunction,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Turn each record into any number of results: the function returns or yields them, or returns
        None for none."""
        _require(func, FlatMapFunction, "flat_map")
        return self._add(OperatorKind.FLAT_MAP, "FlatMap", func, output_type)

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Keep the records for which the function returns True."""
        _require(func, FilterFunction, "filter")
        return self._add(OperatorKind.FILTER, "Filter", func, self._type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep the given fields of tuples or rows, in the given order. Raise ProgramError unless the type
        is declared."""
        if not isinstance(self._type, (TupleTypeInfo, RowTypeInfo)):
            raise ProgramError(
                "project needs a stream with a declared TUPLE or ROW type: set output_type on the operator "
                "before it."
            )
        types = self._type.get_field_types()
        chosen = [types[i] for i in field_indexes]
        output: TypeInformation
        if isinstance(self._type, RowTypeInfo):
            names = [self._type.get_field_names()[i] for i in field_indexes]
            output = RowTypeInfo(chosen, names)
        else:
            output = TupleTypeInfo(chosen)
        return self._add(
            OperatorKind.MAP, "Projection", lambda v: tuple(v[i] for i in field_indexes), output
        )

    def process(self, func: ProcessFunction, output_type: TypeLike = None) -> DataStream:
        """Apply a ProcessFunction, which knows timestamps and can emit to side outputs."""
        if not isinstance(func, ProcessFunction):
            raise TypeError(
                f"process on a stream without a key takes a ProcessFunction, not "
                f"{type(func).__name__}"
            )
        return self._add(OperatorKind.PROCESS, "PROCESS", func, output_type)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Read event time from the records, and generate watermarks, from here on.

        Unlike in Flink, the watermark advances with every record instead of every 200 ms.
        """
        return self._add(
            OperatorKind.ASSIGN_WATERMARKS, "Timestamps/Watermarks", watermark_strategy, self._type
        )

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector,
        key_type: TypeLike = None,
    ) -> KeyedStream:
        """Return the stream keyed by what the selector returns for each record.

        Keys must be hashable and deterministic; `key_type` declares their type.
        """
        _require(key_selector, KeySelector, "key_by")
        exchange = Exchange(
            ExchangeKind.KEY, key_selector, None, to_type_info(key_type), explicit=True
        )
        return KeyedStream(self, exchange)

    def union(self, *streams: DataStream) -> DataStream:
        """Return a stream with the records of this and the other streams, which must be of the same
        environment."""
        edges = [edge for stream in (self, *streams) for edge in stream._edges]
        for stream in streams:
            if stream._environment is not self._environment:
                raise ProgramError("union takes only streams of the same environment.")
        return DataStream(self._environment, edges, self._type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams:
        """Return this stream connected with another, or with a broadcast one, for a function that sees
        both."""

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another, or with a broadcast one, for a function that sees both."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds)
        return ConnectedStreams(self, ds)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the records that the operator emits to a side output."""
        self._node.tag_types[output_tag.tag_id] = output_tag.type_info
        edge = replace(self._edges[0], tag=output_tag.tag_id)
        return DataStream(self._environment, [edge], output_tag.type_info)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Return windows over the whole stream; they are computed in a single subtask."""
        return AllWindowedStream(self.key_by(lambda _: 0), window_assigner)

    # --- exchanges -----------------------------------------------------------------------------------

    def shuffle(self) -> DataStream:
        """Spread records over the subtasks of the next operator pseudo-randomly."""
        return self._exchanged(ExchangeKind.SHUFFLE)

    def rebalance(self) -> DataStream:
        """Deal records out to the subtasks of the next operator in turn."""
        return self._exchanged(ExchangeKind.REBALANCE)

    def rescale(self) -> DataStream:
        """Deal records out to the subtasks of the next operator in turn; the same as `rebalance` here."""
        return self._exchanged(ExchangeKind.RESCALE)

    def forward(self) -> DataStream:
        """Keep records in their subtask. Both operators must have the same parallelism."""
        return self._exchanged(ExchangeKind.FORWARD)

    def global_(self) -> DataStream:
        """Send all records to the first subtask of the next operator."""
        return self._exchanged(ExchangeKind.GLOBAL)

    @overload
    def broadcast(self) -> DataStream:
        """Send every record to all subtasks of the next operator.

        With descriptors, return a BroadcastStream: connect another stream with it, for a function that keeps
        these records in broadcast state.
        """

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to all subtasks. With descriptors, connect the result with another stream, for a
        function that keeps it in broadcast state."""
        everywhere = self._exchanged(ExchangeKind.BROADCAST)
        if broadcast_state_descriptor is None:
            return everywhere
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(everywhere, *descriptors)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        """Send each record to the subtask that `partitioner(key, number of subtasks)` returns for its key."""
        _require(partitioner, Partitioner, "partition_custom")
        _require(key_selector, KeySelector, "partition_custom")
        return self._exchanged(ExchangeKind.CUSTOM, key_selector, partitioner)

    def _exchanged(
        self, kind: ExchangeKind, key_selector: object = None, partitioner: object = None
    ) -> DataStream:
        exchange = Exchange(kind, key_selector, partitioner, explicit=True)
        edges = [replace(edge, exchange=exchange) for edge in self._edges]
        return DataStream(self._environment, edges, self._type)

    # --- sinks ---------------------------------------------------------------------------------------

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record, on the driver's standard output; `sink_identifier` is put before each."""
        node = self._sink("Print to Std. Out", SinkKind.PRINT, None)
        node.sink_identifier = sink_identifier
        return DataStreamSink(node)

    def add_sink(self, sink_func: SinkFunction) -> DataStreamSink:
        """Write the records with a SinkFunction."""
        if isinstance(sink_func, TwoPhaseSink):
            return self.sink_to(sink_func)  # JdbcSink is one here
        if not isinstance(sink_func, SinkFunction):
            raise TypeError(f"add_sink takes a SinkFunction, not {type(sink_func).__name__}")
        name = f"Sink: {type(sink_func).__name__}"
        if isinstance(sink_func, CheckpointListener) or keeps_operator_state(sink_func):
            node = self._environment._graph.add(
                OperatorKind.SINK_FUNCTION,
                name,
                function=sink_func,
                inputs=list(self._edges),
            )
            return DataStreamSink(node)
        return DataStreamSink(self._sink(name, SinkKind.FUNCTION, sink_func))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the records with a sink that commits once per batch, such as FileSink or KafkaSink."""
        if not isinstance(sink, TwoPhaseSink):
            raise TypeError(f"sink_to takes a TwoPhaseSink, not {type(sink).__name__}")
        return DataStreamSink(self._sink(f"Sink: {type(sink).__name__}", SinkKind.TWO_PHASE, sink))

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and return its results: an iterator over all of them, or a list of at most `limit`."""
        node = self._sink("Collect Stream Sink", SinkKind.COLLECT, None)
        return self._environment._execute_and_collect(node, job_execution_name, limit)

    # --- building ------------------------------------------------------------------------------------

    def _sink(self, name: str, kind: SinkKind, function: object) -> Node:
        return self._environment._graph.add(
            OperatorKind.SINK, name, function=function, inputs=list(self._edges), sink_kind=kind
        )

    def _add(
        self, kind: OperatorKind, name: str, function: object, output_type: TypeLike
    ) -> DataStream:
        return self._result_of(kind, name, function, list(self._edges), to_type_info(output_type))

    def _result_of(
        self,
        kind: OperatorKind,
        name: str,
        function: object,
        inputs: list[Edge],
        output_type: TypeInformation,
    ) -> DataStream:
        node = self._environment._graph.add(
            kind, name, function=function, inputs=inputs, output_type=output_type
        )
        return DataStream(self._environment, [Edge(node.id, Exchange())], output_type)

    is_keyed = False
    # The source's node, if this is a source with its watermark strategy: in Flink they are one operator.
    _source: Node | None = None

    def _values(self) -> DataStream:
        """Return the stream without its keys."""
        return self


class KeyedStream(IntervalJoinable, KeyedQueryable, DataStream):
    """A stream partitioned by key: the operators that follow have state and timers per key."""

    def __init__(self, stream: DataStream, exchange: Exchange) -> None:
        edges = [replace(edge, exchange=exchange) for edge in stream._edges]
        super().__init__(stream._environment, edges, stream._type)
        self._stream = stream
        self._exchange = exchange

    is_keyed = True

    def _values(self) -> DataStream:
        return self._stream

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Apply a KeyedProcessFunction, with keyed state and timers."""
        if not isinstance(func, KeyedProcessFunction):
            raise TypeError(
                f"process on a keyed stream takes a KeyedProcessFunction, not {type(func).__name__}"
            )
        return self._add(OperatorKind.KEYED_PROCESS, "KEYED PROCESS", func, output_type)

    def process_columns(
        self, func: KeyedColumnFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Apply a function that takes many records at once, as columns (millpond.datastream.columns).
        Beyond PyFlink."""
        if not isinstance(func, KeyedColumnFunction):
            raise TypeError(
                f"process_columns takes a KeyedColumnFunction, not {type(func).__name__}"
            )
        return self._add(OperatorKind.KEYED_COLUMNS, "KEYED COLUMNS", func, output_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Combine each record with the result so far for its key, and emit the new result.

        In BATCH mode only the last result of each key is emitted.
        """
        _require(func, ReduceFunction, "reduce")
        return self._add(OperatorKind.REDUCE, "Reduce", func, self._type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Emit the running sum of a field, per key. The other fields are those of the first record."""
        return self._aggregate(Aggregation.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Emit the smallest value of a field so far, per key. The other fields are those of the first
        record."""
        return self._aggregate(Aggregation.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Emit the largest value of a field so far, per key. The other fields are those of the first
        record."""
        return self._aggregate(Aggregation.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Emit the record with the smallest value of a field so far, per key; the first one if several
        tie."""
        return self._aggregate(Aggregation.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Emit the record with the largest value of a field so far, per key; the first one if several tie."""
        return self._aggregate(Aggregation.MAX_BY, position_to_max_by)

    def _aggregate(self, aggregation: Aggregation, position: int | str) -> DataStream:
        return self.reduce(FieldAggregation(aggregation, position))

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector,
        key_type: TypeLike = None,
    ) -> KeyedStream:
        return self._stream.key_by(key_selector, key_type)

    def union(self, *streams: DataStream) -> DataStream:
        return self._stream.union(*(stream._values() for stream in streams))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Return the stream divided into windows, per key."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Return windows of `size` elements per key; with a slide, one after every `slide` elements (C29,
        C30).

        As in PyFlink, only full windows give a result.
        """
        if slide == 0:
            trigger = PurgingTrigger.of(CountTrigger.of(size))
            return WindowedStream(self, GlobalWindows.create()).trigger(trigger)
        return WindowedStream(self, CountSlidingWindowAssigner(size, slide))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        return self._stream.print(sink_identifier)

    def add_sink(self, sink_func: SinkFunction) -> DataStreamSink:
        return self._by_key().add_sink(sink_func)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        return self._by_key().sink_to(sink)

    def _by_key(self) -> DataStream:
        """Return the records, each in the subtask of its key, for operators that know no keys."""
        return self._stream.partition_custom(KeyGroupPartitioner(), self._exchange.key_selector)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        return self._stream.execute_and_collect(job_execution_name, limit)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        return self._stream.assign_timestamps_and_watermarks(watermark_strategy)

    def project(self, *field_indexes: int) -> DataStream:
        return self._stream.project(*field_indexes)

    def _exchanged(
        self, kind: ExchangeKind, key_selector: object = None, partitioner: object = None
    ) -> DataStream:
        raise ProgramError(
            f"A keyed stream is partitioned by its key, so {kind.name.lower()} is not possible on it. "
            "Call it on the stream before key_by."
        )

    @property
    def _node(self) -> Node:
        raise ProgramError(
            "key_by adds no operator, so it has no name, uid or parallelism. Set them on the "
            "operator after it, such as key_by(...).process(...).uid('...')."
        )


__all__ = [
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
]


__getattr__ = module_getattr(__name__)
