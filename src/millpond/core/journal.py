"""The journal of a job: the driver's records in the order in which they were written. What is in it counts.

Record, version 1 (little endian):

    offset  size  content
    0       2     magic "MJ"
    2       1     version (1)
    3       1     kind, see RecordKind
    4       4     CRC-32 of everything else
    8       8     number of the batch
    16      8     length of the payload
    24      ...   payload

The journal consists of logs `journal/<generation>-<number>` (`storage.py`). Every driver begins a log of its
own, with a higher generation. A record is written with one sync. A crash can leave the beginning of a record
at the end of a log; it was never acknowledged, and is ignored. Anything else that is damaged raises
CorruptDataError.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from millpond.core import fault_points
from millpond.core.storage import LogWriter, Storage
from millpond.errors import CorruptDataError

JOURNAL = "journal"
MAGIC = b"MJ"
VERSION = 1
LOG_BYTES = 4 << 20
_HEADER = struct.Struct("<2sBBIQQ")
_NAME = re.compile(r"(\d+)-(\d+)")


class RecordKind(IntEnum):
    """The kinds of records."""

    PLAN = 1
    """What is fixed about a batch before it runs (driver/epochs/batch_plan.py)."""
    EPOCH = 2
    """What a batch has left behind: it counts (driver/epochs/epoch_record.py)."""


class Record(NamedTuple):
    """A record of the journal. `number` is that of the batch."""

    kind: int
    number: int
    payload: bytes


class Journal:
    """The journal of a job, for a driver of this generation. Call `read` before the first `append`."""

    def __init__(self, storage: Storage, generation: int) -> None:
        self._storage = storage
        self._generation = generation
        self._count = 0
        self._log: LogWriter | None = None
        self._older: list[str] = []

    def read(self) -> list[Record]:
        """Return all records that are there, the oldest first."""
        self._older = _names(self._storage)
        prefix = f"{JOURNAL}/{self._generation}-"
        own = [int(name.removeprefix(prefix)) for name in self._older if name.startswith(prefix)]
        self._count = max(own, default=-1) + 1
        return list(read_journal(self._storage))

    def append(self, record: Record, basis: list[Record] | None = None) -> None:
        """Write a record, which counts when this returns.

        `basis` is everything that one needs to know besides this record. If it is given, a new log may begin
        here, with the basis. Logs before it are then deleted, except for the newest of them."""
        kind = RecordKind(record.kind).name.lower()
        fault_points.reach(f"journal before {kind}")
        try:
            self._append(record, basis)
        except BaseException:
            # Nobody knows how much of it was written, so the next record begins another log.
            self._leave_log()
            raise
        fault_points.reach(f"journal after {kind}")

    def _append(self, record: Record, basis: list[Record] | None) -> None:
        is_full = self._log is not None and self._log.length >= LOG_BYTES
        if self._log is None or (is_full and basis is not None):
            log = self._new_log()
            if basis:
                # Synced before what follows: a power failure may keep the later one of two records that were
                # written together, and it would look as if the earlier one were damaged.
                log.append(map(_encode, basis))
                fault_points.reach("journal after basis")
            log.append([_encode(record)])
            while basis is not None and len(self._older) > 1:
                self._storage.discard(self._older.pop(0))
        else:
            self._log.append([_encode(record)])

    def _new_log(self) -> LogWriter:
        self._leave_log()
        name = f"{JOURNAL}/{self._generation}-{self._count}"
        self._count += 1
        self._log = self._storage.new_log(name, LOG_BYTES)
        fault_points.reach("journal after new log")
        return self._log

    def _leave_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._older.append(self._log.name)
            self._log = None

    def close(self) -> None:
        """Release the log that is being written."""
        if self._log is not None:
            self._log.close()
            self._log = None


def read_journal(storage: Storage) -> Iterator[Record]:
    """Yield all records of a journal, the oldest first."""
    for name in _names(storage):
        yield from _records(storage.read_all(name), name)


def newest_epoch(storage: Storage) -> int:
    """Return the newest batch that counts; -1 if none does."""
    records = read_journal(storage)
    return max((r.number for r in records if r.kind == RecordKind.EPOCH), default=-1)


def _names(storage: Storage) -> list[str]:
    found = []
    for name in storage.names(JOURNAL):
        match = _NAME.fullmatch(name.rpartition("/")[2])
        if match is not None:
            found.append((int(match[1]), int(match[2]), name))
    return [name for _, _, name in sorted(found)]


def _encode(record: Record) -> bytes:
    start = struct.pack("<2sBB", MAGIC, VERSION, record.kind)
    rest = struct.pack("<QQ", record.number, len(record.payload)) + record.payload
    return start + struct.pack("<I", zlib.crc32(rest, zlib.crc32(start))) + rest


def _records(data: bytes, name: str) -> Iterator[Record]:
    offset = 0
    while (found := _decode(data, offset, name)) is not None:
        record, offset = found
        yield record
    # What follows was never acknowledged, unless a complete record comes after it.
    position = offset
    while (position := data.find(MAGIC, position + 1)) >= 0:
        if _decode(data, position, name) is not None:
            raise CorruptDataError(
                f"{name}: damaged at byte {offset}, before a record at byte {position} that is not. Restore "
                "the job folder from a copy, or start the job anew from a savepoint."
            )


def _decode(data: bytes, offset: int, name: str) -> tuple[Record, int] | None:
    """Return the record at an offset, and the offset after it; None if there is no complete record."""
    if len(data) < offset + _HEADER.size:
        return None
    magic, version, kind, checksum, number, length = _HEADER.unpack_from(data, offset)
    end = offset + _HEADER.size + length
    if magic != MAGIC or end > len(data):
        return None
    view = memoryview(data)
    if zlib.crc32(view[offset + 8 : end], zlib.crc32(view[offset : offset + 4])) != checksum:
        return None
    if version > VERSION:
        raise CorruptDataError(
            f"{name}: written in format {version} by a newer release; this one reads format {VERSION}. Use "
            "the release that wrote it, or a newer one."
        )
    return Record(kind, number, data[offset + _HEADER.size : end]), end
