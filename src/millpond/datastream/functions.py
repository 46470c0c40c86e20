"""The contracts of the functions that users write. Names and signatures are PyFlink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic

from millpond.common.type_variables import ACC, IN, IN1, IN2, KEY, OUT, W2, T, W
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from millpond.datastream.time_domain import TimeDomain
from millpond.datastream.timerservice import TimerService
from millpond.metrics.metricbase import MetricGroup
from millpond.missing import module_getattr

if TYPE_CHECKING:
    from millpond.datastream.columns import ColumnState, ColumnStateDescriptor


# What a process function returns or yields: results, and (tag, value) for side outputs.
Results = Iterable[OUT | tuple[OutputTag, object]] | None


class KeyedStateStore(ABC):
    """Gives access to keyed state. A handle always refers to the current key.

    All methods raise ProgramError if the stream has no key, or if the name is already used for another kind
    of state.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the value state that the descriptor declares."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list state that the descriptor declares."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the map state that the descriptor declares."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the reducing state that the descriptor declares."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return the aggregating state that the descriptor declares."""


class RuntimeContext(KeyedStateStore):
    """What a function can learn about where it runs, and its access to state and metrics. It is passed to
    `open`."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups of the operator."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the number of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the number of this attempt within the run, from 0; every restart of the job adds 1."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the operator's name with the subtask and the parallelism, such as `Map (1/4)`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a parameter set by `ExecutionConfig.set_global_job_parameters`, or the default."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the group in which the function registers its metrics."""

    @abstractmethod
    def get_column_state(self, state_descriptor: ColumnStateDescriptor) -> ColumnState:
        """Return a column state of a KeyedColumnFunction. Beyond PyFlink."""


class Function(ABC):
    """Base class of all functions.

    `open` is called before the first record, once in each process that runs the task. A task may move to
    another process, so what must not be lost belongs in state. `close` is called when a job ends in an
    orderly way; it is not guaranteed to be called.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare: get states and metrics, open connections."""

    def close(self) -> None:
        """Release what `open` acquired."""


class MapFunction(Function, Generic[IN, OUT]):
    """Turns each record into one result, for `DataStream.map`."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result for a record."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Turns each record of two connected streams into at most one result."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return the result for a record of the first stream; None emits nothing."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return the result for a record of the second stream; None emits nothing."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Turns each record into any number of results, for `DataStream.flat_map`."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the results for a record; None means none."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Turns each record of two connected streams into any number of results."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the first stream; None means none."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the second stream; None means none."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values of a type into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of two values; `value1` is the earlier one, or the result so far."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Collects values in an accumulator, from which it computes a result."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with a value added; it may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result that the accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return an accumulator with the values of both. Session and sliding windows need it."""


class KeySelector(Function, Generic[IN, KEY]):
    """Computes the key of a record, for `key_by`."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Return the key: a hashable value that is always the same for the same record."""


class NullByteKeySelector(KeySelector):
    """Puts all records under one key."""

    def get_key(self, value: object) -> int:
        return 0


class FilterFunction(Function, Generic[IN]):
    """Decides which records to keep, for `DataStream.filter`."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return True to keep the record."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the subtask for a key, for `DataStream.partition_custom`."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Return the number of the subtask, from 0 to num_partitions - 1."""


class _RecordContext(ABC):
    """What a process function can learn about the current record."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the clocks and, where there is a key, timers. Registering a timer without a key raises
        ProgramError."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the record's event time, or None if it has none; in `on_timer`, the timer's time."""


