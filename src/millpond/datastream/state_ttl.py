"""Time to live of state (E33). Import it from `millpond.datastream.state`, as in PyFlink."""

from __future__ import annotations

from abc import ABC
from enum import Enum
from typing import Any

from millpond.common.time import Duration, Time
from millpond.errors import ProgramError


class StateTtlConfig:
    """Says when an entry of a state expires: some time after it was last written, or last read.

    Build one with `StateTtlConfig.new_builder(Time.days(5))...build()` and give it to a descriptor's
    `enable_time_to_live`. Each element of a list and each entry of a map expires on its own.
    """

    class UpdateType(Enum):
        """What makes the lifetime of an entry start over."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an entry that has expired but was not removed yet is returned, for the last time."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock that counts. EventTime is beyond PyFlink.

        With EventTime an entry has the timestamp of the record that wrote it, and expires when the watermark
        has advanced far enough.
        """

        ProcessingTime = 0
        EventTime = 1

    def __init__(
        self,
        update_type: StateTtlConfig.UpdateType,
        state_visibility: StateTtlConfig.StateVisibility,
        ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic,
        ttl: Time,
        cleanup_strategies: StateTtlConfig.CleanupStrategies,
        jitter: Time | None = None,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies
        self._jitter = jitter

    @staticmethod
    def new_builder(ttl: Time | Duration) -> StateTtlConfig.Builder:
        """Return a builder for this time to live; raise ProgramError unless it is above 0."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> StateTtlConfig.UpdateType:
        """Return what makes the lifetime of an entry start over."""
        return self._update_type

    def get_state_visibility(self) -> StateTtlConfig.StateVisibility:
        """Return whether expired entries may be returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> StateTtlConfig.TtlTimeCharacteristic:
        """Return the clock that counts."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Return True unless the update type is Disabled."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        """Return how expired entries are removed."""
        return self._cleanup_strategies

    def get_jitter(self) -> Time | None:
        """Return by how much longer, at most, an entry may live, depending on its key. Beyond PyFlink."""
        return self._jitter

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig({self._ttl}, {self._update_type.name}, {self._state_visibility.name}, "
            f"{self._ttl_time_characteristic.name})"
        )

    class Builder:
        """Builds a StateTtlConfig. Setters return the builder itself."""

        def __init__(self, ttl: Time | Duration) -> None:
            self.set_ttl(ttl)
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._cleanup_in_background = True
            self._strategies: dict[Any, Any] = {}
            self._jitter: Time | None = None

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set what makes the lifetime of an entry start over; OnCreateAndWrite by default."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Let the lifetime start over when the entry is written."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Let the lifetime start over when the entry is written or read."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Set whether expired entries may be returned; NeverReturnExpired by default."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return an expired entry once more if it was not removed yet."""
            return self.set_state_visibility(
                StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            )

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired entries."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the clock that counts; ProcessingTime by default."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Count in processing time."""
            return self.set_ttl_time_characteristic(
                StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            )

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Count in event time. Beyond PyFlink."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

        def set_jitter(self, jitter: Time | Duration) -> StateTtlConfig.Builder:
            """Let keys live up to this much longer, each by a different amount. Beyond PyFlink.

            So entries that were written at the same time do not all expire at once.
            """
            self._jitter = _positive(jitter, "jitter")
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Keep expired entries out of snapshots. Millpond always does."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = (
                strategies.EMPTY_STRATEGY
            )
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Check `cleanup_size` entries for each entry that is written, and remove the expired ones.

            This happens at the end of a batch. Some entries are checked even where nothing was written, so
            `run_cleanup_for_every_record` has no effect. Raise ProgramError unless the size is above 0.
            """
            if cleanup_size < 1:
                raise ProgramError(
                    f"cleanup_incrementally takes a size above 0, not {cleanup_size}."
                )
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = (
                strategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Duration | None = None,
        ) -> StateTtlConfig.Builder:
            """Keep the setting for PyFlink programs. State in RocksDB is cleaned up incrementally, like
            all state."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                strategies.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                )
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired entries only when they are read, and from snapshots."""
            self._cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration) -> StateTtlConfig.Builder:
            """Set the time to live; raise ProgramError unless it is above 0."""
            self._ttl = _positive(ttl, "time to live")
            return self

        def build(self) -> StateTtlConfig:
            """Return the configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._strategies, self._cleanup_in_background),
                self._jitter,
            )

    class CleanupStrategies:
        """How expired entries that nobody reads are removed."""

        class Strategies(Enum):
            """The strategies by name."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy(ABC):
            """Base class of the strategies."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Checks some entries after each batch; see `Builder.cleanup_incrementally`."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                """Return how many entries are checked for each one that is written."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Return what was set. It has no effect."""
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Kept for PyFlink programs; see `Builder.cleanup_in_rocksdb_compact_filter`."""

            def __init__(
                self,
                query_time_after_num_entries: int,
                periodic_compaction_time: Duration | None = None,
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

            def get_query_time_after_num_entries(self) -> int:
                """Return what was set. It has no effect."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                """Return what was set; 30 days by default. It has no effect."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(self, strategies: dict[Any, Any], is_cleanup_in_background: bool) -> None:
            self._strategies = dict(strategies)
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            """Return False if `disable_cleanup_in_background` was called."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Return True if `cleanup_full_snapshot` was called."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """Return the incremental strategy: the one that was set, else the default of 5 entries; None
            without background cleanup."""
            default = self.IncrementalCleanupStrategy(5, False)
            return self._strategies.get(
                self.Strategies.INCREMENTAL_CLEANUP,
                default if self._is_cleanup_in_background else None,
            )

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> RocksdbCompactFilterCleanupStrategy | None:
            """Return the RocksDB strategy: the one that was set, else the default; None without background
            cleanup."""
            default = self.RocksdbCompactFilterCleanupStrategy(1000)
            return self._strategies.get(
                self.Strategies.ROCKSDB_COMPACTION_FILTER,
                default if self._is_cleanup_in_background else None,
            )


def _positive(time: Time | Duration, what: str) -> Time:
    if not isinstance(time, (Time, Duration)):
        raise TypeError(f"The {what} must be a Time or a Duration, not {type(time).__name__}.")
    positive = time if isinstance(time, Time) else Time.milliseconds(time.to_millis())
    if positive.to_milliseconds() <= 0:
        raise ProgramError(f"The {what} must be above 0 ms, not {positive.to_milliseconds()} ms.")
    return positive
