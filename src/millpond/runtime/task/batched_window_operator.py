"""What windows have in common that take a batch's elements in at once. A WindowTask drives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.runtime.task.bundle import PHASE_EVENT_TIMER, Bundle
from millpond.runtime.task.columns import Numbers
from millpond.runtime.task.combining import Combining
from millpond.runtime.task.context import TaskRuntimeContext
from millpond.runtime.task.placed_results import PlacedResults
from millpond.runtime.task.window_operator import WindowOperator
from millpond.state.key_group_state import KeyGroupState


class BatchedWindowOperator(WindowOperator):
    """Results are what the general operator gives, in the same order."""

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._combining = Combining(self._operation.combine, self._operation.content_type.check())
        self.begin()
        self.clock.bound.append(self)

    def bind(self, state: KeyGroupState) -> None:
        """Turn to the state of a key group."""
        raise NotImplementedError

    def begin(self) -> None:
        """Nothing is open, nothing was emitted."""
        self._open: dict[Any, Any] = {}
        self._emitted = PlacedResults()

    def take(self, bundle: Bundle) -> None:
        """Put elements into their windows; those that are late go elsewhere."""
        raise NotImplementedError

    def fire(self, watermark: int) -> None:
        """Emit the windows that end up to `watermark`, in the order of time."""
        raise NotImplementedError

    def _rest(self) -> None:
        """Bring what is open to state."""
        raise NotImplementedError

    def settle(self) -> PlacedResults:
        """Bring what is open to state. Returns what was emitted."""
        self._rest()
        results = self._emitted
        self.begin()
        return results

    # --- for the kinds of windows ----------------------------------------------------------------

    def _reject_at(self, bundle: Bundle, position: int) -> None:
        """An element that no window takes any more."""
        tag = self._operation.late_data_tag
        if tag is None:
            self._late.inc()
            return
        self._emitted.add_side(tag, bundle.values[position])
        timestamps: Any = bundle.timestamps
        self._emitted.stamp(int(timestamps[position]), *bundle.place(position))

    def _emit_windows(self, ended: Iterable[tuple[int, int, Any, Any]]) -> None:
        """Call the function for windows, (start, end, key, content), in the order of their ends. While it
        runs the clock is where they end."""
        clock, scope, context = self.clock, self._scope, self._window_context
        call, result, add = self._caller, self._combining.result, self._emitted.add
        window: TimeWindow | None = None
        key, current = None, clock.current
        try:
            for start, end, key, content in ended:
                if window is None or end != window.end or start != window.start:
                    if window is not None and end != window.end:
                        self._stamp_timers(window)
                    window = TimeWindow(start, end)
                    clock.timestamp = end - 1
                    clock.watermark = max(clock.watermark, end - 1)
                    context.turn_to(key, (start, end), window)
                current.key = key
                scope.turn_to(key, (start, end))
                add(call(key, window, context, [result(content)]) or ())
        except Exception as problem:
            raise self.failed(problem, f"the window {window} for key {key!r}", None) from None
        if window is not None:
            self._stamp_timers(window)

    def _stamp_timers(self, window: TimeWindow) -> None:
        """What came since is of windows that end with this one."""
        self._emitted.stamp(window.end - 1, self.clock.watermark - 1, PHASE_EVENT_TIMER, 0)


def event_times(timestamps: list[int | None] | Numbers | None) -> Numbers:
    """The timestamps of elements; raises if one has none."""
    if timestamps is None or (isinstance(timestamps, list) and None in timestamps):
        event_time(None)
    times = numpy.asarray(timestamps, numpy.int64)
    event_time(int(times.min()))
    return times
