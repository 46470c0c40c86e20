"""Tumbling and sliding windows in event time that fire when they end: the windows most people use.

Elements are kept by *pane*: the stretches that the starts and ends of all windows cut time into. An
element goes into one pane, whatever the size and slide, and a window that ends is put together from its
panes. Each key with content has a timer for the next of its windows; that one sets the timer of the next
after it, as long as panes are left. So a window of a day that slides by a minute costs one update per
element, not 1,440.

In a sliding window elements are combined pane by pane: in the order of time, and of arrival within a pane.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from millpond.datastream.state import StateKind
from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.errors import ProgramError
from millpond.plan.physical import OperatorPlan
from millpond.runtime.task.codec import freeze, thaw
from millpond.runtime.task.combining import Combining
from millpond.runtime.task.context import TaskClock, TaskRuntimeContext
from millpond.runtime.task.sliding_total import SlidingTotal
from millpond.runtime.task.window_operator import Stamped, WindowOperator
from millpond.state.key_group_state import KeyGroupState
from millpond.state.tables import MISSING

_FEW_PANES = 4


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
        combine = self._operation.combine
        self._combining = Combining(combine)
        self._combine = self._combiner()
        # Putting few panes together is cheaper than keeping totals.
        self._keeps_totals = combine is not None and self._size // self._pane > _FEW_PANES
        self._table: Any = None
        self._timers: Any = None
        self.clock.bound.append(self)

    def bind(self, state: KeyGroupState) -> None:
        self._table = self._content.table
        self._timers = state.event_timers

    def _combiner(self) -> Callable[[Any, Any], Any] | None:
        """(content at rest or MISSING, element) -> content at rest; None if elements are kept, or if a
        declared type must be checked. Then the state does it."""
        if self._operation.combine is None or self._operation.content_type.check() is not None:
            return None
        added = self._combining.added
        return lambda old, value: freeze(added(thaw(old), value))

    # --- elements --------------------------------------------------------------------------------

    def _element(self, value: Any, _: Any) -> list[Stamped] | None:
        clock = self.clock
        timestamp, watermark = clock.timestamp, clock.watermark
        if timestamp is None:
            timestamp = event_time(timestamp)
        since = (timestamp - self._offset) % self._slide
        if since >= self._size:  # between windows that do not touch
            return self._reject_if_late(value, timestamp)
        last_start = timestamp - since
        if last_start + self._size - 1 + self._lateness <= watermark:
            return self._reject_if_late(value, timestamp)
        key = clock.current.key
        first_start = pane = last_start
        if self._slides:
            pane = timestamp - (timestamp - self._offset) % self._pane
            first_start -= (self._size - 1 - since) // self._slide * self._slide
        is_new = self._add_to_pane(key, pane, value)
        if first_start + self._size - 1 > watermark:
            if is_new:
                self._timers.register(first_start + self._size - 1, key, first_start)
            return None
        return self._add_late(key, range(first_start, last_start + 1, self._slide), watermark)

    def _reject_if_late(self, value: Any, timestamp: int) -> list[Stamped]:
        """No window takes the element."""
        results: list[Stamped] = []
        if self._ends_at(timestamp) <= self.clock.watermark:
            self._reject(value, timestamp, results)
        return results

    def _add_to_pane(self, key: Any, pane: int, value: Any) -> bool:
        """True if the pane had nothing before."""
        table, place = self._table, (key, pane)
        if self._combine is None:
            is_new = place not in table.data
            self._scope.turn_to(key, pane)
            self._content.add(value)
        else:
            old = table.data.get(place, MISSING)
            is_new = old is MISSING
            table.set(place, self._combine(old, value))
        if self._keeps_totals:
            total = self._totals().get(key)
            if total is not None and pane < total.end:
                del self._totals()[key]  # late: what was computed is no longer right
        return is_new

    def _totals(self) -> dict[Any, SlidingTotal]:
        """Of each key of this key group."""
        state = self.clock.state
        assert state is not None
        return state.derived

    def _add_late(self, key: Any, starts: range, watermark: int) -> list[Stamped]:
        """Some windows of the element have ended: those that are still kept fire again."""
        results: list[Stamped] = []
        for start in starts:
            ended_at = start + self._size - 1
            if ended_at > watermark:
                self._set_timer(key, start)
                break
            if ended_at + self._lateness > watermark:
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
        if self._slides and self._has_panes(key, namespace + self._slide):
            self._set_timer(key, namespace + self._slide)
        elif self._keeps_totals:
            self._totals().pop(key, None)
        if self._lateness:
            self._set_cleanup(key, namespace)
        else:
            self._end(key, namespace)
        return results

    def _has_panes(self, key: Any, start: int) -> bool:
        """True if the window that begins at `start`, one slide after the one that fires, has content."""
        data, first = self._table.data, start
        if self._keeps_totals:
            total = self._totals().get(key)
            if total is not None:
                if total.newest >= start:
                    return True
                first = max(start, total.end)
        return any((key, pane) in data for pane in range(first, start + self._size, self._pane))

    def _fire(self, key: Any, start: int, results: list[Stamped]) -> None:
        content = self._combined(key, start)
        if content is MISSING:
            return
        end = start + self._size
        window = TimeWindow(start, end)
        elements = content if self._content.kind is StateKind.LIST else [content]
        for value in self._call(key, (start, end), window, elements):
            results.append((value, end - 1))

    def _combined(self, key: Any, start: int) -> Any:
        """What the window holds: a list of elements, or one result; MISSING if it is empty."""
        data = self._table.data
        if self._keeps_totals:
            total = self._total(key, start)
            return total if total is MISSING else self._combining.result(total)
        if not self._slides and self._content.kind is not StateKind.LIST:
            content = data.get((key, start), MISSING)
            return content if content is MISSING else self._combining.result(thaw(content))
        panes = range(start, start + self._size, self._pane)
        found = [data[key, pane] for pane in panes if (key, pane) in data]
        if not found:
            return MISSING
        if self._content.kind is StateKind.LIST:
            return [thaw(element) for elements in found for element in elements]
        total = thaw(found[0])
        for content in found[1:]:
            total = self._merge(total, thaw(content))
        return self._combining.result(total)

    def _total(self, key: Any, start: int) -> Any:
        totals = self._totals()
        total = totals.get(key)
        end = start + self._size
        if total is None or total.end > end:  # a late window is not where the totals are
            total = SlidingTotal(start)
            if end - 1 >= self.clock.watermark:  # else nothing would ever remove it
                totals.setdefault(key, total)
        data = self._table.data
        for pane in range(max(total.end, start), end, self._pane):
            if (key, pane) in data:
                total.add(pane, data[key, pane], self._merge)
        total.end = end
        return total.total(start, self._merge)

    def _merge(self, first: Any, second: Any) -> Any:
        merged = self._combining.merged(first, second)
        if merged is None:
            raise ProgramError(
                f"{type(self._operation.combine).__name__}.merge returned None; a sliding window is put "
                "together from parts and needs it to return the accumulator of both."
            )
        return merged

    def _end(self, key: Any, start: int) -> None:
        """A window is over for good: drop the panes that no later one needs, and its own state."""
        remove = self._table.remove if self._combine is not None else self._clear_pane
        for pane in range(start, start + min(self._slide, self._size), self._pane):
            remove((key, pane))
        if self._has_own_state():
            end = start + self._size
            self._clear_function(key, (start, end), TimeWindow(start, end))

    def _clear_pane(self, place: tuple[Any, int]) -> None:
        if place in self._table.data:
            self._scope.turn_to(*place)
            self._content.clear()
