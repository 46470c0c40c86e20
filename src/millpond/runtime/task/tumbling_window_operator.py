"""Tumbling windows in event time that combine their elements (reduce, aggregate) and fire when they end.

All windows with the same start end together, so no timers are needed: the state is start -> {key: content},
and the starts tell what is due. The content of windows that a batch touches is in `_open`, ready to use;
only what is open beyond the batch comes to rest in the state.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import numpy

from millpond.datastream.state import StateKind
from millpond.datastream.window import TimeWindow
from millpond.plan.physical import OperatorPlan
from millpond.runtime.task.batched_window_operator import BatchedWindowOperator, event_times
from millpond.runtime.task.bundle import Bundle, Place
from millpond.runtime.task.codec import freeze, thaw, thaw_all
from millpond.runtime.task.context import TaskClock
from millpond.state.key_group_state import KeyGroupState
from millpond.state.tables import MISSING

_WINDOWS = "_windows"
_NOTHING: dict[Any, Any] = {}


class TumblingWindowOperator(BatchedWindowOperator):
    """`_open`: start -> {key: content}."""

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        assigner: Any = self._assigner
        self._size: int = assigner.size
        self._offset: int = assigner.offset

    def bind(self, state: KeyGroupState) -> None:
        self._table: Any = state.table(_WINDOWS, StateKind.MAP)

    # --- elements --------------------------------------------------------------------------------

    def take(self, bundle: Bundle) -> None:
        times = event_times(bundle.timestamps)
        starts = times - (times - self._offset) % self._size
        is_late = starts + (self._size - 1) <= bundle.clocks
        if not is_late.any():
            self._add(bundle.open_values(), thaw_all(bundle.keys or []), starts.tolist())
            return
        too_late = is_late & (starts + (self._size - 1 + self._lateness) <= bundle.clocks)
        for position in numpy.flatnonzero(too_late).tolist():
            self._reject_at(bundle, position)
        kept = numpy.flatnonzero(~too_late)
        bundle, starts, is_late = bundle.reordered(kept), starts[kept], is_late[kept]
        values, keys, all_starts = (
            bundle.open_values(),
            thaw_all(bundle.keys or []),
            starts.tolist(),
        )
        begin = 0
        for position in numpy.flatnonzero(
            is_late
        ).tolist():  # its window has fired, and fires again
            before = slice(begin, position)
            self._add(values[before], keys[before], all_starts[before])
            clock, _, _ = place = bundle.place(position)
            self.fire(clock)
            self.clock.watermark = clock
            begin = position + 1
            late = slice(position, begin)
            self._add(values[late], keys[late], all_starts[late])
            start, key = all_starts[position], keys[position]
            self._emit_again(start, key, place)
        self._add(values[begin:], keys[begin:], all_starts[begin:])

    def _add(self, values: list[Any], keys: list[Any], starts: list[int]) -> None:
        added, data = self._combining.added, self._table.data
        current: int | None = None
        contents = stored = _NOTHING
        value = None
        try:
            for start, key, value in zip(starts, keys, values, strict=True):
                if start != current:
                    current, stored = start, data.get(start, _NOTHING)
                    contents = self._open.setdefault(start, {})
                content = contents.get(key, MISSING)
                if content is MISSING and stored:
                    content = thaw(stored.get(key, MISSING))
                contents[key] = added(content, value)
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None

    def _emit_again(self, start: int, key: Any, place: Place) -> None:
        namespace = (start, start + self._size)
        window = TimeWindow(*namespace)
        self.clock.current.key = key
        content = self._combining.result(self._open[start][key])
        try:
            results = self._call(key, namespace, window, [content])
            self._emitted.add_at(results, window.max_timestamp(), place)
        except Exception as problem:
            raise self.failed(problem, f"the window {window} for key {key!r}", None) from None

    # --- the end of windows ----------------------------------------------------------------------

    def fire(self, watermark: int) -> None:
        last, passed = self._size - 1, self.clock.watermark
        started = chain(self._open, self._table.data)
        for start in sorted({start for start in started if start + last <= watermark}):
            if start + last > passed or not self._lateness:  # else it has fired, and is only kept
                stored, opened = self._table.data.get(start), self._open.get(start, _NOTHING)
                contents = opened
                if stored:  # in the order in which the keys came
                    contents = {**{key: thaw(stored[key]) for key in stored}, **opened}
                end = start + self._size
                self._emit_windows(
                    zip(repeat(start), repeat(end), contents, contents.values(), strict=False)
                )
            if start + last + self._lateness <= watermark:
                self._drop(start)

    def _drop(self, start: int) -> None:
        """Windows are over for good."""
        opened = self._open.pop(start, _NOTHING)
        if self._has_own_state():
            namespace = (start, start + self._size)
            for key in {**self._table.data.get(start, _NOTHING), **opened}:
                self._clear_function(key, namespace, TimeWindow(*namespace))
        self._table.clear(start)

    def _rest(self) -> None:
        for start, contents in self._open.items():
            for key, content in contents.items():
                self._table.put(start, key, freeze(content))
