"""Tumbling and sliding windows in event time that keep their elements, because the function wants all of
them.

Elements are kept by pane, as in `panes.py`, so each is stored once, however many windows it is in. Each key
with content has a timer for the next of its windows, which sets the timer for the one after it, as long as
there are panes left.

A sliding window gives its elements pane by pane: in the order of time, and within a pane in the order of
arrival.
"""

from __future__ import annotations

from typing import Any

from millpond.core.codec import thaw
from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.engine.context import TaskClock, TaskRuntimeContext
from millpond.engine.windows.alignment import alignment_of
from millpond.engine.windows.general import Stamped, WindowOperator, at_rest
from millpond.plan.physical import OperatorPlan
from millpond.state.shard_state import ShardState
from millpond.state.tables import DataTable
from millpond.state.timers import Timers


class AlignedWindowOperator(WindowOperator):
    """The timer of a window has its start as namespace; the timer that ends its lateness, (start,)."""

    _table: DataTable
    _timers: Timers

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._size, self._slide, self._offset, self._pane = alignment_of(self._assigner)
        self._slides = self._slide < self._size

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self.clock.bound.append(self)

    def bind(self, state: ShardState) -> None:
        """Turn to the state of a shard."""
        self._table = self._content.table
        self._timers = state.event_timers

    # --- elements --------------------------------------------------------------------------------

    def _element(self, value: object, _: object) -> list[Stamped] | None:
        clock = self.clock
        timestamp, watermark = event_time(clock.timestamp), clock.watermark
        since = (timestamp - self._offset) % self._slide
        last_start = timestamp - since
        if (
            since >= self._size  # between windows that do not touch
            or last_start + self._size - 1 + self._lateness <= watermark
        ):
            return self._reject_if_late(value, timestamp)
        key = clock.current.key
        pane = timestamp - (timestamp - self._offset) % self._pane
        first_start = last_start - (self._size - 1 - since) // self._slide * self._slide
        is_new = (key, pane) not in self._table.data
        self._scope.turn_to(key, pane)
        self._content.add(value)
        if first_start + self._size - 1 > watermark:
            if is_new:
                self._set_timer(key, first_start)
            return None
        return self._add_late(key, range(first_start, last_start + 1, self._slide), watermark)

    def _reject_if_late(self, value: object, timestamp: int) -> list[Stamped]:
        """Return what becomes of an element that no window takes: it may be between windows, or late."""
        results: list[Stamped] = []
        if self._ends_at(timestamp) <= self.clock.watermark:
            self._reject(value, timestamp, results)
        return results

    def _add_late(self, key: object, starts: range, watermark: int) -> list[Stamped]:
        """Fire the windows of an element again that have ended and are still kept. Return the results."""
        results: list[Stamped] = []
        last = self._size - 1
        to_come = next((start for start in starts if start + last > watermark), None)
        if to_come is not None:
            self._set_timer(key, to_come)
        for start in reversed(starts):  # the newest first, as the assigner lists them
            if start + last <= watermark < start + last + self._lateness:
                self._fire(key, start, results)
                self._set_cleanup(key, start)
        return results

    def _set_timer(self, key: object, start: int) -> None:
        self._timers.register(start + self._size - 1, key, start)

    def _set_cleanup(self, key: object, start: int) -> None:
        self._timers.register(self._ends_at(start + self._size - 1), key, (start,))

    # --- timers ----------------------------------------------------------------------------------

    def _timer(self, time_ms: int, _: object) -> list[Stamped] | None:
        key, namespace = self.clock.current.key, self.clock.current.namespace
        if type(namespace) is tuple:
            self._end(key, namespace[0])
            return None
        results: list[Stamped] = []
        self._fire(key, namespace, results)
        if self._slides and self._elements(key, namespace + self._slide):
            self._set_timer(key, namespace + self._slide)
        if self._lateness:
            self._set_cleanup(key, namespace)
        else:
            self._end(key, namespace)
        return results

    def _elements(self, key: object, start: int) -> list[Any]:
        """Return the elements of a window, at rest."""
        data, panes = self._table.data, range(start, start + self._size, self._pane)
        return [element for pane in panes for element in data.get((key, pane), ())]

    def _fire(self, key: object, start: int, results: list[Stamped]) -> None:
        elements = [thaw(element) for element in self._elements(key, start)]
        if not elements:
            return
        end = start + self._size
        for value in self._call(key, (start, end), TimeWindow(start, end), elements):
            results.append((at_rest(value), end - 1))

    def _end(self, key: object, start: int) -> None:
        """End a window for good: drop the panes that no later window needs, and its own state."""
        for pane in range(start, start + min(self._slide, self._size), self._pane):
            if (key, pane) in self._table.data:
                self._scope.turn_to(key, pane)
                self._content.clear()
        if self._has_own_state():
            end = start + self._size
            self._clear_function(key, (start, end), TimeWindow(start, end))
