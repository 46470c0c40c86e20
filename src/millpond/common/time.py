"""Durations and instants, with PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass

MIN_TIMESTAMP = -(2**63)
MAX_TIMESTAMP = 2**63 - 1


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time in whole milliseconds; nanoseconds are rounded down."""

    milliseconds: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of this many days."""
        return Duration(days * 86_400_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of this many hours."""
        return Duration(hours * 3_600_000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of this many milliseconds."""
        return Duration(millis)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of this many minutes."""
        return Duration(minutes * 60_000)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of so many nanoseconds, rounded down to milliseconds."""
        return Duration(nanos // 1_000_000)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration of this many seconds."""
        return Duration(seconds * 1000)

    def to_millis(self) -> int:
        """Return the duration in milliseconds."""
        return self.milliseconds


@dataclass(frozen=True)
class Time:
    """A length of time in milliseconds, as windows and time to live take it."""

    _milliseconds: int

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length of this many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length of this many seconds."""
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length of this many minutes."""
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length of this many hours."""
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return a length of this many days."""
        return Time(days * 86_400_000)


@dataclass(frozen=True, order=True)
class Instant:
    """A point in time: seconds since the Unix epoch, and nanoseconds within the second."""

    seconds: int
    nanos: int

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since the Unix epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant this many milliseconds after the Unix epoch."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)
