"""The base of window operators that take in all elements of a batch at once. A WindowTask drives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core.bundle import Bundle
from millpond.core.columns import Numbers
from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.engine.context import TaskRuntimeContext
from millpond.engine.operators.base import Drive
from millpond.engine.operators.placed_results import PlacedResults
from millpond.engine.windows.contents import WindowStateStore
from millpond.engine.windows.general import WindowOperator
from millpond.errors import ProgramError
from millpond.state.combining import Combining
from millpond.state.shard_state import ShardState


class BatchedWindowOperator(WindowOperator):
    """Gives the same results as the general operator, in the same order."""

    drive = Drive.BATCHED_WINDOWS

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._combining = Combining(self._operation.combine, self._operation.content_type.check())
        self.begin()
        self.clock.bound.append(self)

    def bind(self, state: ShardState) -> None:
        """Turn to the state of a shard."""
        raise NotImplementedError

    def begin(self) -> None:
        """Forget what is open and what was emitted. Called before each shard, and after a failure."""
        self._open: dict[Any, Any] = {}
        self._emitted = PlacedResults(self.clock.watermark)

    def take(self, bundle: Bundle) -> None:
        """Put elements into their windows. Late elements go to the side output for them, or are dropped."""
        raise NotImplementedError

    def fire(self, watermark: int) -> None:
        """Emit the windows that end at or before `watermark`, in the order of time."""
        raise NotImplementedError

    def _rest(self) -> None:
        """Write what is open to the state."""
        raise NotImplementedError

    def settle(self) -> PlacedResults:
        """Write what is open to the state. Return what was emitted."""
        self._rest()
        if self.clock.state is not None:
            self.clock.state.clean_some()
        results = self._emitted
        self.begin()
        return results

    # --- for subclasses --------------------------------------------------------------------------

    def _times(self, bundle: Bundle, room: int) -> Numbers:
        """Return the timestamps of elements, such that twice `room` can be added without overflow. Raises if
        an element has no timestamp."""
        timestamps = bundle.timestamps
        if timestamps is None or isinstance(timestamps, list):
            each = bundle.each_timestamp() if timestamps is not None else [None]
            for value, timestamp in zip(bundle.open_values(), each, strict=False):
                if timestamp is None:
                    self._event_time_of(value, None)
        times = numpy.asarray(timestamps, numpy.int64)
        smallest = int(times.argmin())
        if times[smallest] == MIN_TIMESTAMP:
            self._event_time_of(bundle.open_values()[smallest], None)
        # Arrays of objects hold Python's integers, which have no limit.
        return times if times.max() <= MAX_TIMESTAMP - 2 * room else times.astype(object)

    def _event_time_of(self, value: object, timestamp: int | None) -> int:
        try:
            return event_time(timestamp)
        except ProgramError as problem:
            raise self.failed(problem, self.action, value) from None

    def _reject_at(self, bundle: Bundle, position: int, value: object) -> None:
        """Send an element that no window takes any more to the side output for late data, or count it."""
        tag = self._operation.late_data_tag
        if tag is None:
            self._late.inc()
            return
        timestamps: Any = bundle.timestamps
        self._emitted.add_side_at(tag, value, int(timestamps[position]), bundle.place(position))

    def _emit_windows(self, ended: Iterable[tuple[int, int, Any, Any]], is_over: bool) -> None:
        """Call the function for windows, given as (start, end, key, content) in the order of their ends.
        While it runs, the clock is at the end of the window. `is_over` means that the windows are not kept
        for late elements."""
        clock, context = self.clock, self._window_context
        call, result, add = self._caller, self._combining.result, self._emitted.add
        current, in_scope = clock.current, self._scope.current
        has_clear, prefixes = self._has_clear, self._scope.prefixes
        key, namespace, window = None, (0, 0), TimeWindow(0, 0)
        try:
            for start, end, key, content in ended:
                if end != window.end or start != window.start:
                    namespace, window = (start, end), TimeWindow(start, end)
                    context.turn_to(key, namespace, window)
                    clock.timestamp = end - 1
                    if end - 1 > clock.watermark:
                        clock.watermark = end - 1
                current.key = key
                in_scope.key = (key, namespace)
                add(call(key, window, context, [result(content)]) or (), end - 1)
                if is_over and (has_clear or WindowStateStore.PREFIX in prefixes):
                    self._clear_function(key, namespace, window)
        except Exception as problem:
            raise self.failed(problem, f"the window {window} for key {key!r}", None) from None
