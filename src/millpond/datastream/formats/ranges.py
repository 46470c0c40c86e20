"""Files that are decoded from their beginning, read range by range: the next range goes on where the last one
ended, so that nothing is decoded twice."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from millpond.core.record_columns import cut

_OPEN_FILES = 16
Begin = Callable[[int], Iterator[Any]]  # from a record on: lists or Arrow record batches


def read_range(path: str, form: Any, begin: Begin, start: int, end: int) -> Iterator[Any]:
    """Records start .. end - 1. `form` tells readers of the same file in other forms apart."""
    return _reader_of(path, form, begin).read(start, end)


class _Reader:
    """One for each file in a process: what was decoded and not yet asked for is kept."""

    def __init__(self, path: str, begin: Begin) -> None:
        self._path = path
        self._begin = begin
        self._identity = _identity(path)
        self._parts: Iterator[Any] | None = None
        self._rest: Any = None
        self._next = -1

    def is_current(self) -> bool:
        return _identity(self._path) == self._identity

    def read(self, start: int, end: int) -> Iterator[Any]:
        if start != self._next or self._parts is None:
            self._parts = self._begin(start)
            self._rest = None
        self._next = -1  # until the range is through
        at = start
        while at < end:
            part = self._rest if self._rest is not None else next(self._parts, None)
            if part is None:
                raise OSError(f"{self._path} ends at record {at}; it had {end} when it was planned")
            size = min(len(part), end - at)
            self._rest = cut(part, size, len(part)) if size < len(part) else None
            at += size
            yield cut(part, 0, size)
        self._next = end


_readers: OrderedDict[tuple[str, Any], _Reader] = OrderedDict()


def _reader_of(path: str, form: Any, begin: Begin) -> _Reader:
    """Of those that were used last."""
    found = _readers.pop((path, form), None)
    if found is None or not found.is_current():
        found = _Reader(path, begin)
    _readers[path, form] = found
    while len(_readers) > _OPEN_FILES:
        _readers.popitem(last=False)
    return found


def _identity(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
