"""Timers of one key group in one time domain (E23, C12, C13)."""

from __future__ import annotations

import heapq
from typing import Any

# (time, key, namespace); namespaces are windows, None outside of them
TimerId = tuple[int, Any, Any]


class TimerQueue:
    """A set of (time, key, namespace) that gives up its smallest.

    `_live` is the truth: timer -> registration number. The heap may hold entries that were deleted
    since; they are recognised by their number and skipped. Equal times fire in the order they were
    registered, also after a restore, because the numbers are part of the state.
    """

    def __init__(self) -> None:
        self._live: dict[TimerId, int] = {}
        self._heap: list[tuple[int, int, Any, Any]] = []
        self._next_number = 0
        # Timers touched since the last commit -> their number at that commit (None: not there).
        self._undo: dict[TimerId, int | None] = {}
        self._undo_number = 0

    def __len__(self) -> int:
        return len(self._live)

    def register(self, time_ms: int, key: Any, namespace: Any = None) -> None:
        timer = (time_ms, key, namespace)
        if timer in self._live:
            return
        number = self._next_number
        self._next_number = number + 1
        self._live[timer] = number
        heapq.heappush(self._heap, (time_ms, number, key, namespace))
        self._undo.setdefault(timer, None)

    def delete(self, time_ms: int, key: Any, namespace: Any = None) -> None:
        timer = (time_ms, key, namespace)
        number = self._live.pop(timer, None)
        if number is None:
            return
        self._undo.setdefault(timer, number)
        if len(self._heap) > 2 * len(self._live) + 64:
            self._rebuild_heap()

    def next_time_ms(self) -> int | None:
        """When the earliest timer is due; None if there is none."""
        heap, live = self._heap, self._live
        while heap:
            time_ms, number, key, namespace = heap[0]
            if live.get((time_ms, key, namespace)) == number:
                return time_ms
            heapq.heappop(heap)
        return None

    def pop_due(self, clock_ms: int) -> TimerId | None:
        """Remove and return the earliest timer if it is due at `clock_ms`."""
        time_ms = self.next_time_ms()
        if time_ms is None or time_ms > clock_ms:
            return None
        time_ms, number, key, namespace = heapq.heappop(self._heap)
        timer = (time_ms, key, namespace)
        del self._live[timer]
        self._undo.setdefault(timer, number)
        return timer

    def has_changes(self) -> bool:
        return bool(self._undo)

    def changes(self) -> tuple[int, dict[TimerId, int | None]]:
        """(next number, timer -> number or None if it is gone), since the last commit."""
        return self._next_number, {timer: self._live.get(timer) for timer in self._undo}

    def apply(self, changes: tuple[int, dict[TimerId, int | None]]) -> None:
        self._next_number, touched = changes
        for timer, number in touched.items():
            self._set(timer, number)
        self.commit()

    def snapshot(self) -> tuple[int, dict[TimerId, int | None]]:
        return self._next_number, dict(self._live)

    def commit(self) -> None:
        self._undo.clear()
        self._undo_number = self._next_number

    def rollback(self) -> None:
        for timer, number in self._undo.items():
            self._set(timer, number)
        self._next_number = self._undo_number
        self._undo.clear()

    def _set(self, timer: TimerId, number: int | None) -> None:
        if number is None:
            self._live.pop(timer, None)
        else:
            self._live[timer] = number
            heapq.heappush(self._heap, (timer[0], number, timer[1], timer[2]))

    def _rebuild_heap(self) -> None:
        self._heap = [(t, number, key, ns) for (t, key, ns), number in self._live.items()]
        heapq.heapify(self._heap)


def earliest(*times_ms: int | None) -> int | None:
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    return min(known) if known else None
