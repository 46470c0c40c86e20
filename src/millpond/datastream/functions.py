"""Contracts of the functions a user writes. Names and signatures are PyFlink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class KeyedStateStore(ABC):
    """Gives access to keyed state."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]: ...

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]: ...

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    @abstractmethod
    def get_reducing_state(
        self, state_descriptor: ReducingStateDescriptor
    ) -> ReducingState[Any]: ...

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]: ...


class RuntimeContext(KeyedStateStore):
    """What a function may know about where it runs."""

    @abstractmethod
    def get_task_name(self) -> str: ...

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_index_of_this_subtask(self) -> int: ...

    @abstractmethod
    def get_attempt_number(self) -> int: ...

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str: ...

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str: ...

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup: ...

    @abstractmethod
    def get_column_state(self, state_descriptor: ColumnStateDescriptor) -> ColumnState:
        """Beyond PyFlink: state of a KeyedColumnFunction."""


class Function(ABC):
    """Base of all functions. `open` is called before the first record, once in each process that
    runs the task: a task may move, so what must not be lost belongs into state. `close` is called at
    the end of a job that ends in order; it is not guaranteed to be called."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get states and metrics, open connections."""

    def close(self) -> None:
        """Release what `open` took."""


class MapFunction(Function):
    @abstractmethod
    def map(self, value: Any) -> Any: ...


class CoMapFunction(Function):
    @abstractmethod
    def map1(self, value: Any) -> Any:
        """None emits nothing."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """None emits nothing."""


class FlatMapFunction(Function):
    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None: ...


class CoFlatMapFunction(Function):
    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None: ...

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None: ...


class ReduceFunction(Function):
    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any: ...


class AggregateFunction(Function):
    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the new accumulator (it may be the old one, changed)."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any: ...


class KeySelector(Function):
    @abstractmethod
    def get_key(self, value: Any) -> Any: ...


class NullByteKeySelector(KeySelector):
    """Puts everything under one key."""

    def get_key(self, value: Any) -> int:
        return 0


class FilterFunction(Function):
    @abstractmethod
    def filter(self, value: Any) -> bool: ...


class Partitioner(Function):
    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The subtask, from 0 to num_partitions - 1."""


class _RecordContext(ABC):
    """What a process function may know about the record at hand."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Clocks, and timers where there is a key; registering one without a key raises."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """The record's event time, None if it has none; in on_timer the timer's time."""


class _KeyedContext(_RecordContext):
    @abstractmethod
    def get_current_key(self) -> Any: ...


class _OnTimerContext(_KeyedContext):
    @abstractmethod
    def time_domain(self) -> TimeDomain: ...


class ProcessFunction(Function):
    """The basic function: a record in, any number of records out, to any output."""

    class Context(_RecordContext):
        """Without a key."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedProcessFunction(Function):
    """A process function with keyed state and timers."""

    class Context(_KeyedContext):
        """With the current key."""

    class OnTimerContext(Context, _OnTimerContext):
        """In `on_timer`."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Called when a timer fires; the timer is already gone, so the same time can be
        registered again. Never runs at once with `process_element` for a key."""
        return None


