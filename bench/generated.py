"""A source for benchmarks: numbered records, made where they are read, as many and as fast as told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.functions import RuntimeContext


class GeneratedSource(Source):
    """`batches` is a list of batch sizes. With `per_s` records appear at that rate instead, for
    `seconds`; a record is (number, milliseconds at which it appeared)."""

    def __init__(
        self, batches: list[int] | None = None, per_s: int = 0, seconds: float = 0
    ) -> None:
        self._batches = batches or []
        self._per_s = per_s
        self._seconds = seconds

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        if self._per_s:
            return _Paced(parallelism, self._per_s, self._seconds)
        return _Counted(parallelism, self._batches)

    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        for values, timestamps in self.read_many(arguments):
            yield from zip(values, timestamps or [None] * len(values), strict=True)

    def read_many(self, arguments: Any) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        first, last, start_ms, per_s = arguments
        numbers = range(first, last)
        if per_s:
            yield [(n, start_ms + n * 1000 // per_s) for n in numbers], None
        else:
            yield [(n, 0) for n in numbers], None


class _Enumerator(SplitEnumerator):
    def __init__(self, splits: int) -> None:
        super().__init__()
        self._splits = splits
        self._next = 0

    def split_count(self) -> int:
        return self._splits

    def position(self) -> int:
        return self._next

    def restore(self, position: int) -> None:
        self._next = position

    def _works(self, end: int, start_ms: int, per_s: int) -> list[SplitWork]:
        first, self._next = self._next, end
        bounds = [first + (end - first) * i // self._splits for i in range(self._splits + 1)]
        return [
            SplitWork(i, (bounds[i], bounds[i + 1], start_ms, per_s))
            for i in range(self._splits)
            if bounds[i + 1] > bounds[i]
        ]


class _Counted(_Enumerator):
    def __init__(self, splits: int, batches: list[int]) -> None:
        super().__init__(splits)
        self._batches = list(batches)

    def restore(self, position: int) -> None:
        super().restore(position)
        while self._batches and position > 0:
            position -= self._batches.pop(0)

    def poll(self, max_records: int) -> list[SplitWork]:
        if not self._batches:
            return []
        return self._works(self._next + self._batches.pop(0), 0, 0)

    def ended(self) -> list[bool]:
        return [not self._batches] * self._splits


class _Paced(_Enumerator):
    def __init__(self, splits: int, per_s: int, seconds: float) -> None:
        super().__init__(splits)
        self._per_s = per_s
        self._total = int(per_s * seconds)
        self._start_ms = 0

    def start(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000

    def poll(self, max_records: int) -> list[SplitWork]:
        now_ms = time.time_ns() // 1_000_000
        # Record n appears n / per_s seconds after the start.
        there = min((now_ms - self._start_ms) * self._per_s // 1000 + 1, self._total)
        return self._works(there, self._start_ms, self._per_s) if there > self._next else []

    def ended(self) -> list[bool]:
        return [self._next >= self._total] * self._splits

    def next_poll_in_ms(self) -> int:
        return 5
