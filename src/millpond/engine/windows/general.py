"""Runs any window (E24, E25): assigns elements to windows, asks triggers, emits results, cleans up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.common.typeinfo import Types
from millpond.core.codec import freeze
from millpond.datastream.functions import ProcessAllWindowFunction, ProcessWindowFunction
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import (
    StateDescriptor,
    StateKind,
)
from millpond.datastream.time_domain import TimeDomain
from millpond.datastream.window import TimestampedValue, Trigger, TriggerResult, Window
from millpond.datastream.window.assigners import MergingWindowAssigner, WindowAssigner
from millpond.datastream.windowed_stream import WindowOperation
from millpond.engine.context import FunctionContext, TaskClock, TaskRuntimeContext
from millpond.engine.operators.base import Handler, RecordOperator, is_tagged
from millpond.engine.windows.contents import (
    MergedWindows,
    Namespace,
    OnMerge,
    WindowContent,
    WindowScope,
    WindowStateStore,
    namespace_of,
    window_of,
)
from millpond.errors import ProgramError
from millpond.metrics.metricbase import MetricGroup
from millpond.plan.physical import OperatorPlan
from millpond.state.kinds.registry import spec_of
from millpond.state.tables import MISSING
from millpond.state.timers import Timers

_TRIGGER = "_trigger"
Stamped = tuple[Any, int]  # a result and its timestamp


def at_rest(result: object) -> object:
    """Return a result frozen, so that the function cannot change it later. It may be for a side output."""
    return (result[0], freeze(result[1])) if is_tagged(result) else freeze(result)


class WindowOperator(RecordOperator):
    """Runs any window, element by element. Results carry the largest timestamp of their window (C20), so
    handlers return (value, timestamp)."""

    context: FunctionContext
    stamps_results = True
    action = "window"

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.context = FunctionContext(clock, self.name, keyed=True)
        self._operation: WindowOperation = plan.function
        self._assigner: WindowAssigner[Any, Any] = self._operation.assigner
        self._trigger: Trigger[Any, Any] = self._operation.trigger
        self._lateness: int = min(self._operation.allowed_lateness, MAX_TIMESTAMP)
        self._event_time = self._assigner.is_event_time()

    def open(self, context: TaskRuntimeContext) -> None:
        operation = self._operation
        self._scope = WindowScope(self.clock)
        self._content = WindowContent(
            self._scope,
            operation.combine,
            Types.PICKLED_BYTE_ARRAY() if operation.evictor else operation.content_type,
        )
        self._merged: MergedWindows | None = None
        if isinstance(self._assigner, MergingWindowAssigner):
            self._merged = MergedWindows(self.clock, self._assigner)
        self._assigner_context = _AssignerContext(self.clock, context)
        self._trigger_context = _TriggerContext(self.clock, self._scope, context)
        store = WindowStateStore(self._scope, isinstance(self._assigner, MergingWindowAssigner))
        self._window_context = _WindowContext(self.clock, self._scope, store, context)
        self._late = context.get_metrics_group().counter("numLateRecordsDropped")
        function = operation.window_function()
        self._window_function = function
        self._caller = operation.caller()
        self._has_clear = getattr(type(function), "clear", None) not in (
            None,
            ProcessWindowFunction.clear,
            ProcessAllWindowFunction.clear,
        )
        self._knows_window = isinstance(function, (ProcessWindowFunction, ProcessAllWindowFunction))
        super().open(context)

    def handlers(self) -> list[Handler]:
        return [self._element]

    def timer_handler(self) -> Handler:
        return self._timer

    # --- elements --------------------------------------------------------------------------------

    def _element(self, value: object, _: object) -> list[Stamped] | None:
        clock = self.clock
        key, timestamp = clock.current.key, clock.timestamp
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        windows = self._assigner.assign_windows(value, stamp, self._assigner_context)
        results: list[Stamped] = []
        skipped = True
        merged = None if self._merged is None else self._merged.of(key)
        before = None if merged is None else dict(merged)
        for window in windows:
            namespace = namespace_of(window)
            content_namespace = namespace
            if merged is not None:
                assert self._merged is not None
                namespace = self._merged.add(merged, window, self._merge_of(key))
                content_namespace, window = merged[namespace], window_of(namespace)
            if self._is_late(window):
                if merged is not None:
                    del merged[namespace]
                continue
            skipped = False
            self._scope.turn_to(key, content_namespace)
            self._content.add(value if self._operation.evictor is None else (value, timestamp))
            result = self._ask(key, namespace, window, value=value, timestamp=stamp)
            self._act(result, key, namespace, content_namespace, window, results)
            self._register_cleanup(window, namespace, key)
        if merged is not None and merged != before:
            assert self._merged is not None
            self._merged.keep(key, merged)
        if skipped and self._event_time and self._ends_at(stamp) <= clock.watermark:
            self._reject(value, stamp, results)
        return results

    def _reject(self, value: object, timestamp: int, results: list[Stamped]) -> None:
        tag: OutputTag | None = self._operation.late_data_tag
        if tag is None:
            self._late.inc()
        else:
            results.append(((tag, value), timestamp))

    def _ask(
        self, key: object, namespace: Namespace, window: Window, value: object, timestamp: int
    ) -> TriggerResult:
        self._trigger_context.turn_to(key, namespace)
        return self._trigger.on_element(value, timestamp, window, self._trigger_context)

    # --- timers ----------------------------------------------------------------------------------

    def _timer(self, time_ms: int, _: object) -> list[Stamped] | None:
        key, namespace = self.clock.current.key, self.clock.current.namespace
        window, content_namespace = window_of(namespace), namespace
        if self._merged is not None:
            found = self._merged.of(key).get(namespace, MISSING)
            if found is MISSING:
                return None  # it was merged into another one
            content_namespace = found
        results: list[Stamped] = []
        self._trigger_context.turn_to(key, namespace)
        by_event_time = self.context.domain is TimeDomain.EVENT_TIME
        on_time = self._trigger.on_event_time if by_event_time else self._trigger.on_processing_time
        result = on_time(time_ms, window, self._trigger_context)
        self._act(result, key, namespace, content_namespace, window, results)
        if by_event_time == self._event_time and time_ms == self._cleanup_time(window):
            self._clean_up(key, namespace, content_namespace, window)
        return results

    def _act(
        self,
        result: TriggerResult,
        key: object,
        namespace: Namespace,
        content_namespace: Namespace,
        window: Window,
        results: list[Stamped],
    ) -> None:
        if result is TriggerResult.CONTINUE:
            return
        self._scope.turn_to(key, content_namespace)
        if result.is_fire():
            content = self._content.get()
            if content is not MISSING:
                timestamp = window.max_timestamp()
                for value in self._results(key, namespace, window, content):
                    results.append((at_rest(value), timestamp))
            self._scope.turn_to(key, content_namespace)
        if result.is_purge():
            self._content.clear()

    def _results(
        self, key: object, namespace: Namespace, window: Window, content: Any
    ) -> Iterable[Any]:
        operation = self._operation
        if operation.evictor is None:
            elements = content if self._content.kind is StateKind.LIST else [content]
            return self._call(key, namespace, window, elements)
        content_namespace = self._scope.current.key[1]
        kept = [TimestampedValue(*element) for element in content]
        kept = operation.evictor.evict_before(kept, len(kept), window, self._window_context)
        results = list(self._call(key, namespace, window, [element.value for element in kept]))
        kept = operation.evictor.evict_after(kept, len(kept), window, self._window_context)
        self._scope.turn_to(key, content_namespace)
        self._content.replace([tuple(element) for element in kept])
        return results

    def _call(
        self, key: object, namespace: Namespace, window: Window, elements: list[Any]
    ) -> Iterable[Any]:
        if self._knows_window:
            self._window_context.turn_to(key, namespace, window)
        return self._caller(key, window, self._window_context, elements) or ()

    # --- late, early, gone -----------------------------------------------------------------------

    def _ends_at(self, timestamp: int) -> int:
        return min(timestamp + self._lateness, MAX_TIMESTAMP)  # C24

    def _cleanup_time(self, window: Window) -> int:
        timestamp = window.max_timestamp()
        return self._ends_at(timestamp) if self._event_time else timestamp

    def _is_late(self, window: Window) -> bool:
        return self._event_time and self._cleanup_time(window) <= self.clock.watermark

    def _register_cleanup(self, window: Window, namespace: Namespace, key: object) -> None:
        time_ms = self._cleanup_time(window)
        if time_ms < MAX_TIMESTAMP:  # a global window is never cleaned up
            self._trigger_context.timers(self._event_time).register(time_ms, key, namespace)

    def _clean_up(
        self, key: object, namespace: Namespace, content_namespace: Namespace, window: Window
    ) -> None:
        self._scope.turn_to(key, content_namespace)
        self._content.clear()
        self._trigger_context.turn_to(key, namespace)
        self._trigger.clear(window, self._trigger_context)
        self._scope.clear(_TRIGGER)
        if self._has_own_state():
            self._clear_function(key, namespace, window)
        if self._merged is not None:
            windows = self._merged.of(key)
            windows.pop(namespace, None)
            self._merged.keep(key, windows)

    def _has_own_state(self) -> bool:
        """Return True if the function may keep something for a window. Most functions do not."""
        return self._has_clear or WindowStateStore.PREFIX in self._scope.prefixes

    def _clear_function(self, key: object, namespace: Namespace, window: Window) -> None:
        self.clock.current.key = key
        self._window_context.turn_to(key, namespace, window)
        self._window_function.clear(self._window_context)
        self._scope.clear(WindowStateStore.PREFIX)

    def _merge_of(self, key: object) -> OnMerge:
        def on_merge(
            cover: Window,
            members: list[Window],
            content_namespace: Namespace,
            others: list[Namespace],
        ) -> None:
            if self._is_late(cover):
                raise ProgramError(
                    f"Merging windows of key {key!r} gave {cover}, which is late already. Merging must "
                    "not move the end of a window back: check merge_windows of the assigner."
                )
            context = self._trigger_context
            context.turn_to(key, namespace_of(cover), [namespace_of(m) for m in members])
            self._trigger.on_merge(cover, context)
            for member in members:
                if member != cover:
                    context.turn_to(key, namespace_of(member))
                    self._trigger.clear(member, context)
                    context.timers(self._event_time).delete(
                        self._cleanup_time(member), key, namespace_of(member)
                    )
            self._content.merge(key, content_namespace, others)

        return on_merge


class _AssignerContext(WindowAssigner.WindowAssignerContext):
    def __init__(self, clock: TaskClock, runtime_context: TaskRuntimeContext) -> None:
        self._clock = clock
        self._runtime_context = runtime_context

    def get_current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def get_runtime_context(self) -> TaskRuntimeContext:
        return self._runtime_context


class _TriggerContext(Trigger.OnMergeContext):
    """The `ctx` argument of a trigger. It follows the current key and window."""

    def __init__(self, clock: TaskClock, scope: WindowScope, context: TaskRuntimeContext) -> None:
        self._clock = clock
        self._scope = scope
        self._context = context
        self._key: object = None
        self._namespace: Namespace = ()
        self._merged: list[Namespace] = []

    def turn_to(
        self, key: object, namespace: Namespace, merged: list[Namespace] | None = None
    ) -> None:
        self._key = key
        self._namespace = namespace
        self._merged = merged or []
        self._scope.turn_to(key, namespace)

    def timers(self, event_time: bool) -> Timers:
        state = self._clock.state
        assert state is not None
        return state.event_timers if event_time else state.processing_timers

    def get_current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def get_metric_group(self) -> MetricGroup:
        return self._context.get_metrics_group()

    def get_current_watermark(self) -> int:
        return self._clock.watermark

    def register_processing_time_timer(self, time: int) -> None:
        self.timers(False).register(time, self._key, self._namespace)

    def register_event_time_timer(self, time: int) -> None:
        self.timers(True).register(time, self._key, self._namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self.timers(False).delete(time, self._key, self._namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self.timers(True).delete(time, self._key, self._namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        self._scope.turn_to(self._key, self._namespace)
        return self._scope.state(_TRIGGER, state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        handle = self.get_partitioned_state(state_descriptor)
        others = [namespace for namespace in self._merged if namespace != self._namespace]
        spec = spec_of(state_descriptor.kind)
        spec.merge(handle._table, state_descriptor, self._key, self._namespace, others)


class _WindowContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The `context` of a ProcessWindowFunction."""

    def __init__(
        self,
        clock: TaskClock,
        scope: WindowScope,
        store: WindowStateStore,
        context: TaskRuntimeContext,
    ) -> None:
        self._clock = clock
        self._scope = scope
        self._runtime_context = context
        self._store = store
        self._window: Window | None = None

    def turn_to(self, key: object, namespace: Namespace, window: Window) -> None:
        self._scope.turn_to(key, namespace)
        self._window = window

    def window(self) -> Window | None:
        return self._window

    def current_processing_time(self) -> int:
        return self._clock.processing_time_ms

    def current_watermark(self) -> int:
        return self._clock.watermark

    def window_state(self) -> WindowStateStore:
        return self._store

    def global_state(self) -> TaskRuntimeContext:
        return self._runtime_context
