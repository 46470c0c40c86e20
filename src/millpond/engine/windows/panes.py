"""Tumbling and sliding windows in event time that combine their elements and fire when they end.

Content is kept by *pane*: the starts and ends of all windows cut time into panes. An element goes into one
pane, whatever the size and slide, and a window that ends is put together from its panes. So a window of a day
that slides by a minute costs one update per element, not 1,440.

The state is pane -> {key: content}. No timers are needed: all windows with the same start end together, and
the panes tell which windows have content. The content of panes that a batch touches is in `_open`, ready to
use; only what is needed beyond the batch is written to the state.

In a sliding window, elements are combined pane by pane: in the order of time, and within a pane in the order
of arrival.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy

from millpond.common.time import MIN_TIMESTAMP
from millpond.core.bundle import Bundle, Place
from millpond.core.codec import freeze, thaw, thaw_all
from millpond.core.columns import Numbers
from millpond.core.key_groups import order_of
from millpond.datastream.state import StateKind
from millpond.datastream.window import TimeWindow
from millpond.engine.context import TaskClock
from millpond.engine.windows.alignment import alignment_of
from millpond.engine.windows.batched import BatchedWindowOperator
from millpond.engine.windows.sliding_total import SlidingTotal, SlidingTotals
from millpond.errors import ProgramError
from millpond.plan.physical import OperatorPlan
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING, MapTable

_PANES = "_panes"
_FEW_PANES = 4  # putting up to this many panes together is cheaper than keeping totals
_NOTHING: dict[Any, Any] = {}


class PaneWindowOperator(BatchedWindowOperator):
    """Tumbling and sliding windows that combine their elements. `_open` is pane -> {key: content}."""

    _open: dict[int, dict[Any, Any]]

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self._size, self._slide, self._offset, self._pane = alignment_of(self._assigner)
        self._keeps_totals = self._size // self._pane > _FEW_PANES

    def bind(self, state: ShardState) -> None:
        self._table: MapTable = state.table(_PANES, StateKind.MAP)
        self._derived = state.derived

    # --- elements --------------------------------------------------------------------------------

    def take(self, bundle: Bundle) -> None:
        times, last = self._times(bundle, self._size), self._size - 1
        since = (times - self._offset) % self._slide
        last_starts = times - since
        # If the slide is larger than the size, there are gaps between windows.
        outside = since >= self._size
        late = self._lateness
        # Windows that end up to here are not kept any more.
        over = numpy.maximum(bundle.clocks, MIN_TIMESTAMP + late) - late
        too_late = numpy.where(outside, times, last_starts + last) <= over
        if too_late.any():
            values = bundle.open_values()
            for position in numpy.flatnonzero(too_late).tolist():
                self._reject_at(bundle, position, values[position])
        first_starts = last_starts - (last - since) // self._slide * self._slide
        if outside.any() or too_late.any():
            kept = numpy.flatnonzero(~outside & ~too_late)
            bundle = bundle.reordered(kept)
            times, first_starts, last_starts = times[kept], first_starts[kept], last_starts[kept]
        partly_late = numpy.flatnonzero(first_starts + last <= bundle.clocks)
        self._add_between(bundle, times, partly_late, first_starts, last_starts)

    def _add_between(
        self,
        bundle: Bundle,
        times: Numbers,
        partly_late: Numbers,
        first_starts: Numbers,
        last_starts: Numbers,
    ) -> None:
        """Add elements. When one of `partly_late` comes, some of its windows have ended: bring the clock
        there first, and fire these windows again."""
        values, keys = bundle.open_values(), thaw_all(bundle.keys or [])
        panes = (times - (times - self._offset) % self._pane).tolist()
        begin = 0
        for position in partly_late.tolist():
            before = slice(begin, position)
            self._add(values[before], keys[before], panes[before])
            clock, _, _ = place = bundle.place(position)
            self.fire(clock)
            self.clock.watermark = clock
            begin = position + 1
            here = slice(position, begin)
            self._add(values[here], keys[here], panes[here])
            starts = range(int(first_starts[position]), int(last_starts[position]) + 1, self._slide)
            self._added_late(keys[position], panes[position], starts, place)
        if begin:
            values, keys, panes = values[begin:], keys[begin:], panes[begin:]
        self._add(values, keys, panes)

    def _add(self, values: list[Any], keys: list[Any], panes: list[int]) -> None:
        added, data = self._combining.added, self._table.data
        current: int | None = None
        contents = stored = _NOTHING
        value = None
        try:
            for pane, key, value in zip(panes, keys, values, strict=True):
                if pane != current:
                    current, stored = pane, data.get(pane, _NOTHING)
                    contents = self._open.setdefault(pane, {})
                content = contents.get(key, MISSING)
                if content is MISSING and stored is not _NOTHING:
                    content = thaw(stored.get(key, MISSING))
                contents[key] = added(content, value)
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None

    def _added_late(self, key: object, pane: int, starts: range, place: Place) -> None:
        """Fire those windows of a late element again that have fired and are still kept."""
        clock, _, _ = place
        self._forget_total(key, pane)
        last, late = self._size - 1, self._lateness
        again = [start for start in starts if start + last <= clock < start + last + late]
        if again:
            contents = self._contents_of(key, again)
            for start in reversed(again):  # the newest first, in the order of the assigner
                self._emit_again(start, key, contents[start], place)

    def _contents_of(self, key: object, starts: list[int]) -> dict[int, Any]:
        """Return the content of windows, by start, for a key that has content in all of them."""
        total, done = SlidingTotal(), starts[0]
        contents = {}
        for start in starts:
            for pane, content in self._panes_of(key, range(done, start + self._size, self._pane)):
                total.add(pane, content, self._merge)
            done = start + self._size
            contents[start] = total.total(start, self._merge)
        return contents

    def _emit_again(self, start: int, key: object, content: object, place: Place) -> None:
        namespace = (start, start + self._size)
        window = TimeWindow(*namespace)
        self.clock.current.key = key
        try:
            results = self._call(key, namespace, window, [self._combining.result(content)])
            self._emitted.add_at(results, window.max_timestamp(), place)
        except Exception as problem:
            raise self.failed(problem, f"the window {window} for key {key!r}", None) from None

    # --- the end of windows ----------------------------------------------------------------------

    def fire(self, watermark: int) -> None:
        passed, last, late = self.clock.watermark, self._size - 1, self._lateness
        first_end, first_over = map(self._first_start_after, (passed, passed - late))
        if first_end + last > watermark and first_over + last + late > watermark:
            return
        panes = sorted(self._open.keys() | self._table.data.keys())
        over = self._windows(panes, first_over, watermark - late) if late else iter(())
        next_over = next(over, None)
        for start in self._windows(panes, first_end, watermark):
            while next_over is not None and next_over + late <= start:
                self._clear_windows(next_over)
                next_over = next(over, None)
            self._fire(start, panes)
        for start in () if next_over is None else chain([next_over], over):
            self._clear_windows(start)
        for pane in panes:
            last_start = pane - (pane - self._offset) % self._slide
            if last_start + self._size - 1 + late > watermark:
                break
            self._open.pop(pane, None)
            self._table.clear(pane)
        else:
            self._derived.clear()

    def _first_start_after(self, clock: int) -> int:
        """Return the start of the first window that ends after `clock`."""
        ends_from = clock + 1 - (self._size - 1)
        return ends_from + (self._offset - ends_from) % self._slide

    def _windows(self, panes: list[int], start: int, watermark: int) -> Iterator[int]:
        """Yield the starts of windows with content, from `start` on, that end at or before `watermark`."""
        while start + self._size - 1 <= watermark:
            index = bisect_left(panes, start)
            if index == len(panes):
                return
            pane = panes[index]
            if pane < start + self._size:
                yield start
                start += self._slide
            else:  # no content for a while
                start = self._first_start_after(pane - 1)

    def _fire(self, start: int, panes: list[int]) -> None:
        end = start + self._size
        contents = self._totals(start, panes) if self._keeps_totals else self._contents(start)
        if not self.clock.keeps_order:  # the order in the state differs from that in the batch
            contents = dict(sorted(contents.items(), key=lambda content: order_of(content[0])))
        self._emit_windows(
            zip(repeat(start), repeat(end), contents, contents.values()), is_over=not self._lateness
        )

    def _clear_windows(self, start: int) -> None:
        """Clear what the function keeps for windows that begin at `start`. They are no longer kept, not even
        for late elements."""
        if self._has_own_state():
            namespace = (start, start + self._size)
            self.clock.watermark = max(self.clock.watermark, namespace[1] - 1 + self._lateness)
            keys: dict[Any, None] = {}
            for pane in range(*namespace, self._pane):
                keys.update(dict.fromkeys(self._table.data.get(pane, ())))
                keys.update(dict.fromkeys(self._open.get(pane, ())))
            for key in keys:
                self._clear_function(key, namespace, TimeWindow(*namespace))

    def _contents(self, start: int) -> dict[Any, Any]:
        """Return the content of a window for each key, put together from its panes."""
        contents = self._pane_contents(start)
        for pane in range(start + self._pane, start + self._size, self._pane):
            for key, content in self._pane_contents(pane).items():
                if key in contents:
                    contents[key] = self._merge(contents[key], content)
                else:
                    contents[key] = content
        return contents

    def _pane_contents(self, pane: int) -> dict[Any, Any]:
        """Return the content of a pane by key, in the order in which keys came. The caller may change it."""
        stored, opened = self._table.data.get(pane), self._open.get(pane, _NOTHING)
        if self._pane == self._size and not self._lateness and not stored:
            return opened  # nobody will ask for it again
        at_rest = dict(stored.items()) if stored else {}
        at_rest.update((key, freeze(content)) for key, content in opened.items())
        return {key: thaw(content) for key, content in at_rest.items()}

    def _panes_of(self, key: object, panes: range) -> Iterator[tuple[int, Any]]:
        """Yield those panes that have content for a key, with the content at rest."""
        for pane in panes:
            content = self._open.get(pane, _NOTHING).get(key, MISSING)
            if content is MISSING:
                content = self._table.data.get(pane, _NOTHING).get(key, MISSING)
            if content is not MISSING:
                yield pane, freeze(content)

    def _merge(self, first: object, second: object) -> object:
        merged = self._combining.merged(first, second)
        if merged is None:
            raise ProgramError(
                f"{type(self._operation.combine).__name__}.merge returned None. A sliding window is put "
                "together from parts, so merge must return an accumulator of both."
            )
        return merged

    # --- windows of many panes -------------------------------------------------------------------

    def _totals(self, start: int, panes: list[int]) -> dict[Any, Any]:
        totals = self._derived.get(_PANES)
        end = start + self._size
        if totals is None or totals.end >= end:  # they may be ahead if the batch is run again
            totals = self._derived[_PANES] = SlidingTotals(self._merge)
        for pane in panes[bisect_left(panes, max(start, totals.end)) : bisect_left(panes, end)]:
            opened, stored = self._open.get(pane, _NOTHING), self._table.data.get(pane, _NOTHING)
            for key, content in stored.items():
                if key not in opened:
                    totals.add(key, pane, content)
            for key, content in opened.items():
                totals.add(key, pane, freeze(content))
        totals.end = end
        return totals.of_window(start)

    def _forget_total(self, key: object, pane: int) -> None:
        """Compute the total of a key again if a pane has changed after it was added to the total."""
        totals = self._derived.get(_PANES)
        if totals is not None and pane < totals.end:
            totals.remove(key)
            window = range(totals.end - self._size, totals.end, self._pane)
            for start, content in self._panes_of(key, window):
                totals.add(key, start, content)

    def _rest(self) -> None:
        for pane, contents in self._open.items():
            for key, content in contents.items():
                self._table.put(pane, key, freeze(content))
