"""Window assigners: which windows an element belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Generic

from millpond.common.time import MIN_TIMESTAMP, Time
from millpond.common.type_variables import W2, T, W
from millpond.common.typeinfo import Types
from millpond.datastream.functions import RuntimeContext
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.window.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    millis,
)
from millpond.datastream.window.windows import CountWindow, GlobalWindow, TimeWindow
from millpond.errors import ProgramError

if TYPE_CHECKING:
    from millpond.datastream.stream_execution_environment import StreamExecutionEnvironment


class WindowAssigner(ABC, Generic[T, W]):
    """Decides which windows an element belongs to."""

    class WindowAssignerContext(ABC):
        """What an assigner can use: processing time, and state of the current key."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it is the same for a whole batch."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context, which gives access to state of the current key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of an element. `timestamp` is its event time."""

    @abstractmethod
    def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[Any, Any]:
        """Return the trigger to use unless the program sets another."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return True if windows depend on event time."""

    def get_window_serializer(self) -> object:
        """Return nothing. PyFlink's assigners need a serializer; here windows are pickled, and this is
        never called."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Assigns windows that are merged when they overlap, such as sessions."""

    class MergeCallback(ABC, Generic[W2]):
        """Takes the decisions of `merge_windows`."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Replace the windows `to_be_merged` by `merge_result`."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Tell the callback which of the windows are to be merged, and into which window."""


def event_time(timestamp: int | None) -> int:
    """Return the timestamp of an element; raise ProgramError if it has none."""
    if timestamp is None or timestamp == MIN_TIMESTAMP:
        raise ProgramError(
            "A record without a timestamp reached an event-time window. Assign timestamps before it: "
            "assign_timestamps_and_watermarks(WatermarkStrategy...with_timestamp_assigner(...))."
        )
    return timestamp


