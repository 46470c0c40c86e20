"""Triggers: when a window gives its result, and when its content goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from millpond.common.time import Duration, Time
from millpond.common.typeinfo import TypeInformation, Types
from millpond.datastream.functions import ReduceFunction
from millpond.datastream.state import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor
from millpond.datastream.window.windows import Window
from millpond.errors import ProgramError
from millpond.metrics.metricbase import MetricGroup

T = TypeVar("T")
W = TypeVar("W")


def millis(span: Time | Duration | int, what: str, least: int = 1) -> int:
    """A span in milliseconds; refuses what is too short."""
    if isinstance(span, Time):
        number = span.to_milliseconds()
    elif isinstance(span, Duration):
        number = span.to_millis()
    else:
        number = span
    if not isinstance(number, int) or number < least:
        raise ProgramError(f"{what} must be a Time of at least {least} ms, not {span!r}.")
    return number


class TriggerResult(Enum):
    """(fire, purge): whether the window gives a result, and whether its content is dropped."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides for one key and window; what it remembers is in `ctx.get_partitioned_state`."""

    class TriggerContext(ABC):
        """Time, timers and state of the current key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of the current key and window."""

    class OnMergeContext(TriggerContext):
        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Bring the state of the windows that were merged into the one they became."""

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult: ...

    @abstractmethod
    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult: ...

    @abstractmethod
    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult: ...

    def can_merge(self) -> bool:
        """True if it may be used with windows that merge."""
        return False

    @abstractmethod
    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        """Several windows have become `window`."""

    @abstractmethod
    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """The window goes: drop state and timers."""


class _QuietTrigger(Trigger[Any, Any]):
    """Does nothing; subclasses do something about what concerns them."""

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        """Nothing to merge."""

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Nothing to clear."""


class NeverTrigger(_QuietTrigger):
    """Never fires: the default of global windows."""


class EventTimeTrigger(_QuietTrigger):
    """Fires when the watermark passes the end of the window, and at once for elements after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_QuietTrigger):
    """Fires when processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _Earlier(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


_NEXT_FIRE = ReducingStateDescriptor("fire-time", _Earlier(), Types.LONG())


class ContinuousEventTimeTrigger(_QuietTrigger):
    """Fires again and again, whenever the watermark has passed a multiple of the interval."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    @staticmethod
    def of(interval: Time) -> ContinuousEventTimeTrigger:
        return ContinuousEventTimeTrigger(millis(interval, "The interval of the trigger"))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            self._fire_next(timestamp - timestamp % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        if state.get() == time:
            state.clear()
            self._fire_next(time, window, ctx)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT_FIRE)
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if next_fire is not None:
            ctx.register_event_time_timer(next_fire)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        next_fire = state.get()
        if next_fire is not None:
            ctx.delete_event_time_timer(next_fire)
            state.clear()
        ctx.delete_event_time_timer(window.max_timestamp())

    def _fire_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_fire = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(_NEXT_FIRE).add(next_fire)
        ctx.register_event_time_timer(next_fire)


class ContinuousProcessingTimeTrigger(_QuietTrigger):
    """Fires again and again, whenever processing time has passed a multiple of the interval."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    @staticmethod
    def of(interval: Time) -> ContinuousProcessingTimeTrigger:
        return ContinuousProcessingTimeTrigger(millis(interval, "The interval of the trigger"))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        now_ms = ctx.get_current_processing_time()
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            self._fire_next(now_ms - now_ms % self.interval, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        if state.get() == time:
            state.clear()
            self._fire_next(time, window, ctx)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT_FIRE)
        next_fire = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if next_fire is not None:
            ctx.register_processing_time_timer(next_fire)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        next_fire = state.get()
        if next_fire is not None:
            ctx.delete_processing_time_timer(next_fire)
            state.clear()

    def _fire_next(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> None:
        next_fire = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(_NEXT_FIRE).add(next_fire)
        ctx.register_processing_time_timer(next_fire)


class _Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


_COUNT = ReducingStateDescriptor("count", _Sum(), Types.LONG())


class CountTrigger(_QuietTrigger):
    """Fires whenever so many elements have come; the content stays (see PurgingTrigger)."""

    def __init__(self, window_size: int) -> None:
        self.window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        if not isinstance(window_size, int) or window_size < 1:
            raise ProgramError(f"CountTrigger needs a count of at least 1, not {window_size!r}.")
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(_COUNT)
        state.add(1)
        if state.get() < self.window_size:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


class PurgingTrigger(Trigger[Any, Any]):
    """Drops the content whenever the trigger in it fires."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class DeltaTrigger(_QuietTrigger):
    """Beyond PyFlink: fires when an element differs from the one that fired last by more than a
    threshold."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeInformation,
    ) -> None:
        self.threshold = threshold
        self.delta_function = delta_function
        self._last = ValueStateDescriptor("last-element", element_type)

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeInformation | Any = None,
    ) -> DeltaTrigger:
        return DeltaTrigger(threshold, delta_function, element_type or Types.PICKLED_BYTE_ARRAY())

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
        elif self.delta_function(last, element) > self.threshold:
            state.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()
