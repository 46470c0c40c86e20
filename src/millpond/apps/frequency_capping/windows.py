"""Windows: how long a view counts. It counts from its time up to, but not including, its `expiry`."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from abc import ABC, abstractmethod
from functools import lru_cache

from millpond.common.time import MIN_TIMESTAMP

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
NEVER = 1 << 62  # the expiry of what counts forever
DAY_MS = _UNITS_MS["d"]
_LONGEST_MS = 36_525 * DAY_MS
_FAR_MS = 200_000_000_000_000  # the year 8307; calendars end in 9999


class WindowError(ValueError):
    """A window or duration that cannot be understood; the text is the reason."""


def parse_duration(text: object) -> int:
    """Return the milliseconds of 90s, 15m, 12h, 5d, 2w, or a sum such as 1d12h. Raise WindowError for
    anything else, and for more than 100 years."""
    pattern = r"([0-9]{1,12})\s*(ms|[smhdw])\s*"
    if not isinstance(text, str) or not re.fullmatch(rf"\s*(?:{pattern})+", text):
        shown = repr(text) if len(repr(text)) < 40 else repr(text)[:40] + "..."
        raise WindowError(f"{shown} is not a duration such as 90s, 15m, 12h, 5d or 2w")
    found = sum(int(number) * _UNITS_MS[unit] for number, unit in re.findall(pattern, text))
    if found > _LONGEST_MS:
        raise WindowError(f"{text} is longer than 100 years; use lifetime instead")
    return found


class Window(ABC):
    """How long a view counts for a rule."""

    @abstractmethod
    def expiry(self, time_ms: int) -> int:
        """Return when a view with this time ceases to count. A later view never expires earlier."""

    @abstractmethod
    def first_after(self, time_ms: int) -> int:
        """Return the earliest time of a view whose expiry is later than `time_ms`."""

    @property
    @abstractmethod
    def longest_ms(self) -> int:
        """How long a view can count at most; NEVER if it counts forever."""


class RollingWindow(Window):
    """Views count for a fixed length of time."""

    def __init__(self, length_ms: int) -> None:
        self.longest_ms = length_ms  # type: ignore[misc]

    longest_ms = 0

    def expiry(self, time_ms: int) -> int:
        return time_ms + self.longest_ms

    def first_after(self, time_ms: int) -> int:
        return time_ms - self.longest_ms + 1


class Lifetime(Window):
    """Views count forever."""

    longest_ms = NEVER

    def expiry(self, time_ms: int) -> int:
        return NEVER

    def first_after(self, time_ms: int) -> int:
        return MIN_TIMESTAMP


class CalendarWindow(Window):
    """Views count until the end of their day or week (from Monday), in a time zone. `unit` is day or week."""

    def __init__(self, unit: str, time_zone: str) -> None:
        self._zone = zoneinfo.ZoneInfo(time_zone)
        self._days = 1 if unit == "day" else 7
        self._end_of = lru_cache(maxsize=64)(self._compute_end)
        self._end_of_minute = lru_cache(maxsize=1 << 14)(self._compute_end_of_minute)

    @property
    def longest_ms(self) -> int:
        return self._days * DAY_MS + 3_600_000  # one day may have 25 hours

    def expiry(self, time_ms: int) -> int:
        return self._end_of_minute(time_ms // 60_000)  # the offsets of zones are whole minutes

    def _compute_end_of_minute(self, minute: int) -> int:
        local = datetime.datetime.fromtimestamp(minute * 60, self._zone)
        return self._end_of(local.date())

    def first_after(self, time_ms: int) -> int:
        if time_ms <= 0:
            return MIN_TIMESTAMP
        time_ms = min(time_ms, _FAR_MS)
        day = datetime.datetime.fromtimestamp(time_ms / 1000, self._zone).date()
        return self._midnight(self._first_day(day))

    def _compute_end(self, day: datetime.date) -> int:
        return self._midnight(self._first_day(day) + datetime.timedelta(days=self._days))

    def _first_day(self, day: datetime.date) -> datetime.date:
        return day if self._days == 1 else day - datetime.timedelta(days=day.weekday())

    def _midnight(self, day: datetime.date) -> int:
        midnight = datetime.datetime(day.year, day.month, day.day, tzinfo=self._zone)
        return int(midnight.timestamp()) * 1000

    def __reduce__(self) -> tuple[type[CalendarWindow], tuple[str, str]]:
        return CalendarWindow, ("day" if self._days == 1 else "week", self._zone.key)


def parse_window(spec: object) -> Window:
    """Return the window for a duration such as 5d, for lifetime, or for {calendar: day, time_zone:
    Europe/Berlin}. Raise WindowError for anything else."""
    if spec == "lifetime":
        return Lifetime()
    if isinstance(spec, str):
        length_ms = parse_duration(spec)
        if length_ms < 1:
            raise WindowError("a window must be longer than 0")
        return RollingWindow(length_ms)
    if not isinstance(spec, dict):
        raise WindowError(f"{spec!r} is not a window: give a duration, lifetime, or a calendar")
    unknown = sorted(set(map(str, spec)) - {"calendar", "time_zone"})
    if unknown:
        raise WindowError(f"a window has no {', '.join(unknown)}; it has calendar and time_zone")
    if spec.get("calendar") not in ("day", "week"):
        raise WindowError(f"calendar must be day or week, not {spec.get('calendar')!r}")
    zone = spec.get("time_zone", "UTC")
    try:
        return CalendarWindow(spec["calendar"], zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise WindowError(f"there is no time zone {zone!r}") from None
