"""Timers in an ordered store: more than fit into memory. See `state/timers.py` for what they do.

    prefix, time, key, namespace     nothing, or the timer itself if bytes do not tell it exactly

A timer is registered and deleted without reading. Equal times fire in the order of their keys' bytes. A part
of the store that was passed is never scanned again: what was deleted there would have to be skipped.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

from millpond.core.codec import are_immutable
from millpond.datastream.state_backend import OrderedStore
from millpond.state.ordered.key_bytes import KeyBytes, after, decode_key, encode_key, is_exact
from millpond.state.ordered.tables import ENTRIES_AT_ONCE
from millpond.state.ordered.values import kept_key, pack_with_key
from millpond.state.timers import NEVER_MS, TimerChanges, TimerId, Timers

_AT_ONCE = 512


class StoredTimers(Timers):
    """Timers in a region of an ordered store. New ones wait unsorted in `_later` until the clock comes near
    the first of them."""

    def __init__(self, store: OrderedStore, prefix: bytes, key_bytes: KeyBytes) -> None:
        self._store = store
        self._key_bytes = key_bytes
        self._prefix = prefix
        self._end = after(prefix)
        self._stored_from_ms = NEVER_MS  # no stored timer is earlier
        self._begin()

    def _begin(self) -> None:
        """Forget what waits to be written, and what was read."""
        self._came: dict[TimerId, bytes] = {}  # timer -> its address
        self._gone: dict[TimerId, bytes] = {}
        # A heap of timers that came; some of them may be gone again.
        self._sorted: list[tuple[bytes, TimerId]] = []
        self._later: list[tuple[bytes, TimerId]] = []
        self._later_ms = NEVER_MS  # no timer in `_later` is earlier
        self._read: deque[tuple[bytes, TimerId]] = (
            deque()
        )  # stored timers that were read ahead, in order
        self._read_until = self._prefix + encode_key(self._stored_from_ms)
        self._has_more = self._stored_from_ms < NEVER_MS
        self.next_ms = self._stored_from_ms

    def _address(self, time_ms: int, key: object, namespace: object) -> bytes:
        start = self._prefix + encode_key(time_ms) + self._key_bytes.of(key)
        return start + (b"\x01" if namespace is None else encode_key(namespace))

    def __len__(self) -> int:
        stored = {
            _timer(self._prefix, *found) for found in self._store.scan(self._prefix, self._end)
        }
        return len((stored - self._gone.keys()) | self._came.keys())

    def __bool__(self) -> bool:
        return self._peek(NEVER_MS) is not None

    def register(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Add a timer. Does nothing if it is there."""
        timer = (time_ms, key, namespace)
        if timer in self._came:
            return
        address = self._gone.pop(timer, b"") or self._address(*timer)
        self._came[timer] = address
        self._later.append((address, timer))
        if time_ms < self._later_ms:
            self._later_ms = time_ms
        if time_ms < self.next_ms:
            self.next_ms = time_ms

    def delete(self, time_ms: int, key: object, namespace: object = None) -> None:
        """Remove a timer, if it is there."""
        timer = (time_ms, key, namespace)
        self._gone[timer] = self._came.pop(timer, b"") or self._address(*timer)

    def next_time_ms(self) -> int | None:
        """Return when the earliest timer is due, or None if there is none."""
        found = self._peek(NEVER_MS)
        if found is None:
            return None
        self.next_ms = found[0]
        return self.next_ms

    def pop_due(self, clock_ms: int) -> TimerId | None:
        """Remove and return the earliest timer if it is due at `clock_ms`, else return None."""
        timer = self._peek(clock_ms)
        if timer is None:
            return None
        unread_ms = self._stored_from_ms if self._has_more and not self._read else NEVER_MS
        self.next_ms = min(timer[0], self._later_ms, unread_ms)
        if timer[0] > clock_ms:
            return None
        address = self._came.pop(timer, None)
        if self._read and self._read[0][1] == timer:
            self._gone[timer] = self._read.popleft()[0]
        elif address is not None and address < self._read_until:
            # It was stored and has fired before in this batch: the log must say that it is gone again.
            self._gone[timer] = address
        return timer

    def _peek(self, clock_ms: int) -> TimerId | None:
        """Return the earliest timer, of those that came and those that are stored. Stored ones are read only
        if they can be due at `clock_ms`."""
        came, waiting, read = self._came, self._sorted, self._read
        if self._later_ms <= clock_ms:
            for timer in self._later:
                heapq.heappush(waiting, timer)
            self._later.clear()
            self._later_ms = NEVER_MS
        while waiting and waiting[0][1] not in came:
            heapq.heappop(waiting)
        while True:
            while read and read[0][1] in self._gone:
                read.popleft()
            if read or not self._has_more or self._stored_from_ms > clock_ms:
                break
            self._read_some()
        if waiting and (not read or waiting[0][0] <= read[0][0]):
            return waiting[0][1]
        if read:
            return read[0][1]
        self.next_ms = min(self._later_ms, self._stored_from_ms if self._has_more else NEVER_MS)
        return None

    def _read_some(self) -> None:
        scan = self._store.scan(self._read_until, self._end)
        timers = [
            (address, _timer(self._prefix, address, data))
            for address, data in islice(scan, _AT_ONCE)
        ]
        self._has_more = len(timers) == _AT_ONCE
        if timers:
            self._read.extend(timers)
            self._read_until = timers[-1][0] + b"\x00"

    # --- the log ---------------------------------------------------------------------------------

    def has_changes(self) -> bool:
        """Return True if timers came or went since the last commit."""
        return bool(self._came or self._gone)

    def has_plain_keys(self) -> bool:
        """Return whether all timers in memory are of Python's own types; all others are bytes."""
        return are_immutable(chain(self._came, self._gone))

    def waiting_count(self) -> int:
        """Return how many changes wait in memory: all of them."""
        return len(self._came) + len(self._gone)

    def changes(self) -> TimerChanges:
        """Return what has changed since the last commit."""
        return TimerChanges(list(self._gone), list(self._came), [])

    def snapshot(self) -> TimerChanges:
        """Return all timers, in the form of changes."""
        (everything,) = self._pieces(sys.maxsize)
        return everything

    def snapshot_parts(self) -> Iterator[TimerChanges]:
        """Return the snapshot in parts of about ENTRIES_AT_ONCE timers."""
        return self._pieces(ENTRIES_AT_ONCE)

    def _pieces(self, size: int) -> Iterator[TimerChanges]:
        stored = (
            _timer(self._prefix, *found) for found in self._store.scan(self._prefix, self._end)
        )
        timers = chain(
            (timer for timer in stored if timer not in self._gone and timer not in self._came),
            list(self._came),
        )
        part = list(islice(timers, size))
        while True:
            yield TimerChanges([], part, [])
            part = list(islice(timers, size))
            if not part:
                return

    def commit(self) -> None:
        """Write what waits to the store."""
        if self.has_changes():
            puts = [
                (address, b"" if all(map(is_exact, timer)) else pack_with_key(timer, None))
                for timer, address in self._came.items()
            ]
            self._store.write(puts, self._gone.values())
        earliest = min((timer[0] for timer in self._came), default=NEVER_MS)
        self._stored_from_ms = min(self._first_stored_ms(), earliest)
        self._begin()

    def _first_stored_ms(self) -> int:
        """Return a time that no stored timer which is not gone is earlier than."""
        self.rest()
        if not self._has_more:
            return NEVER_MS
        return decode_key(self._read_until, len(self._prefix))[0]  # type: ignore[no-any-return]

    def rollback(self) -> bool:
        """Forget what waits to be written. Always possible."""
        self._begin()
        return True

    def rest(self) -> None:
        """Forget timers that were read ahead; they are read again when they are due."""
        while self._read and self._read[0][1] in self._gone:
            self._read.popleft()
        if self._read:
            self._read_until, self._has_more = self._read[0][0], True
            self._read.clear()


def _timer(prefix: bytes, address: bytes, data: bytes) -> TimerId:
    if data:
        kept: TimerId = kept_key(data)
        return kept
    time_ms, at = decode_key(address, len(prefix))
    key, at = decode_key(address, at)
    return time_ms, key, None if address[at] == 0x01 else decode_key(address, at)[0]
