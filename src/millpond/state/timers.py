"""Timers of one shard in one time domain (E23, C12, C13)."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from millpond.core.codec import are_immutable
from millpond.core.columns import decode_list, encode_list
from millpond.state.grouping import Grouping, side_by_side

# (time, key, namespace); namespaces are windows, None outside of them
TimerId = tuple[int, Any, Any]
NEVER_MS = 1 << 63
_SPAN_BITS = 20  # timers are sorted in spans of 2**20 ms, about 17 minutes
_time_of = itemgetter(0)
_key_of = itemgetter(1)
_namespace_of = itemgetter(2)


class TimerChanges(NamedTuple):
    """Timers that went, those that came and, if the order of equal times depends on it, the numbers of the
    latter in the order of registration."""

    gone: list[TimerId]
    came: list[TimerId]
    numbers: list[int]

    def encode(self) -> tuple[Any, ...]:
        """Return the changes as they are in change logs."""
        return tuple(encode_list(column) for column in (self.gone, self.came, self.numbers))

    def split(self, grouping: Grouping) -> dict[int, TimerChanges]:
        """Return the changes by the key groups of the timers' keys."""
        gone = grouping.split(list(map(_key_of, self.gone)), self.gone, with_keys=False)
        numbers = self.numbers or [0] * len(self.came)
        came = grouping.split(list(map(_key_of, self.came)), self.came, numbers, with_keys=False)
        return {
            group: TimerChanges(went, new, own_numbers if self.numbers else [])
            for group, (went, new, own_numbers) in side_by_side((1, gone), (2, came)).items()
        }

    @staticmethod
    def decode(encoded: tuple[Any, ...]) -> TimerChanges:
        """Return the changes in what `encode` returned. The numbers may be missing."""
        gone, came, *rest = map(decode_list, encoded)
        return TimerChanges(gone, came, rest[0] if rest else [])


