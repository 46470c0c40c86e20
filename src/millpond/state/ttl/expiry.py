"""When entries of a state with a time to live expire, and how they go if nobody reads them (E33).

In such a state every value, list element and map entry rests as (time, value): the time it was written, or
last read. Expired ones are removed when they are met, by a cleaner that looks at some entries after each
batch, and before a snapshot is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from millpond.common.time import MIN_TIMESTAMP
from millpond.core.key_groups import murmur_mix, stable_hash
from millpond.datastream.state_ttl import StateTtlConfig
from millpond.errors import ProgramError
from millpond.state.tables import DataTable, Timed

_THEN_REST = 4096
_AT_LEAST = (
    100  # a cleaner looks at so many entries after a batch, and at one more per entry written
)


class Clock(Protocol):
    """The time of a task. Both times are in milliseconds."""

    watermark: int
    processing_time_ms: int

    @property
    def event_time(self) -> int | None:
        """The event time of the record or event-time timer that is worked on; None if it has none."""


class Expiry:
    """The rules of one state: when its entries expire, by which clock."""

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        kinds = StateTtlConfig
        self._clock = clock
        self._ttl_ms = config.get_ttl().to_milliseconds()
        jitter = config.get_jitter()
        self._jitter_ms = 0 if jitter is None else jitter.to_milliseconds()
        self._by_event_time = (
            config.get_ttl_time_characteristic() is kinds.TtlTimeCharacteristic.EventTime
        )
        self.reading_counts = config.get_update_type() is kinds.UpdateType.OnReadAndWrite
        self.returns_expired = (
            config.get_state_visibility() is kinds.StateVisibility.ReturnExpiredIfNotCleanedUp
        )
        incremental = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
        self.clean_per_write = 0 if incremental is None else incremental.get_cleanup_size()

    def now_ms(self) -> int:
        """Return the time that an entry gets which is written now."""
        clock = self._clock
        if not self._by_event_time:
            return clock.processing_time_ms
        event_time = clock.event_time
        return clock.watermark if event_time is None else event_time

    def is_expired(self, key: object, time_ms: int) -> bool:
        """Return True if an entry with this time has expired."""
        return self.ends_at(key, time_ms) <= self.clock_ms()

    def clock_ms(self) -> int:
        """Return the time that entries expire by: the watermark, or processing time."""
        clock = self._clock
        return clock.watermark if self._by_event_time else clock.processing_time_ms

    def latest_round_ms(self) -> int:
        """Return when a cleaner must look again at the latest: event time may go back, and other keys have
        other ends, so never wait longer than a life."""
        return self.clock_ms() + self._ttl_ms

    def ends_at(self, key: object, time_ms: int) -> int:
        """Return when an entry with this time expires."""
        if time_ms == MIN_TIMESTAMP:  # written before event time began
            time_ms = 0
        return time_ms + self._ttl_ms + (self._longer_ms(key) if self._jitter_ms else 0)

    def _longer_ms(self, key: object) -> int:
        """Return how much longer entries of a key live. It is the same in every process and run."""
        try:
            return murmur_mix(stable_hash(key)) % (self._jitter_ms + 1)
        except ProgramError:  # a window of the user's own in the key
            return 0


class Cleaner:
    """Removes expired entries of one table, a few at a time: round after round through all of them. A round
    begins when the first entry can have expired."""

    def __init__(self, table: DataTable, expiry: Expiry) -> None:
        self._table = table
        self.expiry = expiry
        self._round: Iterator[Any] | None = None  # locations that are still to be looked at
        self._earliest_end: int | None = None  # the earliest end of the entries seen in this round
        self._next_round_ms: int | None = None
        self._touched_before = 0  # how many entries had changed when clean_some was last called

    def clean_some(self) -> None:
        """Look at some entries, more if more were written, and remove those that have expired. Called after a
        batch."""
        per_write = self.expiry.clean_per_write
        if not per_write:
            return
        if self._round is None:
            if self._next_round_ms is not None and self.expiry.clock_ms() < self._next_round_ms:
                return
            self._round = self._table.locations()
            self._earliest_end = None
        touched = self._table.changed_count()
        written = touched - self._touched_before if touched >= self._touched_before else touched
        limit = per_write * (_AT_LEAST + written)
        for location in self._round:
            limit -= self._table.drop_expired(location, self._is_over)
            if limit <= 0:
                break
        else:
            self._round = None
            if self._earliest_end is not None:
                # Entries written since the round began mostly live longer than those that were there.
                self._next_round_ms = min(self._earliest_end, self.expiry.latest_round_ms())
        self._touched_before = self._table.changed_count()

    def clean_all(self) -> None:
        """Remove everything that has expired. Called before a snapshot."""
        for number, location in enumerate(self._table.locations(), 1):
            self._table.drop_expired(location, self._is_over)
            if number % _THEN_REST == 0:
                self._table.rest()  # what was looked at need not stay in memory

    def _is_over(self, key: object, timed: Timed) -> bool:
        if self.expiry.is_expired(key, timed[0]):
            return True
        end = self.expiry.ends_at(key, timed[0])
        if self._earliest_end is None or end < self._earliest_end:
            self._earliest_end = end
        return False


def set_times(table: DataTable, now_ms: int) -> None:
    """Give every value a time: the state gets a time to live, and what is there begins to live at
    `now_ms`."""
    table.change_all(lambda value: (now_ms, value))


def drop_times(table: DataTable) -> None:
    """Take the times away from all values: the state has no time to live any more."""
    table.change_all(lambda timed: timed[1])