class CoProcessFunction(Function):
    """A process function with two inputs."""

    class Context(_RecordContext):
        """Without a key."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: CoProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: CoProcessFunction.Context
    ) -> Iterable[Any] | None: ...


class KeyedCoProcessFunction(Function):
    """A process function with two inputs, keyed state and timers; both inputs share them."""

    class Context(_KeyedContext):
        """With the current key."""

    class OnTimerContext(Context, _OnTimerContext):
        """In `on_timer`."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """As in KeyedProcessFunction."""
        return None


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast functions have in common."""

    class BaseContext(ABC):
        @abstractmethod
        def timestamp(self) -> int | None: ...

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

    class Context(BaseContext):
        """Where a broadcast record is processed: broadcast state can be changed."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]: ...

    class ReadOnlyContext(BaseContext):
        """Where other records are processed: broadcast state can be read."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]: ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """For a stream without a key, connected with a broadcast stream."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: BaseBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Must do the same in every subtask: all get the same records, in the same order."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """For a keyed stream, connected with a broadcast stream. It has keyed state and timers."""

    class Context(BaseBroadcastProcessFunction.Context):
        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]
        ) -> None:
            """Call `function(key, state)` for every key that has something in this state. Beyond PyFlink,
            as in Flink's Java API."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def get_current_key(self) -> Any: ...

    class OnTimerContext(ReadOnlyContext):
        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        """There is no current key: keyed state is reached by `ctx.apply_to_keyed_state`. Must do the same
        wherever it runs. It is called once per key group."""

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """As in KeyedProcessFunction."""
        return None

    def begin_stretch(
        self, until_ms: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        """Beyond Flink: called before other calls for a key group, without a key. Until it is called again
        all calls are for that key group, no broadcast record comes after any other, and event time goes on
        at least to `until_ms`. What a function concludes from that must not change its results: where a
        stretch ends depends on batches."""


class CheckpointListener(ABC):
    """A function that is also this is told about checkpoints. Every batch is one. A source is told at once,
    other functions when the next batch begins. Beyond PyFlink, as in
    Flink's Java API."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """All is durable up to here, and the output is committed. Told when the next batch begins, so only
        sources hear of a job's last one."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """This one failed, and its batch is run again."""


class SourceContext(ABC):
    """What a running SourceFunction sends its records to."""

    @abstractmethod
    def collect(self, value: Any) -> None:
        """Emit a record. Blocks while the job is behind (flow control)."""

    @abstractmethod
    def collect_with_timestamp(self, value: Any, timestamp: int) -> None: ...

    @abstractmethod
    def is_cancelled(self) -> bool:
        """True once the job is ending: return from `run`."""

    @abstractmethod
    def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
        """For a source that is also a CheckpointedFunction: who holds it while a record is emitted and what
        `snapshot_state` saves is changed, is never asked for a snapshot in between."""


class SourceFunction(Function):
    """A source written in Python. It runs on the driver; what it emits is made durable before it
    is processed, so an emitted and processed record is never lost or doubled.

    After a restart `run` is called again from its beginning. If `deterministic` is True, as many
    records as were already made durable are dropped from the start of it; otherwise all count. A source that
    is also a CheckpointedFunction (or ListCheckpointed) says itself where it was.
    """

    deterministic = False

    @abstractmethod
    def run(self, ctx: SourceContext) -> None:
        """Emit records until done; returning ends the (then bounded) input."""

    def cancel(self) -> None:
        """Called once from another thread when the job ends early: make `run` return."""


class SinkContext(ABC):
    """What a sink may know about a record."""

    @abstractmethod
    def timestamp(self) -> int | None: ...

    @abstractmethod
    def current_watermark(self) -> int: ...

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def epoch(self) -> int:
        """The number of the batch. A replayed batch has the same number and the same records: an
        idempotent sink uses it to write each record once."""


class SinkFunction(Function):
    """A sink written in Python. At least once: after a failure the records of the last epoch may
    come again, with the same `context.epoch()`."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkContext) -> None: ...


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes results of all elements of a window."""

    @abstractmethod
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]: ...


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes results of all elements of a window of a stream without key."""

    @abstractmethod
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]: ...


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes results of a window, knowing its time and with state of the window and of the key."""

    class Context(ABC, Generic[W2]):
        @abstractmethod
        def window(self) -> Any: ...

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and window; it goes when the window goes."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key, over all windows."""

    @abstractmethod
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterable[Any]: ...

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        """Called when the window goes."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """The same for a stream without key."""

    class Context(ABC, Generic[W2]):
        @abstractmethod
        def window(self) -> Any: ...

        @abstractmethod
        def window_state(self) -> KeyedStateStore: ...

        @abstractmethod
        def global_state(self) -> KeyedStateStore: ...

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterable[Any]: ...

    def clear(self, context: ProcessAllWindowFunction.Context[Any]) -> None:
        """Called when the window goes."""


__getattr__ = module_getattr(__name__)
