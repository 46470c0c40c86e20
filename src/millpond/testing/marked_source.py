"""A source whose records are a list, with marks that end batches and break things.

    MarkedSource([1, 2, CUT, 3, KILL_WORKER, 4, KILL_DRIVER, 5], marks_folder)

A mark that breaks something acts only once: a file in `marks_folder` remembers it across processes and
restarts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.connectors.collection import ListEnumerator
from millpond.datastream.functions import RuntimeContext


class Mark(Enum):
    """What happens at a position in the input.

    CUT ends a batch. FAIL raises while the batch is read. KILL_WORKER and KILL_DRIVER end the worker that
    reads, or the driver that plans, like kill -9.
    """

    CUT = "cut"
    FAIL = "fail"
    KILL_WORKER = "kill worker"
    KILL_DRIVER = "kill driver"


CUT, FAIL, KILL_WORKER, KILL_DRIVER = Mark


class MarkedSource(Source):
    """A source of plain values or, if `with_timestamps` is True, of (value, timestamp) pairs."""

    def __init__(
        self,
        records: list[Any],
        marks_folder: str | os.PathLike[str] | None = None,
        with_timestamps: bool = False,
    ) -> None:
        self._records = records
        self._folder = None if marks_folder is None else str(marks_folder)
        self._with_timestamps = with_timestamps

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _MarkedEnumerator(self._records, self._folder)

    def read(self, arguments: tuple[int, list[Any]]) -> Iterator[tuple[Any, int | None]]:
        first, records = arguments
        for number, record in enumerate(records, first):
            if record is KILL_WORKER and _first_time(self._folder, number):
                os.kill(os.getpid(), signal.SIGKILL)
            elif record is FAIL and _first_time(self._folder, number):
                raise RuntimeError(f"The FAIL mark at position {number} was reached.")
            elif not isinstance(record, Mark):
                yield record if self._with_timestamps else (record, None)


class _MarkedEnumerator(ListEnumerator):
    def __init__(self, records: list[Any], folder: str | None) -> None:
        super().__init__(records)
        self._folder = folder

    def poll(self, max_records: int) -> list[SplitWork]:
        first = self._next
        chunk: list[Any] = []
        while self._next < len(self._records) and len(chunk) < max_records:
            record = self._records[self._next]
            if record is KILL_DRIVER and _first_time(self._folder, self._next):
                os.kill(os.getpid(), signal.SIGKILL)
            self._next += 1
            chunk.append(record)
            if record is CUT:
                break
        return [SplitWork(0, (first, chunk))] if chunk else []


def _first_time(folder: str | None, number: int) -> bool:
    """Return True once per mark, whichever process asks."""
    if folder is None:
        raise ValueError("A MarkedSource with FAIL or KILL marks needs a marks_folder.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(Path(folder) / f"mark-{number}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
