"""Reads range by range files that must be decoded from their beginning.

The next range continues where the last one ended, so that nothing is decoded twice.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from millpond.core.record_columns import cut

_OPEN_FILES = 16
Begin = Callable[[int], Iterator[Any]]  # first record -> lists or Arrow record batches


def read_range(path: str, form: object, begin: Begin, start: int, end: int) -> Iterator[Any]:
    """Yield the records from `start` to `end` - 1, in lists or Arrow record batches.

    `begin` starts decoding at a record; `form` distinguishes readers of the same file in different forms.
    Raise OSError if the file has become shorter.
    """
    return _reader_of(path, form, begin).read(start, end)


class _Reader:
    """The only reader of a file in a process: it keeps what was decoded but not asked for yet."""

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
        self._next = -1  # until the whole range has been read
        at = start
        while at < end:
            part = self._rest if self._rest is not None else next(self._parts, None)
            if part is None:
                raise OSError(
                    f"{self._path} shrank from {end} to {at} records while it was being read"
                )
            size = min(len(part), end - at)
            self._rest = cut(part, size, len(part)) if size < len(part) else None
            at += size
            yield cut(part, 0, size)
        self._next = end


_readers: OrderedDict[tuple[str, Any], _Reader] = OrderedDict()


def _reader_of(path: str, form: object, begin: Begin) -> _Reader:
    """Return the reader of a file; only those used last are kept open."""
    reader = _readers.pop((path, form), None)
    if reader is None or not reader.is_current():
        reader = _Reader(path, begin)
    _readers[path, form] = reader
    while len(_readers) > _OPEN_FILES:
        _readers.popitem(last=False)
    return reader


def _identity(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