class Timers(ABC):
    """A set of (time, key, namespace) that gives up its smallest. `next_ms` is never later than that."""

    next_ms: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def register(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Add a timer. Does nothing if it is there."""

    @abstractmethod
    def delete(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Remove a timer, if it is there."""

    @abstractmethod
    def next_time_ms(self) -> int | None:
        """Return when the earliest timer is due, or None if there is none."""

    @abstractmethod
    def pop_due(self, clock_ms: int) -> TimerId | None:
        """Remove and return the earliest timer if it is due at `clock_ms`, else return None. `next_ms` then
        says whether it is worth asking again."""

    @abstractmethod
    def has_changes(self) -> bool:
        """Return True if timers came or went since the last commit."""

    @abstractmethod
    def changes(self) -> TimerChanges:
        """Return what has changed since the last commit."""

    @abstractmethod
    def snapshot(self) -> TimerChanges:
        """Return all timers, in the form of changes."""

    def snapshot_parts(self) -> Iterator[TimerChanges]:
        """Return the snapshot in one or more parts."""
        yield self.snapshot()

    def apply(self, encoded: tuple[Any, ...]) -> None:
        """Take over what `changes` or `snapshot` returned, encoded, and commit."""
        changes = TimerChanges.decode(encoded)
        for timer in changes.gone:
            self.delete(*timer)
        for timer in changes.came:
            self.register(*timer)
        self.commit()

    @abstractmethod
    def commit(self) -> None:
        """Make the current timers those that `rollback` returns to."""

    @abstractmethod
    def rollback(self) -> bool:
        """Return to the timers at the last commit. Returns False if that cannot be done exactly: then they
        must be reloaded."""

    def has_plain_keys(self) -> bool:
        """Return whether all keys and namespaces are of Python's own types, or rest as bytes; False if that
        is not known."""
        return False

    def waiting_count(self) -> int:
        """Return how many changes are in memory only because they wait for the commit."""
        return 0

    def rest(self) -> None:
        """Give up memory that only served the batch that is over."""


class TimerQueue(Timers):
    """Timers in memory.

    Timers lie unsorted in spans of time: registering or deleting one is a dictionary access. When the clock
    enters a span, its timers are sorted into `_near`, the next one at the end. What is registered in such a
    span later on waits in the heap `_late`. `_spans` is the truth: timer -> its number in the order of
    registration, which is negative if it waits in `_late`. Entries of `_near` and `_late` that were deleted
    since have another number or none, and are skipped.

    Equal times fire in the order they were registered, also after a restore or a rollback: numbers are in
    the change log. A span whose timers did not come in the order of their numbers is in `_mixed`.
    """

    def __init__(self) -> None:
        self._spans: dict[int, dict[TimerId, int]] = {}
        self._mixed: set[int] = set()
        self._count = 0  # the highest number so far
        self._close_all()
        # Since the last commit: timers that came, and those that were there and are gone, with their numbers.
        self._came: dict[TimerId, None] = {}
        self._gone: dict[TimerId, int] = {}

    def _close_all(self) -> None:
        """Take no span as sorted."""
        self._far = list(self._spans)  # a heap of the spans that are not sorted yet
        heapq.heapify(self._far)
        self._near: list[TimerId] = []
        self._late: list[tuple[int, int, TimerId]] = []
        self._opened = -NEVER_MS  # the last span that was sorted into `_near`
        self._open: set[int] = set()  # spans up to it that may still hold timers
        self.next_ms = self._far[0] << _SPAN_BITS if self._far else NEVER_MS

    def __len__(self) -> int:
        return sum(map(len, self._spans.values()))

    def register(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Add a timer. Does nothing if it is there."""
        timer = (time_ms, key, namespace)
        span = time_ms >> _SPAN_BITS
        timers = self._spans.get(span)
        if timers is None:
            timers = self._new_span(span)
        elif timer in timers:
            return
        self._count = number = self._count + 1
        self._came[timer] = None
        if span <= self._opened:
            self._add_late(timer, number)
            number = -number
        timers[timer] = number

    def delete(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Remove a timer, if it is there."""
        timer = (time_ms, key, namespace)
        timers = self._spans.get(time_ms >> _SPAN_BITS)
        if timers is not None and timer in timers:
            self._remove(timer, timers)

    def next_time_ms(self) -> int | None:
        """Return when the earliest timer is due, or None if there is none."""
        timer = self._peek(NEVER_MS)
        if timer is None:
            return None
        self.next_ms = timer[0]
        return self.next_ms

    def pop_due(self, clock_ms: int) -> TimerId | None:
        """Remove and return the earliest timer if it is due at `clock_ms`, else return None."""
        near = self._near
        if near and not self._late:  # by far the most frequent case
            timer = near[-1]
            time_ms = timer[0]
            if time_ms > clock_ms:
                self.next_ms = time_ms
                return None
            timers = self._spans[time_ms >> _SPAN_BITS]
            if timer in timers:
                near.pop()
                number = timers.pop(timer)
                if timer in self._came:
                    del self._came[timer]
                else:
                    self._gone[timer] = number
                if near:
                    self.next_ms = near[-1][0]
                return timer
        earliest_timer = self._peek(clock_ms)
        if earliest_timer is None:
            return None
        timer, time_ms, near = earliest_timer, earliest_timer[0], self._near
        if time_ms > clock_ms:
            self.next_ms = time_ms
            return None
        if near and near[-1] is timer:
            near.pop()
        else:
            heapq.heappop(self._late)
        self._remove(timer, self._spans[time_ms >> _SPAN_BITS])
        self.next_ms = time_ms  # nothing is earlier; `_peek` will find out what comes next
        if near and not self._late:
            self.next_ms = near[-1][0]
        return timer

    def _peek(self, clock_ms: int) -> TimerId | None:
        """Return the earliest timer, at the end of `_near` or at the top of `_late`. Spans that begin after
        `clock_ms` are not looked into; if there are only such, return None."""
        spans, late = self._spans, self._late
        while True:
            near = self._near
            while near:
                timer = near[-1]
                if spans[timer[0] >> _SPAN_BITS].get(timer, 0) > 0:
                    break
                near.pop()
            while late:
                time_ms, number, other = late[0]
                if spans[time_ms >> _SPAN_BITS].get(other) == -number:
                    return other if not near or time_ms < near[-1][0] else near[-1]
                heapq.heappop(late)
            if near:
                return near[-1]
            if not self._far or self._far[0] << _SPAN_BITS > clock_ms:
                self.next_ms = self._far[0] << _SPAN_BITS if self._far else NEVER_MS
                return None
            self._open_next_span()

    def _remove(self, timer: TimerId, timers: dict[TimerId, int]) -> None:
        number = timers.pop(timer)
        if timer in self._came:
            del self._came[timer]
        else:
            self._gone[timer] = number

    # --- the log ---------------------------------------------------------------------------------

    def has_changes(self) -> bool:
        """Return True if timers came or went since the last commit."""
        return bool(self._came or self._gone)

    def changes(self) -> TimerChanges:
        """Return what has changed since the last commit."""
        return self._with_numbers(list(self._gone), list(self._came))

    def snapshot(self) -> TimerChanges:
        """Return all timers, in the form of changes."""
        return self._with_numbers([], [t for span in self._spans.values() for t in span])

    def _with_numbers(self, gone: list[TimerId], came: list[TimerId]) -> TimerChanges:
        spans = self._spans
        numbers = [abs(spans[timer[0] >> _SPAN_BITS][timer]) for timer in came]
        return TimerChanges(gone, came, numbers)

    def apply(self, encoded: tuple[Any, ...]) -> None:
        """Take over what `changes` or `snapshot` returned, encoded, and commit."""
        changes = TimerChanges.decode(encoded)
        for timer in changes.gone:
            self.delete(*timer)
        if changes.numbers:
            for timer, number in zip(changes.came, changes.numbers, strict=True):
                self._put(timer, number)
        else:
            for timer in changes.came:
                self.register(*timer)
        self.commit()

    def _put(self, timer: TimerId, number: int) -> None:
        """Put a timer where it belongs by its number. All spans must be closed, or it is a late one."""
        span = timer[0] >> _SPAN_BITS
        timers = self._spans.get(span)
        if timers is None:
            timers = self._new_span(span)
        if number <= self._count:
            self._mixed.add(span)
        self._count = max(self._count, number)
        if span <= self._opened:
            self._add_late(timer, number)
            number = -number
        timers[timer] = number

    def has_plain_keys(self) -> bool:
        """Return whether all keys and namespaces are of Python's own types."""
        timers = list(chain.from_iterable(self._spans.values()))
        return are_immutable(map(_key_of, timers)) and are_immutable(map(_namespace_of, timers))

    def commit(self) -> None:
        """Make the current timers those that `rollback` returns to."""
        self._came.clear()
        self._gone.clear()

    def rollback(self) -> bool:
        """Take back timers that came since the last commit, and put back those that went. Always possible."""
        for timer in self._came:
            del self._spans[timer[0] >> _SPAN_BITS][timer]
        for timer, number in self._gone.items():
            span = timer[0] >> _SPAN_BITS
            self._spans.setdefault(span, {})[timer] = number
            self._mixed.add(span)
        for span, timers in self._spans.items():
            if span <= self._opened:
                for timer, number in timers.items():
                    timers[timer] = abs(number)
        self._close_all()
        self.commit()
        return True

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

    def _add_late(self, timer: TimerId, number: int) -> None:
        late = self._late
        if len(late) > 64 and len(late) > 2 * sum(len(self._spans[span]) for span in self._open):
            late[:] = [e for e in late if self._spans[e[0] >> _SPAN_BITS].get(e[2]) == -e[1]]
            heapq.heapify(late)
        heapq.heappush(late, (timer[0], number, timer))
        if timer[0] < self.next_ms:
            self.next_ms = timer[0]

    def _open_next_span(self) -> None:
        """Sort the timers of the next span into `_near`, and drop spans that are empty by now. `_near` and
        `_late` are empty before."""
        span = heapq.heappop(self._far)
        for passed in [passed for passed in self._open if not self._spans[passed]]:
            del self._spans[passed]
            self._mixed.discard(passed)
            self._open.remove(passed)
        self._opened = span
        self._open.add(span)
        timers = self._spans[span]
        if span in self._mixed:
            self._mixed.remove(span)
            timers = self._spans[span] = {
                timer: abs(number)
                for timer, number in sorted(timers.items(), key=lambda item: abs(item[1]))
            }
        self._near = sorted(timers, key=_time_of)
        self._near.reverse()


def earliest(*times_ms: int | None) -> int | None:
    """Return the smallest of the times that are not None, or None if there is none."""
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    return min(known) if known else None
