"""Timers of one key group in one time domain (E23, C12, C13)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Any

from millpond.runtime.task.columns import decode_list, encode_list

# (time, key, namespace); namespaces are windows, None outside of them
TimerId = tuple[int, Any, Any]
NEVER_MS = 1 << 63
_SPAN_BITS = 20  # timers are sorted in spans of 2**20 ms, about 17 minutes


class TimerQueue:
    """A set of (time, key, namespace) that gives up its smallest.

    Timers lie unsorted in spans of time: registering or deleting one is a dictionary access. Only when
    the clock enters a span, its timers are sorted into `_near`, a heap. `_spans` is the truth: timer ->
    registration number; heap entries of deleted timers are recognised by their number and skipped.
    Equal times fire in the order they were registered, also after a restore, because the numbers are
    part of the state.

    `next_ms` is never later than the earliest timer.
    """

    def __init__(self) -> None:
        self._spans: dict[int, dict[TimerId, int]] = {}
        self._far: list[int] = []  # heap of the spans that are not in `_near` yet
        self._near: list[tuple[int, int, TimerId]] = []
        self._opened = -NEVER_MS  # the last span that is in `_near`
        self._open: set[int] = set()  # spans up to it that may still hold timers
        self._next_number = 0
        self.next_ms = NEVER_MS
        # Since the last commit: timers registered, and (timer, number) of older ones that are gone.
        self._added: list[TimerId] = []
        self._gone: list[tuple[TimerId, int]] = []
        self._added_are_gone = False  # true if some of `_added` were removed again
        self._committed_number = 0

    def __len__(self) -> int:
        return sum(map(len, self._spans.values()))

    def register(self, time_ms: int, key: Any, namespace: Any = None) -> None:
        timer = (time_ms, key, namespace)
        span = time_ms >> _SPAN_BITS
        timers = self._spans.get(span)
        if timers is None:
            timers = self._new_span(span)
        elif timer in timers:
            return
        number = self._next_number
        self._next_number = number + 1
        timers[timer] = number
        self._added.append(timer)
        if span <= self._opened:
            heapq.heappush(self._near, (time_ms, number, timer))
            if time_ms < self.next_ms:
                self.next_ms = time_ms

    def delete(self, time_ms: int, key: Any, namespace: Any = None) -> None:
        timer = (time_ms, key, namespace)
        timers = self._spans.get(time_ms >> _SPAN_BITS)
        if timers is not None and timer in timers:
            self._remove(timer, timers)
            if len(self._near) > 64 and len(self._near) > 2 * self._count_near():
                self._rebuild_near()

    def next_time_ms(self) -> int | None:
        """When the earliest timer is due; None if there is none."""
        near = self._near
        while True:
            while near:
                time_ms, number, timer = near[0]
                if self._spans.get(time_ms >> _SPAN_BITS, {}).get(timer) == number:
                    self.next_ms = time_ms
                    return time_ms
                heapq.heappop(near)
            if not self._far:
                self.next_ms = NEVER_MS
                return None
            self._open_next_span()

    def due(self, clock_ms: int) -> Iterator[TimerId]:
        """Remove and yield timers that are due at `clock_ms`, the earliest first. Whoever takes one
        may register and delete others before it takes the next."""
        spans, heappop = self._spans, heapq.heappop
        while True:
            near = self._near
            while near:
                time_ms, number, timer = near[0]
                if time_ms > clock_ms:
                    self.next_ms = time_ms
                    return
                heappop(near)
                timers = spans.get(time_ms >> _SPAN_BITS)
                if timers is not None and timers.get(timer) == number:
                    self._remove(timer, timers)
                    yield timer
                    near = self._near
            if not self._far:
                self.next_ms = NEVER_MS
                return
            if self._far[0] << _SPAN_BITS > clock_ms:
                self.next_ms = self._far[0] << _SPAN_BITS
                return
            self._open_next_span()

    def pop_due(self, clock_ms: int) -> TimerId | None:
        """Remove and return the earliest timer if it is due at `clock_ms`."""
        return next(self.due(clock_ms), None)

    # --- the log ---------------------------------------------------------------------------------

    def has_changes(self) -> bool:
        return bool(self._added or self._gone)

    def changes(self) -> tuple[Any, ...]:
        """(next number, those that are gone, those that came, the numbers of these)."""
        gone = [timer for timer, _ in self._gone]
        if not self._added_are_gone:  # then they have been numbered one after the other
            return self._encoded(gone, self._added, self._committed_number)
        came: dict[TimerId, int] = {}
        for timer in self._added:
            timers = self._spans.get(timer[0] >> _SPAN_BITS)
            number = None if timers is None else timers.get(timer)
            if number is not None:
                came[timer] = number
        return self._encoded(gone, list(came), list(came.values()))

    def snapshot(self) -> tuple[Any, ...]:
        timers = [timer for span in self._spans.values() for timer in span]
        numbers = [number for span in self._spans.values() for number in span.values()]
        return self._encoded([], timers, numbers)

    def _encoded(
        self, gone: list[TimerId], came: list[TimerId], numbers: int | list[int]
    ) -> tuple[Any, ...]:
        """`numbers` is the first one if they follow each other."""
        encoded = numbers if isinstance(numbers, int) else encode_list(numbers)
        return self._next_number, encode_list(gone), encode_list(came), encoded

    def apply(self, changes: tuple[Any, ...]) -> None:
        self._next_number, gone, came, numbers = changes
        for timer in decode_list(gone):
            timers = self._spans.get(timer[0] >> _SPAN_BITS)
            if timers is not None:
                timers.pop(timer, None)
        each = count(numbers) if isinstance(numbers, int) else decode_list(numbers)
        for timer, number in zip(decode_list(came), each):  # noqa: B905 (count has no end)
            self._set(timer, number)
        self.commit()

    def commit(self) -> None:
        self._added.clear()
        self._gone.clear()
        self._added_are_gone = False
        self._committed_number = self._next_number

    def rollback(self) -> None:
        for timer in self._added:
            timers = self._spans.get(timer[0] >> _SPAN_BITS)
            if timers is not None and timers.get(timer, -1) >= self._committed_number:
                del timers[timer]
        for timer, number in self._gone:
            self._set(timer, number)
        self._next_number = self._committed_number
        self.commit()

    # --- spans -----------------------------------------------------------------------------------

    def _new_span(self, span: int) -> dict[TimerId, int]:
        timers: dict[TimerId, int] = {}
        self._spans[span] = timers
        if span <= self._opened:
            self._open.add(span)
        else:
            heapq.heappush(self._far, span)
            self.next_ms = min(self.next_ms, span << _SPAN_BITS)
        return timers

    def _open_next_span(self) -> None:
        """Sort the timers of the next span into `_near`; spans that are empty by now go."""
        span = heapq.heappop(self._far)
        for passed in [passed for passed in self._open if not self._spans[passed]]:
            del self._spans[passed]
            self._open.remove(passed)
        self._opened = span
        self._open.add(span)
        timers = self._spans[span]
        self._near.extend((timer[0], number, timer) for timer, number in timers.items())
        self._near.sort()  # a sorted list is a heap

    def _remove(self, timer: TimerId, timers: dict[TimerId, int]) -> None:
        number = timers.pop(timer)
        if number < self._committed_number:
            self._gone.append((timer, number))
        else:
            self._added_are_gone = True

    def _set(self, timer: TimerId, number: int) -> None:
        span = timer[0] >> _SPAN_BITS
        timers = self._spans.get(span)
        if timers is None:
            timers = self._new_span(span)
        timers[timer] = number
        if span <= self._opened:
            heapq.heappush(self._near, (timer[0], number, timer))
            self.next_ms = min(self.next_ms, timer[0])

    def _count_near(self) -> int:
        return sum(len(self._spans[span]) for span in self._open)

    def _rebuild_near(self) -> None:
        self._near = [
            (timer[0], number, timer)
            for span in self._open
            for timer, number in self._spans[span].items()
        ]
        heapq.heapify(self._near)


def earliest(*times_ms: int | None) -> int | None:
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    return min(known) if known else None
