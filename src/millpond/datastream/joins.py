"""Joins by window, co-groups and interval joins. Beyond PyFlink, with Flink's names and meaning.

orders.join(payments).where(order_id).equal_to(order_id).window(...).apply(JoinFunction)
orders.co_group(payments).where(...).equal_to(...).window(...).apply(CoGroupFunction)
orders.key_by(...).interval_join(payments.key_by(...)).between(...).process(ProcessJoinFunction)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic

from millpond.common.time import MIN_TIMESTAMP, Duration, Time
from millpond.common.type_variables import IN1, IN2, OUT
from millpond.common.typeinfo import TypeLike, Types
from millpond.datastream.functions import (
    Function,
    KeyedCoProcessFunction,
    KeySelector,
    Results,
    RuntimeContext,
    WindowFunction,
)
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.window import Evictor, Trigger, WindowAssigner
from millpond.datastream.window.triggers import millis
from millpond.errors import ProgramError

if TYPE_CHECKING:
    from millpond.datastream.data_stream import DataStream, KeyedStream
    from millpond.datastream.windowed_stream import WindowedStream

Select = Callable[[Any], Any] | KeySelector


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Joins the pairs of a window, one at a time."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT | None:
        """Return the result for a pair; None for no result."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Gets all elements of both streams for a key and window at once; one side may be empty."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Iterable[OUT]:
        """Return or yield the results for the elements of both sides."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Gets each pair whose timestamps lie within the interval."""

    class Context(ABC):
        """The timestamps of the current pair, in milliseconds."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the timestamp of the left element."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the timestamp of the right element."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the larger of both timestamps, which is that of the results."""

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context
    ) -> Results[OUT]:
        """Return or yield the results for a pair; None means none."""


# --- by window -------------------------------------------------------------------------------------


class _Joined:
    """Two streams on their way to a join, configured step by step."""

    _takes: type = JoinFunction

    def __init__(self, first: DataStream, second: DataStream) -> None:
        self._first = first
        self._second = second
        self._selectors: list[Any] = [None, None]

    def where(self, key_selector: Select) -> _Joined:
        """Set the key of the first stream's elements."""
        self._selectors[0] = key_selector
        return self

    def equal_to(self, key_selector: Select) -> _Joined:
        """Set the key of the second stream's elements."""
        self._selectors[1] = key_selector
        return self

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> _WindowedJoin:
        """Set the windows in which elements meet; raise ProgramError if a key is missing."""
        calls = zip(("where", "equal_to"), self._selectors, strict=True)
        missing = [name for name, selector in calls if selector is None]
        if missing:
            raise ProgramError(f"A join needs the keys of both streams: call {missing[0]}(...).")
        tagged = [
            stream.map(_Tag(number)) for number, stream in enumerate((self._first, self._second))
        ]
        keyed = tagged[0].union(tagged[1]).key_by(_TaggedKey(self._selectors))
        return _WindowedJoin(keyed.window(window_assigner), self._takes)


class JoinedStreams(_Joined):
    """The streams of `DataStream.join`: call `where`, `equal_to`, `window` and `apply`."""


class CoGroupedStreams(_Joined):
    """The streams of `DataStream.co_group`: call `where`, `equal_to`, `window` and `apply`."""

    _takes = CoGroupFunction


class _WindowedJoin:
    """A join whose keys and windows are set."""

    def __init__(self, windows: WindowedStream, takes: type) -> None:
        self._windows = windows
        self._takes = takes

    def trigger(self, trigger: Trigger[Any, Any]) -> _WindowedJoin:
        """Fire when this trigger says so, instead of the windows' own."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> _WindowedJoin:
        """Remove elements before or after the function sees them."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> _WindowedJoin:
        """Keep windows for this many milliseconds after their end, for late elements."""
        self._windows.allowed_lateness(time_ms)
        return self

    def apply(self, function: Any, output_type: TypeLike = None) -> DataStream:
        """Join with a JoinFunction or CoGroupFunction; a join also takes a plain function of two elements."""
        if self._takes is CoGroupFunction and not isinstance(function, CoGroupFunction):
            raise TypeError(f"apply takes a CoGroupFunction, not {type(function).__name__}")
        if not isinstance(function, self._takes) and not callable(function):
            raise TypeError(f"apply takes a JoinFunction, not {type(function).__name__}")
        result: DataStream = self._windows.apply(_Sides(function), output_type)
        return result


class _Tag:
    """Marks elements with the number of the stream they come from."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, value: Any) -> tuple[int, Any]:
        return (self._number, value)


class _TaggedKey(KeySelector):
    def __init__(self, selectors: list[Any]) -> None:
        self._selectors = selectors
        self._get_key = [s.get_key if isinstance(s, KeySelector) else s for s in selectors]

    def open(self, runtime_context: RuntimeContext) -> None:
        for selector in self._selectors:
            if isinstance(selector, KeySelector):
                selector.open(runtime_context)

    def close(self) -> None:
        for selector in self._selectors:
            if isinstance(selector, KeySelector):
                selector.close()

    def get_key(self, value: tuple[int, Any]) -> object:
        return self._get_key[value[0]](value[1])


class _Sides(WindowFunction[Any, Any, Any, Any]):
    """Separates the elements of a window by the stream they come from."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for number, value in inputs:
            sides[number].append(value)
        function = self._function
        if isinstance(function, CoGroupFunction):
            yield from function.co_group(*sides) or ()
            return
        join = function.join if isinstance(function, JoinFunction) else function
        for first in sides[0]:
            for second in sides[1]:
                result = join(first, second)
                if result is not None:
                    yield result


