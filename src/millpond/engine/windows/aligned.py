"""Tumbling and sliding windows in event time that keep their elements, because the function wants them all.

Elements are kept by pane, as in `pane_window_operator.py`, so each is kept once however many windows it is
in. Each key with content has a timer for the next of its windows; that one sets the timer of the next after
it, as long as panes are left.

A sliding window gives its elements pane by pane: in the order of time, and of arrival within a pane.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from millpond.core.codec import thaw
from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.engine.context import TaskClock, TaskRuntimeContext
from millpond.engine.windows.general import Stamped, WindowOperator, at_rest
from millpond.plan.physical import OperatorPlan
from millpond.state.key_group_state import KeyGroupState


class AlignedWindowOperator(WindowOperator):
    """The timer of a window has its start as namespace; the one that ends its lateness, (start,)."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        assigner: Any = self._assigner
        self._size: int = assigner.size
        self._slide: int = getattr(assigner, "slide", assigner.size)
        self._offset: int = assigner.offset
        self._pane = gcd(self._size, self._slide)
        self._slides = self._slide < self._size

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._table: Any = None
        self._timers: Any = None
        self.clock.bound.append(self)

    def bind(self, state: KeyGroupState) -> None:
        self._table = self._content.table
        self._timers = state.event_timers

    # --- elements --------------------------------------------------------------------------------

    def _element(self, value: Any, _: Any) -> list[Stamped] | None:
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

    def _reject_if_late(self, value: Any, timestamp: int) -> list[Stamped]:
        """No window takes the element."""
        results: list[Stamped] = []
        if self._ends_at(timestamp) <= self.clock.watermark:
            self._reject(value, timestamp, results)
        return results

    def _add_late(self, key: Any, starts: range, watermark: int) -> list[Stamped]:
        """Some windows of the element have ended: those that are still kept fire again."""
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

    def _set_timer(self, key: Any, start: int) -> None:
        self._timers.register(start + self._size - 1, key, start)

    def _set_cleanup(self, key: Any, start: int) -> None:
        self._timers.register(self._ends_at(start + self._size - 1), key, (start,))

    # --- timers ----------------------------------------------------------------------------------

    def _timer(self, time_ms: int, _: Any) -> list[Stamped] | None:
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

    def _elements(self, key: Any, start: int) -> list[Any]:
        """What the window holds, at rest."""
        data, panes = self._table.data, range(start, start + self._size, self._pane)
        return [element for pane in panes for element in data.get((key, pane), ())]

    def _fire(self, key: Any, start: int, results: list[Stamped]) -> None:
        elements = [thaw(element) for element in self._elements(key, start)]
        if not elements:
            return
        end = start + self._size
        for value in self._call(key, (start, end), TimeWindow(start, end), elements):
            results.append((at_rest(value), end - 1))

    def _end(self, key: Any, start: int) -> None:
        """A window is over for good: drop the panes that no later one needs, and its own state."""
        for pane in range(start, start + min(self._slide, self._size), self._pane):
            if (key, pane) in self._table.data:
                self._scope.turn_to(key, pane)
                self._content.clear()
        if self._has_own_state():
            end = start + self._size
            self._clear_function(key, (start, end), TimeWindow(start, end))
