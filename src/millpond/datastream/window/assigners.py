"""Window assigners: which windows an element belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, TypeVar

from millpond.common.time import MIN_TIMESTAMP, Time
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
from millpond.datastream.window.windows import CountWindow, GlobalWindow, TimeWindow, Window
from millpond.errors import ProgramError

T = TypeVar("T")
W = TypeVar("W")


class WindowAssigner(ABC, Generic[T, W]):
    class WindowAssignerContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Gives state of the current key."""

    @abstractmethod
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[Window]: ...

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]: ...

    @abstractmethod
    def is_event_time(self) -> bool: ...

    def get_window_serializer(self) -> Any:
        """PyFlink's own assigners need one; here windows are pickled, and this is never called."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Gives windows that are merged when they overlap: sessions."""

    class MergeCallback(ABC):
        @abstractmethod
        def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
            """These windows become that one."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[Any], callback: MergingWindowAssigner.MergeCallback
    ) -> None: ...


def event_time(timestamp: int | None) -> int:
    """The timestamp of an element; raises if it has none."""
    if timestamp is None or timestamp == MIN_TIMESTAMP:
        raise ProgramError(
            "A record without a timestamp reached an event-time window. Assign timestamps before it: "
            "assign_timestamps_and_watermarks(WatermarkStrategy...with_timestamp_assigner(...))."
        )
    return timestamp


class _EventTime(WindowAssigner[Any, Any]):
    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTime(WindowAssigner[Any, Any]):
    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
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
    """Windows of one size, side by side, by event time."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingEventTimeWindows:
        return TumblingEventTimeWindows(_size(size), _offset(offset))

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(event_time(timestamp))


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Windows of one size, side by side, by processing time."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingProcessingTimeWindows:
        return TumblingProcessingTimeWindows(_size(size), _offset(offset))

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
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
    """Windows of one size, one beginning after each slide, by event time."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingEventTimeWindows:
        return SlidingEventTimeWindows(_size(size), _size(slide), _offset(offset))

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows(event_time(timestamp))


class SlidingProcessingTimeWindows(_Sliding, _ProcessingTime):
    """Windows of one size, one beginning after each slide, by processing time."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingProcessingTimeWindows:
        return SlidingProcessingTimeWindows(_size(size), _size(slide), _offset(offset))

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows(context.get_current_processing_time())


class SessionWindowTimeGapExtractor(ABC):
    """How long the silence after an element must be to end its session, in milliseconds."""

    @abstractmethod
    def extract(self, element: Any) -> int: ...


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

    def _window(self, element: Any, start: int) -> list[TimeWindow]:
        gap = self._extract(element)
        if not isinstance(gap, int) or gap <= 0:
            raise ProgramError(f"The gap of a session must be more than 0 ms, not {gap!r}.")
        return [TimeWindow(start, start + gap)]


class EventTimeSessionWindows(_FixedGap, _EventTime):
    """Elements that follow each other within a gap, by event time."""

    @staticmethod
    def with_gap(size: Time) -> EventTimeSessionWindows:
        return EventTimeSessionWindows(_size(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = event_time(timestamp)
        return [TimeWindow(start, start + self.session_gap)]


class ProcessingTimeSessionWindows(_FixedGap, _ProcessingTime):
    """Elements that follow each other within a gap, by processing time."""

    @staticmethod
    def with_gap(size: Time) -> ProcessingTimeSessionWindows:
        return ProcessingTimeSessionWindows(_size(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        start = context.get_current_processing_time()
        return [TimeWindow(start, start + self.session_gap)]


class DynamicEventTimeSessionWindows(_DynamicGap, _EventTime):
    """Sessions whose gap each element tells, by event time."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(element, event_time(timestamp))


class DynamicProcessingTimeSessionWindows(_DynamicGap, _ProcessingTime):
    """Sessions whose gap each element tells, by processing time."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicProcessingTimeSessionWindows:
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window(element, context.get_current_processing_time())


class GlobalWindows(WindowAssigner[Any, Any]):
    """One window for everything; it needs a trigger to give a result."""

    @staticmethod
    def create() -> GlobalWindows:
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
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

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return PurgingTrigger(CountTrigger(self.window_size))

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_Counting):
    """So many elements each, side by side."""

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(_Counting):
    """So many elements each, one window beginning after each slide; only full ones fire (C30)."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        if not isinstance(window_slide, int) or window_slide < 1:
            raise ProgramError(
                f"A count window needs a slide of at least 1 element, not {window_slide!r}."
            )
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
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