# --- by interval -----------------------------------------------------------------------------------


class IntervalJoin:
    """Pairs of elements with left + lower <= right <= left + upper, in event time; see
    `KeyedStream.interval_join`."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        self._left = left
        self._right = right
        self._bounds: tuple[int, int] | None = None
        self._exclusive = [False, False]
        self._late: list[OutputTag | None] = [None, None]

    def between(self, lower_bound: Time | Duration, upper_bound: Time | Duration) -> IntervalJoin:
        """Set the bounds of the interval, both inclusive; they may be negative."""
        least = MIN_TIMESTAMP
        lower = millis(lower_bound, "The lower bound of an interval join", least)
        upper = millis(upper_bound, "The upper bound of an interval join", least)
        if lower > upper:
            raise ProgramError(
                f"The lower bound of an interval join ({lower} ms) is above the upper one ({upper} ms)."
            )
        self._bounds = (lower, upper)
        return self

    def lower_bound_exclusive(self) -> IntervalJoin:
        """Exclude the lower bound."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> IntervalJoin:
        """Exclude the upper bound."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoin:
        """Send late elements of the left stream to a side output instead of dropping them."""
        self._late[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoin:
        """Send late elements of the right stream to a side output instead of dropping them."""
        self._late[1] = output_tag
        return self

    def process(
        self, process_join_function: ProcessJoinFunction, output_type: TypeLike = None
    ) -> DataStream:
        """Apply the function to each pair. Raise ProgramError unless `between` was called."""
        if not isinstance(process_join_function, ProcessJoinFunction):
            raise TypeError(
                f"process takes a ProcessJoinFunction, not {type(process_join_function).__name__}"
            )
        if self._bounds is None:
            raise ProgramError("An interval join needs bounds: call between(...) before process.")
        lower = self._bounds[0] + self._exclusive[0]
        upper = self._bounds[1] - self._exclusive[1]
        function = _JoinByInterval(lower, upper, process_join_function, self._late)
        return self._left.connect(self._right).process(function, output_type)


class _JoinByInterval(KeyedCoProcessFunction):
    """Keeps the elements of each side by timestamp for as long as partners may come."""

    stamps_results = True

    def __init__(
        self, lower: int, upper: int, function: ProcessJoinFunction, late: list[OutputTag | None]
    ) -> None:
        self._lower = lower
        self._upper = upper
        self._function = function
        self._late = late
        self._context = _PairContext()

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function.open(runtime_context)
        self._dropped = runtime_context.get_metrics_group().counter("numLateRecordsDropped")
        self._sides = [
            runtime_context.get_map_state(
                MapStateDescriptor(name, Types.LONG(), Types.PICKLED_BYTE_ARRAY())
            )
            for name in ("_interval_join.left", "_interval_join.right")
        ]

    def close(self) -> None:
        self._function.close()

    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[object, int]]:
        return self._join(0, value, ctx, self._lower, self._upper)

    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[object, int]]:
        return self._join(1, value, ctx, -self._upper, -self._lower)

    def _join(
        self,
        side: int,
        value: object,
        ctx: KeyedCoProcessFunction.Context,
        lower: int,
        upper: int,
    ) -> Iterator[tuple[object, int]]:
        timestamp = ctx.timestamp()
        if timestamp is None:
            raise ProgramError(
                "A record without a timestamp reached an interval join. Assign timestamps before it with "
                "assign_timestamps_and_watermarks."
            )
        if timestamp < ctx.timer_service().current_watermark():
            tag = self._late[side]
            if tag is None:
                self._dropped.inc()
            else:
                yield (tag, value), timestamp
            return
        this_side, other_side = self._sides[side], self._sides[1 - side]
        this_side.put(timestamp, (*(this_side.get(timestamp) or ()), value))
        for other_timestamp, values in other_side.items():
            if timestamp + lower <= other_timestamp <= timestamp + upper:
                for other in values:
                    yield from self._pair(side, value, timestamp, other, other_timestamp)
        ctx.timer_service().register_event_time_timer(timestamp + max(upper, 0))

    def _pair(
        self, side: int, value: object, timestamp: int, other: object, other_timestamp: int
    ) -> Iterator[tuple[object, int]]:
        context = self._context
        left, right = (value, other) if side == 0 else (other, value)
        context.left, context.right = (
            (timestamp, other_timestamp) if side == 0 else (other_timestamp, timestamp)
        )
        for result in self._function.process_element(left, right, context) or ():
            yield result, max(timestamp, other_timestamp)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> None:
        """Remove the elements whose last possible partner would have this time."""
        self._sides[0].remove(timestamp - max(self._upper, 0))
        self._sides[1].remove(timestamp - max(-self._lower, 0))


class _PairContext(ProcessJoinFunction.Context):
    left = right = 0

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def get_timestamp(self) -> int:
        return max(self.left, self.right)


class Joinable:
    """The joins that every stream has."""

    def join(self, other: DataStream) -> JoinedStreams:
        """Join pairs of elements with the same key in the same window."""
        return JoinedStreams(self, other)  # type: ignore[arg-type]

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """Group all elements of both streams with the same key in the same window."""
        return CoGroupedStreams(self, other)  # type: ignore[arg-type]


class IntervalJoinable:
    """The joins that only keyed streams have."""

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Join pairs of elements with the same key whose timestamps are close to each other."""
        return IntervalJoin(self, other)  # type: ignore[arg-type]