class _KeyedContext(_RecordContext):
    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the record or timer."""


class _OnTimerContext(_KeyedContext):
    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Return whether the timer fired in event time or in processing time."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Turns a record into any number of results, to any output, for `DataStream.process`.

    `yield value` emits to the main output, `yield tag, value` to the side output of an OutputTag.
    """

    class Context(_RecordContext):
        """The current record, on a stream without a key."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record; None means none."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function with keyed state and timers.

    `yield value` emits to the main output, `yield tag, value` to the side output of an OutputTag.
    """

    class Context(_KeyedContext):
        """The current record and its key."""

    class OnTimerContext(Context, _OnTimerContext):
        """The timer that has fired and its key."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record; None means none."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Results[OUT]:
        """Return or yield the results for a timer that has fired.

        The timer is already removed, so the same time can be registered again. Unlike in PyFlink, the
        watermark is the timer's time, not a later one. It never runs at the same time as `process_element`
        for the same key.
        """
        return None


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A process function with two inputs, on streams without a key."""

    class Context(_RecordContext):
        """The current record, on streams without a key."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record of the first stream; None means none."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record of the second stream; None means none."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A process function with two inputs, keyed state and timers; both inputs share them."""

    class Context(_KeyedContext):
        """The current record and its key."""

    class OnTimerContext(Context, _OnTimerContext):
        """The timer that has fired and its key."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record of the first stream; None means none."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedCoProcessFunction.Context) -> Results[OUT]:
        """Return or yield the results for a record of the second stream; None means none."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Results[OUT]:
        """Return or yield the results for a timer that has fired, as in KeyedProcessFunction."""
        return None


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast functions have in common."""

    class BaseContext(ABC):
        """The current record and the clocks."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's event time, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it is the same for a whole batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, in milliseconds."""

    class Context(BaseContext):
        """The context of a broadcast record: broadcast state can be changed."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return the broadcast state of a descriptor that was given to `broadcast`."""

    class ReadOnlyContext(BaseContext):
        """The context of other records: broadcast state can only be read."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return the broadcast state of a descriptor that was given to `broadcast`, for reading."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes a stream without a key that is connected with a broadcast stream."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Results[OUT]:
        """Return or yield the results for a record of the stream that is not broadcast; None means none."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BaseBroadcastProcessFunction.Context
    ) -> Results[OUT]:
        """Return or yield the results for a broadcast record; None means none.

        It must do the same in every subtask: all of them get the same records in the same order.
        """


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Processes a keyed stream that is connected with a broadcast stream, with keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of a broadcast record. There is no current key."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]
        ) -> None:
            """Call `function(key, state)` for every key that has anything in this state. Beyond PyFlink,
            as in Flink's Java API."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """The context of a keyed record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record or timer."""

    class OnTimerContext(ReadOnlyContext):
        """The timer that has fired and its key."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether the timer fired in event time or in processing time."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Results[OUT]:
        """Return or yield the results for a record of the keyed stream; None means none."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Results[OUT]:
        """Return or yield the results for a broadcast record; None means none.

        There is no current key: reach keyed state with `ctx.apply_to_keyed_state`. It is called once per key
        group (in Flink, once per subtask), and must do the same wherever it runs.
        """

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Results[OUT]:
        """Return or yield the results for a timer that has fired, as in KeyedProcessFunction."""
        return None


class CheckpointListener(ABC):
    """Base class of functions that are told about checkpoints; every batch is one. Beyond PyFlink, as
    in Flink's Java API.

    A source is told at once, other functions when the next batch begins.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """React to a checkpoint: everything up to it is durable, and its output is committed.

        Functions that are not sources are told when the next batch begins, so they never hear of a job's last
        one.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """React to a checkpoint that failed; its batch is run again."""


class EventTimeHorizonListener(ABC):
    """A keyed function that also implements this is told how far event time will go. Beyond Flink.

    It helps functions that would otherwise set a timer for every record: what happens before the horizon can
    be settled at once. What a function concludes from it must not change its results, because where a horizon
    lies depends on how batches are cut.
    """

    @abstractmethod
    def event_time_horizon(self, until_ms: int, ctx: Any) -> None:
        """Prepare for calls for one key group. Called without a current key; `ctx` is that of the function.

        Until it is called again, all calls are for that key group, no record of a broadcast stream follows a
        record of the other, and event time advances at least to `until_ms`.
        """


class SourceContext(ABC):
    """Takes the records of a running SourceFunction."""

    @abstractmethod
    def collect(self, value: object) -> None:
        """Emit a record. Block while the job is behind (flow control)."""

    @abstractmethod
    def collect_with_timestamp(self, value: object, timestamp: int) -> None:
        """Emit a record with its event time, in milliseconds. Block while the job is behind."""

    @abstractmethod
    def is_cancelled(self) -> bool:
        """Return True once the job is ending: then return from `run`."""

    @abstractmethod
    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """Return the lock for a source that is also a CheckpointedFunction.

        While a source holds it, no snapshot is taken: hold it while emitting a record and changing what
        `snapshot_state` saves.
        """


class SourceFunction(Function):
    """A source written in Python, for `StreamExecutionEnvironment.add_source`.

    It runs on the driver. What it emits is made durable before it is processed, so no record that was
    processed is ever lost or counted twice. After a restart `run` is called again from its beginning: if
    `deterministic` is True, as many records as are already durable are dropped from the start; otherwise all
    of them count. A source that is also a CheckpointedFunction (or ListCheckpointed) remembers itself where
    it was.
    """

    deterministic = False

    @abstractmethod
    def run(self, ctx: SourceContext) -> None:
        """Emit records until there are no more. Returning ends the input, which is then bounded."""

    def cancel(self) -> None:
        """Make `run` return. Called once, from another thread, when the job ends early."""


class SinkContext(ABC):
    """What a sink can learn about a record."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the record's event time, or None if it has none."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark, in milliseconds."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds; it is the same for a whole batch."""

    @abstractmethod
    def epoch(self) -> int:
        """Return the number of the batch.

        A replayed batch has the same number and the same records; an idempotent sink uses it to write each
        record once.
        """


class SinkFunction(Function, Generic[IN]):
    """A sink written in Python, for `DataStream.add_sink`. It writes at least once.

    After a failure the records of the last epoch may come again, with the same `context.epoch()`.
    """

    @abstractmethod
    def invoke(self, value: IN, context: SinkContext) -> None:
        """Write a record."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes results from all elements of a window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results for the window of a key. It may be called again for the same window,
        if the trigger fires again."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes results from all elements of a window over a stream without a key."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Return or yield the results for the window. It may be called again for the same window, if the
        trigger fires again."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Computes results from the elements of a window, with access to time and to state of the window and
    the key."""

    class Context(ABC, Generic[W2]):
        """The window that fires, the clocks, and state."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it is the same for a whole batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, in milliseconds."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this key and window; it is removed together with the window."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of this key, shared by all its windows."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Return or yield the results for the window of a key. It may be called again for the same window,
        if the trigger fires again."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clean up. Called when the window is removed."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Computes results from the elements of a window over a stream without a key, with access to state."""

    class Context(ABC, Generic[W2]):
        """The window that fires, and state."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this window; it is removed together with the window."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state shared by all windows."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """Return or yield the results for the window. It may be called again for the same window, if the
        trigger fires again."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clean up. Called when the window is removed."""


__getattr__ = module_getattr(__name__)
