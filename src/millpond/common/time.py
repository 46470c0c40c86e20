"""Spans and points of time, with PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass

MIN_TIMESTAMP = -(2**63)
MAX_TIMESTAMP = 2**63 - 1


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time. Millpond keeps milliseconds; nanoseconds are cut to them."""

    milliseconds: int

    @staticmethod
    def of_days(days: int) -> Duration:
        return Duration(days * 86_400_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        return Duration(hours * 3_600_000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        return Duration(millis)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        return Duration(minutes * 60_000)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        return Duration(nanos // 1_000_000)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        return Duration(seconds * 1000)

    def to_millis(self) -> int:
        return self.milliseconds


@dataclass(frozen=True)
class Time:
    """A span of time, as windows and TTL take it."""

    _milliseconds: int

    def to_milliseconds(self) -> int:
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        return Time(days * 86_400_000)


@dataclass(frozen=True, order=True)
class Instant:
    """A point on the time line, in seconds and nanoseconds since the epoch."""

    seconds: int
    nanos: int

    def to_epoch_milli(self) -> int:
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)
