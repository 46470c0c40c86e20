"""Sources that need no other system: a collection, a range of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import (
    RECORDS_AT_ONCE,
    Source,
    SplitEnumerator,
    SplitWork,
)
from millpond.datastream.functions import RuntimeContext


class ListEnumerator(SplitEnumerator):
    """Hands out a list as a single split."""

    def __init__(self, records: list[Any]) -> None:
        super().__init__()
        self._records = records
        self._next = 0

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        chunk = self._records[self._next : self._next + max_records]
        self._next += len(chunk)
        return [SplitWork(0, chunk)] if chunk else []

    def position(self) -> int:
        return self._next

    def restore(self, position: int) -> None:
        self._next = position

    def ended(self) -> list[bool]:
        return [self._next >= len(self._records)]

    def backlog(self) -> int:
        return max(0, len(self._records) - self._next)


class CollectionSource(Source):
    """The elements of a list, in order. A program that is restarted must give the same list again."""

    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return ListEnumerator(self._records)

    def read(self, arguments: list[Any]) -> Iterator[tuple[Any, int | None]]:
        return ((value, None) for value in arguments)

    def read_many(
        self, arguments: list[Any]
    ) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        for start in range(0, len(arguments), RECORDS_AT_ONCE):
            yield arguments[start : start + RECORDS_AT_ONCE], None

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers get the records of each batch with its plan; they never need the whole list.
        return CollectionSource, ([],)


class _RangeEnumerator(SplitEnumerator):
    """Divides [start, end] into one range per split and reads them side by side."""

    def __init__(self, start: int, end: int, splits: int) -> None:
        super().__init__()
        total = max(0, end - start + 1)
        splits = max(1, min(splits, total))
        bounds = [start + total * i // splits for i in range(splits + 1)]
        self._ranges = [[bounds[i], bounds[i + 1]] for i in range(splits)]

    def split_count(self) -> int:
        return len(self._ranges)

    def poll(self, max_records: int) -> list[SplitWork]:
        works = []
        share = max(1, max_records // len(self._ranges))
        for split, bounds in enumerate(self._ranges):
            first, end = bounds
            last = min(first + share, end)
            if last > first and split not in self.paused:
                works.append(SplitWork(split, (first, last)))
                bounds[0] = last
        return works

    def position(self) -> list[list[int]]:
        return [list(bounds) for bounds in self._ranges]

    def restore(self, position: list[list[int]]) -> None:
        self._ranges = [list(bounds) for bounds in position]

    def ended(self) -> list[bool]:
        return [first >= end for first, end in self._ranges]

    def backlog(self) -> int:
        return sum(max(0, end - first) for first, end in self._ranges)


class NumberSequenceSource(Source):
    """The numbers from `start` to `end`, both included. With a single split they come in order."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._end = end

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _RangeEnumerator(self._start, self._end, parallelism)

    def read(self, arguments: tuple[int, int]) -> Iterator[tuple[Any, int | None]]:
        return ((number, None) for number in range(*arguments))