class _EventTime(WindowAssigner[Any, Any]):
    def get_default_trigger(self, env: object) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTime(WindowAssigner[Any, Any]):
    def get_default_trigger(self, env: object) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _Tumbling(WindowAssigner[Any, Any]):
    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            raise ProgramError(
                f"The offset of a tumbling window ({offset} ms) must be smaller than its size ({size} ms)."
            )
        self.size = size
        self.offset = offset

    def _window(self, timestamp: int) -> list[TimeWindow]:
        start = timestamp - (timestamp - self.offset) % self.size
        return [TimeWindow(start, start + self.size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class TumblingEventTimeWindows(_Tumbling, _EventTime):
    """Windows of a fixed size, side by side, in event time."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingEventTimeWindows:
        """Return windows of this size; `offset` shifts them from multiples of the size."""
        return TumblingEventTimeWindows(_size(size), _offset(offset))

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(event_time(timestamp))


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Windows of a fixed size, side by side, in processing time."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingProcessingTimeWindows:
        """Return windows of this size; `offset` shifts them from multiples of the size."""
        return TumblingProcessingTimeWindows(_size(size), _offset(offset))

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(context.get_current_processing_time())


class _Sliding(WindowAssigner[Any, Any]):
    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide:
            raise ProgramError(
                f"The offset of a sliding window ({offset} ms) must be smaller than its slide "
                f"({slide} ms)."
            )
        self.size = size
        self.slide = slide
        self.offset = offset

    def _windows(self, timestamp: int) -> list[TimeWindow]:
        last = timestamp - (timestamp - self.offset) % self.slide
        starts = range(last, timestamp - self.size, -self.slide)
        return [TimeWindow(start, start + self.size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(_Sliding, _EventTime):
    """Windows of a fixed size, one starting after each slide, in event time."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingEventTimeWindows:
        """Return windows of this size and slide; `offset` shifts them from multiples of the slide."""
        return SlidingEventTimeWindows(_size(size), _size(slide), _offset(offset))

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows(event_time(timestamp))


class SlidingProcessingTimeWindows(_Sliding, _ProcessingTime):
    """Windows of a fixed size, one starting after each slide, in processing time."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingProcessingTimeWindows:
        """Return windows of this size and slide; `offset` shifts them from multiples of the slide."""
        return SlidingProcessingTimeWindows(_size(size), _size(slide), _offset(offset))

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows(context.get_current_processing_time())


class SessionWindowTimeGapExtractor(ABC, Generic[T]):
    """Decides how long the silence after an element must be to end its session."""

    @abstractmethod
    def extract(self, element: T) -> int:
        """Return the gap after an element in milliseconds, above 0."""


class _Sessions(MergingWindowAssigner[Any, Any]):
    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class _FixedGap(_Sessions):
    def __init__(self, session_gap: int) -> None:
        self.session_gap = millis(session_gap, "The gap of a session window")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_gap})"


class _DynamicGap(_Sessions):
    def __init__(
        self,
        session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> None:
        extractor = session_window_time_gap_extractor
        self._extract: Any = getattr(extractor, "extract", extractor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _window(self, element: object, start: int) -> list[TimeWindow]:
        gap = self._extract(element)
        if not isinstance(gap, int) or gap <= 0:
            raise ProgramError(f"The gap of a session must be more than 0 ms, not {gap!r}.")
        return [TimeWindow(start, start + gap)]


class EventTimeSessionWindows(_FixedGap, _EventTime):
    """Sessions in event time: elements that follow each other within a gap."""

    @staticmethod
    def with_gap(size: Time) -> EventTimeSessionWindows:
        """Return sessions that end after a gap of this length."""
        return EventTimeSessionWindows(_size(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return sessions whose gap depends on the element: an extractor or, beyond PyFlink, a function
        gives it."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = event_time(timestamp)
        return [TimeWindow(start, start + self.session_gap)]


class ProcessingTimeSessionWindows(_FixedGap, _ProcessingTime):
    """Sessions in processing time: elements that follow each other within a gap."""

    @staticmethod
    def with_gap(size: Time) -> ProcessingTimeSessionWindows:
        """Return sessions that end after a gap of this length."""
        return ProcessingTimeSessionWindows(_size(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return sessions whose gap depends on the element: an extractor or, beyond PyFlink, a function
        gives it."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = context.get_current_processing_time()
        return [TimeWindow(start, start + self.session_gap)]


class DynamicEventTimeSessionWindows(_DynamicGap, _EventTime):
    """Sessions in event time whose gap depends on the element."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Return sessions whose gap an extractor or, beyond PyFlink, a function gives for each element."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(element, event_time(timestamp))


class DynamicProcessingTimeSessionWindows(_DynamicGap, _ProcessingTime):
    """Sessions in processing time whose gap depends on the element."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        """Return sessions whose gap an extractor or, beyond PyFlink, a function gives for each element."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(element, context.get_current_processing_time())


class GlobalWindows(WindowAssigner[Any, Any]):
    """One window per key for everything. It never fires by itself: set a trigger."""

    @staticmethod
    def create() -> GlobalWindows:
        """Return the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: object) -> Trigger[Any, Any]:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class _Counting(WindowAssigner[Any, Any]):
    """Numbers the elements of a key."""

    def __init__(self, window_size: int) -> None:
        if not isinstance(window_size, int) or window_size < 1:
            raise ProgramError(
                f"A count window needs a size of at least 1 element, not {window_size!r}."
            )
        self.window_size = window_size
        self._count = ValueStateDescriptor("assigner-count", Types.LONG())

    def _number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        state = context.get_runtime_context().get_state(self._count)
        number = state.value() or 0
        state.update(number + 1)
        return number

    def get_default_trigger(self, env: object) -> Trigger[Any, Any]:
        return PurgingTrigger(CountTrigger(self.window_size))

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_Counting):
    """Windows of a number of elements each, side by side."""

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return windows of this number of elements; raise ProgramError if it is below 1."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_Counting):
    """Windows of a number of elements each, one starting after each slide; only full ones fire (C30)."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        if not isinstance(window_slide, int) or window_slide < 1:
            raise ProgramError(
                f"A count window needs a slide of at least 1 element, not {window_slide!r}."
            )
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return windows with this number of elements and this slide; raise ProgramError if one is below
        1."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: object, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        number = self._number(context)
        first = max(0, -((self.window_size - 1 - number) // self.window_slide))
        return [CountWindow(n) for n in range(number // self.window_slide, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"


def _size(span: Time) -> int:
    return millis(span, "The size, slide or gap of a window")


def _offset(span: Time | None) -> int:
    return 0 if span is None else millis(span, "The offset of a window", -(1 << 62))
