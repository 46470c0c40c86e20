"""Packs the times of views, in ascending order, into a value of state: 8 bytes each, little-endian.

Bytes take a third of the space of a tuple of numbers, and cost the same to keep however many there are.
"""

from __future__ import annotations

import bisect
import struct

_ONE = struct.Struct("<q")
TIME_SIZE = _ONE.size
one_time = _ONE.pack


def pack(times: tuple[int, ...]) -> bytes:
    """Return ascending times as bytes."""
    return struct.pack(f"<{len(times)}q", *times)


def unpack(packed: bytes | None) -> tuple[int, ...]:
    """Return the times in bytes; none for None."""
    return () if packed is None else struct.unpack(f"<{len(packed) // TIME_SIZE}q", packed)


def first(packed: bytes) -> int:
    """Return the earliest time. There must be one."""
    return _ONE.unpack_from(packed)[0]  # type: ignore[no-any-return]


def last(packed: bytes) -> int:
    """Return the latest time. There must be one."""
    return _ONE.unpack_from(packed, len(packed) - TIME_SIZE)[0]  # type: ignore[no-any-return]


def count(packed: bytes) -> int:
    """Return the number of times."""
    return len(packed) // TIME_SIZE


def with_time(packed: bytes, time_ms: int) -> bytes:
    """Insert a time in order, after any that are equal, and return all. There must be at least one."""
    if time_ms >= _ONE.unpack_from(packed, len(packed) - TIME_SIZE)[0]:
        return packed + one_time(time_ms)
    index = bisect.bisect_right(unpack(packed), time_ms) * TIME_SIZE
    return packed[:index] + one_time(time_ms) + packed[index:]


def without_time(packed: bytes, time_ms: int) -> bytes:
    """Return the times without one that equals `time_ms`, if there is one."""
    times = unpack(packed)
    index = bisect.bisect_left(times, time_ms)
    if index == len(times) or times[index] != time_ms:
        return packed
    return packed[: index * TIME_SIZE] + packed[(index + 1) * TIME_SIZE :]
