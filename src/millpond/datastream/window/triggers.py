"""Triggers: when a window gives its result, and when its content is dropped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic

from millpond.common.time import Duration, Time
from millpond.common.type_variables import T, W
from millpond.common.typeinfo import TypeLike, Types
from millpond.datastream.functions import ReduceFunction
from millpond.datastream.state import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor
from millpond.datastream.window.windows import Window
from millpond.errors import ProgramError
from millpond.metrics.metricbase import MetricGroup


def millis(span: Time | Duration | int, what: str, least: int = 1) -> int:
    """Return a length of time in milliseconds; raise ProgramError, naming `what`, if it is below `least`."""
    if isinstance(span, Time):
        number = span.to_milliseconds()
    elif isinstance(span, Duration):
        number = span.to_millis()
    else:
        number = span
    if not isinstance(number, int) or number < least:
        raise ProgramError(
            f"{what} must be a Time or Duration of at least {least} ms, not {span!r}."
        )
    return number


class TriggerResult(Enum):
    """What happens to a window: (whether it gives a result, whether its content is dropped)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return True if the window gives a result."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return True if the content of the window is dropped."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when a window of a key fires. What it remembers is in `ctx.get_partitioned_state`."""

    class TriggerContext(ABC):
        """Time, timers and state of the current key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds; it is the same for a whole batch."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the group in which the trigger registers its metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark, in milliseconds."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Have `on_processing_time` called when processing time has reached `time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Have `on_event_time` called when the watermark has reached `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete a timer; do nothing if there is none at this time."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete a timer; do nothing if there is none at this time."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return state of the current key and window."""

    class OnMergeContext(TriggerContext):
        """The context in which windows merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the windows that were merged into that of the new window."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide after an element has been added to the window."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        """Decide when a processing-time timer of the trigger fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide when an event-time timer of the trigger fires."""

    def can_merge(self) -> bool:
        """Return True if the trigger may be used with windows that merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Merge state and timers: several windows have become `window`."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Remove state and timers. Called when the window is removed."""


class _QuietTrigger(Trigger[Any, Any]):
    """Does nothing. Subclasses override what concerns them."""

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
        """Do nothing: there is nothing to merge."""

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        """Do nothing: there is nothing to clear."""


class NeverTrigger(_QuietTrigger):
    """Never fires; the default of global windows."""


class EventTimeTrigger(_QuietTrigger):
    """Fires when the watermark passes the end of the window, and at once for each element after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return the trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
        """Return the trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
    """Fires whenever the watermark passes a multiple of the interval, and at the end of the window."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    @staticmethod
    def of(interval: Time) -> ContinuousEventTimeTrigger:
        """Return a trigger with this interval."""
        return ContinuousEventTimeTrigger(millis(interval, "The interval of the trigger"))

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
    """Fires whenever processing time passes a multiple of the interval."""

    def __init__(self, interval: int) -> None:
        self.interval = interval

    @staticmethod
    def of(interval: Time) -> ContinuousProcessingTimeTrigger:
        """Return a trigger with this interval."""
        return ContinuousProcessingTimeTrigger(millis(interval, "The interval of the trigger"))

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
    """Fires whenever a number of elements has come. The content stays (see PurgingTrigger)."""

    def __init__(self, window_size: int) -> None:
        self.window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return a trigger that fires after every `window_size` elements; raise ProgramError if that is
        below 1."""
        if not isinstance(window_size, int) or window_size < 1:
            raise ProgramError(f"CountTrigger needs a count of at least 1, not {window_size!r}.")
        return CountTrigger(window_size)

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
    """Drops the content of the window whenever the nested trigger fires."""

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Return a trigger around another one."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
    """Fires when an element differs from the one that fired last by more than a threshold. Beyond PyFlink."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeLike,
    ) -> None:
        self.threshold = threshold
        self.delta_function = delta_function
        self._last = ValueStateDescriptor("last-element", element_type)

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Any, Any], float],
        element_type: TypeLike = None,
    ) -> DeltaTrigger:
        """Return a trigger; `delta_function(last, element)` computes the difference."""
        return DeltaTrigger(threshold, delta_function, element_type)

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
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
