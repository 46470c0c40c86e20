"""Windows: the part of a stream that elements are grouped into."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

from millpond.common.time import MAX_TIMESTAMP

if TYPE_CHECKING:
    from millpond.datastream.window.assigners import MergingWindowAssigner


class Window(ABC):
    """Base class of windows. A window class of your own must be immutable, hashable and picklable."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp that still belongs to the window."""


class TimeWindow(Window):
    """The time from `start` (inclusive) to `end` (exclusive), in milliseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return True if the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window of this size that contains the timestamp."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        """Tell the callback which windows overlap or touch, and which window covers them."""
        groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for window in sorted(windows):
            if groups and groups[-1][0].intersects(window):
                cover, members = groups[-1]
                groups[-1] = (cover.cover(window), [*members, window])
            else:
                groups.append((window, [window]))
        for cover, members in groups:
            if len(members) > 1:
                callback.merge(members, cover)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __reduce__(self) -> tuple[Any, ...]:
        return TimeWindow, (self.start, self.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The n-th window of a key; `id` counts from 0."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002 (PyFlink's name)
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __lt__(self, other: CountWindow) -> bool:
        return self.id < other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return CountWindow, (self.id,)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The only window of a key."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window; it is always the same object."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __lt__(self, other: GlobalWindow) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[Any, ...]:
        return GlobalWindow, ()

    def __repr__(self) -> str:
        return "GlobalWindow()"


_GLOBAL = GlobalWindow()


class TimeWindowSerializer:
    """A serializer for assigners that name one, as PyFlink's do. Millpond itself does not use it."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        """Write a window to a stream, as two big-endian longs."""
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        """Read a window from a stream."""
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer:
    """A serializer for assigners that name one, as PyFlink's do. Millpond itself does not use it."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        """Write a window to a stream, as a big-endian long."""
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        """Read a window from a stream."""
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer:
    """A serializer for assigners that name one, as PyFlink's do. Millpond itself does not use it."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        """Write a window to a stream, as one byte."""
        stream.write(b"\0")

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        """Read a window from a stream."""
        stream.read(1)
        return GlobalWindow.get()
