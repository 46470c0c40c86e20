"""Sources that need no other system: a collection, a range of numbers, a function."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle

from millpond.datastream.connectors.base import (
    RECORDS_AT_ONCE,
    Source,
    SplitEnumerator,
    SplitWork,
)
from millpond.datastream.functions import RuntimeContext, SourceContext, SourceFunction
from millpond.errors import JobExecutionError

_JOIN_S = 5.0


class ListEnumerator(SplitEnumerator):
    """One split, read from a list."""

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
    """The elements of a Python list, in order. The program must give the same list again if it is
    restarted."""

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
    """Cuts [start, end] into one range per split and reads them side by side."""

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
    """The numbers from `start` to `end`, both included. With one split they come in order."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._end = end

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _RangeEnumerator(self._start, self._end, parallelism)

    def read(self, arguments: tuple[int, int]) -> Iterator[tuple[Any, int | None]]:
        return ((number, None) for number in range(*arguments))


class _Cancelled(BaseException):
    """Leaves a source function's `run` when the job ends, also through its `except Exception`."""


class _QueueContext(SourceContext):
    _CAPACITY = 100_000

    def __init__(self, skip: int, available: threading.Event) -> None:
        self.records: queue.Queue[tuple[Any, int | None]] = queue.Queue(self._CAPACITY)
        self.cancelled = threading.Event()
        self._skip = skip
        self._available = available

    def collect(self, value: Any) -> None:
        self._put(value, None)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        self._put(value, timestamp)

    def is_cancelled(self) -> bool:
        return self.cancelled.is_set()

    def _put(self, value: Any, timestamp: int | None) -> None:
        if self._skip > 0:
            self._skip -= 1
            return
        while True:
            if self.cancelled.is_set():
                raise _Cancelled
            with contextlib.suppress(queue.Full):
                self.records.put((value, timestamp), timeout=0.1)
                self._available.set()
                return


class _FunctionEnumerator(SplitEnumerator):
    """Runs the function in a thread of the driver and hands out what it has emitted."""

    def __init__(self, function: SourceFunction, context: RuntimeContext) -> None:
        super().__init__()
        # A copy: the last attempt's may be cancelled or half-way through.
        self._function: SourceFunction = cloudpickle.loads(cloudpickle.dumps(function))
        self._runtime_context = context
        self._thread: threading.Thread | None = None
        self._given_out = 0
        self._context: _QueueContext | None = None
        self._done = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        skip = self._given_out if self._function.deterministic else 0
        self._context = _QueueContext(skip, self.available)
        self._thread = threading.Thread(target=self._run, name="millpond-source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._context is not None
        try:
            self._function.open(self._runtime_context)
            try:
                self._function.run(self._context)
            finally:
                self._function.close()
        except _Cancelled:
            pass
        except BaseException as problem:  # handed to the thread that polls
            self._failure = problem
        finally:
            self._done.set()
            self.available.set()

    def split_count(self) -> int:
        return 1

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._failure is not None:
            raise JobExecutionError(
                f"{type(self._function).__name__}.run failed: {self._failure!r}"
            ) from self._failure
        assert self._context is not None
        chunk: list[tuple[Any, int | None]] = []
        with contextlib.suppress(queue.Empty):
            while len(chunk) < max_records:
                chunk.append(self._context.records.get_nowait())
        self._given_out += len(chunk)
        return [SplitWork(0, chunk)] if chunk else []

    def position(self) -> int:
        return self._given_out

    def restore(self, position: int) -> None:
        self._given_out = position

    def ended(self) -> list[bool]:
        # `done` is read first: what was emitted before it is then in the queue for certain.
        done = self._done.is_set() and self._failure is None
        return [done and self._context is not None and self._context.records.empty()]

    def backlog(self) -> int | None:
        """What the function has emitted; what it is going to emit nobody knows."""
        return None if self._context is None else self._context.records.qsize()

    def close(self) -> None:
        if self._context is not None and not self._done.is_set():
            self._context.cancelled.set()
            try:
                self._function.cancel()
            finally:
                if self._thread is not None:
                    self._thread.join(_JOIN_S)


class FunctionSource(Source):
    """A user's SourceFunction. What it emits is written into the plan of a batch before the batch
    runs; only then does the record count as emitted."""

    bounded = False

    def __init__(self, function: SourceFunction) -> None:
        self._function = function

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _FunctionEnumerator(self._function, context)

    def read(self, arguments: list[tuple[Any, int | None]]) -> Iterator[tuple[Any, int | None]]:
        return iter(arguments)
